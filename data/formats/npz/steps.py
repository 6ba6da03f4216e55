"""NumPy `.npz` archives: flat arrays of steps, under the names that people give them, and `imitation`'s trajectories."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...storage.costs import COST
from ...storage.steps import MASKS
from ..arrays import STEP_NAMES, Array, episode_ends, existing_file, flags, moved_up, native, one_column, same_rows
from ..format import RENAME, Imported, StepFormat
from ..untrusted.archives import Archive as Members
from ..untrusted.archives import is_zip, npy_header, open_archive, read_npy
from ..untrusted.values import names_in

NAMES = STEP_NAMES | {
    "final_observations": ("final_observations",),
    "log_prob": (*STEP_NAMES["log_prob"], "infos/action_log_probs"),
    "discrete_action": ("discrete_action",),
    "starts": ("episode_starts",),
    **{name: (name,) for name in MASKS},
}
OBSERVATIONS = ("observations", "next_observations", "final_observations")  # these may have parts, `observations/KEY`
REQUIRED = ("observations", "actions", "rewards", "terminated")  # `starts` may stand for the last
LISTED = 8  # names in a message


class Archive:
    """The arrays of one `.npz`, read one by one; headers say what is inside before anything is loaded."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.names = [name.removesuffix(".npy") for name in members.names if name.endswith(".npy")]
        self._read: set[str] = set()

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Read shape and dtype of an array, without its values."""
        with self._members.open(f"{name}.npy") as stream:
            shape, _, dtype = npy_header(stream)
        return shape, dtype

    def read(self, name: str) -> Array:
        self._read.add(name)
        with self._members.open(f"{name}.npy") as stream:
            return native(read_npy(stream, f"{self._members.source}: {name!r}", self._members.sizes[f"{name}.npy"]))

    def parts(self, word: str) -> dict[str, Array]:
        """Read the arrays `word/KEY` by key, where the archive has parts of observations instead of one array."""
        return {name.partition("/")[2]: self.read(name) for name in self.names if name.startswith(f"{word}/")}

    def left_out(self) -> list[str]:
        """Say which arrays were not read."""
        left = [name for name in self.names if name not in self._read]
        objects = [name for name in left if self.header(name)[1].hasobject]
        return [f"{name!r} holds Python objects and was not read." for name in objects] + [
            f"{name!r} was not read: it is none of the arrays that d3ray knows." for name in left if name not in objects
        ]


@contextmanager
def open_npz(path: Path | str) -> Generator[Archive]:
    """Open an archive for reading; that it is none, or damaged, becomes a DataError, also while it is read."""
    path = existing_file(path)
    if not is_zip(path):
        raise DataError(f"{path} is not an .npz archive.")
    with open_archive(path) as members:
        yield Archive(members)


def npz_names(path: Path) -> list[str]:
    """List the arrays in an archive; none of another file."""
    if not is_zip(path):
        return []
    with open_npz(path) as archive:
        return archive.names


@dataclass
class Found:
    """The arrays of an archive with a row a step, or an observation."""

    called: dict[str, str]  # what the archive calls each of d3ray's words
    raw: dict[str, Array]  # by d3ray's words
    others: dict[str, Array]  # numbers of as many rows
    n: int
    notes: list[str]


def read_rows_of(
    path: Path,
    names: Mapping[str, tuple[str, ...]],
    required: tuple[str, ...],
    rename: Mapping[str, str],
    format: str,
    unread: tuple[str, ...] = (),
) -> Found:
    """Read the arrays that `names_in` finds, and others of as many rows whose names begin with none of `unread`."""
    with open_npz(path) as archive:
        called = names_in(archive.names, names, required, str(path), rename, format)
        raw = {word: archive.read(name) for word, name in called.items()}
        n = same_rows(str(path), **{called[word]: array for word, array in raw.items()})
        left = [name for name in archive.names if name not in called.values() and not name.startswith(unread)]
        headers = {name: archive.header(name) for name in left}
        others = {k: archive.read(k) for k, (shape, dtype) in headers.items() if shape[:1] == (n,) and dtype.kind in "biuf"}
        return Found(called, raw, others, n, archive.left_out())


class NPZ(StepFormat):
    """Steps of a NumPy archive, in file order.

    Flat archives hold arrays of one row a step, under d3ray's, d3rlpy's or gymnasium's names: observations (or obs) [N, ...],
    actions (acts), rewards (rews), terminated (terminals, terminations, dones) and, where present, truncated (timeouts,
    truncations), episode (episode_ids), whose change ends an episode, next_observations, final_observations [E, ...], log_prob,
    cost, info/NAME, and a single value `discrete_action`;
    action_mask [N, n] (or info/action_mask), with next_action_mask [N, n] or final_action_mask [E, n], tells legal actions.
    Observations of parts are arrays `observations/KEY`, and so are next and final ones.

    Those of stable-baselines' experts say in `episode_starts` [N] where episodes begin, and not why they ended: all of them
    terminated, unless `timeout_at` tells.

    `imitation`'s archives hold E trajectories of N steps: obs [N + E, ...] with each final observation in its place, acts [N],
    rews [N], indices [E - 1] (where the later trajectories begin) and terminal [E]. There a time limit is stored as a terminal too.

    Nothing in the file is unpickled: arrays of Python objects are refused where they are needed and left out where not.

    Source: `imitation` (Gleave et al. 2022, arXiv:2211.11972), `imitation/data/types.py` and `serialize.py`.
    """

    name = "npz"
    description = "NumPy .npz with observations, actions, rewards and terminated, or imitation's trajectories"
    rename: Mapping[str, str] = RENAME

    @classmethod
    def detect(cls, path: Path) -> bool:
        return not missing(npz_names(path))

    @classmethod
    def nearly(cls, path: Path, *, renamed: bool) -> bool:
        return not renamed and is_zip(path) and len(missing(npz_names(path))) == 1

    def read(self, path: Path) -> Imported:
        source = str(path)
        with open_npz(path) as archive:
            found = names_in(archive.names, NAMES, (), source, self.rename, self.name)
            for word in missing(archive.names, found):
                raise DataError(f"{path} has no {word!r} (or {_either(NAMES[word])}), only {_either(archive.names) or 'nothing'}.")
            raw: dict[str, Any] = {word: archive.read(name) for word, name in found.items()}
            raw |= {word: parts for word in OBSERVATIONS if word not in raw and (parts := archive.parts(word))}
            indices = archive.read("indices") if "indices" in archive.names else None
            further = [n for n in archive.names if n.startswith(("info/", "infos/")) and n not in NAMES["log_prob"]]
            extra = {f"info/{n.partition('/')[2]}": archive.read(n) for n in further}
            notes = archive.left_out()
        flag = raw.pop("discrete_action", None)
        said = None if flag is None else bool(flags(source, "discrete_action", flag.reshape(-1)).all())
        starts = raw.pop("starts", None)
        if starts is not None and "terminated" not in raw:
            raw["terminated"], found["terminated"] = np.r_[flags(source, "episode_starts", starts)[1:], True], "episode_starts"
        raw["actions"] = self.actions(source, raw["actions"], said)
        limits_known, layout = bool({"truncated", "episode"} & set(raw)), "flat"
        if indices is not None and len(raw["observations"]) == len(raw["actions"]) + len(indices) + 1:
            layout = "imitation"
            _unfold(source, raw, indices)
        rows = {w: raw[w] for w in (*REQUIRED, "truncated", "episode") if w in raw and not isinstance(raw[w], dict)}
        n = same_rows(source, **rows)
        terminated, truncated = flags(source, found["terminated"], raw["terminated"]), np.zeros(n, bool)
        if "truncated" in raw:
            truncated = flags(source, found.get("truncated", "truncated"), raw["truncated"]) & ~terminated
        if "episode" in raw:
            truncated |= episode_ends(source, found["episode"], raw["episode"]) & ~terminated
        if found["terminated"] in ("dones", "done", "episode_starts") and not limits_known and self.timeout_at is None:
            notes.append(
                f"{found['terminated']!r} was taken as terminated: nothing is bootstrapped past it, at a time limit neither."
            )
        terminated, truncated = self.limited(source, terminated, truncated, notes, may_cut="final_observations" not in raw)
        given: Any = raw.get("observations"), raw.get("next_observations")
        if all(isinstance(one, np.ndarray) for one in given) and (moved := moved_up(given[0], given[1], terminated | truncated)):
            notes += moved
            del raw["next_observations"]
        extra |= {name: raw[name] for name in MASKS if name in raw}
        extra |= {name: one_column(source, found[name], raw[name]) for name in ("log_prob", COST) if name in raw}
        return self.imported(
            source,
            raw["observations"],
            raw["actions"],
            one_column(source, found["rewards"], raw["rewards"]),
            terminated,
            truncated,
            notes=notes,
            limits_known=limits_known,
            about={"layout": layout},
            final_observations=raw.get("final_observations"),
            next_observations=raw.get("next_observations"),
            extra=extra,
        )


def missing(names: Collection[str], found: Collection[str] | None = None) -> list[str]:
    """List the words of `REQUIRED` for which an archive has no array; `found` are those that it has one for."""
    there = {*(names_in(names, NAMES, (), "", {}, "npz") if found is None else found)}
    there |= {"observations"} if any(name.startswith("observations/") for name in names) else set()
    there |= {"terminated"} if "starts" in there else set()
    return [word for word in REQUIRED if word not in there]


def _unfold(source: str, raw: dict[str, Array], indices: Array) -> None:
    """Flatten `imitation`'s arrays in place: final observations apart, ends as flags of steps."""
    n, starts = len(raw["actions"]), np.r_[0, indices]
    stops = np.r_[indices, n]
    if indices.dtype.kind not in "iu" or (stops <= starts).any():
        raise DataError(f"{source}: 'indices' must rise and lie between 1 and {n - 1}, as each trajectory has a step.")
    terminal = one_column(source, "terminal", raw["terminated"])
    if len(terminal) != len(starts):
        raise DataError(f"{source}: 'terminal' has {len(terminal)} rows, but 'indices' makes {len(starts)} trajectories.")
    ended = flags(source, "terminal", terminal)
    # Trajectory e has e final observations before it, and its own behind its last step.
    final = stops + np.arange(len(stops))
    raw["final_observations"] = raw["observations"][final]
    raw["observations"] = np.delete(raw["observations"], final, axis=0)
    raw["terminated"], raw["truncated"] = np.zeros(n, bool), np.zeros(n, bool)
    raw["terminated"][stops - 1], raw["truncated"][stops - 1] = ended, ~ended


def _either(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:LISTED])) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
