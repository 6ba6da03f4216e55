"""The column `action_mask` of steps: which of the discrete actions were legal at each observation."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError, DataError
from ..masks import ACTION_MASK
from .checks import as_array

NEXT_ACTION_MASK, FINAL_ACTION_MASK = f"next_{ACTION_MASK}", f"final_{ACTION_MASK}"
IllegalActions = Literal["refuse", "keep"]

_KEEPING: ContextVar[bool] = ContextVar("illegal actions are kept", default=False)


@contextmanager
def keeping_illegal_actions() -> Generator[None]:
    """Keep illegal actions inside, where nothing else is said: for importers, which do not ask."""
    token = _KEEPING.set(True)
    try:
        yield
    finally:
        _KEEPING.reset(token)


def mask_columns(
    masks: dict[str, Any],
    action: np.ndarray,
    last: np.ndarray,
    ended: np.ndarray,
    illegal: IllegalActions | None,
    where: str,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the masks of N steps and of the E closing rows after them, uint8 [N, n] and [E, n].

    `masks` are `action_mask` [N, n], and `final_action_mask` [E, n] or `next_action_mask` [N, n] where there is one; without, all
    actions count as legal at ends, as they do at an end of the MDP where a mask has none. `last` [E] are the steps that end an
    episode, `ended` [E] whether the MDP ended there, and actions count from `first`. Steps whose action was illegal are refused, or
    kept as they are, as `illegal` says; None: refused, but inside `keeping_illegal_actions`. Messages begin with `where`.

    Raises ConfigError or DataError.
    """
    if illegal not in (None, "refuse", "keep"):
        raise ConfigError(f"illegal_actions is {illegal!r}; choose 'refuse' or 'keep'.")
    if action.dtype.kind != "i" or action.ndim != 1:
        raise DataError(f"{where}{ACTION_MASK} is for discrete actions, one integer a step, and these are others.")
    if NEXT_ACTION_MASK in masks and FINAL_ACTION_MASK in masks:
        raise DataError(f"{where}{FINAL_ACTION_MASK} and {NEXT_ACTION_MASK} are both given: give one of them.")
    if ACTION_MASK not in masks:
        raise DataError(f"{where}there is a {next(iter(masks))} and no {ACTION_MASK}.")
    mask = _mask(masks[ACTION_MASK], ACTION_MASK, len(action), "step", where)
    most, n = int(action.max()), mask.shape[1]
    if most >= first + n:
        raise DataError(f"{where}{ACTION_MASK} is of {n} actions, {first} to {first + n - 1}, and there is action {most}.")
    _some_legal(mask, ACTION_MASK, where)
    if illegal == "refuse" or (illegal is None and not _KEEPING.get()):
        _refuse_illegal(mask, action, where, first)
    final = np.ones((len(last), n), np.uint8)
    if NEXT_ACTION_MASK in masks:
        final = _mask(masks[NEXT_ACTION_MASK], NEXT_ACTION_MASK, len(action), "step", where)[last]
    elif FINAL_ACTION_MASK in masks:
        final = _mask(masks[FINAL_ACTION_MASK], FINAL_ACTION_MASK, len(last), "episode", where)
    if final.shape[1] != n:
        raise DataError(f"{where}{ACTION_MASK} is of {n} actions and that of what follows of {final.shape[1]}.")
    final = np.where(ended[:, None] & ~final.any(1, keepdims=True), np.uint8(1), final)
    _some_legal(final, "the mask after the last step", where, "episode")
    return mask, final


def illegal_steps(mask: np.ndarray, action: np.ndarray, first: int = 0) -> np.ndarray:
    """Mark steps whose action was illegal, [N] bool, where actions count from `first`; a closing row's counts as that one."""
    place = np.clip(action.astype(np.int64) - first, 0, mask.shape[1] - 1)
    return np.take_along_axis(mask, place[:, None], 1)[:, 0] == 0


def _refuse_illegal(mask: np.ndarray, action: np.ndarray, where: str, first: int) -> None:
    wrong = np.flatnonzero(illegal_steps(mask, action, first))
    if len(wrong):
        k, more = int(wrong[0]), len(wrong) - 1
        others = f", as are those of {more} more rows" if more > 1 else ", as is that of one more row" if more else ""
        raise DataError(
            f"{where}action {action[k]} of row {k} is illegal by its {ACTION_MASK}{others}: correct them, or keep them with "
            "illegal_actions='keep', by which what was done counts as legal there."
        )


def _mask(values: Any, name: str, rows: int, each: str, where: str) -> np.ndarray:
    array = as_array(f"{where}{name}", values)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(f"{where}{name} is {array.dtype} of shape {list(array.shape)}; one flag an action is needed, [rows, n].")
    if len(array) != rows:
        raise DataError(f"{where}{name} has {len(array)} rows; {rows} are needed, one {'an' if each == 'episode' else 'a'} {each}.")
    if array.dtype != np.bool_ and (wrong := ((array != 0) & (array != 1)).any(1)).any():
        k = int(wrong.argmax())
        raise DataError(f"{where}{name} is {array[k].tolist()} in row {k}; flags are 0 or 1.")
    return array.astype(np.uint8)


def _some_legal(mask: np.ndarray, name: str, where: str, each: str = "row") -> None:
    none = ~mask.any(1)
    if none.any():
        raise DataError(f"{where}{name} has no legal action in {each} {int(none.argmax())}.")
