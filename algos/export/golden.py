"""Golden observations: raw inputs that a policy's exports are compared on. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ...data.errors import StorageError
from ...data.masks import ACTION_MASK
from ...data.spec import Leaf, ObservationSpace, Spec, space_columns
from ..acting.graph_inputs import NoiseInput, StateInput, numbers
from ..acting.inputs import named_inputs

BATCHES = (1, 32)
TOLERANCE = 1e-5  # absolute, and relative to actions larger than 1
Arrays = dict[str, np.ndarray]
Numbers = tuple[np.ndarray, np.ndarray]


def golden_observations(spec: Spec, n: int, scale_shift: Mapping[str, Numbers] = MappingProxyType({}), seed: int = 0) -> Arrays:
    """Give `n` raw observations by input name, in the data's types, the same at every call.

    They are made up, so that a policy gives away none of the data it learned from: what the scaler (`scale_shift` by input: scaled
    = raw · scale + shift) brings to standard normal, else uniform within the space's bounds, else standard normal. Of a mask of
    legal actions half are, and one at least.
    """
    rng = np.random.default_rng(seed)
    drawn = {name: draw(box, n, rng, scale_shift.get(name)) for name, box in named_inputs(spec).items()}
    if ACTION_MASK in drawn:
        drawn[ACTION_MASK][np.arange(n), rng.integers(0, spec.n_actions, n)] = True
    return drawn


def golden_memory(
    space: ObservationSpace,
    states: Sequence[StateInput],
    started: Arrays,
    scale_shift: Mapping[str, Numbers],
    action: Leaf,
) -> Arrays:
    """Give memories of a policy that looks back, somewhere in their episodes, the same at every call.

    `started` are memories at an episode's start, of as many rows as are wanted; `scale_shift` is `golden_observations`'.
    """
    rng = np.random.default_rng(2)
    drawn = {"reward": rng.standard_normal(started["reward"].shape).astype(np.float32)}
    for k, state in enumerate(states):
        array, kind = started[state.name], state.name.removeprefix("context/")
        leaf = action if kind == "action" else space_columns(space).get(kind)
        if leaf is not None:
            n, steps = array.shape[:2]
            numbers = scale_shift.get(kind, ()) if kind != "action" else ()
            rows = draw(leaf, n * steps, np.random.default_rng(3 + k), numbers or None)
            drawn[state.name] = rows.reshape(array.shape).astype(array.dtype)
        elif array.dtype.kind == "f":
            drawn[state.name] = (array * rng.uniform(0, 1, array.shape)).astype(array.dtype)
        else:
            drawn[state.name] = rng.integers(0, 40, array.shape).astype(array.dtype)
    return drawn


def golden_ports(states: Sequence[StateInput], noises: Sequence[NoiseInput], n: int) -> Arrays:
    """Memories, and random numbers, for `n` decisions, the same at every call."""
    drawn = {state.name: _standard(n, state.shape[1:], 4 + k).astype(state.dtype) for k, state in enumerate(states)}
    return drawn | {p.name: numbers(0, p.name, [0] * n, p.shape[1:], p.distribution) for p in noises}  # pyright: ignore[reportArgumentType]


def _standard(n: int, shape: Any, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, *shape))


def draw(box: Leaf, n: int, rng: np.random.Generator, scale_shift: Numbers | None) -> np.ndarray:
    """`n` made-up numbers of a leaf, as `golden_observations` makes them."""
    dtype, shape, bounds = np.dtype(box.dtype), (n, *box.shape), box.bounds()
    if dtype.kind not in "fiu":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        low, high = (bound.astype(np.int64) for bound in bounds) if bounds else (0, min(int(np.iinfo(dtype).max), 255))
        return rng.integers(low, np.maximum(high, low) + 1, shape).astype(dtype)
    if scale_shift is not None and np.ndim(scale_shift[0]):
        scale, shift = scale_shift
        return ((rng.standard_normal(shape) - shift) / scale).astype(dtype)
    if bounds is not None and all(np.abs(bound).max(initial=0) < 1e6 for bound in bounds):  # 3e38 stands for no bound at all
        return rng.uniform(*bounds, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def nudged(observations: Mapping[str, np.ndarray], share: float, seed: int = 1) -> Arrays:
    """Observations next to the given ones, each entry off by `share` of its spread, up or down; integers by one or not."""
    rng = np.random.default_rng(seed)
    moved: Arrays = {}
    for name, array in observations.items():
        if name.startswith("noise/"):
            moved[name] = array  # given as it is, and uniform numbers have bounds
        elif array.dtype.kind == "f":
            moved[name] = (array + share * rng.choice((-1.0, 1.0), array.shape) * array.std(0)).astype(array.dtype)
        elif array.dtype.kind in "iu":
            inner = (array > array.min(initial=0)) & (array < array.max(initial=0))
            moved[name] = array + (inner * (rng.integers(-1, 2, array.shape) * np.sign(share))).astype(array.dtype)
        else:
            moved[name] = array
    return moved


def take(observations: Mapping[str, np.ndarray], rows: Any) -> Arrays:
    return {name: array[rows] for name, array in observations.items()}


def listed(outputs: Any) -> list[np.ndarray]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def largest_gap(action: np.ndarray, golden: np.ndarray) -> float:
    """The largest difference, relative to golden actions larger than 1; infinite where shapes or types differ or a value is NaN."""
    if action.shape != golden.shape or action.dtype != golden.dtype:
        return float("inf")
    if action.dtype.kind in "iu":
        return 0.0 if (action == golden).all() else float("inf")
    gap = np.abs(action.astype(np.float64) - golden) / np.maximum(np.abs(golden), 1)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0))


def check_golden(
    golden: Mapping[str, np.ndarray],
    act: Callable[[Arrays], Any],
    tolerance: float,
    what: str,
    outputs: Sequence[str] = ("action",),
    did: str = "act as the policy did",
) -> None:
    """Compare `act`, from inputs by name to actions, with golden arrays named `batch_1/observation`, `batch_1/action`, ….

    Where there are several outputs `act` gives a tuple of them. Raises StorageError where an output is off by more than
    `tolerance`: “`what` does not `did`”.
    """
    for n in BATCHES:
        arrays = {name.removeprefix(f"batch_{n}/"): array for name, array in golden.items() if name.startswith(f"batch_{n}/")}
        wanted = [arrays.pop(name) for name in outputs]
        gap = max(largest_gap(found, array) for found, array in zip(listed(act(arrays)), wanted, strict=True))
        if not gap <= tolerance:
            raise StorageError(f"{what} does not {did}: at batch {n} it is off by {gap:.1e}.")
