"""Pages that try the contract: a judge of policies, a source that renews itself, a kind that repeats, losses of any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from d3ray.algos.base import Algorithm
from d3ray.algos.config import ActionsConfig, ContinuousConfig, SampledConfig
from d3ray.algos.definition import LossValue, Network, Verbs, loss, transitions
from d3ray.algos.nets import Hyper, Nets
from d3ray.algos.wants import Looks, Material, Stretches, Transitions
from d3ray.data.batch import Batch, Sequences, Source
from d3ray.data.config import setting
from d3ray.data.scalers import Affine

Tensors = Mapping[str, Tensor]


def mlp(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(x for i, o in pairwise(sizes) for x in (nn.Linear(i, o), nn.Tanh())))[:-1]


# ---- a judge of other policies


NOTHING = Affine(torch.ones(()), torch.zeros(()))


class Raw(nn.Module):
    """A policy of raw observations and actions for one who sees scaled ones: what it is shown is brought back first."""

    def __init__(self, policy: nn.Module, observation: Affine, action: Affine) -> None:
        super().__init__()
        self.policy = policy
        for name, affine in (("observation", observation), ("action", action)):
            self.register_buffer(f"{name}_scale", affine.scale.clone())
            self.register_buffer(f"{name}_shift", affine.shift.clone())

    def forward(self, observation: Tensor) -> Tensor:
        raw = Affine(self.observation_scale, self.observation_shift).reverse(observation)
        action = self.policy(raw.to(next(self.policy.parameters()).dtype))
        return Affine(self.action_scale, self.action_shift).transform(action).to(observation.dtype)


class ToyFQEConfig(ContinuousConfig):
    learning_rate: float = setting(3e-3, "of the critic", gt=0)
    tau: float = setting(0.05, "share of a step that the target makes", gt=0, le=1)


class ToyFQE(Algorithm):
    """L = E[ (r + γ Q'(s', π(s')) - Q(s, a))² ] of given policies π, one for each row, or one for all."""

    Config: ClassVar = ToyFQEConfig
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {
        "scalers_act_once": "the policy that is judged sees raw observations, and knows no data that were scaled",
        "matmul_precision": "there is no encoder",
    }
    policies: Sequence[nn.Module] = ()

    def guests(self, config: Any, row: int) -> dict[str, nn.Module]:
        scalers = [getattr(config, name) for name in ("observation_scaler", "action_scaler")]
        affines = [NOTHING if scaler is None else scaler.affine(torch.float64, torch.device("cpu")) for scaler in scalers]
        return {"judged": Raw(self.policies[row % len(self.policies)], *affines)}

    def networks(self, spec: Any, config: Any) -> dict[str, Network]:
        size = spec.observation.shape[0] + spec.action.shape[0]
        return {"critic": Network(mlp(size, 16, 1), "learning_rate", target=True)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("critic",)

    def critic(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.critic_loss, "critic", batch)
        learner.track("critic")

    @loss("sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with torch.no_grad():
            following = self.q(nets.target.critic, batch.next_observation, nets.judged(batch.next_observation))
            goal = batch.reward + batch.discount * following
        error = goal - self.q(nets.critic, batch.observation, batch.action)
        return error.square(), {"td_error": error.abs()}

    def q(self, critic: Any, observation: Tensor, action: Tensor) -> Tensor:
        return critic(torch.cat((observation, action), -1))[..., 0]

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return self.q(nets.critic, observation, action)[None]


# ---- a kind that repeats, and draws


class ToyNoisyConfig(SampledConfig, ActionsConfig):
    learning_rate: float = setting(1e-2, "of the policy", gt=0)
    sigma: float = setting(0.3, "of the noise upon actions", gt=0)


class ToyNoisy(Algorithm):
    """L = E[ |a + σ ε - π(s)|² ], three times in a gradient step, each with noise of its own."""

    Config: ClassVar = ToyNoisyConfig
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {"matmul_precision": "there is no encoder"}
    has_td_errors: ClassVar = False

    def wants(self, config: Any) -> Any:
        return transitions(config, following=False)

    def networks(self, spec: Any, config: Any) -> dict[str, Network]:
        return {"policy": Network(mlp(spec.observation.shape[0], 16, spec.action.shape[0]), "learning_rate")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",) * 3

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.noisy_loss, "policy", batch)

    @loss("sample")
    def noisy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        noise = nets.noise("goal", batch.action.shape)
        return (batch.action + h.sigma * noise - nets.policy(batch.observation)).square().mean(-1), {"noise": noise.mean(-1)}

    def act(self, nets: Nets, observation: Any, state: Any, noise: Any) -> tuple[Tensor, Any]:
        return nets.policy(observation).clamp(-1, 1), state


# ---- a source that renews itself at every epoch


@dataclass(frozen=True)
class Anchored:
    """Transitions, and what the policy did at 0 when the epoch began, as `extra["anchor"]` [A]."""

    page: ToyAnchored
    transitions: Transitions
    reads_data: ClassVar = True

    def open(self, material: Material, learner: Looks) -> AnchoredSource:
        return AnchoredSource(self.page, material.ordinary(self.transitions), learner)


class AnchoredSource:
    def __init__(self, page: ToyAnchored, ordinary: Source, learner: Looks) -> None:
        self.page, self.ordinary, self.learner = page, ordinary, learner
        self._anchor: Tensor | None = None

    def sample(self, step: int) -> Batch:
        assert self._anchor is not None, "an epoch begins with between_epochs"
        return self.ordinary.sample(step).with_extra(anchor=self._anchor)

    def between_epochs(self, epoch: int) -> None:
        self._anchor = self.learner.look(self.page.anchor)

    def state(self) -> dict[str, Tensor]:
        return {} if self._anchor is None else {"anchor": self._anchor}

    def load_state(self, tensors: Tensors) -> None:
        self._anchor = tensors["anchor"]


class ToyAnchored(ToyNoisy):
    """Imitation that stays near where the epoch began: L = E[ |a - π(s)|² ] + |π(0) - π_epoch(0) - ε / 10|²."""

    def wants(self, config: Any) -> Any:
        return Anchored(self, transitions(config, following=False))

    def anchor(self, nets: Nets, h: Hyper) -> Tensor:
        at = nets.policy(torch.zeros_like(h.sigma).expand(self.spec_.observation.shape))
        return at + nets.noise("anchor", at.shape) / 10

    @loss("sample")
    def noisy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        away = nets.policy(torch.zeros_like(batch.observation[0])) - batch.extra["anchor"]
        return (batch.action - nets.policy(batch.observation)).square().mean(-1) + away.square().sum(), {}


# ---- losses of any axes


class ToyStepsConfig(ContinuousConfig):
    learning_rate: float = setting(1e-2, "of the policy", gt=0)


class ToySteps(Algorithm):
    """L = E[ |a_t - π(s_t)|² ] over the steps after a burn-in, [B, T]."""

    Config: ClassVar = ToyStepsConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False

    def wants(self, config: Any) -> Any:
        return Stretches(config.batch_size, length=4, burn_in=3)

    def networks(self, spec: Any, config: Any) -> dict[str, Network]:
        return {"policy": Network(mlp(spec.observation.shape[0], 16, spec.action.shape[0]), "learning_rate")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Verbs, batch: Sequences) -> None:
        learner.minimise(self.imitation_loss, "policy", batch)

    @loss("sample step")
    def imitation_loss(self, nets: Nets, batch: Sequences, h: Hyper) -> LossValue:
        return (batch.action[:, 3:] - nets.policy(batch.observation[:, 3:])).square().mean(-1), {}


class ToyMembers(ToyNoisy):
    """Three members, each a row of the policy's last layer, towards the first entry of an action, [members, B]."""

    def networks(self, spec: Any, config: Any) -> dict[str, Network]:
        return {"policy": Network(mlp(spec.observation.shape[0], 16, 3), "learning_rate")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("members",)

    def members(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.member_loss, "policy", batch)

    @loss("member sample")
    def member_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return (nets.policy(batch.observation).T - batch.action[:, 0]).square(), {}
