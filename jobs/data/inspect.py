"""`d3ray inspect DATASET`.

The command exits with 0 whatever the doctor finds; with `strict=true` it exits with 1 where a finding is an error.
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..command.base import JobConfig, Result, option
from ..command.console import progress, say

if TYPE_CHECKING:
    from pathlib import Path

    from ...data.dataset import Dataset
    from ...data.doctor import EnvironmentFacts, Report

_FIRST = {"continuous": "TD3PlusBC", "discrete": "DiscreteCQL"}  # to try, by kind of actions
_WITHOUT_REWARDS = {"continuous": "BC", "discrete": "DiscreteBC"}  # the same, where all rewards are zero
_LARGE = 8  # pieces of rows, from which on progress is shown: half a million vectors, or 256 MiB of images


class InspectConfig(JobConfig):
    """Which dataset, and how much of it."""

    dataset: str = option(..., "dataset folder, URI or catalog name", operand=True, example="d3ray/cartpole-replay")
    verify: bool = option(False, "read every file and compare it with its SHA-256, and statistics with the rows")
    doctor: bool = option(True, "look through all rows for what would spoil training; false: what the manifest says, at once")
    cost_limit: float | None = option(None, "what an episode may cost, by the column cost: the doctor looks for more", ge=0)
    strict: bool = option(False, "exit with 1 where the doctor finds an error")
    format: Literal["text", "json"] = option("text", "json: one JSON object, every number included")
    html: str | None = option(
        None, "a file for the doctor's page with plots, which needs nothing but itself", example="doctor.html"
    )


@dataclass(frozen=True, kw_only=True)
class InspectResult(Result):
    """Printed description, as plain values, and the doctor's report."""

    description: dict[str, Any]
    report: Report | None = None


def run(config: InspectConfig) -> InspectResult:
    """Prints what is in a dataset and what is wrong with it.

    Raises:
        DataError: there is none, or a file of it is missing, truncated or (where verified) damaged.
        ConfigError: a page or a verdict is asked for without the doctor.
        StorageError: the page cannot be written.
    """
    from ...data.dataset import Dataset
    from ...data.errors import ConfigError
    from .inspect_text import lines

    asked = [name for name in ("html", "strict", "cost_limit") if getattr(config, name) not in (None, False)]
    if not config.doctor and asked:
        raise ConfigError(f"{asked[0]} is the doctor's, and doctor is false; leave that out.")
    page = None if config.html is None else _writable(config.html)
    dataset = Dataset.open(config.dataset)
    if config.verify:
        dataset.verify()
    report = examine(dataset, config.cost_limit) if config.doctor else None
    description = {**describe(dataset), "doctor": None if report is None else report.to_dict()}
    whole = config.doctor or config.verify
    made = f"{config.dataset} can be read." if whole else f"{config.dataset} can be opened; verify=true reads its files too."
    look = train_command(config.dataset, dataset)
    if page is not None and report is not None:
        write_page(page, dataset, description, report)
        look = {"page": str(page), **look}
    errors = [] if report is None or not config.strict else report.of("error")
    failed = f"{config.dataset}: {', '.join(one.title for one in errors)} (strict)." if errors else ""
    result = InspectResult(
        made=made + (" Every file is as it was written." if config.verify else ""),
        look=look,
        failed=failed,
        description=description,
        report=report,
    )
    if config.format == "json":
        say(json.dumps(plain(description), allow_nan=False))
        return InspectResult(made="", failed=failed, description=description, report=report)
    for line in lines(dataset, description, report):
        say(line)
    return result


def train_command(place: str, dataset: Dataset) -> dict[str, str]:
    """A command that trains on a dataset as it is: an algorithm for its actions, and a scaler where they leave [-1, 1]."""
    kind = dataset.spec.action_kind
    if kind not in _FIRST:
        return {}
    rewards = dataset.statistics.reward
    first = _FIRST if rewards.min or rewards.max else _WITHOUT_REWARDS
    words = ["d3ray", "train", place, f"algorithm={first[kind]}"]
    moments = dataset.statistics.action
    if kind == "continuous" and moments is not None and max(np.max(moments.max), -np.min(moments.min)) > 1 + 1e-3:
        words.append("algorithm.action_scaler=min_max")
    return {"train on it": shlex.join(words)}


def examine(dataset: Dataset, cost_limit: float | None = None) -> Report:
    """The doctor's report, with progress where that takes a while."""
    from ...data.doctor import doctor, n_pieces

    facts, pieces = environment_facts(dataset), n_pieces(dataset)
    if pieces < _LARGE:
        return doctor(dataset, facts=facts, cost_limit=cost_limit)
    with progress("looking through the rows", pieces) as advance:
        return doctor(dataset, facts=facts, cost_limit=cost_limit, advance=advance)


def environment_facts(dataset: Dataset) -> EnvironmentFacts | None:
    """Return facts on the environment that the dataset names; None if it names none."""
    from ...data.doctor import EnvironmentFacts
    from ...data.errors import D3rayError

    if dataset.environment is None:
        return None
    from ...algos.environments.goals import aimed, goals_of
    from ...algos.environments.make import make

    try:
        made = make(aimed(dataset.environment, dataset.spec))
    except D3rayError as error:
        return EnvironmentFacts(problem=str(error))
    try:
        limit = getattr(getattr(made.single, "spec", None), "max_episode_steps", None)
        return EnvironmentFacts(made.spec, limit, goals_of(made.single))
    finally:
        made.close()


def describe(dataset: Dataset) -> dict[str, Any]:
    """Everything that the manifest and the table of episodes say, as JSON values."""
    episodes = dataset.episodes
    n_terminated = int(np.count_nonzero(episodes.terminated))
    folder = dataset.folder
    return {
        "name": dataset.name,
        "environment": dataset.environment.model_dump(mode="json") if dataset.environment else None,
        "n_transitions": dataset.n_transitions,
        "n_episodes": dataset.n_episodes,
        "ends": {
            "terminated": n_terminated,
            "truncated": dataset.n_episodes - n_terminated,
            "truncated without a final observation": int(np.count_nonzero(~episodes.terminated & ~episodes.final_recorded)),
            "cut where next observations did not fit": dataset.cuts,
        },
        "spec": dataset.spec.model_dump(mode="json"),
        "columns": stored_columns(dataset),
        "statistics": dataset.statistics.model_dump(mode="json", by_alias=True),
        "return_quantiles": quantiles(episodes.returns),
        "costs": costs(dataset),
        "files": {"bytes": sum(shard.bytes for shard in folder.manifest.shards), "shards": len(folder.manifest.shards)}
        if folder
        else None,
        "fingerprint": dataset.fingerprint,
        "provenance": dataset.provenance,
    }


def stored_columns(dataset: Dataset) -> list[dict[str, Any]]:
    """Every column with type and shape of a row's entry and the names of its numbers; first the one that judging looks for."""
    from .inspect_text import PROPENSITIES

    leaves = dataset.spec.leaves()
    found = [
        {"name": name, "dtype": dtype, "shape": list(shape), "names": leaves[name].names if name in leaves else None}
        for name, (dtype, shape) in dataset.kinds.items()
    ]
    return sorted(found, key=lambda one: one["name"] != PROPENSITIES)


def costs(dataset: Dataset) -> dict[str, Any] | None:
    """What episodes cost: the mean and quantiles; None of data without costs."""
    from ...data.storage.costs import COST

    if COST not in dataset.kinds:
        return None
    each = dataset.cost_returns
    return {"mean": float(each.mean()), "quantiles": quantiles(each)}


def quantiles(values: np.ndarray) -> dict[str, float]:
    return {f"{share:.0%}": float(np.quantile(values, share)) for share in (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)}


def plain(value: Any) -> Any:
    """JSON values with null for NaN and infinity, which JSON has not."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- the page


def _writable(name: str) -> Path:
    """The page's path, refused before any work where nothing can be written there."""
    from pathlib import Path

    from ...data.errors import ConfigError

    path = Path(name).expanduser()
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"html is {name!r}: " + ("that is a folder." if path.is_dir() else f"there is no folder {path.parent}."))
    return path


def write_page(path: Path, dataset: Dataset, description: dict[str, Any], report: Report) -> None:
    from ...data.storage.files import storage_errors, write_atomically
    from ...platform.report.doctor import doctor_page
    from .inspect_text import moments

    where = f" of {dataset.environment.id}" if dataset.environment else ""
    lead = (
        f"{dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episode{'s' * (dataset.n_episodes != 1)}{where}. "
        f"The doctor's verdict: {report.verdict}."
    )
    table = [(label, values) for label, values in moments(dataset.statistics, dataset.spec) if values]
    html = doctor_page(dataset.name, lead, report, table, conditions(dataset, description, report), dataset.n_transitions)
    with storage_errors("written", path):
        write_atomically(path, html.encode())


def conditions(dataset: Dataset, description: dict[str, Any], report: Report) -> list[tuple[str, str]]:
    """Return the terms and values at the end of a page."""
    from ...platform.words import space_text
    from .inspect_text import estimates, provenance

    found = [
        ("Environment", dataset.environment.id if dataset.environment else "not known"),
        ("Observation", space_text(dataset.spec.observation)),
        ("Action", space_text(dataset.spec.action)),
        ("Ends", ", ".join(f"{count:,} {end}" for end, count in description["ends"].items() if count)),
        *estimates(report),
        ("Fingerprint", dataset.fingerprint[:12]),
    ]
    return [*found, *(("Provenance", line.strip().removeprefix("provenance: ")) for line in provenance(dataset.provenance))]
