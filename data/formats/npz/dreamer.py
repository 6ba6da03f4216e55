"""Episodes as Dreamer, V-D4RL and DrQ-v2 save them: an .npz each, a row for the reset and one for each step after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...config import setting
from ...errors import DataError
from ...storage.schema import infer_spec, kinds_of, largest_numbers
from ..arrays import Array, flags, one_column
from ..format import RENAME, Imported, StepFormat
from ..runs import Runs
from .steps import Found, missing, npz_names, read_rows_of

NAMES = {  # d3ray's word: theirs
    "observations": ("image", "observation"),
    "actions": ("action",),
    "rewards": ("reward",),
    "first": ("is_first",),
    "last": ("is_last",),
    "terminal": ("is_terminal",),
    "discount": ("discount",),
    "log_prob": ("logprob",),
}
MARKS = ("first", "last", "terminal", "discount")  # one of these makes it such a file
REQUIRED = ("actions", "rewards")
UNSEEN = ("log_", "reset")  # what the names of arrays begin with that no agent saw


class Dreamer(StepFormat):
    """Steps of one file.

    An episode of T steps is T + 1 rows. Its first row is the reset: what was seen, an action of zeros and no reward. Each row
    after it has what was seen next, and the action and reward that led there. So the last row is the final observation, and what
    is in the first row of `action` and `reward` is no step's.

    Reads image (or observation) [R, ...]; without either all other arrays are parts of the observation. Then action, reward and,
    where present, is_first, is_last, is_terminal, discount and logprob (column `log_prob`). Where there is an image other numbers,
    such as a simulator's state (`physics`), become `info/NAME`; what begins with `log_` is left out.

    Traps, and what is done:
    - An episode is terminated where its last row has is_terminal, or, in files without, a discount of 0; otherwise it was cut.
    - Actions of ones among zeros are discrete ones, by number; `discrete_action=false` leaves them as they are.
    - Dreamer V3's files hold several episodes or pieces of them, and there an action stands in the row that it was chosen in. An
      action in a first row that is not zeros shows it; then `action_row` has to be said. A piece of an episode is one, cut at its
      end.

    Source: Dreamer, DreamerV2 and V3 (danijar), `tools.py`, `common/replay.py`, `embodied/replay`; V-D4RL (Lu et al. 2023,
    arXiv:2206.04779), `conversion_scripts`; DrQ-v2 (Yarats et al. 2021), `replay_buffer.py`.
    """

    name = "dreamer"
    description = "Dreamer's, V-D4RL's and DrQ-v2's episodes as .npz: image or observation, action, reward, discount, is_first, …"
    rename: Mapping[str, str] = RENAME
    action_row: Literal["arriving", "taken"] | None = setting(
        None, "an action stands in the row that it led to, or that it was chosen in; null: the first, where first rows have zeros"
    )

    @classmethod
    def detect(cls, path: Path) -> bool:
        there = npz_names(path)
        if not missing(there) or not all(NAMES[word][0] in there for word in REQUIRED):
            return False
        known = {name for names in NAMES.values() for name in names[:1]} - {"image"}
        seen = [name for name in there if name not in known]
        return any(NAMES[word][0] in there for word in MARKS) and bool(seen) and not any(name.startswith("next_") for name in seen)

    def read(self, path: Path) -> Imported:
        found, source = read_rows_of(path, NAMES, REQUIRED, self.rename, self.name, unread=UNSEEN), str(path)
        raw, others, n, notes = found.raw, found.others, found.n, found.notes
        seen: Any = raw["observations"] if "observations" in raw else {name: others.pop(name) for name in list(others)}
        if isinstance(seen, dict) and not seen:
            raise DataError(
                f"{source} has no 'image', no 'observation' and no other array of {n} rows that could be what was seen."
            )
        begins = _begins(source, found)
        if self.action_row is None:
            shown = raw["actions"][begins].reshape(int(begins.sum()), -1)
            if shown.any():
                row = int(np.flatnonzero(begins)[int(np.flatnonzero(shown.any(1))[0])])
                raise DataError(
                    f"{source}: {found.called['actions']!r} is not zeros in row {row}, where an episode begins; say whether an "
                    "action stands in the row that it led to (options.action_row=arriving) or that it was chosen in "
                    "(options.action_row=taken, as Dreamer V3's)."
                )
        arriving = np.flatnonzero(~begins)  # rows that a step led to
        if not len(arriving):
            raise DataError(f"{source} has no step: each of its {n} rows is the first of an episode.")
        after = np.r_[begins[1:], True]  # rows that are the last of an episode
        chosen = arriving - 1 if self.action_row == "taken" else arriving
        actions, n_actions = self._actions(source, raw["actions"][chosen])
        if n_actions:
            notes.append(
                f"Actions are ones among {n_actions} zeros, taken as discrete by number; discrete_action=false leaves them as "
                "they are."
            )
        last, limits_known = after[arriving], bool({"terminal", "discount"} & raw.keys())
        terminated = last & _terminal(source, found)[arriving]
        if not limits_known:
            notes.append("Nothing says which episodes the task ended (is_terminal, discount): all were taken as truncated.")
        extra = {f"info/{name}": array[arriving - 1] for name, array in others.items()}
        if "log_prob" in raw:
            extra["log_prob"] = one_column(source, found.called["log_prob"], raw["log_prob"])[chosen]
        alone = begins & after  # rows of an episode without a step
        if alone.any():
            notes.append(f"{int(alone.sum())} rows are the reset of an episode without a step and were left out.")
        final = (after & ~begins)[~alone]
        kept: Any = {name: array[~alone] for name, array in seen.items()} if isinstance(seen, dict) else seen[~alone]
        rewards = one_column(source, found.called["rewards"], raw["rewards"])[arriving]
        runs = Runs(kept, final, last, actions, rewards, terminated, last & ~terminated, extra)
        steps, limits = runs.steps(source, self.timeout_at)
        notes += limits + self.on_ends(steps, limits_known=limits_known)
        kinds, largest = kinds_of(steps.columns), largest_numbers(steps.columns)
        spec = infer_spec(kinds, largest | {"action": (n_actions - 1,)}) if n_actions else None
        return Imported(steps, spec, notes=notes)

    def _actions(self, source: str, acted: Array) -> tuple[Array, int]:
        """Return actions, those of ones among zeros by number, and how many of these there are, else 0."""
        one_hot = acted.ndim == 2 and acted.shape[1] > 1 and bool(((acted == 0) | (acted == 1)).all() and (acted.sum(1) == 1).all())
        if not one_hot or self.discrete_action is False:
            return self.actions(source, acted), 0
        return acted.argmax(1), acted.shape[1]


def _begins(source: str, found: Found) -> Array:
    """Mark the first row of each episode, or of a piece of one, [N] bool."""
    begins = np.arange(found.n) == 0
    if "first" in found.raw:
        begins |= flags(source, found.called["first"], found.raw["first"])
    for word in ("last", "terminal"):
        if word in found.raw:
            begins[1:] |= flags(source, found.called[word], found.raw[word])[:-1]
    return begins


def _terminal(source: str, found: Found) -> Array:
    """Mark the rows in which the task was over, [N] bool."""
    if "terminal" in found.raw:
        return flags(source, found.called["terminal"], found.raw["terminal"])
    discount = found.raw.get("discount", np.ones(found.n))
    return one_column(source, found.called.get("discount", "discount"), discount) == 0
