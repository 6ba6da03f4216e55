"""Several environments stepped as one, in this process, with autoreset off: whoever steps sees where episodes end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from ...data.errors import ConfigError, DataError
from ...data.masks import ACTION_MASK, Masked, has_mask, masked, without_mask
from ...data.seeds import fold, integers, root_key
from ...data.spec import Box, Discrete, Spec, space_columns, typed
from .spaces import encoders, space_of, spec_of


class Policy(Protocol):
    """A policy: raw observations in, raw actions out, for n environments at once."""

    def start(self, n: int) -> Any:
        """The state before the first step of n episodes: None, or a tree of arrays or tensors whose first axis is n."""
        ...

    def step(self, state: Any, observation: Any) -> tuple[Any, np.ndarray]:
        """State and actions [n, ...] for observations [n, ...] (or a dict of such arrays)."""
        ...


class StepResult(NamedTuple):
    observation: Any  # [n, ...] or a dict: what followed the action; the final observation where the episode ended
    reward: np.ndarray  # [n] float64
    terminated: np.ndarray  # [n] bool: the MDP ended
    truncated: np.ndarray  # [n] bool: the episode was cut, by a time limit say
    info: list[dict[str, Any]]

    @property
    def ended(self) -> np.ndarray:
        """[n] bool: who must be reset before the next step."""
        return self.terminated | self.truncated


class VectorEnvironment:
    """n environments of one kind. Made by `make`.

    An environment that ended is not reset: `step` gives its final observation, and the caller resets it. Arrays that are returned
    are the caller's own.

    Actions of a box are clipped to the space's bounds here, at the edge, so what a policy proposes may lie outside, and what was
    proposed is what a caller should record. Observations that are nested are shown as a dict of one level, as columns are named.

    Where an environment tells which of its discrete actions are legal, observations are `Masked`: by `action_mask` in its info, as
    gymnasium's Taxi does, or as a key of its observations, as in RLlib and PettingZoo, which is then taken out of them. To see
    whether info has one the first environment is reset once. Where an episode has ended and nothing is legal any more, all is.

    Args:
        environments: Objects with gymnasium's reset and step; their spaces are taken from the first.
        seed: Seeds of resets that are not given one are derived from (seed, environment, number of its reset). None: not seeded.

    Attributes:
        resets: How often each environment was reset: with the seed it says which reset comes next, so a run that is taken up again
            writes it.

    Raises:
        ConfigError: there is no environment, or a space is of a kind that d3ray does not know.
    """

    def __init__(self, environments: Sequence[Any], seed: int | None = None) -> None:
        if not environments:
            raise ConfigError("A vector of environments needs at least one.")
        self.environments, self.n, self.seed = list(environments), len(environments), seed
        self.spec, self._mask = _with_mask(environments[0])
        self.single = environments[0]  # the first one, for whoever needs its id or time limit
        self.resets = [0] * self.n
        leaves = space_columns(self.spec.observation)
        self._shown = {name.partition("/")[2]: np.zeros((self.n, *leaf.shape), leaf.dtype) for name, leaf in leaves.items()}
        self._legal = np.ones((self.n, self.spec.n_actions), bool) if self.spec.action_mask else None
        space = environments[0].observation_space
        read = encoders(without_mask(space.spaces) if self._mask == "key" else space)
        self._read = {name.partition("/")[2]: both for name, both in read.items()}
        action = environments[0].action_space
        self._action_shape = tuple(action.shape or ())
        self._action_type = np.dtype(getattr(action, "dtype", np.int64))
        self._low, self._high = (action.low, action.high) if isinstance(self.spec.action, Box) else (None, None)

    def reset(
        self,
        indices: Iterable[int] | None = None,
        seeds: Sequence[int] | None = None,
        options: Sequence[dict[str, Any]] | None = None,
    ) -> Any:
        """Start new episodes in the environments `indices` (None: all), and give what all of them show.

        Observations are [n, ...] or a dict of such arrays. `seeds` and `options` are one each, in the order of `indices`; None:
        derived, see the class, and none.
        """
        chosen = range(self.n) if indices is None else list(map(int, indices))
        for at, i in enumerate(chosen):
            asked: dict[str, Any] = {} if options is None else {"options": options[at]}
            seed = self._reset_seed(i) if seeds is None else int(seeds[at])
            observation, info = self.environments[i].reset(seed=seed, **asked)
            self.resets[i] += 1
            self._show(i, observation, info)
        return self._observation()

    def step(self, actions: np.ndarray, indices: Iterable[int] | None = None) -> StepResult:
        """Make one step in each environment, or in those of `indices`.

        Row i of `actions` is environment i's: integers [n] or [n, 1], or floats [n, *shape], clipped to the bounds of the space.
        Rows of environments that are not stepped are not looked at, and at the end they may be absent. Raises DataError where an
        action is NaN, or a reward or a flag is not one number; a reward may be NaN.
        """
        chosen = range(self.n) if indices is None else indices
        rows = self._raw_actions(np.asarray(actions))
        reward = np.zeros(self.n)
        terminated, truncated = np.zeros(self.n, bool), np.zeros(self.n, bool)
        info: list[dict[str, Any]] = [{} for _ in range(self.n)]
        for i in chosen:
            observation, paid, ended, cut, info[i] = self.environments[i].step(rows[i])
            reward[i], terminated[i], truncated[i] = (
                _one(paid, "reward", i),
                _one(ended, "terminated", i),
                _one(cut, "truncated", i),
            )
            self._show(i, observation, info[i], ended=bool(terminated[i] or truncated[i]))
        return StepResult(self._observation(), reward, terminated, truncated, info)

    def keep_float64(self, spec: Spec) -> None:
        """Shows observations in float64 from now on that a policy of this spec takes so; else they come as float32, like data."""
        leaves = {name.partition("/")[2]: leaf for name, leaf in space_columns(spec.observation).items()}
        for key, shown in self._shown.items():
            if key in leaves and leaves[key].dtype == "float64" and shown.dtype == np.float32:
                self._shown[key] = shown.astype(np.float64)

    def close(self) -> None:
        for environment in self.environments:
            environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raw_actions(self, actions: np.ndarray) -> Any:
        """Make what environments take: plain integers (gymnasium looks them up fastest), or arrays within bounds."""
        if isinstance(self.spec.action, Discrete):
            return actions.reshape(len(actions)).astype(np.int64).tolist()
        if not isinstance(self.spec.action, Box):
            return actions.reshape(-1, *self._action_shape).astype(self._action_type)
        clipped = np.clip(actions.reshape(len(actions), *self._action_shape), self._low, self._high)
        if np.isnan(clipped).any():
            raise DataError(
                f"The policy's action is NaN for environment {int(np.isnan(clipped).reshape(len(clipped), -1).any(1).argmax())}."
            )
        return typed(clipped, self._action_type)

    def _show(self, i: int, observation: Any, info: Mapping[str, Any], *, ended: bool = False) -> None:
        if self._legal is not None:
            self._legal[i] = self._mask_of(i, observation if self._mask == "key" else info, ended=ended)
        if self._mask == "key":
            observation = without_mask(observation)
        for key, shown in self._shown.items():
            take, encode = self._read[key]
            part = np.asarray(encode(take(observation)))
            if shown.dtype == np.uint8 and part.dtype.kind == "f":
                raise DataError(f"The environment shows {_called(key)} as {part.dtype}, and its space says bytes.")
            try:
                shown[i] = part
            except ValueError:
                said = f"{_called(key)} of shape {part.shape}, and its space says {shown.shape[1:]}"
                raise DataError(f"The environment shows {said}.") from None

    def _mask_of(self, i: int, told: Mapping[str, Any], *, ended: bool) -> np.ndarray:
        mask = np.asarray(told.get(ACTION_MASK, np.ones(self.spec.n_actions, bool))).astype(bool).reshape(-1)
        if len(mask) != self.spec.n_actions:
            raise DataError(f"Environment {i} gives an action_mask of {len(mask)} actions, and has {self.spec.n_actions}.")
        if not mask.any() and not ended:
            raise DataError(f"Environment {i} gives an action_mask by which no action is legal, and its episode goes on.")
        return mask if mask.any() else ~mask

    def _observation(self) -> Any:
        legal = None if self._legal is None else self._legal.copy()
        if "" in self._shown:
            return masked(self._shown[""].copy(), legal)
        return masked({key: shown.copy() for key, shown in self._shown.items()}, legal)

    def _reset_seed(self, i: int) -> int | None:
        if self.seed is None:
            return None
        key = fold(fold(fold(root_key(self.seed), "environment reset"), i), self.resets[i])
        return integers(key, 1, 2**31 - 1)[0]


def _one(value: Any, what: str, i: int) -> Any:
    """A number as it is, and that of an array of one element."""
    if isinstance(value, float | int):  # as most are
        return value
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biuf":
        return array.item()
    kind = f"an array of shape {list(array.shape)}" if array.dtype.kind in "biuf" else f"{type(value).__name__} {str(value)[:40]!r}"
    raise DataError(f"Environment {i} gives as {what} {kind}, and a step has one number.")


def _called(key: str) -> str:
    return f"the observation {key!r}" if key else "an observation"


def _with_mask(environment: Any) -> tuple[Spec, Literal["key", "info"] | None]:
    spec, space = spec_of(environment), environment.observation_space
    if not spec.discrete:
        return spec, None
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping) and has_mask(parts) and tuple(parts[ACTION_MASK].shape) == (spec.n_actions,):
        return Spec(observation=space_of(without_mask(parts)), action=spec.action, action_mask=True), "key"
    _, info = environment.reset()
    return (spec.model_copy(update={"action_mask": True}), "info") if ACTION_MASK in info else (spec, None)


def facing(policy: Any, spec: Spec) -> Any:
    """A policy for an environment of some spaces: one that acts on stacks of frames remembers those that are shown singly."""
    return policy.facing(spec) if hasattr(policy, "facing") else policy


def looked_back(policy: Any, state: Any, action: np.ndarray, reward: np.ndarray) -> Any:
    """A policy's state once actions [n, ...], an explorer's say, brought rewards [n]; most policies look at neither."""
    if hasattr(policy, "executed"):
        state = policy.executed(state, action)
    return policy.rewarded(state, reward) if hasattr(policy, "rewarded") else state


def rows_of(observation: Any, rows: Any) -> Any:
    """The given rows (an index, a slice, an array of indices) of observations that may be a dict, and of their masks."""
    if isinstance(observation, Masked):
        return Masked(rows_of(observation.observation, rows), observation.action_mask[rows])
    return {k: v[rows] for k, v in observation.items()} if isinstance(observation, dict) else observation[rows]
