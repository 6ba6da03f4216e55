"""Transitions as an algorithm sees them: what it would do there, and what it thinks that is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ...data.dataset import Dataset
from ...data.episodes import Episode
from ...data.errors import ConfigError
from ...data.random import fold, root_key
from ...data.recording import Recording
from ...data.sampling import TransitionSampler
from ...data.spec import as_recorded
from ..acting.fitted import policy_module
from ..dynamics.held_out import next_recorded
from ..environments.spaces import check_spaces
from ..learning.estimator import Estimator
from ..learning.fit import Fit
from ..learning.setup import sampling, seen_spec
from ..ports import drawn, memories
from ..recurrence import remembers
from ..wants import Stretches

Act = Callable[[Any, Tensor], Tensor]
"""Raw actions at raw observations [B, ...], with the random numbers of an address."""
Data = Dataset | Sequence[Episode]
"""What is looked at: a dataset, an `MDPDataset` among them, or a list of episodes."""

_BYTES = 1 << 26  # of episodes in a list that are brought together at once


class Steps(NamedTuple):
    """The places of transitions in their episodes."""

    number: Tensor  # [B] int64, from 0
    returns: Tensor  # [B] float64: of the whole episode, undiscounted and unscaled
    followed: Tensor  # [B] bool: whether one knows what came next, the MDP's end included


class Seen:
    """Transitions, and what an algorithm does and thinks there: each worked out when it is first asked for, and once.

    `batch` has observations and actions unscaled and rewards scaled, as `open_transitions` gives them; `key` is the address of the
    random numbers of a policy that always draws.
    """

    def __init__(self, fit: Fit, act: Act, batch: Batch, key: Tensor, steps: Steps | None = None) -> None:
        self.fit, self.batch = fit, batch
        self._act, self._key, self._steps = act, key, steps

    @property
    def steps(self) -> Steps:
        assert self._steps is not None, "only a walk knows"
        return self._steps

    @cached_property
    def greedy(self) -> Tensor:
        """π(s), raw: floats [B, A] or int64 [B]."""
        return self._acted(self.batch.observation)

    @cached_property
    def taken(self) -> Tensor:
        """Qᵢ(s, a) of the data's actions and each critic i, [members, B]."""
        return self._values(self._here, self.batch.action)

    @cached_property
    def best(self) -> Tensor:
        """Qᵢ(s, π(s)), [members, B]."""
        return self._values(self._here, self.greedy)

    @cached_property
    def td_error(self) -> Tensor:
        """One step's r + γ Q(s', π(s')) - Q(s, a), [B]; Q is the mean over critics."""
        there = self.batch.next_observation
        after = self._values(self.fit.scaling.observation(there), self._acted(there)).mean(0)
        return self.batch.reward + self.batch.discount * after - self.taken.mean(0)

    @cached_property
    def distance(self) -> Tensor:
        """Squared differences of continuous actions, π(s) - a, in the data's units, [B, A] float64."""
        return (self.greedy.double() - self.batch.action.double()).square()

    @cached_property
    def match(self) -> Tensor:
        return self.greedy == self.batch.action

    @cached_property
    def _here(self) -> Any:
        return self.fit.scaling.observation(self.batch.observation)

    def _acted(self, observation: Any) -> Tensor:
        return self._act(observation, self._key)

    def _values(self, observation: Any, action: Tensor) -> Tensor:
        return self.fit.algorithm.values(self.fit.nets(), observation, self.fit.scaling.action(action))


def own_policy(fit: Fit) -> Act:
    module = policy_module(fit)
    return lambda observation, key: module.draw(observation, lambda n: drawn(module.ports, key, n, module.dtype))


def _policy(algorithm: Estimator) -> Act:
    """The policy of an algorithm; of what judges another's that one. Raises ConfigError where it looks back, or there is none."""
    fit = algorithm.fitted
    judged = fit.algorithm.acts_by(fit.spec)
    looks_back = memories(fit.ports) or remembers(fit.config) or isinstance(fit.sources.wants, Stretches)
    if looks_back or (judged is not None and judged.start(1) is not None):
        raise ConfigError(f"{algorithm.name} acts on what came before, so there is no action of it at an observation alone.")
    if judged is None:
        return own_policy(fit)

    def act(observation: Any, key: Tensor) -> Tensor:
        raw = pytree.tree_map(lambda part: part.cpu().numpy(), observation)
        return torch.as_tensor(as_recorded(fit.spec.action, judged.predict(raw)), device=fit.device)

    return act


def open_transitions(fit: Fit, data: Recording, *, blind: bool) -> TransitionSampler:
    """Open transitions by number, with as many frames, the discount and the scaled rewards that `fit` learns from.

    Observations and actions are left as they are; rows are read where they lie, some at a time. `blind`: whether the last step of a
    recording that was cut, and does not say what came next, is among them.
    """
    kind = sampling(fit.config)
    return TransitionSampler(
        data,
        1,
        gamma=fit.learner.discounts[0],
        reward_scaler=getattr(fit.config, "reward_scaler", None),
        bootstrap=not blind,
        next_action=False,
        frames=kind.frames,
        frame_padding=kind.frame_padding,
        dtype=fit.dtype,
        device=fit.device,
        free_memory=lambda device: 0,  # each row is read once: a column on the device would only be in training's way
    )


def walk(algorithm: Estimator, data: Data, size: int = 1024, *, first: bool = False) -> Iterator[Seen]:
    """Go through every transition of some data in order, `size` at a time, of which alone rows are read.

    `first`: only the first step of each episode. Raises ConfigError where the algorithm is not trained, has no policy or one that
    looks back, or `size` is below 1; DataError where the data are empty, or have other spaces than those that it was fitted on.
    """
    if size < 1:
        raise ConfigError(f"window_size is {size}; it counts transitions that are looked at together.")
    fit, act, count = algorithm.fitted, _policy(algorithm), 0
    key = root_key(0, fit.device)
    for part in recordings(data):
        shown = seen_spec(fit.config, part.spec)
        check_spaces(shown, fit.spec, part.name, f"this {algorithm.name}", fewer_actions="shown")
        sampler, episodes = open_transitions(fit, part, blind=True), part.episodes
        ends = np.cumsum(np.asarray(episodes.steps, np.int64))
        starts = ends - episodes.steps
        cut = ~(np.asarray(episodes.terminated) | np.asarray(episodes.final_recorded))
        n = len(starts) if first else int(ends[-1])
        for begin in range(0, n, size):
            numbers = np.arange(begin, min(begin + size, n))
            numbers = starts[numbers] if first else numbers
            of = np.searchsorted(ends, numbers, side="right")
            told = (numbers - starts[of], np.asarray(episodes.returns, np.float64)[of], ~(cut[of] & (numbers == ends[of] - 1)))
            steps = Steps(*(torch.from_numpy(column).to(fit.device) for column in told))
            yield Seen(fit, act, sampler.at(torch.from_numpy(numbers)), fold(key, count), steps)
            count += 1


def followed(algorithm: Estimator, data: Data, size: int) -> Iterator[Batch]:
    """Raw transitions whose next observation was recorded, in order, `size` at a time.

    Raises ConfigError where the algorithm is not trained, DataError where the data are empty, or have other spaces.
    """
    for part in recordings(data):
        check_spaces(part.spec, algorithm.fitted.spec, part.name, f"this {algorithm.name}")
        sampler = TransitionSampler(part, 1, next_action=False, free_memory=lambda device: 0)
        for at in torch.from_numpy(np.flatnonzero(next_recorded(part))).split(size):
            yield sampler.at(at)


def recordings(data: Any) -> Iterator[Recording]:
    """A dataset as it is; a list of episodes as datasets of some of them each, so that no more is in memory at once.

    Raises DataError where it is something else, or empty.
    """
    if isinstance(data, Recording):
        yield data
        return
    some, n_bytes = list[Episode](), 0
    given: Any = data if isinstance(data, Iterable) else (data,)
    for episode in given:
        if not isinstance(episode, Episode):
            Dataset.from_episodes(data)  # pyright: ignore[reportArgumentType]  # which says what is wrong
        some.append(episode)
        n_bytes += sum(column.nbytes for column in episode.columns.values())
        if n_bytes >= _BYTES:
            yield Dataset.from_episodes(some)
            some, n_bytes = [], 0
    if some or not len(given):
        yield Dataset.from_episodes(some)
