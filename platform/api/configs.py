"""Settings as data: whether they can be run, what is wrong with them, and of what form they are. No plugin is imported here.

A config is a mapping, as a YAML file of `d3ray train` has it. One that names plugins is looked at by a process of its own, which
imports them in this process's stead.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from ...data.config import Config, explain_each
from ...data.errors import ConfigError, StorageError, did_you_mean, speaking_of_configs
from ..record.jobs import JobName
from ..record.settings import AlgorithmAbout, Checked, Problem
from ..settings.config import Conditions, ExperimentConfig, asked
from ..yaml_text import check_size

if TYPE_CHECKING:
    from ..judging.settings import JudgeSettings

Given = Mapping[str, Any] | Conditions
_LOOK = ("-m", "d3ray.platform.api.looking")
_LOOK_SECONDS = 300.0  # a plugin may import what it likes


def config_class(job: JobName) -> type[Conditions | JudgeSettings]:
    """The settings that a job has. Raises ConfigError: it trains nothing."""
    if job == "train":
        return ExperimentConfig
    if job == "sweep":
        from ..sweep.config import SweepConfig

        return SweepConfig
    if job == "benchmark":
        from ..benchmark.suite import SuiteConfig

        return SuiteConfig
    if job == "judge":
        from ..judging.settings import JudgeSettings

        return JudgeSettings
    raise ConfigError(f"{job!r} is no job that makes an experiment{did_you_mean(job, get_args(JobName))}")


def schema(job: JobName = "train") -> dict[str, Any]:
    """The JSON Schema of a job's settings; of the algorithm's beside its name `algorithm` tells. Raises ConfigError."""
    return config_class(job).model_json_schema()


@functools.cache
def _schema_of(settings: type[Config]) -> dict[str, Any]:
    return settings.model_json_schema()


def algorithm(name: str) -> AlgorithmAbout:
    """An algorithm's settings as a JSON Schema, with default, range, meaning and source of each, and its presets.

    Raises ConfigError: there is no such algorithm of d3ray's own; RLlib's have no schema.
    """
    from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport] - makes d3ray's own known by their names
    from ...algos.registry import algorithm_class, online_names

    found = algorithm_class(name)
    return AlgorithmAbout(
        name=name,
        actions=_actions_of(found),
        about=(getattr(sys.modules.get(found.__module__), "__doc__", None) or found.__doc__ or "").strip().partition("\n")[0],
        settings=_schema_of(found.Config),
        presets={preset: to_jsonable_python(dict(one.settings)) for preset, one in found.presets.items()},
        preset_sources={preset: one.source for preset, one in found.presets.items()},
        online=name in online_names(),
    )


def algorithms() -> list[str]:
    """Names that a config may have under `algorithm`: d3ray's own and RLlib's."""
    from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from ..subjects.kind import subject_names

    return subject_names()


def offline_algorithms(actions: str) -> list[str]:
    """Names of d3ray's own that learn a policy from logs with such actions: "continuous", "discrete" or "both"."""
    from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from ...algos.registry import algorithm_class, algorithm_names

    classes = {name: algorithm_class(name) for name in algorithm_names()}
    with_policy = {name for name, found in classes.items() if "algo" in found.Config.model_fields}  # they judge one
    return [name for name, found in classes.items() if name not in with_policy and _actions_of(found) == actions]


def _actions_of(algorithm: type[Any]) -> Literal["continuous", "discrete", "both"]:
    return "both" if len(kinds := algorithm.action_kinds()) > 1 else kinds[0]


def check(config: Given, *, job: JobName = "train", working_directory: str | None = None) -> Checked:
    """The settings with their defaults. Raises ConfigError for the first thing that is wrong with them.

    A config is a mapping or a config object; plugins may lie in `working_directory`, None: this process's.
    """
    found = _looked_at(plain(config, job), job, working_directory)
    if isinstance(found, Checked):
        return found
    raise ConfigError(found[0].sentence)


def problems(config: Given, *, job: JobName = "train", working_directory: str | None = None) -> list[Problem]:
    """All that is wrong with settings, a sentence each; empty where they can be run. Arguments as `check`'s."""
    found = _looked_at(plain(config, job), job, working_directory)
    return [] if isinstance(found, Checked) else found


def plain(config: Given, job: JobName) -> dict[str, Any]:
    """A config as a mapping, without what it leaves to its defaults. Raises ConfigError: it is of another job, or too large."""
    kind = config_class(job)
    if isinstance(config, Mapping):
        check_size(config, "the config")
        return dict(config)
    if not isinstance(config, kind):
        raise ConfigError(f"A {type(config).__name__} is no config of {job}: say job=… too.")
    return asked(job, config, kind)["config"]


@speaking_of_configs()
def look(config: Mapping[str, Any], job: JobName) -> Checked | list[Problem]:
    """The settings as they would run, or what is wrong with them; in this process, plugins included."""
    kind = config_class(job)
    title = kind.title
    try:
        found = kind.model_validate(dict(config))
    except ValidationError as error:
        found = [Problem(setting=key, sentence=sentence) for key, sentence in explain_each(kind, error, title)]
        return [one for one in found if one.setting] + (_of_algorithm(config) or [one for one in found if not one.setting])
    from ..benchmark.suite import SuiteConfig, is_file
    from ..storage.resuming import check_name
    from ..sweep.config import SweepConfig

    if isinstance(found, Conditions):
        assert isinstance(found, ExperimentConfig | SweepConfig | SuiteConfig)
        name = found.experiment
    else:
        name = found.experiment_name
    try:
        check_name(name)
    except ConfigError as error:
        return [Problem(setting="name", sentence=str(error))]
    return Checked(
        job=job,
        name=name,
        storage=found.storage_place,
        config=found.model_dump(mode="json"),
        plugins=list(getattr(found, "plugins", ())),  # a judgement imports none
        files=[found.suite] if isinstance(found, SuiteConfig) and is_file(found.suite) else [],
    )


def _of_algorithm(config: Mapping[str, Any]) -> list[Problem]:
    """List the problems of each setting beside the algorithm's name, if the algorithm is d3ray's own."""
    from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from ...algos.registry import algorithm_class, algorithm_names, online_names

    chosen = config.get("algorithm")
    if not isinstance(chosen, Mapping) or (name := chosen.get("name")) not in (*algorithm_names(), *online_names()):
        return []
    settings: type[Config] = algorithm_class(name).Config
    try:
        settings.model_validate({key: value for key, value in chosen.items() if key not in ("name", "preset")})
    except ValidationError as error:
        return [Problem(setting=f"algorithm.{key}", sentence=said) for key, said in explain_each(settings, error, name)]
    return []


def _names_plugins(config: dict[str, Any], job: JobName) -> bool:
    """Return True if the config names plugins. Raises ConfigError: no such job, or no such suite."""
    config_class(job)
    if job == "benchmark" and isinstance(suite := config.get("suite"), str):
        from ..benchmark.suite import read_suite

        config = {**read_suite(suite)[1], **config}
    return bool(config.get("plugins"))


def _looked_at(config: dict[str, Any], job: JobName, working_directory: str | None) -> Checked | list[Problem]:
    if not _names_plugins(config, job):
        return look(config, job)
    done = subprocess.run(
        [sys.executable, *_LOOK, job],
        input=json.dumps(config),
        capture_output=True,
        text=True,
        cwd=working_directory,
        timeout=_LOOK_SECONDS,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise StorageError(f"The process that was to look at the settings failed: {last}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Checked(**answer) if isinstance(answer, dict) else [Problem(**one) for one in answer]
