"""Episodes as Dreamer, V-D4RL and DrQ-v2 save them: an .npz each, a row for the reset and one for each step after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...errors import ConfigError, DataError
from ...storage.schema import infer_spec, kinds_of, largest_numbers
from ..imported import Array, Imported, count_notes, flags, one_column, same_rows, typed_actions
from ..runs import Runs
from ..untrusted.values import names_in
from .steps import missing, npz_names, open_npz

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


def is_dreamer(path: Path) -> bool:
    """Whether the file is an archive of `action`, `reward`, what was seen, and Dreamer's flags or discounts."""
    there = npz_names(path)
    if not missing(there) or not all(NAMES[word][0] in there for word in REQUIRED):
        return False
    known = {name for names in NAMES.values() for name in names[:1]} - {"image"}
    seen = [name for name in there if name not in known]
    return any(NAMES[word][0] in there for word in MARKS) and bool(seen) and not any(name.startswith("next_") for name in seen)


def read_dreamer(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    action_row: Literal["arriving", "taken"] | None = None,
) -> Imported:
    """Steps of one file; none is dropped.

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

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integers in one column, and ones among zeros, are discrete.
        rename: what this file calls an array, by d3ray's word (`observations`, `actions`, `rewards`, `first`, …).
        action_row: whether an action stands in the row that it led to ("arriving") or that it was chosen in ("taken"). None: the
            first, where first rows have zeros.

    Raises:
        DataError: not an archive, damaged, an array missing or of objects, lengths that differ, NaN or infinity (column and row are
            named), an action in a first row, or no step.
        ConfigError: `action_row` is something else.

    Source: Dreamer, DreamerV2 and V3 (danijar), `tools.py`, `common/replay.py`, `embodied/replay`; V-D4RL (Lu et al. 2023,
    arXiv:2206.04779), `conversion_scripts`; DrQ-v2 (Yarats et al. 2021), `replay_buffer.py`.
    """
    source = str(path)
    if action_row not in (None, "arriving", "taken"):
        raise ConfigError(f"action_row is {action_row!r}; choose from 'arriving', 'taken'.")
    with open_npz(path) as archive:
        found = names_in(archive.names, NAMES, REQUIRED, source, rename, "dreamer")
        raw = {word: archive.read(name) for word, name in found.items()}
        n = same_rows(source, **{found[word]: array for word, array in raw.items()})
        shapes = {name: archive.header(name) for name in archive.names if name not in found.values()}
        kept = [name for name, (shape, kind) in shapes.items() if shape[:1] == (n,) and kind.kind in "biuf"]
        others = {name: archive.read(name) for name in kept if not name.startswith(UNSEEN)}
        notes = archive.left_out()
    seen = raw.pop("observations") if "observations" in raw else {name: others.pop(name) for name in list(others)}
    if isinstance(seen, dict) and not seen:
        raise DataError(f"{source} has no 'image', no 'observation' and no other array of {n} rows that could be what was seen.")
    begins = _begins(source, found, raw, n)
    if action_row is None:
        shown = raw["actions"][begins].reshape(int(begins.sum()), -1)
        if shown.any():
            row = int(np.flatnonzero(begins)[int(np.flatnonzero(shown.any(1))[0])])
            raise DataError(
                f"{source}: {found['actions']!r} is not zeros in row {row}, where an episode begins; say whether an action stands "
                "in the row that it led to (options.action_row=arriving) or that it was chosen in (options.action_row=taken, as "
                "Dreamer V3's)."
            )
    arriving = np.flatnonzero(~begins)  # rows that a step led to
    if not len(arriving):
        raise DataError(f"{source} has no step: each of its {n} rows is the first of an episode.")
    after = np.r_[begins[1:], True]  # rows that are the last of an episode
    chosen = arriving - 1 if action_row == "taken" else arriving
    actions, n_actions = _actions(source, raw["actions"][chosen], discrete_action)
    if n_actions:
        notes.append(
            f"Actions are ones among {n_actions} zeros, taken as discrete by number; discrete_action=false leaves them as they are."
        )
    last = after[arriving]
    terminated = last & _terminal(source, found, raw, n)[arriving]
    if not {"terminal", "discount"} & raw.keys():
        notes.append("Nothing says which episodes the task ended (is_terminal, discount): all were taken as truncated.")
    extra = {f"info/{name}": array[arriving - 1] for name, array in others.items()}
    if "log_prob" in raw:
        extra["log_prob"] = one_column(source, found["log_prob"], raw["log_prob"])[chosen]
    alone = begins & after  # rows of an episode without a step
    if alone.any():
        notes.append(f"{int(alone.sum())} rows are the reset of an episode without a step and were left out.")
    final = (after & ~begins)[~alone]
    kept_rows: Any = {name: array[~alone] for name, array in seen.items()} if isinstance(seen, dict) else seen[~alone]
    rewards = one_column(source, found["rewards"], raw["rewards"])[arriving]
    runs = Runs(kept_rows, final, last, actions, rewards, terminated, last & ~terminated, extra)
    steps, limits = runs.steps(source, timeout_at)
    notes += limits + count_notes(steps, limits_known=bool({"terminal", "discount"} & raw.keys()) or timeout_at is not None)
    kinds, largest = kinds_of(steps.columns), largest_numbers(steps.columns)
    spec = infer_spec(kinds, largest | {"action": (n_actions - 1,)}) if n_actions else None
    return Imported(steps, spec, notes=notes, provenance={"format": "dreamer", "file": Path(path).name})


def _begins(source: str, found: Mapping[str, str], raw: Mapping[str, Array], n: int) -> Array:
    """[N] bool: the first row of each episode, or of a piece of one."""
    begins = np.arange(n) == 0
    if "first" in raw:
        begins |= flags(source, found["first"], raw["first"])
    for word in ("last", "terminal"):
        if word in raw:
            begins[1:] |= flags(source, found[word], raw[word])[:-1]
    return begins


def _terminal(source: str, found: Mapping[str, str], raw: Mapping[str, Array], n: int) -> Array:
    """[N] bool: the rows in which the task was over."""
    if "terminal" in raw:
        return flags(source, found["terminal"], raw["terminal"])
    return one_column(source, found["discount"], raw["discount"]) == 0 if "discount" in raw else np.zeros(n, bool)


def _actions(source: str, acted: Array, discrete: bool | None) -> tuple[Array, int]:
    """Actions, those of ones among zeros by their numbers; and of these how many there are, else 0."""
    one_hot = acted.ndim == 2 and acted.shape[1] > 1 and bool(((acted == 0) | (acted == 1)).all() and (acted.sum(1) == 1).all())
    if not one_hot or discrete is False:
        return typed_actions(source, acted, discrete), 0
    return acted.argmax(1), acted.shape[1]
