"""The table from which a shell's Tab is answered, made of every job and algorithm there is; docs/generate.py writes it."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from ...algos.registry import algorithm_class, algorithm_names, online_names
from ...data.catalog import catalog
from ...platform import api
from ...platform.benchmark.suite import suite_names
from .describe import rows
from .options import extra, flags, members, nested, operands
from .running import FROM_HERE, job_names, load_job

_LISTS = {"dataset": "datasets", "suite": "suites", "algorithm": "algorithms"}  # by setting what its values are a list of
_EXPERIMENTS = ("experiment", "experiments", "model", "policies", "policy", "runs")  # settings that name some
_OF_JOBS = (  # settings that mean something else elsewhere
    ("algorithms", "name", "algorithms"),
    *((job, name, "experiments") for job, name in (("export", "source"), ("promote", "name"), ("rollback", "name"))),
    *((job, name, "datasets") for job, name in (("derive", "source"), ("diff", "a"), ("diff", "b"), ("datasets", "pattern"))),
)


def table() -> str:
    """What `completion.TABLE` is to hold."""
    jobs: dict[str, Any] = {}
    for job in job_names():
        config = load_job(job)[1]
        marks = operands(config)
        jobs[job] = {
            "settings": {name: _kind(name, field.annotation) for name, field in rows(config)},
            "flags": list(flags(config)),
            "operands": [name for name, mark in marks.items() if mark != "rest"],
            "several": "several" in marks.values(),
        }
        jobs[job]["settings"] |= {other: [] for field in config.model_fields.values() if (other := extra(field, "also"))}
    jobs["submit"]["settings"]["job"] = [job for job in jobs if job not in FROM_HERE]
    for job, name, kind in _OF_JOBS:
        jobs[job]["settings"][name] = kind
    own, values = dict[str, Any](), dict[str, Any]()
    for name in (*algorithm_names(), *online_names()):
        found: Any = algorithm_class(name)
        if found.__module__.startswith(f"{__name__.partition('.')[0]}."):  # not a plugin's
            own[name] = {"presets": list(found.presets), "settings": list(found.Config.model_fields)}
            for key, field in rows(found.Config):
                values[key] = [*dict.fromkeys([*values.get(key, []), *_kind("", field.annotation)])]
    names = [name for name in api.algorithms() if "/" in name or name in own]
    known = {"jobs": jobs, "suites": suite_names(), "datasets": sorted(catalog().single_names()), "algorithms": names}
    return json.dumps({**known, "own": own, "values": values}, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n"


def _kind(name: str, annotation: Any) -> str | list[str]:
    """The values that a setting may have, or the name of a list of them."""
    if name in _EXPERIMENTS:
        return "experiments"
    if name in _LISTS:
        return _LISTS[name]
    found: list[str] = []
    for member in members(annotation):
        if get_origin(member) is Literal:
            found += map(str, get_args(member))
        elif member is bool:
            found += ["true", "false"]
    named = [one.model_fields["name"].default for one in nested(annotation) if "name" in one.model_fields]
    return [*found, *(one for one in named if isinstance(one, str))]
