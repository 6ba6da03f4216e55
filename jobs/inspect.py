"""`d3ray inspect DATASET`: what is in a dataset: counts, spaces, statistics, returns, ends of episodes, where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..data.spec import Box, Dict, Discrete
from ..data.statistics import Moments
from .base import JobConfig, Result, option
from .console import say

if TYPE_CHECKING:
    from ..data.dataset import Dataset

_ENTRIES = 20  # entries of a vector that are shown
_LETTERS = 500  # of a provenance in no form known here


class InspectConfig(JobConfig):
    """Which dataset, and how much of it."""

    dataset: str = option(..., "dataset folder, URI or catalog name", operand=True, example="d3ray/cartpole-replay")
    verify: bool = option(False, "read every file and compare it with its SHA-256")
    format: Literal["text", "json"] = option("text", "json: one JSON object, every number included")


@dataclass(frozen=True, kw_only=True)
class InspectResult(Result):
    """What was printed, as plain values."""

    description: dict[str, Any]


def run(config: InspectConfig) -> InspectResult:
    """Prints what is in a dataset. Raises DataError: there is none, or (where verified) a file of it is damaged."""
    from ..data.dataset import Dataset

    dataset = Dataset.open(config.dataset)
    if config.verify:
        dataset.verify()
    description = describe(dataset)
    if config.format == "json":
        say(json.dumps(description))
        return InspectResult(made="", description=description)
    for line in lines(dataset, description):
        say(line)
    verified = " Every file is as it was written." if config.verify else ""
    train = f"d3ray train {config.dataset}"
    return InspectResult(made=f"{config.dataset} can be read.{verified}", look={"train on it": train}, description=description)


def describe(dataset: Dataset) -> dict[str, Any]:
    """Everything that `inspect` says, as JSON values."""
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
        "statistics": dataset.statistics.model_dump(mode="json", by_alias=True),
        "return_quantiles": quantiles(episodes.returns),
        "files": {"bytes": sum(shard.bytes for shard in folder.manifest.shards), "shards": len(folder.manifest.shards)}
        if folder
        else None,
        "fingerprint": dataset.fingerprint,
        "provenance": dataset.provenance,
    }


def quantiles(values: np.ndarray) -> dict[str, float]:
    """Quantiles of [N] numbers by their share."""
    return {f"{share:.0%}": float(np.quantile(values, share)) for share in (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)}


def lines(dataset: Dataset, description: dict[str, Any]) -> Iterator[str]:
    """The description for a person."""
    statistics, ends = dataset.statistics, description["ends"]
    yield f"{dataset.name}: {dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes"
    yield f"  environment   {dataset.environment.id if dataset.environment else 'not known'}"
    yield f"  observation   {_space(dataset.spec.observation)}"
    yield f"  action        {_space(dataset.spec.action)}"
    yield f"  ends          {', '.join(f'{count:,} {end}' for end, count in ends.items() if count)}"
    if files := description["files"]:
        yield f"  files         {files['shards']:,} of {files['bytes'] / 1e6:,.1f} MB in all"
    yield f"  fingerprint   {dataset.fingerprint}"
    yield ""
    yield f"{'':24}{'mean':>12}{'std':>12}{'min':>12}{'max':>12}"
    yield from _rows("return of an episode", statistics.return_)
    yield from _rows("steps of an episode", statistics.steps)
    yield from _rows("reward", statistics.reward)
    observation = statistics.observation
    for key, moments in observation.items() if isinstance(observation, dict) else [("", observation)]:
        yield from _rows(f"observation {key}".strip(), moments)
    if statistics.action is not None:
        yield from _rows("action", statistics.action)
    if (counts := statistics.action_counts) is not None:
        yield ""
        yield "actions taken: " + ", ".join(f"{k}: {n:,} ({n / dataset.n_transitions:.1%})" for k, n in enumerate(counts))
    if n := statistics.action_outside:
        yield ""
        yield f"{n:,} actions ({n / dataset.n_transitions:.2%}) lie outside the action space; they are kept as they are."
    yield ""
    yield "returns by share of episodes: " + ", ".join(f"{s}: {v:,.5g}" for s, v in description["return_quantiles"].items())
    yield ""
    yield from _provenance(dataset.provenance)


def _rows(label: str, moments: Moments) -> Iterator[str]:
    columns = [np.atleast_1d(np.asarray(getattr(moments, name))) for name in ("mean", "std", "min", "max")]
    n = len(columns[0])
    for k in range(min(n, _ENTRIES)):
        yield f"{label + (f' {k}' if n > 1 else ''):24}" + "".join(f"{_number(column[k]):>12}" for column in columns)
    if n > _ENTRIES:
        yield f"{label} {_ENTRIES} to {n - 1}: format=json shows them"


def _number(value: float) -> str:
    return f"{value:,.5g}" if abs(value) < 1e5 else f"{value:.4g}"


def _space(space: Box | Discrete | Dict) -> str:
    if isinstance(space, Discrete):
        return f"one of {space.n}"
    if isinstance(space, Dict):
        return "; ".join(f"{key}: {_space(box)}" for key, box in space.spaces.items())
    shape = " x ".join(map(str, space.shape))
    bounds = space.bounds()
    if bounds is None:
        return f"{shape} {space.dtype}, bounds not known"
    low, high = bounds
    if np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
        return f"{shape} {space.dtype} from {low.flat[0]:g} to {high.flat[0]:g}"
    return f"{shape} {space.dtype}, each entry with bounds of its own"


def _provenance(provenance: dict[str, Any]) -> Iterator[str]:
    files: list[dict[str, Any]] = provenance.get("ingested", {}).get("files", [])
    if not files:
        text = json.dumps(provenance) if provenance else "not recorded"
        yield "provenance: " + (text if len(text) <= _LETTERS else f"{text[:_LETTERS]}… (format=json shows the rest)")
        return
    yield f"provenance: {len(files):,} file{'s' if len(files) > 1 else ''} read by {provenance['ingested']['by']}"
    for file in files[:5]:
        counts = f"{file['n_transitions']:,} transitions in {file['n_episodes']:,} episodes"
        size = f"{file['bytes']:,} bytes, SHA-256 {file['sha256'][:16]}…"
        yield f"  {file['source']}: {counts}, {file.get('format', 'own')} format, {size}"
        yield from (f"    {sentence}" for sentence in file["notes"])
    if len(files) > 5:
        yield f"  and {len(files) - 5:,} more: format=json shows them"
