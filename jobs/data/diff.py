"""`d3ray diff A B`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..command.base import JobConfig, Result, option
from ..command.console import say

if TYPE_CHECKING:
    from ...data.operations.difference import Difference

_DIFFERENT = 1  # exit status, as that of diff
_LETTERS = 60  # of a value that is shown
_LINES = 12  # of statistics and provenance


class DiffConfig(JobConfig):
    """Which datasets."""

    a: str = option(..., "dataset folder, URI or catalog name", operand=True, example="datasets/hopper")
    b: str = option(..., "another one", operand=True, example="datasets/hopper-again")
    format: Literal["text", "json"] = option("text", "json: one JSON object")


@dataclass(frozen=True, kw_only=True)
class DiffResult(Result):
    difference: Difference


def run(config: DiffConfig) -> DiffResult:
    """Prints what differs; the command exits with 1 where rows, spaces or environments do. Raises DataError: there is none."""
    from ...data.dataset import Dataset

    found = Dataset.open(config.a).diff(Dataset.open(config.b))
    if config.format == "json":
        say(json.dumps({"same": found.same, **asdict(found)}))
    else:
        for line in lines(found):
            say(line)
    made = f"{config.a} and {config.b} {'have the same rows, spaces and environment' if found.same else 'differ'}."
    return DiffResult(made=made if config.format == "text" else "", difference=found, exit_status=0 if found.same else _DIFFERENT)


def lines(found: Difference) -> Iterator[str]:
    yield f"{'':32}{_short(found.names[0]):>28}{_short(found.names[1]):>28}"
    yield f"{'fingerprint':32}{found.fingerprints[0][:12]:>28}{found.fingerprints[1][:12]:>28}"
    if found.environment is not None:
        yield _row("environment", found.environment)
    for title, pairs in (("", found.counts), ("space ", found.spec), ("column ", found.kinds)):
        for name, pair in pairs.items():
            yield _row(f"{title}{name}", pair)
    for column in found.columns:
        yield (
            f"column {column.column}: {column.rows:,} of {column.of:,} rows differ, by {column.largest:.6g} at most; "
            f"the first is row {column.row:,}, {_at(column.episode, column.step)}: "
            f"{_short(column.values[0])} and {_short(column.values[1])}"
        )
    yield from _some("statistics", found.statistics)
    yield from _some("provenance", found.provenance)


def _at(episode: tuple[int, int], step: tuple[int, int]) -> str:
    if episode[0] == episode[1] and step[0] == step[1]:
        return f"episode {episode[0]:,}, step {step[0]:,}"
    return f"episode {episode[0]:,}, step {step[0]:,} and episode {episode[1]:,}, step {step[1]:,}"


def _some(title: str, pairs: dict[str, tuple[Any, Any]]) -> Iterator[str]:
    for name, pair in list(pairs.items())[:_LINES]:
        yield _row(f"{title} {name}", pair)
    if (more := len(pairs) - _LINES) > 0:
        yield f"{title}: {more:,} more differ; format=json shows all."


def _row(label: str, pair: tuple[Any, Any]) -> str:
    return f"{label:32}{_short(pair[0]):>28}{_short(pair[1]):>28}"


def _short(value: Any) -> str:
    """On one line, the middle left out of what is long."""
    text = "missing" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS // 2]} … {text[-_LETTERS // 3 :]}"
