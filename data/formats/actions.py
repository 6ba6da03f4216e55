"""Actions that are scaled, or lie out of their space: what every importer's steps go through after they were read."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ..errors import ConfigError, DataError
from ..spec import Box, Spec
from ..storage.checks import chunks
from .arrays import Array
from .format import Imported

ActionsOutside = Literal["keep", "clip", "refuse"]
FAR = 10.0  # out of the space by more than so many times its range, actions are of another unit


def adjust_actions(
    imported: Imported,
    source: str,
    *,
    actions: ActionsOutside = "keep",
    scale: float | tuple[float, ...] | None = None,
    spec: Spec | None = None,
) -> Imported:
    """Multiply actions by `scale` and hold them to the space's bounds; what was done is in notes and provenance.

    Actions out of bounds are kept, clipped or refused, as `actions` says. The bounds of `spec` go before those that the file gives;
    only the latter are multiplied by `scale` too.
    """
    if scale is None and actions == "keep":
        return imported
    column = imported.steps.columns["action"]
    if column.dtype.kind != "f":
        asked = "action_scale" if scale is not None else f"actions={actions}"
        raise ConfigError(f"{source}: actions are not continuous, so {asked} means nothing there.")
    notes, provenance = list(imported.notes), dict(imported.provenance)
    if scale is not None:
        factor = _factor(scale, column, source)
        column = column * factor
        if imported.spec is not None and isinstance(imported.spec.action, Box):
            action = _scaled(imported.spec.action, factor)
            imported = replace(imported, spec=imported.spec.model_copy(update={"action": action}))
        notes.append(f"Actions were multiplied by {_brief(scale)} (action_scale).")
    if actions != "keep":
        column, clipped = _held(column, imported, source, actions, spec)
        if actions == "clip":
            provenance["actions_clipped"] = clipped
            n = imported.steps.n_transitions
            notes.append(f"{clipped} of {n} actions were clipped to the action space's bounds (actions=clip).")
    steps = replace(imported.steps, columns={**imported.steps.columns, "action": column})
    return replace(imported, steps=steps, notes=notes, provenance=provenance)


def _factor(scale: float | tuple[float, ...], column: Array, source: str) -> Array:
    factor = np.asarray(scale, column.dtype)
    if factor.ndim and factor.shape != column.shape[1:]:
        raise ConfigError(f"{source}: action_scale has {factor.size} numbers and an action has the shape {list(column.shape[1:])}.")
    if not np.isfinite(factor).all() or (factor == 0).any():
        raise ConfigError(f"action_scale is {_brief(scale)}; it takes numbers that are finite and not 0.")
    return factor


def _brief(scale: float | tuple[float, ...]) -> str:
    return ", ".join(f"{s:g}" for s in scale) if isinstance(scale, tuple) else f"{scale:g}"


def _scaled(space: Box, factor: Array) -> Box:
    bounds = space.bounds()
    if bounds is None:
        return space
    low, high = (b * factor for b in bounds)
    low, high = np.minimum(low, high), np.maximum(low, high)
    return space.model_copy(update={"low": tuple(low.reshape(-1).tolist()), "high": tuple(high.reshape(-1).tolist())})


def _held(column: Array, imported: Imported, source: str, actions: str, spec: Spec | None) -> tuple[Array, int]:
    space = (spec or imported.spec or Spec(observation=Box(shape=()), action=Box(shape=()))).action
    bounds = space.bounds() if isinstance(space, Box) else None
    if bounds is None:
        raise ConfigError(f"{source}: actions={actions} needs the bounds of the action space; name the environment.")
    if space.shape != column.shape[1:]:
        raise DataError(f"{source}: actions have the shape {list(column.shape[1:])} and the action space has {list(space.shape)}.")
    low, high = (b.astype(column.dtype) for b in bounds)
    closing, out, clipped = imported.steps.columns["closing"], column.copy(), 0
    axes = tuple(range(1, column.ndim))
    for part in chunks(len(column)):
        outside = ((column[part] < low) | (column[part] > high)).any(axes) & ~closing[part]
        if outside.any() and actions == "refuse":
            row = part.start + int(outside.argmax())
            step = row - int(np.count_nonzero(closing[:row]))
            value = np.round(column[row].astype(np.float64), 6).reshape(-1).tolist()
            raise DataError(f"{source}: the action in row {step} is {value}, out of the action space (actions=refuse).")
        clipped += int(outside.sum())
        # A closing row's zeros stay zeros, also where the bounds leave zero out.
        np.clip(column[part], low, high, out=out[part], where=~closing[part].reshape(-1, *[1] * len(axes)))
    return out, clipped
