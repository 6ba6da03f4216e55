"""One Parquet file with a row a step under d3ray's own names, as `d3ray convert … format=parquet` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...masks import ACTION_MASK, masked
from ..imported import Array, Imported, check_rename, count_notes, flags, one_column, typed_actions
from ..runs import Runs
from .parquet_table import is_parquet, open_parquet, read_column

NAMES = ("observation", "action", "reward", "terminated", "truncated", "closing", "episode", "log_prob", ACTION_MASK)
REQUIRED = ("action", "reward", "terminated")


def is_flat_parquet(path: Path) -> bool:
    """Whether the file is Parquet with columns of d3ray's names."""
    if not is_parquet(path):
        return False
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    return set(REQUIRED) <= set(names) and bool(_observations(names, "observation"))


def read_flat_parquet(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of a flat Parquet file, in its order; none is dropped.

    Columns: `observation` (or `observation/KEY` of dicts and tuples), `action`, `reward`, `terminated` and, where present,
    `truncated`, `episode`, `closing`, `log_prob`, `action_mask`, `info/NAME`; others are left out, and a note names them. Vectors
    are lists of one length. What has more axes, and all of uint8, may be stored flat or as bytes, its shape being in the field's
    metadata (`shape`: "84,84").

    An episode ends where `terminated` or `truncated` says so, where `episode` changes, and at the last row. A row with `closing`
    is no step: it holds the final observation of the episode before it. An episode without such a row has no final observation.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integers are discrete actions, those of several entries multi-discrete or (of bytes) binary.
        rename: what this file calls a column, by d3ray's word.

    Raises:
        DataError: not Parquet, damaged, a column missing, of another type or with empty values (column and row are named), a
            closing row that follows no step, NaN or infinity, no steps.
    """
    said, source = check_rename(rename, NAMES, "parquet"), str(path)
    with open_parquet(path) as file:
        names: list[str] = file.schema_arrow.names
        called = {word: said.get(word, word) for word in NAMES}
        for word in (*REQUIRED, *said):
            if called[word] not in names and word != "observation":
                raise DataError(f"{source} has no column {called[word]!r}, only {', '.join(map(repr, names))}.")
        parts = _observations(names, called["observation"])
        if not parts:
            raise DataError(f"{source} has no column {called['observation']!r}, only {', '.join(map(repr, names))}.")
        observations = {part: read_column(file, name, source) for part, name in parts.items()}
        there = {
            word: read_column(file, name, source) for word, name in called.items() if name in names and name not in parts.values()
        }
        extra = {name: read_column(file, name, source) for name in names if name.startswith("info/")}
    left = sorted(set(names) - {*called.values(), *parts.values(), *extra, "step"})
    notes = [f"Left out, being none of d3ray's columns: {', '.join(left)}."] if left else []
    n = len(there["reward"])
    if not n:
        raise DataError(f"{source} has no steps.")
    closing = flags(source, called["closing"], there["closing"]) if "closing" in there else np.zeros(n, bool)
    step = ~closing
    if "log_prob" in there:
        extra["log_prob"] = one_column(source, called["log_prob"], there["log_prob"])
    terminated, truncated = (flags(source, called[word], there.get(word, ~step)) for word in ("terminated", "truncated"))
    actions = there["action"][step]
    runs = Runs(
        masked(observations.get("", observations), there.get(ACTION_MASK)),
        closing,
        _last(source, closing, there.get("episode"), called),
        actions if discrete_action is None else typed_actions(source, actions, discrete_action),
        one_column(source, called["reward"], there["reward"])[step],
        terminated[step],
        truncated[step],
        {name: column[step] for name, column in extra.items()},
    )
    steps, cut = runs.steps(source, timeout_at)
    notes = [*notes, *cut, *count_notes(steps, limits_known="truncated" in there or "episode" in there)]
    return Imported(steps, notes=notes, provenance={"format": "parquet", "file": Path(path).name})


def _observations(names: list[str], root: str) -> dict[str, str]:
    """Columns of the observation, by the part that they hold ("" for all of it)."""
    return {name.removeprefix(root).removeprefix("/"): name for name in names if f"{name}/".startswith(f"{root}/")}


def _last(source: str, closing: Array, episode: Array | None, called: Mapping[str, str]) -> Array:
    """[N] bool: the last step before a closing row, before another episode, and of all."""
    changed = closing[:-1] if episode is None else closing[:-1] | (episode[1:] != episode[:-1])
    begins = np.r_[True, changed]
    if (alone := np.flatnonzero(closing & begins)).size:
        raise DataError(f"{source}: row {int(alone[0])} is marked {called['closing']!r} and follows no step of its episode.")
    return np.r_[closing[1:] | begins[1:], True][~closing]
