r"""Fitted Q evaluation (FQE): the value of a given policy π, learnt from data that others recorded.

    L(θ) = E[ Σ_i (r + γ Q'_i(s', π(s')) - Q_i(s, a))² ]                                                     `FQE.critic_loss`

π stays as it is. Q'_i moves towards Q_i by the share `tau` every `target_update_interval` gradient steps; τ = 1 copies it. The
value of the policy is E[Q(s_0, π(s_0))] over first observations, in the units of scaled rewards.

Symbols   π = `algo`, what is judged; Q' = target critic; i numbers the ensemble.
When      To choose among trained policies without an environment. It believes what the critic makes of actions that the data lack:
          look at the spread of an ensemble, and at the estimates of `judge` beside it.
Paper     Le, Voloshin, Yue: Batch Policy Learning under Constraints, ICML 2019, arXiv:1903.08738, section 4.1. Defaults are those
          of d3rlpy 2.8.1, ope/fqe.py.
Choices   1. π is asked once for each observation of a dataset, before training, through whatever runs it: so an ONNX file can be
             judged, and a policy that remembers, and a gradient step costs no pass of it.
          2. π acts greedily, as what is taken away does.
          3. Each critic goes towards its own target, so that members of an ensemble are independent; d3rlpy takes the least.
          4. Always one-step returns: what was recorded after s' is not what π would have done.
          5. With `value_bounds` what is bootstrapped is clipped, as to what rewards of the data allow. True values lie within, and
             critics that follow a policy to where data are lacking cannot run off. d3rlpy has nothing of the kind.
          6. The target is copied after steps C, 2C, …; d3rlpy 2.8.1 also after the first.
          7. The square for discrete actions too, where d3rlpy has the Huber loss, which is no estimate of a mean: of episodes that
             end by chance it finds another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import PlainSerializer
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.masks import Masked
from ...data.sampling.windows import Windows
from ...data.spec import Spec, as_recorded, space_columns
from ..config import ActionsConfig, Bounds, DiscountedConfig, Preset, SampledConfig
from ..critics import Critics, CriticsConfig, QConfig, TargetsConfig, critic_network
from ..definition import LossValue, Network, Verbs, due, loss, transitions
from ..dynamics.held_out import AroundSource
from ..learning.scaling import Scaling
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Mean, MeanQFunction, Values, td_loss
from ..optimizers import Adam, Optimizer
from ..wants import Looks, Material, Transitions
from .decisions import decisions, policy_of

D3RLPY = "d3rlpy 2.8.1, ope/fqe.py"

Judged = Annotated[Any, PlainSerializer(lambda given: given if isinstance(given, str) else None)]
"""A policy: an object, which is not saved, or a path."""


class EvaluationConfig(DiscountedConfig, SampledConfig, QConfig, TargetsConfig):
    """Settings of `FQE` and `DiscreteFQE`."""

    once: ClassVar = CriticsConfig
    never: ClassVar = ("dynamics",)

    algo: Judged = setting(
        None, "π, what is judged: an algorithm, its policy(), or the path of a saved algorithm, a policy package or an ONNX file"
    )
    learning_rate: float = setting(1e-4, "of the critic", source=D3RLPY, gt=0)
    optimizer: Optimizer = setting(Adam(), "what steps the critic", source=D3RLPY)
    batch_size: int = setting(100, "transitions in a gradient step", source=D3RLPY, gt=0)
    n_critics: int = setting(1, "size of the ensemble", source=D3RLPY, gt=0)
    target_update_interval: int = setting(  # pyright: ignore[reportIncompatibleVariableOverride]  # configs are frozen
        100, "C: gradient steps from one move of the target to the next", source=D3RLPY, gt=0
    )
    tau: float = setting(1.0, "τ: share of the critic that enters its target when it moves; 1 copies it", source=D3RLPY, gt=0, le=1)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the critic")
    q_function: MeanQFunction = setting(
        Mean(loss="squared"), "what the critic estimates: mean, or a distribution of the return", source="choice 7"
    )
    value_bounds: Literal["rewards"] | Bounds | None = setting(
        None,
        "what Q'(s', π(s')) is clipped to: two numbers, or rewards: to what the data's allow (at γ = 1 anything); None: it is not",
    )


class FQEConfig(EvaluationConfig, ActionsConfig):
    """Settings of `FQE`."""


class FQE(Critics):
    """Fitted Q evaluation of `algo`. Data: continuous actions. `predict` and what else acts are the judged policy's."""

    Config: ClassVar = FQEConfig
    actions: ClassVar = "continuous"
    presets: ClassVar = {"d3rlpy": Preset(D3RLPY, {})}
    exemptions: ClassVar[Mapping[str, str]] = {
        "scalers_act_once": "the policy that is judged sees raw observations, whatever the critic sees",
        "settings_round_trip": "a policy in memory is not saved; a path is",
    }
    has_td_errors: ClassVar = False

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {"critic": critic_network(spec, config, settings="")}

    def wants(self, config: EvaluationConfig) -> Following:
        judged = self.get_params()["algo"]
        name = judged if isinstance(judged, str) else f"{type(judged).__name__} {id(judged)}"
        return Following(self, config, name, Transitions(config.batch_size, members=transitions(config).members))

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """With bounds of values that follow from the rewards: of an episode that goes on for ever, or ends at once.

        Without a discount there are none, for what is judged may go on for longer than what was logged.
        """
        if config.value_bounds == "rewards" and config.gamma == 1 and dataset.episodes.steps.max() > 1:
            config = config.model_copy(update={"value_bounds": None})
        elif config.value_bounds == "rewards":
            ends = np.array([dataset.statistics.reward.min, dataset.statistics.reward.max])
            low, high = ends if config.reward_scaler is None else config.reward_scaler.transform(ends).numpy()
            steps = 1 / (1 - config.gamma) if config.gamma < 1 else 1.0
            config = config.model_copy(update={"value_bounds": (min(0.0, float(low)) * steps, max(0.0, float(high)) * steps)})
        return super().completed(config, dataset)

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, critic=1, targets=self.config_.target_update_interval)

    def critic(self, learner: Verbs, batch: Batch) -> None:
        if "following" not in batch.extra:
            raise DataError(f"The batch does not say what the policy would do next: {self.name} draws its own in fit.")
        super().critic(learner, batch)

    @loss("member sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return td_loss(nets.critic, batch, self.goal(nets, batch, h))

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        """Give the target of each Q_i, [members, N, B]."""
        following = nets.target.critic.distribution(batch.next_observation, batch.extra["following"])
        if isinstance(bounds := self.config_.value_bounds, tuple):
            following = Values(following.atoms.clamp(*bounds), following.weights)
        return following * batch.discount + batch.reward

    def acts_by(self, spec: Spec) -> Any:
        if (judged := self.get_params()["algo"]) is None:
            raise ConfigError(f"This {self.name} judges no policy: say which with algo, an algorithm or the path of a policy.")
        return policy_of(judged, spec)


@dataclass(frozen=True)
class Following:
    """Transitions, and as `extra["following"]` what the judged policy would do at their next observation, scaled.

    Attributes:
        judged: What tells the policy from others, for those who keep what was drawn.
    """

    page: FQE = field(repr=False)
    config: Any = field(repr=False)
    judged: str
    transitions: Transitions
    reads_data: ClassVar = True

    @property
    def members(self) -> int:
        return self.transitions.members

    def open(self, material: Material, learner: Looks) -> FollowingSource:
        return FollowingSource(self, material, learner)


class FollowingSource(AroundSource):
    """Says what the policy would do next: of a dataset it was asked beforehand, of a buffer it is asked at every draw."""

    def __init__(self, wants: Following, material: Material, learner: Looks) -> None:
        given, config = material.given, wants.config
        self._policy, self._space = wants.page.acts_by(given.spec), given.spec.action
        super().__init__(material.ordinary(wants.transitions))
        self._images = {name: leaf.dtype for name, leaf in space_columns(given.spec.observation).items() if leaf.dtype == "uint8"}
        self._scaling = Scaling(config, given.spec, learner.dtype, learner.device)
        self._known: Tensor | None = None
        if isinstance(given, Dataset):
            drawn = Windows(given).drawable
            self._known = self._scaling.action(decisions(self._policy, given).following(drawn))
        elif self._policy.start(1) is not None:
            raise ConfigError(f"{wants.page.name} judges a policy that remembers by datasets alone: a buffer draws single steps.")

    def _changed(self, batch: Batch) -> Batch:
        if self._known is not None:
            return batch.with_extra(following=self._known[batch.index])
        shape = batch.index.shape
        action = self._policy.predict(self._raw(batch.next_observation, "observation", len(shape)))
        return batch.with_extra(following=self._scaling.action(as_recorded(self._space, action)).unflatten(0, shape))

    def along(self, steps: Tensor) -> list[Batch] | None:
        return None if self._known is None else super().along(steps)

    def _raw(self, seen: Any, column: str, axes: int) -> Any:
        """Observations as they were shown, [B, ...]."""
        if isinstance(seen, Masked):
            return Masked(self._raw(seen.observation, column, axes), seen.action_mask.flatten(0, axes - 1).cpu().numpy())
        if isinstance(seen, dict):
            return {key: self._raw(part, f"{column}/{key}", axes) for key, part in seen.items()}
        affine = self._scaling.observation_affines.get(column)
        shown = affine.reverse(seen) if affine else seen
        rows = shown.flatten(0, axes - 1).cpu().numpy()
        return np.rint(rows).astype(np.uint8) if column in self._images else rows
