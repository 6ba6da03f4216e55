"""Experience that is still being gathered: rings of rows, one an environment, with the columns of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError, DataError
from ..spec import Box, Dict, Environment, Spec
from ..steps import steps_from_rows
from .sampler import ReplaySampler
from .starts import Starts

if TYPE_CHECKING:
    from ..batch import Batch
    from ..dataset import Dataset


class ReplayBuffer:
    """The latest steps of n environments, each in a ring of its own, closing rows included.

    Rows are as in a dataset: an episode of T transitions takes T + 1 rows, so the next observation is always the next row. A full
    ring overwrites its oldest rows; what is left of an episode stays usable.

    Args:
        capacity: Rows in all; each ring has capacity // n_envs of them. Memory is touched only as it fills.
        spec: The spaces.
        n_envs: Environments.

    Raises:
        ConfigError: a ring would have fewer than 2 rows.
    """

    def __init__(self, capacity: int, spec: Spec, n_envs: int = 1) -> None:
        rows = capacity // n_envs if n_envs > 0 else 0
        if rows < 2:
            raise ConfigError(f"A replay buffer of capacity {capacity} has no 2 rows for each of {n_envs} environments.")
        self.capacity, self.spec, self.n_envs, self.rows = rows * n_envs, spec, n_envs, rows
        space = spec.observation
        named = {f"observation/{k}": box for k, box in space.spaces.items()} if isinstance(space, Dict) else {"observation": space}
        self._observation: dict[str, Box] = named
        kinds = {name: (space.shape, _stored(space.dtype)) for name, space in [*self._observation.items(), ("action", spec.action)]}
        kinds |= {"reward": ((), "float32"), "terminated": ((), "bool"), "truncated": ((), "bool"), "closing": ((), "bool")}
        # flat, [n_envs · rows, ...]: environment e owns rows e · rows … (e + 1) · rows - 1
        self.columns: dict[str, np.ndarray] = {
            name: np.zeros((self.capacity, *shape), dtype) for name, (shape, dtype) in kinds.items()
        }
        self._missing = np.zeros(self.capacity, bool)  # closing rows without a recorded final observation
        self._head = [0] * n_envs  # rows ever written; row r lies at r % rows of its ring
        self._open = [0] * n_envs  # the row at which the unfinished episode starts; the head where there is none
        self._n_transitions = 0
        self._starts: dict[int, Starts] = {}  # by td_steps, made when first drawn from
        self._samplers: dict[tuple[Any, ...], ReplaySampler] = {}

    @property
    def n_transitions(self) -> int:
        """Steps in the rings, also those that cannot be drawn yet."""
        return self._n_transitions

    def append(
        self, observation: Any, action: Any, reward: Any, terminated: Any, truncated: Any, final_observation: Any | None = None
    ) -> None:
        """One step of every environment.

        Args:
            observation: [n_envs, ...] or a dict of such arrays: what was seen before the action.
            action: [n_envs] integers or [n_envs, ...] floats, raw.
            reward: [n_envs].
            terminated: [n_envs] bool; the MDP ended.
            truncated: [n_envs] bool; the episode was cut. Where `terminated` is set too, that wins.
            final_observation: [n_envs, ...], read where an episode ended: what followed the action (`StepResult.observation`).
                None: it is missing, and windows that end at a truncation are then never drawn.

        Raises:
            DataError: an array has another shape than the spec says.
        """
        seen, final = self._checked(observation), None if final_observation is None else self._checked(final_observation)
        action = np.asarray(action).reshape(-1) if self.spec.discrete else np.asarray(action)
        if action.shape != (self.n_envs, *self.spec.action.shape):
            raise DataError(f"action has shape {list(action.shape)}; {[self.n_envs, *self.spec.action.shape]} is needed.")
        rewards, ends, cuts = (np.asarray(part).reshape(-1) for part in (reward, terminated, truncated))
        if not len(rewards) == len(ends) == len(cuts) == self.n_envs:
            given = f"{len(rewards)}, {len(ends)}, {len(cuts)}"
            raise DataError(f"reward, terminated and truncated need {self.n_envs} entries each; they have {given}.")
        columns = self.columns
        for e in range(self.n_envs):
            ended = bool(ends[e])
            slot = self._claim(e)
            for name, values in seen.items():
                columns[name][slot] = values[e]
            columns["action"][slot], columns["reward"][slot] = action[e], rewards[e]
            columns["terminated"][slot], columns["truncated"][slot] = ended, bool(cuts[e]) and not ended
            columns["closing"][slot] = False
            self._n_transitions += 1
            for n, starts in self._starts.items():  # the row n back is followed by all that its window needs
                if (row := self._head[e] - 1 - n) >= self._open[e] and n < self.rows:
                    starts.push(e, self._slot(e, row), n)
            if ended or cuts[e]:
                self._close(e, None if final is None else {name: values[e] for name, values in final.items()})

    def cut_episodes(self, final_observation: Any | None = None) -> None:
        """Ends unfinished episodes, truncated: the environments will be reset, after a run was resumed say.

        Args:
            final_observation: [n_envs, ...], what the environments show now. None: it is missing.
        """
        final = None if final_observation is None else self._checked(final_observation)
        for e in range(self.n_envs):
            if self._head[e] > self._open[e]:
                self.columns["truncated"][self._slot(e, self._head[e] - 1)] = True
                self._close(e, None if final is None else {name: values[e] for name, values in final.items()})

    def n_windows(self, td_steps: int = 1) -> int:
        """How many transitions may be drawn as n-step windows."""
        return self.starts(td_steps).total

    def sample(self, batch_size: int, step: int, seed: int = 0, *, gamma: float = 0.99, td_steps: int = 1) -> Batch:
        """Unscaled transitions for a gradient step; `sampler` has the choices. A function of (contents, seed, step)."""
        key = (batch_size, seed, gamma, td_steps)
        if key not in self._samplers:
            self._samplers[key] = self.sampler(batch_size, seed, gamma=gamma, td_steps=td_steps)
        return self._samplers[key].sample(step)

    def sampler(self, batch_size: int, seed: int | Sequence[int] = 0, **options: Any) -> ReplaySampler:
        """A sampler over this buffer: see `ReplaySampler`."""
        return ReplaySampler(self, batch_size, seed, **options)

    def to_dataset(self, name: str = "replay", environment: Environment | None = None) -> Dataset:
        """What the rings hold, environment after environment, as a dataset in memory (copied).

        An unfinished episode ends truncated, its final observation missing. Of a partly overwritten episode the rest stays.

        Raises:
            DataError: there is no transition.
        """
        from ..dataset import Dataset  # what only trains needs no Arrow

        if not self.n_transitions:
            raise DataError("The replay buffer holds no transition yet.")
        parts: list[dict[str, np.ndarray]] = []
        missing: list[np.ndarray] = []
        for e in range(self.n_envs):
            slots = self._slots(e)
            if len(slots) and self.columns["closing"][slots[0]]:
                slots = slots[1:]  # nothing is left of its episode but the closing row
            if not len(slots):
                continue
            part, unknown = {key: column[slots] for key, column in self.columns.items()}, self._missing[slots]
            if self._head[e] > self._open[e]:
                part["truncated"][-1] = True
                for key, column in part.items():
                    end = column[-1:] if key in self._observation else np.full_like(column[-1:], key == "closing")
                    part[key] = np.concatenate([column, end])
                unknown = np.append(unknown, True)
            parts.append(part)
            missing.append(unknown[part["closing"]])
        columns = {key: np.concatenate([part[key] for part in parts]) for key in self.columns}
        table = steps_from_rows(columns, ~np.concatenate(missing))
        return Dataset.from_steps(
            table, name=name, spec=self.spec, environment=environment, provenance={"replay": {"n_envs": self.n_envs}}
        )

    def state(self) -> dict[str, np.ndarray]:
        """All that `load_state` needs, by name. Rows of a ring that is not full are left out; read it before the next `append`."""
        filled = min(max(self._head), self.rows)
        rings = {"missing": self._missing} | {f"column/{name}": column for name, column in self.columns.items()}
        state = {name: np.ascontiguousarray(self._rings(column)[:, :filled]) for name, column in rings.items()}
        return state | {"head": np.array(self._head, np.int64), "open": np.array(self._open, np.int64)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Makes this buffer the one that gave `state`: draws go on as there. The arrays are copied.

        Raises:
            DataError: it comes from a buffer of another capacity, spec or number of environments.
        """
        rings = {"missing": self._missing} | {f"column/{name}": column for name, column in self.columns.items()}
        if (wrong := rings.keys() ^ (state.keys() - {"head", "open"})) or not {"head", "open"} <= state.keys():
            raise DataError(
                f"This is no state of such a replay buffer: {min(wrong | ({'head', 'open'} - state.keys()))!r} does not fit."
            )
        head = state["head"].astype(np.int64)
        filled = min(int(head.max(initial=0)), self.rows)
        for name, column in rings.items():
            needed = (self.n_envs, filled, *column.shape[1:])
            if state[name].shape != needed or len(head) != self.n_envs:
                raise DataError(
                    f"{name!r} of the replay buffer's state has shape {list(state[name].shape)}; {list(needed)} is needed."
                )
        for name, column in rings.items():
            self._rings(column)[:, :filled] = state[name]
            self._rings(column)[:, filled:] = 0
        self._head, self._open = head.tolist(), state["open"].astype(np.int64).tolist()
        self._n_transitions = sum(int((~self.columns["closing"][self._slots(e)]).sum()) for e in range(self.n_envs))
        for starts in self._starts.values():  # in place: samplers hold them
            self._rebuild(starts)

    def starts(self, td_steps: int) -> Starts:
        """The rows at which windows may start; kept up to date by `append`, in place. Raises ConfigError for td_steps below 1."""
        if td_steps not in self._starts:
            if td_steps < 1:
                raise ConfigError(f"td_steps is {td_steps}; it must be at least 1.")
            self._starts[td_steps] = Starts(td_steps, self.n_envs, self.rows)
            self._rebuild(self._starts[td_steps])
        return self._starts[td_steps]

    def _checked(self, observation: Any) -> dict[str, np.ndarray]:
        """Observations by column, each of shape [n_envs, ...]."""
        given = isinstance(observation, Mapping)
        parts = {f"observation/{key}": value for key, value in observation.items()} if given else {"observation": observation}
        if parts.keys() != self._observation.keys():
            raise DataError(f"The spec has the observation columns {sorted(self._observation)}; these are {sorted(parts)}.")
        arrays = {name: np.asarray(value) for name, value in parts.items()}
        for name, array in arrays.items():
            if array.shape != (self.n_envs, *self._observation[name].shape):
                raise DataError(f"{name} has shape {list(array.shape)}; {[self.n_envs, *self._observation[name].shape]} is needed.")
        return arrays

    def _slot(self, e: int, row: int) -> int:
        return e * self.rows + row % self.rows

    def _slots(self, e: int) -> np.ndarray:
        """Where the rows of a ring lie, oldest first."""
        return e * self.rows + np.arange(max(0, self._head[e] - self.rows), self._head[e]) % self.rows

    def _rings(self, column: np.ndarray) -> np.ndarray:
        """[n_envs, rows, ...], a view."""
        return column.reshape(self.n_envs, self.rows, *column.shape[1:])

    def _claim(self, e: int) -> int:
        """The slot of the next row, freed of what it held."""
        slot = self._slot(e, self._head[e])
        if self._head[e] >= self.rows:
            self._n_transitions -= not self.columns["closing"][slot]
            for starts in self._starts.values():
                starts.evict(e, slot)
        self._head[e] += 1
        return slot

    def _close(self, e: int, final: dict[str, np.ndarray] | None) -> None:
        """Writes the closing row of the open episode, whose last step was just written."""
        last = self._slot(e, self._head[e] - 1)
        slot = self._claim(e)
        for name in self._observation:
            self.columns[name][slot] = self.columns[name][last] if final is None else final[name]
        for name in ("action", "reward", "terminated", "truncated"):
            self.columns[name][slot] = 0
        self.columns["closing"][slot], self._missing[slot] = True, final is None
        closing = self._head[e] - 1
        if final is not None or self.columns["terminated"][last]:
            for n, starts in self._starts.items():  # windows that the end makes shorter
                for row in range(max(self._open[e], closing - n, closing - self.rows + 1), closing):
                    starts.push(e, self._slot(e, row), closing - row)
        self._open[e] = self._head[e]

    def _rebuild(self, starts: Starts) -> None:
        for e in range(self.n_envs):
            slots = self._slots(e)
            closing = self.columns["closing"][slots]
            terminated = np.roll(self.columns["terminated"][slots], 1)  # of the step before; the oldest row has none and needs none
            starts.rebuild(e, slots, closing, closing & self._missing[slots] & ~terminated)


def _stored(dtype: str) -> str:
    """Types of columns, as `steps_from_arrays` keeps them."""
    return "float32" if dtype == "float64" else dtype
