"""Raw observations as the named inputs of a policy. Imports no torch: exported policies read their input with it too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from ...data.errors import DataError
from ...data.masks import ACTION_MASK, Masked, bare, mask_of, masked, parted
from ...data.spec import Box, Discrete, Leaf, MultiDiscrete, Spec, space_columns, typed, value_columns
from .plain import plain_array


def named_inputs(spec: Spec) -> dict[str, Leaf]:
    """The inputs of a policy: `observation`, or one `observation/KEY` for each leaf, sorted; `action_mask` where it knows one."""
    seen: dict[str, Leaf] = dict(sorted(space_columns(spec.observation).items()))
    return seen | ({ACTION_MASK: Box(shape=(spec.n_actions,), dtype="bool")} if spec.action_mask else {})


def with_mask(spec: Spec, observation: Any, action_mask: Any) -> Any:
    """An observation with the mask that was given beside it, if one was. Raises DataError where the policy takes none."""
    if action_mask is None:
        return observation
    if not spec.action_mask:
        raise DataError("This policy takes no action_mask: the data that it was fitted on have none.")
    return Masked(bare(observation), action_mask)


def as_batch(spec: Spec, observation: Any, action_mask: Any = None) -> tuple[Any, bool]:
    """An observation with its mask, if one was given, as a batch; and whether it was a single one, [*shape], which gets the axis.

    Raises DataError as `with_mask`, and where parts are no numbers.
    """
    shown, columns = with_mask(spec, observation, action_mask), space_columns(spec.observation)
    shown = parted(shown) if spec.action_mask else shown
    whole = "observation" in columns
    seen = _each(bare(shown), lambda part: plain_array(part, "Observations"), whole=whole)
    shown = masked(seen, mask_of(shown))
    parts = {"observation": seen} if whole else value_columns(seen)
    if parts.keys() != columns.keys() or any(np.ndim(parts[name]) != len(leaf.shape) for name, leaf in columns.items()):
        return shown, False
    mask = None if mask_of(shown) is None else plain_array(mask_of(shown), ACTION_MASK)[None]
    return masked(_each(seen, lambda part: part[None], whole=whole), mask), True


def _each(x: Any, function: Callable[[Any], Any], *, whole: bool) -> Any:
    if not whole and isinstance(x, Mapping):
        return {key: _each(part, function, whole=False) for key, part in cast("Mapping[str, Any]", x).items()}
    if not whole and isinstance(x, tuple):
        return tuple(_each(part, function, whole=False) for part in cast("tuple[Any, ...]", x))
    return function(x)


def action_dtype(spec: Spec) -> str:
    """Type of the actions that an exported policy gives: that of the space."""
    if not isinstance(spec.action, Box):
        return "int64"
    return spec.action.dtype if spec.action.dtype in _TYPES else "float32"


_TYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")  # that torch and ONNX have


def taken(spec: Spec, action: np.ndarray) -> np.ndarray:
    """Raw actions [B, ...] as the environment has them: in its type, and in its shape where that has several axes."""
    if not isinstance(spec.action, Box):
        return action
    return typed(action, np.dtype(action_dtype(spec))).reshape(len(action), *spec.action.taken_shape)


def raw_inputs(spec: Spec, observation: Any) -> dict[str, np.ndarray]:
    """Raw observations [B, ...], an array or mappings and tuples of them, by input name; see `plain_array` for their types.

    The mask is that of what is `Masked`, or the key `action_mask` of a mapping; without, all actions are legal. A policy that knows
    none is given none.

    Raises:
        DataError: a key is missing or unknown, a shape is not (batch, *shape of the space), a number is not finite, an image of
            bytes comes as floats, what is given is no array of numbers, or no action is legal.
    """
    shown = parted(observation) if spec.action_mask else observation
    inputs = _seen(spec, bare(shown))
    if spec.action_mask:
        inputs[ACTION_MASK] = _mask(mask_of(shown), len(next(iter(inputs.values()))), spec.n_actions)
    return inputs


def _seen(spec: Spec, observation: Any) -> dict[str, np.ndarray]:
    wanted, parts = dict(sorted(space_columns(spec.observation).items())), {"observation": observation}
    if "observation" not in wanted and (parts := value_columns(observation)).keys() != wanted.keys():
        keys, given = ([name.partition("/")[2] for name in sorted(names)] for names in (wanted, parts))
        found = f"the keys {given}" if isinstance(observation, Mapping | tuple) else f"a {type(observation).__name__}"
        raise DataError(f"Observations of this policy are a mapping with the keys {keys}, not {found}.")
    inputs = {name: _rows(name, box, plain_array(parts[name], _called(name))) for name, box in wanted.items()}
    if len({len(rows) for rows in inputs.values()}) > 1:
        sizes = ", ".join(f"{name} {len(rows)}" for name, rows in inputs.items())
        raise DataError(f"The parts of an observation have different numbers of rows: {sizes}.")
    return inputs


def _mask(mask: Any, n: int, n_actions: int) -> np.ndarray:
    if mask is None:
        return np.ones((n, n_actions), bool)
    array = plain_array(mask, ACTION_MASK)
    if array.shape != (n, n_actions):
        raise DataError(f"{ACTION_MASK} has the shape {array.shape}; {n} observations go with {(n, n_actions)}.")
    legal = array.astype(bool)
    if not legal.any(1).all():
        raise DataError(f"{ACTION_MASK} has no legal action in row {int((~legal.any(1)).argmax())}.")
    return legal


def _called(name: str) -> str:
    return "Observations" if name == "observation" else f"Observations {name.partition('/')[2]!r}"


def _rows(name: str, box: Leaf, array: np.ndarray) -> np.ndarray:
    if array.ndim != len(box.shape) + 1 or array.shape[1:] != box.shape:
        hint = "; a single one needs a batch axis here: x[None]" if array.shape == box.shape else ""
        wanted = ", ".join(("batch", *map(str, box.shape)))
        what = "Observations have" if name == "observation" else f"{name} has"
        raise DataError(f"{what} the shape {array.shape}; this policy takes ({wanted}){hint}.")
    _finite(f"{name} is", array)
    if isinstance(box, Discrete | MultiDiscrete):
        _counted(_called(name), box, array)
    if isinstance(box, Box) and box.is_image and array.dtype.kind == "f":
        raise DataError(f"{name} is an image of bytes, 0 to 255, and {array.dtype} was given: hand in what was shown, unscaled.")
    return array


def _finite(are: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
        bad = ~finite.reshape(len(array), -1).all(1)
        raise DataError(f"{are} NaN or infinite in {bad.sum()} of {len(array)} rows, first in row {bad.argmax()}.")


def raw_actions(space: Leaf, action: Any, count: int) -> np.ndarray:
    """Raw actions, one for each of `count` observations. Raises DataError where their shape, range or type is another."""
    array = plain_array(action, "Actions")
    if isinstance(space, Box) and array.ndim > 2 and array[:1].size == space.size:
        array = array.reshape(len(array), *space.shape)  # as environments have those of several axes
    if array.shape != (count, *space.shape):
        raise DataError(f"Actions have the shape {array.shape}; {count} observations go with {(count, *space.shape)}.")
    _finite("Actions are", array)
    if isinstance(space, Discrete):
        _counted("Actions", space, array)
    return array


def _counted(what: str, space: Discrete | MultiDiscrete, array: np.ndarray) -> None:
    """Raises DataError for what is no number of a kind, in one entry of a row at least."""
    low, high = space.bounds()
    if not (np.equal(np.mod(array, 1), 0) & (array >= low) & (array <= high)).all():
        least, most = (bound.astype(np.int64).tolist() for bound in (low, high))
        reach = " to ".join(str(bound.tolist()) for bound in (array.min(0), array.max(0)))
        raise DataError(f"{what} are whole numbers from {least} to {most} here; these reach from {reach}.")
