"""A rollout whose steps actors make: it hands out, step by step, the rounds that came from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...data.errors import ConfigError
from ...data.replay import ReplayBuffer
from ...data.spec import from_columns, value_columns
from ..environments.explorers import Explorer
from ..environments.rollout import Rollout, warn_of
from ..environments.vector import Policy, VectorEnvironment
from ..learning.fit import Fit
from .actors import Arrays, Group, Round, Standing, Weights

_PLAIN = ("action", "reward", "terminated", "truncated")


class RoundsRollout(Rollout):
    """Fills a replay buffer with what actors did; environments 0 … n/A - 1 are the first's, and so on.

    `vector` is one environment, whose spaces theirs are; `open` sets the actors to work when they are first needed; `ahead` says
    whether a round is asked for before the one before it is learned from.
    """

    def __init__(
        self,
        vector: VectorEnvironment,
        buffer: ReplayBuffer,
        explorer: Explorer,
        open: Callable[[], Group],
        fit: Fit,
        *,
        seed: int,
        ahead: bool,
    ) -> None:
        super().__init__(vector, buffer, explorer, seed=seed, n_envs=buffer.n_envs)
        self._open_group, self.fit, self.ahead = open, fit, ahead
        self._group: Group | None = None
        self._rounds = deque[list[Round]]()  # that were taken and not gone through
        self._asked = False
        self._at = 0  # the next step in the first of them
        self._steps: Arrays = {}  # of the first of them: columns of all actors, [T, n, ...]
        self._following: Arrays = {}  # what followed each action, [T, n, ...] by column
        self._age: list[int] = []  # gradient steps between the weights that acted and their round, since `metrics` was asked

    def step(self, policy: Policy | None) -> None:
        """The next step of every environment, out of the present round. Raises what an environment raised."""
        if not self._steps or self._at == len(self._steps["reward"]):
            self._open_next()
        t, steps = self._at, self._steps
        observation = from_columns({name: rows[t] for name, rows in steps.items() if name not in _PLAIN})
        terminated, truncated, reward = steps["terminated"][t], steps["truncated"][t], steps["reward"][t]
        following = from_columns({name: rows[t] for name, rows in self._following.items()})
        self.buffer.append(observation, steps["action"][t], reward, terminated, truncated, following)
        self._at += 1
        self._count(reward)
        self._finish(np.flatnonzero(terminated | truncated).tolist())
        self.observation = self._shown(self._at)

    def _shown(self, t: int) -> Any:
        """Give what the environments show before step t of the present round."""
        if t < len(self._steps["reward"]):
            return from_columns({name: rows[t] for name, rows in self._steps.items() if name not in _PLAIN})
        return from_columns(_joined([one.after for one in self._rounds[0]], 0))

    # ---- rounds

    @property
    def group(self) -> Group:
        """The actors."""
        if self._group is None:
            self._group = self._open_group()
        return self._group

    def close(self) -> None:
        """Ends the actors."""
        if self._group is not None:
            self._group.close()

    def _open_next(self) -> None:
        if self._steps:
            self._rounds.popleft()
            self._steps = {}
        if not self._rounds:
            self._take()
        if self.ahead and len(self._rounds) == 1:
            self._ask()
        self._age += [self.fit.learner.step - one.step for one in self._rounds[0]]
        self._cut_lost()
        self._open(0)

    def _ask(self) -> None:
        if not self._asked:
            self.group.ask(Weights.of(self.fit))
            self._asked = True

    def _take(self) -> None:
        self._ask()
        self._rounds.append(self.group.take())
        self._asked = False

    def _open(self, at: int) -> None:
        rounds = self._rounds[0]
        self._at, self._steps = at, _joined([one.columns for one in rounds], 1)
        after = _joined([one.after for one in rounds], 0)
        self._following = {name: np.concatenate([self._steps[name][1:], shown[None]]) for name, shown in after.items()}
        first = 0  # where an episode ended that is what the next one shows first, and its own last is among the finals
        for one in rounds:
            n = one.columns["reward"].shape[1]
            t, e = np.nonzero(one.columns["terminated"] | one.columns["truncated"])
            for name, rows in one.finals.items():
                self._following[name][t, e + first] = rows
            first += n

    def _cut_lost(self) -> None:
        """Cuts episodes that actors could not take up again, where they stood last."""
        first, lost = 0, list[int]()
        for one in self._rounds[0]:
            for i in one.lost:
                lost.append(e := first + i)
                shown = from_columns({name: rows[e] for name, rows in value_columns(self.observation).items()})
                self.buffer.stop_current_episode(e, shown)
                self._return[e], self._length[e] = 0, 0
            first += one.columns["reward"].shape[1]
        if lost:
            warn_of(lost)

    def cut(self, policy: Policy | None) -> None:
        raise ConfigError("Episodes of actors end where their environments end them.")

    def metrics(self) -> dict[str, float]:
        """Give `Rollout.metrics`, and `age` and `replaced`.

        `age` is by how many gradient steps what acted was older than what learned, as rounds began; `replaced` counts actors.
        """
        ages, self._age = self._age, []
        told = {"age": float(np.mean(ages))} if ages else {}
        return super().metrics() | told | {"replaced": float(self._group.replaced if self._group else 0)}

    # ---- state

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Give `Rollout.state`, with rounds that were made and not learned from; one that is being made is waited for."""
        if self._asked:
            self._take()
        arrays, told = super().state()
        kept: list[Any] = []
        for j, rounds in enumerate(self._rounds):
            for k, one in enumerate(rounds):
                parts = {"columns": one.columns, "finals": one.finals, "after": one.after}
                if one is self._rounds[-1][k]:
                    parts["standing"] = one.standing.arrays
                for part, named in parts.items():  # copied: what came from another process may not be written to
                    arrays |= {f"round/{j}/{k}/{part}/{name}": np.array(array) for name, array in named.items()}
            kept.append([{"step": one.step, "lost": list(one.lost), "standing": one.standing.told} for one in rounds])
        return arrays, {**told, "rounds": kept, "at": self._at}

    def load_state(self, arrays: Mapping[str, np.ndarray], told: Mapping[str, Any], policy: Policy) -> list[int]:
        """Go on as `Rollout.load_state`; actors bring their environments back, and say so with their next round."""
        self.steps, self._finished = int(told["steps"]), [(float(r), int(length)) for r, length in told["finished"]]
        self._return, self._length = np.array(arrays["return"], np.float64), np.array(arrays["length"], np.int64)
        for j, rounds in enumerate(told["rounds"]):
            self._rounds.append([])
            for k, about in enumerate(rounds):
                named = {part: _under(arrays, f"round/{j}/{k}/{part}/") for part in ("columns", "finals", "after", "standing")}
                standing = Standing(named.pop("standing"), about["standing"])
                self._rounds[-1].append(Round(**named, standing=standing, step=about["step"], lost=tuple(about["lost"])))
        if self._rounds:
            self.group.begin([one.standing for one in self._rounds[-1]])
            self._open(int(told["at"]))
            self.observation = self._shown(self._at)
        return []


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _joined(parts: Sequence[Arrays], axis: int) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts], axis) for name in parts[0]}
