"""What columns are: each one's type and entry shape, the spaces that follow from them, and whether they suit given spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..errors import DataError
from ..masks import ACTION_MASK
from ..spec import Box, Dict, Discrete, Leaf, MultiBinary, MultiDiscrete, ObservationSpace, Spec, Tuple, space_columns

Kinds = dict[str, tuple[str, tuple[int, ...]]]  # a column's dtype name and the shape of one entry
Largest = dict[str, tuple[int, ...]]  # the largest number of each entry, of the columns that count kinds of something
MOST = 1 << 20  # kinds of a discrete action or observation: each is counted, and a network has an output for each


def kinds_of(columns: Mapping[str, np.ndarray]) -> Kinds:
    return {name: (column.dtype.name, column.shape[1:]) for name, column in columns.items()}


def as_amounts(kinds: Kinds, columns: Iterable[str]) -> Kinds:
    """Turn observations that were taken for numbers of kinds, [N], into vectors of one entry, [N, 1]."""
    changed = {name: (kinds[name][0], (1,)) for name in columns if name.startswith("observation") and kinds[name][1] == ()}
    return kinds | changed


def check_alike(kinds: Sequence[Kinds]) -> None:
    """Raise DataError where columns of several tables differ in name, dtype or shape."""
    first = kinds[0]
    for k, other in enumerate(kinds):
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                ours, theirs = say_kind(first.get(name)), say_kind(other.get(name))
                raise DataError(f"Column {name!r} is {ours} in the first and {theirs} in number {k + 1}.")


def say_kind(kind: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{kind[0]} {list(kind[1])}"


def largest_numbers(columns: Mapping[str, np.ndarray]) -> Largest:
    """Return the largest numbers of discrete actions [N] or [N, K] and of discrete observations [N]."""
    counted = {name: column for name, column in columns.items() if _counts(name, column.dtype.name, column.shape[1:])}
    if "action" in counted and columns["action"].min() < 0:  # a closing row's is 0, which may be above all that there are
        counted["action"] = columns["action"][~columns["closing"]]
    return {name: tuple(np.atleast_1d(column.max(0)).tolist()) for name, column in counted.items()}


def merge_largest(parts: Iterable[Largest]) -> Largest:
    merged: Largest = {}
    for part in parts:
        for name, numbers in part.items():
            merged[name] = tuple(map(max, numbers, merged.get(name, numbers)))
    return merged


def infer_spec(kinds: Kinds, largest: Largest) -> Spec:
    """Return spaces without bounds; there are as many kinds of discrete actions and observations as the largest number and one.

    Where there is a mask of legal actions it says how many there are. Integers in one column are discrete, in several
    multi-discrete actions, uint8 in several binary ones; all else is a box. Columns `observation/0` to `observation/K` without a
    gap are a tuple, others a dict. Raises DataError for a number so large that it can be no kind.
    """
    leaves = {
        tuple(name.split("/")[1:]): _leaf(name, *kinds[name], largest) for name in kinds if name.split("/")[0] == "observation"
    }
    action = _leaf("action", *kinds["action"], largest)
    if ACTION_MASK in kinds and isinstance(action, Discrete):
        action = action.model_copy(update={"n": kinds[ACTION_MASK][1][0]})
    return Spec(observation=_nested(leaves), action=action, action_mask=ACTION_MASK in kinds)


def with_masks(kinds: Kinds, spec: Spec) -> Spec:
    """Let a given spec know of a mask of legal actions where the data have one. Raises DataError where it is not of its actions."""
    if ACTION_MASK in kinds and spec.discrete and kinds[ACTION_MASK][1] != (spec.n_actions,):
        raise DataError(f"The spec has {spec.n_actions} actions and the data has an action_mask of {kinds[ACTION_MASK][1][0]}.")
    told = ACTION_MASK in kinds and spec.discrete
    return spec if told == spec.action_mask else spec.model_copy(update={"action_mask": told})


def check_spec(kinds: Kinds, largest: Largest, spec: Spec) -> None:
    """Raise DataError unless columns suit the spaces. Numbers may be stored in another type than the environment's own."""
    expected = space_columns(spec.observation)
    seen = [name for name in kinds if name.split("/")[0] == "observation"]
    if set(seen) != expected.keys():
        raise DataError(f"The spec has the observations {_names(expected)} and the data has {_names(seen)}.")
    if (ours := _kind_of_action(*kinds["action"])) != spec.action_kind:
        raise DataError(f"The spec has {spec.action_kind} actions and the data has {ours} ones.")
    for name, leaf in [*expected.items(), ("action", spec.action)]:
        if kinds[name][1] != leaf.shape:
            raise DataError(f"The spec has the {name} shape {list(leaf.shape)} and the data has {list(kinds[name][1])}.")
        if not isinstance(leaf, Box):
            _check_numbers(name, leaf, kinds[name][0], largest.get(name, ()))


def check_starts(columns: Mapping[str, np.ndarray], spec: Spec) -> None:
    """Raise DataError where numbers of kinds are below the first of their space; `columns` are of steps alone."""
    for name, start in spec.starts().items():
        least = columns[name].min(0, initial=np.iinfo(np.int64).max)
        if (least < start).any():
            raise DataError(f"The spec has {name}s from {start.tolist()} on and the data has {least.tolist()}.")


def _check_numbers(name: str, leaf: Leaf, dtype: str, largest: tuple[int, ...]) -> None:
    if np.dtype(dtype).kind not in "iub":
        raise DataError(f"The spec has {leaf.kind.replace('_', '-')} numbers as {name} and the data has {dtype}.")
    bounds = [np.atleast_1d(bound).astype(np.int64).tolist() for bound in leaf.bounds()]  # pyright: ignore[reportOptionalIterable]
    for k, (given, first, last) in enumerate(zip(largest, *bounds, strict=False)):
        if given > last:
            what = f"{name} {given}" if isinstance(leaf, Discrete) else f"{name} {given} in entry {k}"
            raise DataError(f"The spec has the {name}s {first} to {last} and the data has {what}.")


def _counts(name: str, dtype: str, shape: tuple[int, ...]) -> bool:
    """Tell whether a column's integers are numbers of kinds."""
    kind, place = np.dtype(dtype).kind, name.partition("/")[0]
    return (place == "action" and kind == "i") or (place == "observation" and kind in "iu" and shape == ())


def _kind_of_action(dtype: str, shape: tuple[int, ...]) -> str:
    kind = np.dtype(dtype).kind
    return "binary" if kind in "ub" else "continuous" if kind == "f" else "multi-discrete" if shape else "discrete"


def _leaf(name: str, dtype: str, shape: tuple[int, ...], largest: Largest) -> Leaf:
    if _counts(name, dtype, shape):
        numbers = largest[name]
        if max(numbers) >= MOST:
            raise DataError(
                f"{name!r} goes up to {max(numbers)}, and {MOST} kinds are the most that are told apart: numbers that are no kinds "
                "need floats (discrete_action=false for actions)."
            )
        nvec = tuple(max(n + 1, 1) for n in numbers)  # all may be below 0, where kinds are counted from there
        return MultiDiscrete(nvec=nvec) if shape else Discrete(n=nvec[0], dtype=dtype)
    if name == "action" and np.dtype(dtype).kind in "ub":
        return MultiBinary(n=shape[0])
    return Box(shape=shape, dtype=dtype)


def _nested(leaves: Mapping[tuple[str, ...], Leaf]) -> ObservationSpace:
    if () in leaves:
        return leaves[()]
    inner: dict[str, dict[tuple[str, ...], Leaf]] = {}
    for path, leaf in leaves.items():
        inner.setdefault(path[0], {})[path[1:]] = leaf
    spaces = {key: _nested(part) for key, part in inner.items()}
    numbered = [str(k) for k in range(len(spaces))]
    return Tuple(spaces=tuple(spaces[k] for k in numbered)) if set(spaces) == set(numbered) else Dict(spaces=spaces)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(columns))
