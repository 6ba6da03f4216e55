"""Acting that goes on: environments, the replay buffer that remembers what they showed, and where each of them stands."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree  # it has no public name yet

from ...data.errors import ConfigError, DataError
from ...data.masks import mask_of
from ...data.replay import ReplayBuffer
from ...data.spec import from_columns, shapes_of, value_columns
from .collect import proposal, restarted
from .explorers import Explorer, random_actions
from .vector import Policy, VectorEnvironment, looked_back, rows_of

Arrays = dict[str, np.ndarray]
_LONGEST = 100_000  # steps of an unfinished episode that can be played again

# (environments before a step, policy or None where actions are uniform, observations, actions) to the buffer's extra columns
Recorder = Callable[[VectorEnvironment, Any, Any, np.ndarray], Mapping[str, np.ndarray]]


class Rollout:
    """Steps environments, which are reset at the first step, and fills a replay buffer with a ring for each of them.

    Episodes that are unfinished in the buffer are ended, truncated. The first `random_steps` steps have uniform random actions;
    `record` gives the buffer's extra columns of each step, [n, ...] by name; `n_envs` is how many are stepped where others than
    `vector` are. `steps` counts those of each environment, and `observation` is what the environments show, [n, ...] or a dict of
    such arrays; None before the first reset.

    Raises ConfigError where the buffer is of other spaces or of another number of environments.
    """

    def __init__(
        self,
        vector: VectorEnvironment,
        buffer: ReplayBuffer,
        explorer: Explorer,
        *,
        seed: int,
        random_steps: int = 0,
        record: Recorder | None = None,
        n_envs: int | None = None,
    ) -> None:
        if buffer.n_envs != (n := vector.n if n_envs is None else n_envs):
            raise ConfigError(f"The replay buffer is of {buffer.n_envs} environments; {n} are stepped.")
        if shapes_of(buffer.spec) != shapes_of(vector.spec):
            raise ConfigError("The replay buffer is of other observations or actions than the environment's.")
        if buffer.spec.action_mask != vector.spec.action_mask:
            has, other = ("environment", "replay buffer") if vector.spec.action_mask else ("replay buffer", "environment")
            raise ConfigError(f"The {has} has an action_mask and the {other} none: make the buffer with the environment's spec.")
        self.vector, self.buffer, self.explorer, self.seed, self.random_steps = vector, buffer, explorer, seed, random_steps
        self.n = buffer.n_envs
        self.record, self.steps = record, 0
        self.observation: Any = None
        self._memory: Any = None  # of a policy that has one
        self._extra: Mapping[str, np.ndarray] = {}  # of the step that was decided upon
        self._return, self._length = np.zeros(self.n), np.zeros(self.n, np.int64)  # of the episodes that go on
        self._finished: list[tuple[float, int]] = []  # since `metrics` was asked
        self._actions = deque[np.ndarray](maxlen=_LONGEST)  # of the latest steps, [n, ...] each: of all episodes that go on
        buffer.cut_episodes()

    def step(self, policy: Policy | None) -> None:
        """One step of every environment; those whose episode it ended are reset. Without a policy actions are uniform."""
        self.take(policy, self.decide(policy))

    def decide(self, policy: Policy | None) -> np.ndarray:
        vector, space = self.vector, self.vector.spec.action
        if self.observation is None:
            self.observation, self._memory = vector.reset(), self._fresh(policy)
        at = {"step": self.steps, "seed": self.seed}
        random = policy is None or self.steps < self.random_steps
        action = random_actions(space, vector.n, **at, action_mask=mask_of(self.observation)) if random else None
        if action is None or self._memory is not None:  # a policy with a memory sees every observation
            self._memory, proposed = proposal(policy, self.explorer, self._memory, self.observation, **at)
            action = self.explorer.explore_at(self.observation, proposed, space, **at) if action is None else action
        action = np.asarray(action).reshape(vector.n, *space.shape)
        self._extra = {} if self.record is None else self.record(vector, None if random else policy, self.observation, action)
        return action

    def take(self, policy: Policy | None, action: np.ndarray) -> None:
        """Takes the actions that `decide` gave. Raises DataError: a reward is not finite."""
        vector, extra = self.vector, self._extra
        result = vector.step(action)
        if not np.isfinite(result.reward).all():
            worst = int((~np.isfinite(result.reward)).argmax())
            at = f"at step {int(self._length[worst]) + 1} of its episode"
            raise DataError(f"Environment {worst} paid {result.reward[worst]} {at}, which is not finite: look at its step.")
        self._actions.append(action.copy())
        ends = (result.terminated, result.truncated, result.observation)
        self.buffer.append(self.observation, action, result.reward, *ends, **extra)
        self.observation = result.observation
        self._memory = looked_back(policy, self._memory, action, result.reward)
        self._count(result.reward)
        if result.ended.any():
            self._begin_again(policy, np.flatnonzero(result.ended).tolist())

    def _count(self, reward: np.ndarray) -> None:
        self._return += reward
        self._length += 1
        self.steps += 1

    def cut(self, policy: Policy | None) -> None:
        """Ends every episode that goes on, truncated where the environments stand now; new ones begin."""
        if self.observation is not None and (going := np.flatnonzero(self._length).tolist()):
            for i in going:
                self.buffer.stop_current_episode(i, rows_of(self.observation, i))
            self._begin_again(policy, going)

    def _fresh(self, policy: Policy | None) -> Any:
        return None if policy is None else policy.start(self.vector.n)

    def _begin_again(self, policy: Policy | None, ended: list[int]) -> None:
        self._finish(ended)
        for _ in range(len(self._actions) - int(self._length.max())):
            self._actions.popleft()
        self.observation = self.vector.reset(ended)
        self._memory = restarted(self._memory, self._fresh(policy), ended)

    def _finish(self, ended: list[int]) -> None:
        self._finished += [(float(self._return[i]), int(self._length[i])) for i in ended]
        self._return[ended], self._length[ended] = 0, 0

    def metrics(self) -> dict[str, float]:
        """`return`, `length` and number of the `episodes` that ended since the last call; empty where none did."""
        finished, self._finished = self._finished, []
        if not finished:
            return {}
        returns, lengths = zip(*finished, strict=True)
        return {"return": float(np.mean(returns)), "length": float(np.mean(lengths)), "episodes": float(len(finished))}

    def close(self) -> None: ...

    # ---- state

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Give where acting goes on, the buffer included: arrays by name, and JSON. Rows of the buffer are copied."""
        arrays = {f"buffer/{name}": array for name, array in self.buffer.state().items()}
        arrays |= {"return": self._return, "length": self._length}
        if self._actions:
            arrays["actions"] = np.stack(self._actions)
        if self.observation is not None:
            arrays |= {f"shown/{name}": value for name, value in value_columns(self.observation).items()}
        if self._memory is not None:
            arrays |= {f"memory/{k}": np.asarray(leaf) for k, leaf in enumerate(pytree.tree_leaves(self._memory))}
        told = {"steps": self.steps, "resets": list(self.vector.resets), "finished": [list(pair) for pair in self._finished]}
        return arrays, told

    def load_buffer(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Make the buffer what it was when `state` was called, unfinished episodes included: the first half of going on.

        What is kept about its rows, priorities say, is brought back next, before `load_state` may add rows. Raises DataError where
        the arrays come from a buffer of another capacity, spec or number of environments.
        """
        self.buffer.load_state({n.removeprefix("buffer/"): array for n, array in arrays.items() if n.startswith("buffer/")})

    def load_state(self, arrays: Mapping[str, np.ndarray], told: Mapping[str, Any], policy: Policy) -> list[int]:
        """Go on from what `state` gave, `arrays` and `told`, once `load_buffer` has been called; `policy` is what acted.

        An environment that was in the middle of an episode is reset with the episode's seed and given its actions again. Where it
        then shows and pays what it did, it stands where it stood. Where it does not, for not all that it does follows from seed and
        actions, a new episode begins and the old one is cut in the buffer, truncated. Those environments are given back; a warning
        names them too.
        """
        self.steps, self._finished = int(told["steps"]), [(float(r), int(length)) for r, length in told["finished"]]
        self._return, self._length = np.array(arrays["return"], np.float64), np.array(arrays["length"], np.int64)
        shown = {name.removeprefix("shown/"): array for name, array in arrays.items() if name.startswith("shown/")}
        if not shown:
            return []
        vector, fresh = self.vector, policy.start(self.vector.n)
        if fresh is not None:
            leaves, tree = pytree.tree_flatten(fresh)
            self._memory = pytree.tree_unflatten([arrays[f"memory/{k}"] for k in range(len(leaves))], tree)
        self._actions = deque(arrays.get("actions", ()), maxlen=_LONGEST)
        lost = [i for i in range(vector.n) if not self._play_again(i, int(told["resets"][i]), shown)]
        vector.resets[:] = [int(count) for count in told["resets"]]
        for i in lost:
            self.buffer.stop_current_episode(i, from_columns({name: array[i] for name, array in shown.items()}))
        self.observation = vector.reset(lost)
        self._return[lost], self._length[lost] = 0, 0
        self._memory = restarted(self._memory, fresh, lost)
        if lost:
            warn_of(lost)
        return lost

    def _play_again(self, i: int, resets: int, shown: Arrays) -> bool:
        """Replay an unfinished episode; true where the environment showed and paid again what the buffer remembers."""
        vector, length = self.vector, int(self._length[i])
        if vector.seed is None or length > len(self._actions):
            return False
        rows, columns = self.buffer.current_episode(i), self.buffer.columns
        vector.resets[i] = resets - 1
        seen, total = value_columns(vector.reset([i])), 0.0
        for k, action in enumerate(islice(self._actions, len(self._actions) - length, None), len(rows) - length):
            if k >= 0 and not all(np.array_equal(p[i], columns[n][rows[k]], equal_nan=True) for n, p in seen.items()):
                return False
            result = vector.step(action, [i])
            total += float(result.reward[i])
            if result.ended[i] or (k >= 0 and np.float32(result.reward[i]) != columns["reward"][rows[k]]):
                return False
            seen = value_columns(result.observation)
        return total == self._return[i] and all(np.array_equal(p[i], shown[n][i], equal_nan=True) for n, p in seen.items())


def warn_of(lost: list[int]) -> None:
    which = ", ".join(map(str, lost))
    warnings.warn(
        f"The unfinished episodes of environments {which} could not be taken up again, so new ones begin: resets took no "
        "seed, what environments do does not follow from seed and actions, or they are longer than 100,000 steps.",
        stacklevel=3,
    )
