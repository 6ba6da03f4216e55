"""Experience that is still being gathered: rings of rows, one an environment, with the columns of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..batch import Batch, Sequences
from ..episodes import Episode
from ..errors import ConfigError, DataError
from ..masks import ACTION_MASK, masked
from ..sampling import EpisodeSampler, TransitionSampler, Until
from ..spec import Discrete, Environment, Spec
from ..storage.checks import as_array
from .given import columns_of, one
from .rings import FLAGS, Allocate, Rings, in_memory, kinds_of
from .saving import load, save, saved
from .starts import Starts

if TYPE_CHECKING:
    from ..dataset import Dataset

_TAKEN = ("observation", ACTION_MASK, "action", "reward", "missing", "step", "counters", *FLAGS)


@saved
class ReplayBuffer:
    """The latest steps of n environments, each in a ring of its own, closing rows included.

    Rows are as in a dataset: an episode of T transitions takes T + 1 rows, so the next observation is always the next row. A full
    ring overwrites its oldest rows; what is left of an episode stays usable.

    Args:
        capacity: Rows in all; each ring has capacity // n_envs of them. Memory is touched only as it fills.
        spec: The spaces.
        n_envs: Environments.
        extra: Further float32 columns that each step has, such as a behaviour policy's log-probability or a recurrent state: the
            shape of an entry by name. Samplers give those that are named in `extra`.
        allocate: Where the columns lie; `PersistentReplayBuffer` keeps them in files.

    Raises:
        ConfigError: a ring would have fewer than 2 rows, or an extra column has a name that is taken.
    """

    options: Mapping[str, Any] = MappingProxyType({})  # what its kind is made with besides, which a file says too

    def __init__(
        self,
        capacity: int,
        spec: Spec,
        n_envs: int = 1,
        *,
        extra: Mapping[str, tuple[int, ...]] | None = None,
        allocate: Allocate = in_memory,
    ) -> None:
        rows = capacity // n_envs if n_envs > 0 else 0
        if rows < 2:
            raise ConfigError(f"A replay buffer of capacity {capacity} has no 2 rows for each of {n_envs} environments.")
        self.capacity, self.spec, self.n_envs, self.rows = rows * n_envs, spec, n_envs, rows
        self.extra = {name: tuple(shape) for name, shape in (extra or {}).items()}
        for name in self.extra:
            if name in _TAKEN or "/" in name:
                raise ConfigError(f"The extra column {name!r} has a name that the buffer uses itself.")
        self._observation = spec.shown()
        kinds = kinds_of({**self._observation, "action": spec.action}, {"reward": (), **self.extra})
        self._rings = Rings(rows, n_envs, kinds, allocate)
        self._windows: dict[tuple[int, int, Until, int], Starts] = {}  # by arguments of `windows`, made when first drawn from
        self._whole: dict[bool, Starts] = {}  # by whether what cannot be bootstrapped from is left out
        self._samplers: dict[tuple[Any, ...], Any] = {}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """[capacity, ...] by name: environment e owns rows e · rows … (e + 1) · rows - 1."""
        return self._rings.columns

    @property
    def n_transitions(self) -> int:
        """Steps in the rings, also those that cannot be drawn yet."""
        return self._rings.n_transitions

    @property
    def n_written(self) -> int:
        """Rows ever written, closing rows and those that were overwritten included."""
        return int(self._rings.head.sum())

    def __len__(self) -> int:
        return self.n_transitions

    # ---- writing

    def append(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        final_observation: Any | None = None,
        **extra: Any,
    ) -> None:
        """One step of every environment.

        Args:
            observation: [n_envs, ...] or a dict of such arrays: what was seen before the action. `Masked` observations, or the
                keywords `action_mask` and `final_action_mask` [n_envs, n], tell which actions are legal, if the spec says so.
            action: [n_envs] integers or [n_envs, ...] floats, raw.
            reward: [n_envs].
            terminated: [n_envs] bool; the MDP ended.
            truncated: [n_envs] bool; the episode was cut. Where `terminated` is set too, that wins.
            final_observation: [n_envs, ...], read where an episode ended: what followed the action (`StepResult.observation`).
                None: it is missing, and windows that end at a truncation are then never drawn.
            **extra: [n_envs, ...] for each of the buffer's extra columns.

        Raises:
            DataError: an array has another shape than the spec says, or an extra column is missing.
        """
        self._append(slice(0, self.n_envs), observation, action, (reward, terminated, truncated), final_observation, extra)

    def add(
        self,
        observation: Any,
        action: Any,
        reward: float,
        terminated: bool = False,
        truncated: bool = False,
        final_observation: Any | None = None,
        env: int = 0,
        **extra: Any,
    ) -> None:
        """Append one step of one environment, 0 … n_envs - 1; arguments as `append`'s without their first axis."""
        if not 0 <= env < self.n_envs:
            raise ConfigError(f"There is no environment {env}; this buffer has {self.n_envs}, counted from 0.")
        single = {name: one(value) for name, value in extra.items()}
        final = None if final_observation is None else one(final_observation)
        self._append(slice(env, env + 1), one(observation), one(action), ([reward], [terminated], [truncated]), final, single)

    def _append(
        self,
        rings: slice,
        observation: Any,
        action: Any,
        flat: tuple[Any, Any, Any],
        final_observation: Any | None,
        extra: Mapping[str, Any],
    ) -> None:
        n, extra = rings.stop - rings.start, dict(extra)
        observation = masked(observation, extra.pop(ACTION_MASK, None))
        final_mask = extra.pop(f"final_{ACTION_MASK}", None)
        seen = columns_of(observation, self._observation, n)
        action = as_array("action", action)
        action = action.reshape(-1) if isinstance(self.spec.action, Discrete) else action
        if action.shape != (n, *self.spec.action.shape):
            raise DataError(f"action has shape {list(action.shape)}; {[n, *self.spec.action.shape]} is needed.")
        words = ("reward", "terminated", "truncated")
        rewards, ends, cuts = (as_array(word, part).reshape(-1) for word, part in zip(words, flat, strict=True))
        if not len(rewards) == len(ends) == len(cuts) == n:
            given = f"{len(rewards)}, {len(ends)}, {len(cuts)}"
            raise DataError(f"reward, terminated and truncated need {n} entries each; they have {given}.")
        if wrong := extra.keys() ^ self.extra.keys():
            raise DataError(f"The buffer has the extra columns {sorted(self.extra)}; {min(wrong)!r} does not fit.")
        ends, cuts = ends.astype(bool), cuts.astype(bool)
        ended, final = np.flatnonzero(ends | cuts).tolist(), None
        if ended and final_observation is not None:
            final = columns_of(masked(final_observation, final_mask), self._observation, n, final=True)
        columns = {**seen, "action": action, "reward": rewards, "terminated": ends, "truncated": cuts & ~ends}
        columns |= {name: as_array(name, value) for name, value in extra.items()}
        for name, shape in self.extra.items():
            if columns[name].shape != (n, *shape):
                raise DataError(f"{name} has shape {list(columns[name].shape)}; {[n, *shape]} is needed.")
        self._write(rings, columns)
        for (td_steps, frames, until, _), starts in self._windows.items():  # the row n back has all that its window needs
            for e in range(rings.start, rings.stop):
                if until != "end" and (row := int(self._rings.head[e]) - 1 - td_steps) >= self._rings.open[e]:
                    self._push(starts, frames, e, row, td_steps)
        for k in ended:
            self._close(rings.start + k, None if final is None else {name: part[k : k + 1] for name, part in final.items()})

    def cut_episodes(self, final_observation: Any | None = None) -> None:
        """Ends unfinished episodes, truncated: the environments will be reset, after a run was resumed say.

        Args:
            final_observation: [n_envs, ...], what the environments show now. None: it is missing.
        """
        final = None
        if final_observation is not None:
            final = columns_of(final_observation, self._observation, self.n_envs, final=True)
        for e in range(self.n_envs):
            self._cut(e, None if final is None else {name: part[e : e + 1] for name, part in final.items()})

    def stop_current_episode(self, env: int = 0, final_observation: Any | None = None) -> None:
        """Truncate the unfinished episode of one environment, if there is one; see `cut_episodes`."""
        final = None if final_observation is None else columns_of(one(final_observation), self._observation, 1, final=True)
        self._cut(env, final)

    def _cut(self, e: int, final: dict[str, Any] | None) -> None:
        if self._rings.is_open(e):
            self.columns["truncated"][self._rings.last(e)] = True
            self._close(e, final)

    def _write(self, rings: slice, values: Mapping[str, Any], *, closing: bool = False, missing: bool = False) -> None:
        """Write the next row of each of some rings; what could be drawn only with a row that is overwritten no longer can."""
        if queues := (*self._windows.values(), *self._whole.values()):
            for e, slot in self._rings.full(rings):
                for starts in queues:
                    starts.evict(e, slot)
        self._rings.write(rings, values, closing=closing, missing=missing)

    def _close(self, e: int, final: dict[str, Any] | None) -> None:
        """Write the closing row of the open episode, whose last step was just written."""
        rings, last = self._rings, self._rings.last(e)
        first, terminated = int(rings.open[e]), bool(self.columns["terminated"][last])
        seen = final or {name: self.columns[name][last : last + 1] for name in self._observation}
        self._write(slice(e, e + 1), seen, closing=True, missing=final is None)
        closing, blind = int(rings.head[e]) - 1, final is None and not terminated
        for (td_steps, frames, until, ahead), starts in self._windows.items():  # windows that the end makes shorter, or known
            ends = terminated or (final is not None and until != "action")
            for row in range(first if until == "end" else max(first, closing - td_steps), closing):
                if ends or row < closing - td_steps:
                    self._push(starts, frames, e, row, min(td_steps + ahead, closing - blind - row))
        for bootstrap, whole in self._whole.items():
            if first >= rings.tail[e] and (length := closing - first - (blind and bootstrap)):
                whole.push(e, rings.slot(e, first), length)

    def _push(self, starts: Starts, frames: int, e: int, row: int, length: int) -> None:
        """Offer a complete window of `length` steps for drawing, if all of its frames are still there."""
        slot = self._rings.slot(e, row)
        if row >= self._rings.tail[e] and row - min(int(self._rings.step[slot]), frames - 1) >= self._rings.tail[e]:
            starts.push(e, slot, length)

    # ---- drawing

    @property
    def n_episodes(self) -> int:
        """Finished episodes of which nothing has been overwritten."""
        return self.whole().n

    def n_windows(self, td_steps: int = 1) -> int:
        """Count the transitions that may be drawn as n-step windows."""
        return self.windows(td_steps).n

    def sample(self, batch_size: int, step: int, seed: int = 0, **options: Any) -> Batch:
        """Draw unscaled transitions, a function of (contents, seed, step); options are `TransitionSampler`'s."""
        return self._sampler(TransitionSampler, batch_size, seed, options).sample(step)

    def sample_episodes(self, n: int, max_length: int | None = None, *, step: int, seed: int = 0, **options: Any) -> Sequences:
        """Draw finished episodes, or random subsequences of at most `max_length` steps; options are `EpisodeSampler`'s."""
        return self._sampler(EpisodeSampler, n, seed, {"max_length": max_length, **options}).sample(step)

    def _sampler(self, kind: Any, batch_size: int, seed: int, options: Mapping[str, Any]) -> Any:
        key = (kind, batch_size, seed, *((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(options.items())))
        if key not in self._samplers:
            self._samplers[key] = kind(self, batch_size, seed, **options)
        return self._samplers[key]

    def sampler(self, batch_size: int, seed: int | Sequence[int] = 0, **options: Any) -> TransitionSampler:
        """Make a sampler of transitions over this buffer: see `TransitionSampler`."""
        return TransitionSampler(self, batch_size, seed, **options)

    def windows(self, td_steps: int = 1, frames: int = 1, until: Until = "observation", ahead: int = 0) -> Starts:
        """The rows at which n-step windows may start, kept up to date by `append`; `until` what must be known of what follows.

        With `ahead`, which takes `until` "end", they tell of up to so many steps after the window too. ConfigError: td_steps is 0.
        """
        key = td_steps, frames, until, ahead
        if key not in self._windows:
            if td_steps < 1:
                raise ConfigError(f"td_steps is {td_steps}; it must be at least 1.")
            self._windows[key] = Starts(self._rings.step, self._rings.tail, self.rows, frames)
            self._find_windows(*key)
        return self._windows[key]

    def whole(self, bootstrap: bool = False) -> Starts:
        """Return the rows at which finished episodes that are all there start; `bootstrap` leaves out blind ends."""
        if bootstrap not in self._whole:
            self._whole[bootstrap] = Starts(self._rings.step, self._rings.tail, self.rows)
            self._find_episodes(bootstrap)
        return self._whole[bootstrap]

    def _find_windows(self, td_steps: int, frames: int, until: Until, ahead: int) -> None:
        """Find anew what `append` would have kept."""
        rings = self._rings
        for e in range(self.n_envs):
            slots = rings.slots(e)
            closing, step, row = self.columns["closing"][slots], rings.step[slots], np.arange(len(slots))
            ends = np.flatnonzero(closing)
            episode = np.searchsorted(ends, row)
            finished = episode < len(ends)
            # an unfinished episode has no closing row: windows need the row of their next observation, which is not yet written
            left = np.append(ends, len(slots) - 1)[episode] - row
            blind = np.append(self._blind(slots, acted=until == "action")[ends], True)[episode]
            drawable = (~blind & (left > 0)) | (left >= td_steps + finished)
            drawable &= (row >= np.minimum(step, frames - 1)) & (finished | (until != "end"))
            length = np.minimum(left - (blind & finished), td_steps + ahead)
            self._windows[td_steps, frames, until, ahead].rebuild(e, slots[drawable], length[drawable])

    def _find_episodes(self, bootstrap: bool) -> None:
        for e in range(self.n_envs):
            slots = self._rings.slots(e)
            ends = np.flatnonzero(self.columns["closing"][slots])
            steps = self._rings.step[slots[ends]].astype(np.int64)
            lengths = steps - (self._blind(slots)[ends] & bootstrap)
            there = (ends >= steps) & (lengths > 0)
            self._whole[bootstrap].rebuild(e, slots[(ends - steps)[there]], lengths[there])

    def _blind(self, slots: np.ndarray, *, acted: bool = False) -> np.ndarray:
        """Mark closing rows of a ring, oldest first, that nothing may be bootstrapped from, or from whose action."""
        terminated = np.roll(self.columns["terminated"][slots], 1)  # of the step before; the oldest row has none and needs none
        return self.columns["closing"][slots] & (self._rings.missing[slots] | acted) & ~terminated

    # ---- keeping

    def to_dataset(self, name: str = "replay", environment: Environment | None = None) -> Dataset:
        """Copy what the rings hold, environment after environment, to a dataset in memory. Raises DataError where there is nothing.

        An unfinished episode ends truncated, its final observation missing. Of a partly overwritten episode the rest stays.
        """
        from ..dataset import Dataset  # what only trains needs no Arrow

        told = {"replay": {"n_envs": self.n_envs}}
        steps = self._rings.steps(tuple(self._observation))
        return Dataset.from_steps(steps, name=name, spec=self.spec, environment=environment, provenance=told)

    def episode(self, slot: int) -> Episode:
        """Copy the finished episode whose first row lies at `slot`."""
        e, rings = slot // self.rows, self._rings
        slots = rings.slots(e)
        rows = slots[int((slots == slot).argmax()) :]
        rows = rows[: int(self.columns["closing"][rows].argmax()) + 1]
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Episode(columns, bool(columns["terminated"][-2]), not bool(rings.missing[rows[-1]]))

    def latest(self, steps: int) -> np.ndarray:
        """[steps, n_envs] int64: the rows of `columns` with the latest steps of each environment, oldest first.

        Raises ConfigError where an environment has made fewer, or the buffer no longer holds so many.
        """
        if (plain := self._rings.newest(steps)) is not None and not self.columns["closing"][plain].any():
            return plain
        newest = [self._rings.slots(e, 2 * steps) for e in range(self.n_envs)]  # no two closing rows follow each other
        rows = [slots[~self.columns["closing"][slots]][-steps:] for slots in newest]
        if min(map(len, rows)) < steps:
            raise ConfigError(f"The replay buffer holds {min(map(len, rows))} steps of an environment, and {steps} are wanted.")
        return np.stack(rows, axis=1)

    def segments(self, steps: int, draws: np.ndarray) -> np.ndarray:
        """[steps, n_envs] int64: as `latest`, of steps that follow each other and begin anywhere, across ends of episodes too.

        Args:
            steps: Of each environment.
            draws: Uniform numbers in [0, 1), [n_envs, K]: of K rows the first that begins so many steps is taken; else the latest.
        """
        rings, found = self._rings, self.latest(steps)
        for e, each in enumerate(draws):
            tail, head = int(rings.tail[e]), int(rings.head[e])
            for row in (tail + (each * (head - tail)).astype(np.int64)).tolist():
                slots = e * self.rows + np.arange(row, min(row + 2 * steps, head)) % self.rows
                closing = self.columns["closing"][slots]
                if not closing[0] and len(taken := slots[~closing][:steps]) == steps:
                    found[:, e] = taken
                    break
        return found

    def after(self, slots: np.ndarray) -> np.ndarray:
        """Return the rows of `columns` that follow steps at `slots` [..., n_envs]; -1 where that is not written yet."""
        rings, e = self._rings, slots // self.rows
        following = e * self.rows + (slots + 1) % self.rows
        newest = np.array([rings.last(k) for k in range(self.n_envs)])
        return np.where(slots == newest[e], -1, following)

    def begins(self, slots: np.ndarray) -> np.ndarray:
        """Mark which of the steps at `slots` are their episodes' first."""
        return self._rings.step[slots] == 0

    def finished_rows(self, env: int = 0, since: int = 0) -> tuple[np.ndarray, int]:
        """Return the rows with an environment's finished episodes, [T] int64; and `since` of a later call, for new ones."""
        return self._rings.finished(env, since)

    def current_episode(self, env: int = 0) -> np.ndarray:
        """Return the rows of `columns` with an environment's unfinished episode, [T] int64, but those that were overwritten."""
        return self._rings.unfinished(env)

    def state(self) -> dict[str, np.ndarray]:
        """Return all that `load_state` needs, by name, without unused rows; read it before the next `append`."""
        return self._rings.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the buffer that gave `state`, whose arrays are copied: draws go on as there. Raises DataError."""
        self._rings.load_state(state)
        for key in self._windows:  # in place: samplers hold them
            self._find_windows(*key)
        for bootstrap in self._whole:
            self._find_episodes(bootstrap)

    def save(self, path: str | Path) -> None:
        """Write the buffer into a NumPy archive, all of it or nothing; `load` makes it again, of its kind."""
        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Load what `save` wrote, of the kind that it was and with its priorities; one from a folder lies in memory now.

        `options` are those of a prioritised buffer that a file cannot hold: what is no number or text, a function or a scaler say.
        Raises StorageError where there is no file, DataError where it is damaged or of a kind that is no `cls`, ConfigError of
        options.
        """
        return load(Path(path), cls, options)
