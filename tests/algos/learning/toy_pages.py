"""Pages that try the contract: one that makes its own rollouts, a judge of policies, a kind that repeats, losses of any axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from d3ray.algos.base import Algorithm
from d3ray.algos.config import ContinuousConfig
from d3ray.algos.definition import LossValue, Network, Verbs, loss, transitions
from d3ray.algos.nets import Hyper, Nets
from d3ray.algos.ports import Noise, Ports
from d3ray.algos.wants import Looks, Material, Stretches, Transitions
from d3ray.data.batch import Batch, Sequences, Source
from d3ray.data.config import setting
from d3ray.data.random import bits, fold, root_key
from d3ray.data.scalers import Affine
from d3ray.data.spec import Box, Spec

Tensors = Mapping[str, Tensor]


def mlp(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(x for i, o in pairwise(sizes) for x in (nn.Linear(i, o), nn.Tanh())))[:-1]


# ---- rollouts of the present policy


class Point:
    """An environment of tensors: x ← x + a / 2 within [-2, 2], with a in [-1, 1], reward -x², no end."""

    spec = Spec(observation=Box(shape=(1,)), action=Box(shape=(1,), low=(-1.0,), high=(1.0,)))

    def reset(self, uniform: Tensor) -> Tensor:
        return 2 * uniform - 1

    def step(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return (after := (x + action.clamp(-1, 1) / 2).clamp(-2, 2)), -after.square().sum(-1)


@dataclass(frozen=True)
class Rollouts:
    """Minibatches of what the policy did last in n environments, which go on where they were.

    Attributes:
        page: Explores, and completes a rollout.
        envs, horizon: n, and steps of each.
        passes, minibatches: How often a rollout is gone through, in an order of its own each time, and in how many parts.
    """

    page: ToyPPO
    envs: int
    horizon: int
    passes: int
    minibatches: int
    reads_data: ClassVar = False

    def begins(self, step: int) -> bool:
        """Whether a rollout is made before this gradient step."""
        return step % (self.passes * self.minibatches) == 0

    def open(self, material: Material, learner: Looks) -> RolloutSource:
        return RolloutSource(self, material.given, learner)


class RolloutSource:
    def __init__(self, wants: Rollouts, env: Any, learner: Looks) -> None:
        self.wants, self.env, self.learner, self.made = wants, env, learner, 0
        keys = torch.stack([root_key(seed, learner.device) for seed in learner.seeds])
        self._key = fold(keys if learner.stacked else keys[0], "order")
        self._rollout: dict[str, Tensor] = {}  # [(S,) T n, …] each
        self._position: Tensor | None = None  # [(S,) n, 1]

    def sample(self, step: int) -> Batch:
        if self.wants.begins(step):
            if self._position is None:
                self._position = self.learner.look(self._reset)
            self._rollout, self._position = self.learner.look(self._collected, self._position)
            self.made += 1
        done, part = divmod(step, self.wants.minibatches)
        order = bits(fold(self._key, done), self.wants.envs * self.wants.horizon).argsort(-1)
        at = order.chunk(self.wants.minibatches, -1)[part]
        rows = {name: _gathered(column, at) for name, column in self._rollout.items()}
        known = {name: rows.pop(name) for name in ("observation", "action", "reward", "next_observation", "discount")}
        return Batch(**known, index=at, extra=rows)

    def between_epochs(self, epoch: int) -> None:
        """Rollouts are made when they are due."""

    def state(self) -> dict[str, Tensor]:
        return {} if self._position is None else {**self._rollout, "position": self._position}

    def load_state(self, tensors: Tensors) -> None:
        self._rollout = {name: tensor for name, tensor in tensors.items() if name != "position"}
        self._position = tensors["position"]

    def _reset(self, nets: Nets, h: Hyper) -> Tensor:
        return self.env.reset(nets.uniform("start", (self.wants.envs, 1)))

    def _collected(self, nets: Nets, x: Tensor, h: Hyper) -> tuple[dict[str, Tensor], Tensor]:
        steps: list[dict[str, Tensor]] = []
        for t in range(self.wants.horizon):
            action, _ = self.wants.page.act(nets, x, {}, {"action": nets.noise(f"step {t}", (self.wants.envs, 1))})
            following, reward = self.env.step(x, action)
            steps.append({"observation": x, "action": action, "reward": reward, "next_observation": following})
            x = following
        rollout = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        rollout |= {"discount": h.gamma.expand(rollout["reward"].shape)} | self.wants.page.completed_rollout(nets, rollout, h)
        return {name: column.flatten(0, 1) for name, column in rollout.items()}, x


def _gathered(column: Tensor, at: Tensor) -> Tensor:
    """Rows [(S,) B] of [(S,) N, …]."""
    if at.ndim == 1:
        return column[at]
    return torch.stack([rows[own] for rows, own in zip(column, at, strict=True)])


class ToyPPOConfig(ContinuousConfig):
    learning_rate: float = setting(1e-2, "of both networks", gt=0)
    clip: float = setting(0.2, "how far π / π_old may be from 1", gt=0)
    kl: float = setting(0.002, "KL(π_old | π) of a minibatch beyond which the policy is held until the next rollout", gt=0)


class ToyPPO(Algorithm):
    """L = -E[ min(ρ A, clip(ρ, 1 ± ε) A) ], ρ = π / π_old, σ = 1/2; returns to the rollout's end, bootstrapped there."""

    Config: ClassVar = ToyPPOConfig
    actions: ClassVar = "continuous"
    holds: ClassVar = ("policy",)

    def wants(self, config: Any) -> Any:
        return Rollouts(self, envs=16, horizon=8, passes=4, minibatches=2)

    def networks(self, spec: Any, config: Any) -> dict[str, Network]:
        return {name: Network(mlp(1, 16, 1), "learning_rate") for name in ("policy", "value")}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("renew", "improve") if step % 8 == 0 else ("improve",)

    def renew(self, learner: Verbs, batch: Batch) -> None:
        learner.release("policy")

    def improve(self, learner: Verbs, batch: Batch) -> None:
        learner.hold(self.strayed, "policy", batch)
        learner.minimise(self.policy_loss, "policy", batch)
        learner.minimise(self.value_loss, "value", batch)

    def strayed(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        return (batch.extra["log_prob"] - self.density(nets, batch.observation, batch.action)).mean() > h.kl

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        ratio = (self.density(nets, batch.observation, batch.action) - batch.extra["log_prob"]).exp()
        advantage = batch.extra["return"] - batch.extra["value"]
        clipped = torch.maximum(torch.minimum(ratio, 1 + h.clip), 1 - h.clip)
        return -torch.minimum(ratio * advantage, clipped * advantage), {"reward": batch.reward}

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        return (nets.value(batch.observation)[..., 0] - batch.extra["return"]).square(), {}

    def completed_rollout(self, nets: Nets, rollout: Tensors, h: Hyper) -> dict[str, Tensor]:
        """Returns, and what π_old and V_old say; [T, n] each."""
        after, returns = nets.value(rollout["next_observation"][-1])[..., 0], list[Tensor]()
        for reward in rollout["reward"].flip(0):
            returns.append(after := reward + h.gamma * after)
        density = self.density(nets, rollout["observation"], rollout["action"])
        return {"return": torch.stack(returns).flip(0), "value": nets.value(rollout["observation"])[..., 0], "log_prob": density}

    def density(self, nets: Nets, observation: Tensor, action: Tensor) -> Tensor:
        return -2 * (action - nets.policy(observation)).square().sum(-1)  # but for a constant

    def ports(self, spec: Any, config: Any) -> Ports:
        return {"action": Noise((1,))}

    def act(self, nets: Nets, observation: Any, state: Any, noise: Any) -> tuple[Tensor, Any]:
        action = nets.policy(observation)
        return action + noise["action"] / 2 if noise else action, state


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


class ToyNoisyConfig(ContinuousConfig):
    learning_rate: float = setting(1e-2, "of the policy", gt=0)
    sigma: float = setting(0.3, "of the noise upon actions", gt=0)


class ToyNoisy(Algorithm):
    """L = E[ |a + σ ε - π(s)|² ], three times in a gradient step, each with noise of its own."""

    Config: ClassVar = ToyNoisyConfig
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {
        **dict.fromkeys(("gamma", "td_steps", "reward_scaler"), "imitation looks at no rewards"),
        "matmul_precision": "there is no encoder",
    }
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
