r"""Goals drawn in hindsight: what a step led to, later in its episode or elsewhere, stands for what it was meant to lead to.

    current   g = s_i                       with probability `current`
    future    g = s_{min(i + k, last)}      with probability `future`: k geometric with mean 1 / (1 - γ), or such that steps to the
                                            episode's last are alike
    random    g is any step of the data     else
    reward    0 where g is s_i itself, else -1 (or 1 and 0); the discount is 0 there

The observation that follows an episode's last action is no goal: goals are what steps show themselves.

Source    OGBench's code 1d41409, impls/utils/datasets.py: `GCDataset` and, with steps on the way, `HGCDataset`. Read, not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...data.batch import Batch
from ...data.config import Config, setting
from ...data.errors import ConfigError
from ...data.operations.goals import GOAL, SEEN
from ...data.random import fold, integers, uniform
from ...data.sampling import TransitionSampler
from ..wants import Looks, Material, Transitions


class GoalMixture(Config):
    current: float = setting(0.0, "probability that the goal is what the step shows itself", ge=0, le=1)
    future: float = setting(1.0, "probability that it comes later in the episode; else it is any step of the data", ge=0, le=1)
    geometric: bool = setting(
        False, "whether near steps are likelier, by γ for each step; else those to the last are equally likely"
    )

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        if self.current + self.future > 1 + 1e-9:
            raise ValueError(f"current and future are probabilities, and add up to {self.current + self.future:g}.")
        return self


@dataclass(frozen=True)
class Hindsight:
    """Transitions whose goals are drawn in hindsight.

    `observation` and `next_observation` of a batch have the goals that `values` are learnt for, by which reward and discount go;
    `extra["actor_goal"]` are those of the policy. With `subgoal_steps` k these are `extra["high_goal"]`, and `extra["high_state"]`
    is what was seen k steps on, or at the goal where it comes before that, as a goal `extra["high_target"]`; `extra["low_goal"]` is
    what was seen k steps on, as a goal. With `leaps` values look as far: `next_observation` is what was seen k steps on, or at
    their goal where it comes before that, as a goal `extra["value_subgoal"]`; reward, 1 at the goal, and discount are of the steps
    between.

    Attributes:
        size: Transitions of a batch.
        part: See `data.operations.goals.with_goals`.
        values, actor: How goals are drawn; without values, reward, discount and the goals beside observations mean nothing.
        subgoal_steps: k; 0: there are no subgoals.
        negative: Whether a step costs 1 until the goal is reached; else reaching it gives 1.
        following: Whether losses look at the next observation.
        leaps: Whether values look from subgoal to subgoal, and not from step to step.
        members: Of an ensemble whose members each learn from a half of the transitions; see `Transitions`.
    """

    size: int
    part: str | tuple[int, ...] | None
    values: GoalMixture | None
    actor: GoalMixture
    subgoal_steps: int = 0
    negative: bool = True
    following: bool = True
    leaps: bool = False
    members: int = 0
    reads_data: ClassVar = True

    def open(self, material: Material, learner: Looks) -> HindsightSource:
        sampler: Any = material.ordinary(Transitions(self.size, following=self.following))
        if type(sampler).at is not TransitionSampler.at or sampler.grows:
            raise ConfigError(
                "Goals are drawn in hindsight from a dataset, of transitions by their numbers: choose sampler uniform, epoch or "
                "weighted."
            )
        return HindsightSource(self, sampler, learner)


class HindsightSource:
    """Draws transitions and their goals. What is drawn is a function of the step, so there is no state."""

    def __init__(self, wants: Hindsight, sampler: Any, learner: Looks) -> None:
        self._wants, self._sampler = wants, sampler
        self._gamma: Tensor = learner.hyper["gamma"]
        self._key = fold(sampler._key, "goals")

    @property
    def batch_size(self) -> int:
        return self._sampler.batch_size

    @property
    def n_windows(self) -> int:
        return self._sampler.n_windows

    def between_epochs(self, epoch: int) -> None:
        self._sampler.between_epochs(epoch)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None: ...

    def sample(self, step: int, size: int | None = None) -> Batch:
        numbers = self._sampler.numbers(step)
        return self._aimed(numbers if size is None else numbers[..., :size].contiguous(), fold(self._key, step))

    def along(self, steps: Tensor) -> list[Batch] | None:
        numbers = self._sampler.numbers_along(steps)
        if numbers is None:
            return None
        keys = fold(self._key, steps if self._key.ndim == 0 else steps[:, None])
        return [self._aimed(one, key) for one, key in zip(numbers.unbind(), keys.unbind(), strict=True)]

    def _aimed(self, numbers: Tensor, key: Tensor) -> Batch:
        """The batch of these transitions [..., B], with goals at the address `key` [...]."""
        wants, batch = self._wants, self._sampler.at(numbers)
        last = numbers + self._sampler.windows.locate(numbers).left - 1  # of its episode
        actors = self._actors(numbers, last, fold(key, "actor"))
        if wants.values is None:
            return replace(batch, extra={**batch.extra, **actors})
        value = self._drawn(wants.values, numbers, last, fold(key, "value"))
        reached = (value == numbers).to(batch.reward.dtype).to(batch.reward.device)
        gamma = self._gamma.to(batch.reward.device)[..., None] if self._gamma.ndim else self._gamma.to(batch.reward.device)
        goal, after, extra = self._seen(value), batch.next_observation, dict[str, Any]()
        reward, discount = reached - 1 if wants.negative else reached, gamma * (1 - reached)
        if wants.leaps:
            to = self._subgoal(numbers, last, value)
            after = self._sampler.at(to).observation
            extra["value_subgoal"] = self._reached(after)
            steps, reached = (to - numbers).to(reward), (to == value).to(reward)
            reward = gamma**steps * reached
            discount = gamma ** steps.clamp(min=1) * (1 - reached)  # else an episode's last step would be its own target
        return replace(
            batch,
            observation={**batch.observation, GOAL: goal},
            next_observation={**after, GOAL: goal},
            reward=reward,
            discount=discount,
            extra={**batch.extra, **extra, **actors},
        )

    def _subgoal(self, numbers: Tensor, last: Tensor, goal: Tensor) -> Tensor:
        """Numbers k steps on: those of the goal where it comes before that, or of the episode's last."""
        ahead = (numbers + self._wants.subgoal_steps).minimum(last)
        on_the_way = (goal >= numbers) & (goal <= last)
        return torch.where(on_the_way, ahead.minimum(goal), ahead)

    def _actors(self, numbers: Tensor, last: Tensor, key: Tensor) -> dict[str, Any]:
        """The goals that the policy is asked for."""
        wants = self._wants
        goal = self._drawn(wants.actor, numbers, last, key)
        if not wants.subgoal_steps:
            return {"actor_goal": self._seen(goal)}
        state = self._sampler.at(self._subgoal(numbers, last, goal)).observation
        return {
            "low_goal": self._seen((numbers + wants.subgoal_steps).minimum(last)),
            "high_goal": self._seen(goal),
            "high_state": state,
            "high_target": self._reached(state),
        }

    def _drawn(self, mixture: GoalMixture, numbers: Tensor, last: Tensor, key: Tensor) -> Tensor:
        """Numbers of the goals of transitions, of whose episodes `last` are the last ones."""
        n = numbers.shape[-1]
        which, share = (uniform(fold(key, name), (n,), torch.float64) for name in ("which", "share"))
        if mixture.geometric:
            gamma = self._gamma.to(numbers.device, torch.float64)
            ahead = (share.log() / (gamma[..., None] if gamma.ndim else gamma).log()).floor().clamp(max=1e15).long() + 1
            later = (numbers + ahead).minimum(last)
        else:
            nearest = (numbers + 1).minimum(last).double()
            later = (nearest * share + last.double() * (1 - share)).round().long()
        anywhere = integers(fold(key, "anywhere"), n, self._sampler.n_windows)
        goal = torch.where(which < mixture.current + mixture.future, later, anywhere)
        return torch.where(which < mixture.current, numbers, goal)

    def _seen(self, numbers: Tensor) -> Tensor:
        """What transitions show, as a goal; nothing else of them is gathered, for images take most of a draw's time."""
        part = self._wants.part
        shown = self._sampler.shown_at(numbers, part if isinstance(part, str) else SEEN)
        return shown if part is None or isinstance(part, str) else shown[..., list(part)]

    def _reached(self, observation: Any) -> Tensor:
        """What an observation shows, as a goal."""
        part = self._wants.part
        if part is None or isinstance(part, str):
            return observation[part or SEEN]
        return observation[SEEN][..., list(part)]
