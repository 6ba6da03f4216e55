"""RLlib's sample batches, whatever file they come from: what its columns mean, what it packs, and which rows are an episode."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np

from ...errors import DataError, reason
from ..arrays import Array, finite, flags, log_probability, one_column
from ..format import Imported, StepFormat
from ..untrusted import restricted_pickle
from ..untrusted.unpacking import LZ4, left, unpacks
from ..untrusted.values import Leaves, info_columns, leaves, numbers, plain

NAMES = {  # d3ray's word: what RLlib calls it, the first found is taken
    "observations": ("obs", "observations"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminated": ("terminateds", "dones"),
    "truncated": ("truncateds",),
    "next_observations": ("new_obs", "next_obs"),
    "episode": ("eps_id",),
    "agent": ("agent_index", "agent_id"),
    "step": ("t",),
    "log_prob": ("action_logp",),
    "probability": ("action_prob",),
    "infos": ("infos",),
}
REQUIRED = ("observations", "actions", "rewards", "terminated")
TREES = ("observations", "next_observations")  # arrays, or (nested) dicts and tuples of them


@dataclass
class Steps:
    """Columns of one file, one row a step, by d3ray's words."""

    source: str
    columns: dict[str, Array] = field(default_factory=dict[str, Array])
    trees: dict[str, Leaves] = field(default_factory=dict[str, Leaves])
    infos: Leaves = field(default_factory=dict[str, Array])

    def __len__(self) -> int:
        return len(self.columns["rewards"])


def steps_of(source: str, values: Mapping[str, Any], found: Mapping[str, str]) -> Steps:
    """Columns from what a file holds under its own names, checked to be numbers, of one length and finite."""
    steps = Steps(source)
    for word, name in found.items():
        if word == "probability" and "log_prob" in found:
            continue
        value = unpack(f"{source}: {name!r}", values[name])
        if word in TREES:
            steps.trees[word] = leaves(source, name, value)
        elif word == "infos":
            steps.infos = info_columns(value)
        else:
            steps.columns[word] = numbers(source, name, value, text=word in ("episode", "agent"))
    n = len(steps)
    lengths = {found[word]: len(column) for word, column in steps.columns.items()}
    lengths |= {found[word]: len(column) for word, tree in steps.trees.items() for column in tree.values()}
    for name, length in lengths.items():
        if length != n:
            raise DataError(f"{source}: {found['rewards']!r} has {n} rows, but {name!r} has {length}.")
    if not n:
        raise DataError(f"{source}: {found['rewards']!r} has no rows.")
    steps.infos = {name: column for name, column in steps.infos.items() if len(column) == n}
    finite(source, **{found[w]: column for w, column in steps.columns.items() if column.dtype.kind == "f"})
    for word, tree in steps.trees.items():
        finite(source, **{"/".join(filter(None, (found[word], key))): column for key, column in tree.items()})
    return steps


def unpack(source: str, value: Any) -> Any:
    """What RLlib packed as text (base64 of LZ4 of a pickle), or `value` itself where it is not text.

    The pickle is read by `restricted_pickle`: arrays and plain containers come out, anything else is refused.
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        packed = base64.b64decode(value, validate=True)
        most = min(left(), LZ4 * len(packed) + (1 << 16)) + 1  # which is asked for at once
        data = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=most)
    except (binascii.Error, ValueError, RuntimeError, EOFError, MemoryError) as error:
        raise DataError(f"{source} is text that RLlib did not pack, or damaged ({reason(error)}).") from None
    unpacks(source, len(data))
    return restricted_pickle.loads(data, source=source)


def joined(parts: Sequence[Steps], source: str) -> Steps:
    """One file's steps from those of its batches (or a dataset's from those of its files), in their order."""
    first = parts[0]
    for part in parts[1:]:
        for mine, theirs in ((first.columns, part.columns), *((first.trees.get(w, {}), part.trees.get(w, {})) for w in TREES)):
            if lacking := sorted(mine.keys() ^ theirs.keys()):
                raise DataError(f"{part.source} is not like {first.source}: only one of them has {lacking[0]!r}.")
            for name, column in mine.items():
                if column.shape[1:] != theirs[name].shape[1:]:
                    ours, other = list(column.shape[1:]), list(theirs[name].shape[1:])
                    raise DataError(f"{part.source}: {name or 'obs'!r} has entries of shape {other}, and {first.source} of {ours}.")
    trees = {w: {k: np.concatenate([p.trees[w][k] for p in parts]) for k in tree} for w, tree in first.trees.items()}
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns}
    infos = {n: np.concatenate([p.infos[n] for p in parts]) for n in first.infos if all(n in p.infos for p in parts)}
    return Steps(source, columns, trees, infos)


def imported(format: StepFormat, steps: Steps, found: Mapping[str, str]) -> Imported:
    """Steps in the order of their episodes; see `RLlibJSON` for what is decided."""
    source, notes = steps.source, list[str]()
    order, last = episode_order(steps)
    columns = {name: column[order] for name, column in steps.columns.items()}
    trees = {word: plain({key: column[order] for key, column in tree.items()}) for word, tree in steps.trees.items()}
    terminated = flags(source, found["terminated"], columns["terminated"])
    truncated, limits_known = last & ~terminated, "truncated" in columns
    if limits_known:
        truncated |= flags(source, found["truncated"], columns["truncated"]) & ~terminated
    elif found["terminated"] == "dones" and format.timeout_at is None and terminated.any():
        notes.append("'dones' was taken as terminated: nothing is bootstrapped past it, at a time limit neither.")
    terminated, truncated = format.limited(source, terminated, truncated, notes)
    actions = format.actions(source, columns["actions"])
    extra = {f"info/{name}": column[order] for name, column in steps.infos.items()}
    if "log_prob" in columns:
        extra["log_prob"] = one_column(source, found["log_prob"], columns["log_prob"]).astype(np.float32)
    elif "probability" in columns:
        extra["log_prob"] = log_probability(source, found["probability"], columns["probability"], actions)
    return format.imported(
        source,
        trees["observations"],
        actions,
        one_column(source, found["rewards"], columns["rewards"]),
        terminated,
        truncated,
        notes=notes + action_notes(actions),
        limits_known=limits_known,
        next_observations=trees.get("next_observations"),
        extra=extra,
    )


def episode_order(steps: Steps) -> tuple[Array, Array]:
    """Rows sorted by episode (in order of first appearance), agent and step, and [N] bool: the sorted row is an episode's last.

    Without episode ids rows stay as they are, and only the very last is an end.
    """
    n, columns = len(steps), steps.columns
    codes = np.zeros(n, np.int64)
    for word in ("episode", "agent"):
        if word in columns:
            codes = _by_appearance(codes, one_column(steps.source, word, columns[word]))
    number = one_column(steps.source, "t", columns["step"]) if "step" in columns and "episode" in columns else np.zeros(n)
    order = np.lexsort((number, codes))  # stable: without numbers, rows of an episode keep their order
    last = np.ones(n, bool)
    last[:-1] = np.diff(codes[order]) != 0
    if "step" in columns and "episode" in columns:
        twice = (np.diff(number[order]) == 0) & ~last[:-1]
        if twice.any():
            row = int(order[1:][twice][0])
            raise DataError(
                f"{steps.source}: step {number[row]} of episode {columns['episode'][row]} is there twice (again in row {row})."
            )
        if "next_observations" not in steps.trees:  # with them, a gap is seen there
            last[:-1] |= np.diff(number[order]) > 1
    return order, last


def _by_appearance(codes: Array, values: Array) -> Array:
    """New codes for pairs of a code and a value, numbered as they appear first."""
    _, values = np.unique(values, return_inverse=True)
    _, first, inverse = np.unique(codes * (int(values.max()) + 1) + values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def action_notes(actions: Array) -> list[str]:
    """What a person should know of RLlib's actions, which are written before they are stretched to the environment's bounds."""
    if actions.dtype.kind != "f":
        return []
    low, high = float(actions.min()), float(actions.max())
    if low >= -1 and high <= 1:
        return [
            "All actions in the file lie in [-1, 1]: RLlib writes them before it stretches them to the environment's bounds; where "
            "those are wider, action_scale stretches them (2 for Pendulum)."
        ]
    if max(-low, high) > 10:
        return [
            f"Warning: actions reach from {low:,.0f} to {high:,.0f}, and RLlib's own lie in [-1, 1] or within the environment's "
            "bounds: look at what wrote them, or import with actions=clip and the environment."
        ]
    return []


def together(files: Sequence[Path], folder: Path, episodes: Callable[[Path], set[Any] | None]) -> list[Path]:
    """What is read one by one of a folder: its files where each has whole episodes, else the folder, where some go over files."""
    seen: set[Any] = set()
    for file in files:
        ids = episodes(file)
        if ids is None or seen & ids:
            return [folder]
        seen |= ids
    return list(files)
