r"""Advantage weighted regression (AWR): a value is regressed to returns, then the policy to the actions that did better than it.

    value    L_V = E[ ((R(s, a) - V(s)) / c)² ],    R of the values that the last phase left                   `AWR.value_loss`
    actor    L_π = E[ -min(exp(Â / β), w) log π(a|s) ],    Â = A less its mean, over its deviation              `AWR.actor_loss`
             A = R(s, a) - V(s)
    return   R_t = r_t + γ ((1 - λ) V(s_{t+1}) + λ R_{t+1}), over K steps; or the sum that the data had         `AWR.returns`

Phases alternate: N_V steps of the value, then N_π of the policy. V(s) = c times a network. π is normal, with a given deviation σ.

Symbols   λ = `lam`, K = `horizon` (None: Monte-Carlo returns), β = `beta`, w = `max_weight`, c = `value_scale`, σ = `action_std`,
          N_V = `n_value_updates`, N_π = `n_actor_updates`.
When      Episodes with their whole returns and no wish for a Q-function. It prefers good episodes and does not put good parts of
          bad ones together.
Paper     Peng, Kumar, Zhang, Levine: Advantage-Weighted Regression, 2019, arXiv:1910.00177.
Code      github.com/xbpeng/awr, learning/awr_agent.py, commit 831442f (MIT). Read, not copied.
Choices   1. A gradient step is one of value or actor, each on a batch of its own, drawn from all of the data, as in the code;
             d3rlpy 1 draws 2,048 transitions for a whole round of phases.
          2. R looks at most K steps ahead, where what is left of λ's weight, λᴷ, goes to the last value; the code goes on to the
             episode's end. With λ γ = 0.94 and K = 64 that is a fiftieth.
          3. Â is normalised over a batch; in the code over all of the data, anew for each phase. The manual of 2020 has A itself.
          4. The code halves L_V, so that its rate of 0.01 is 0.005 here. c = 1 / (1 - γ) normalises values there; here it
             stays what it is, 100 as with γ = 0.99, so that trials may search it: set it along with another γ.
          5. The mean of π has passed through tanh; in the code it is unbounded, and a penalty keeps it inside. The code's last
             layer begins close to 0, ours as torch's.
          6. Monte-Carlo returns are nothing beyond the step at which an episode was cut; TD(λ) takes V there.
          7. Online, steps are learned from once their episode has ended, as in the code.
          8. Layers are those of the other algorithms, convolutions for images; the code's, of 128 and 64, are in its presets.
          9. A batch carries K more observations of each step: of 256 steps with images of 3 × 84 × 84 they take 1.4 GB, so set a
             lower `horizon` there, or None. Augmentation changes s_t and s_{t+1}, and none of those.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ...data.config import setting
from ...data.sampling import RETURNS, observations
from ...data.spec import Spec
from ..base import Algorithm
from ..config import AlgorithmConfig, ContinuousConfig, Preset
from ..definition import LossValue, Network, Verbs, loss, transitions
from ..nets import Hyper, Nets, NetworkCall
from ..networks.distributions import Gaussian
from ..networks.encoders import DefaultEncoder, Encoder, VectorEncoder
from ..networks.perceptrons import DeterministicPolicy, ValueFunction
from ..networks.training import whole_batch
from ..optimizers import SGD, Optimizer
from ..ports import Noise, Ports, Tensors
from ..presets import TaskPresets
from ..wants import Wants

CODE = "authors' code 831442f, awr_configs.py"
AGENT = "authors' code 831442f, learning/awr_agent.py"
PAPER = {
    "observation_scaler": "standard",
    **dict.fromkeys(("actor_encoder", "value_encoder"), VectorEncoder(hidden_units=(128, 64))),
}
MANUAL = {"value_learning_rate": 1e-4, "value_scale": 1.0, "normalize_advantages": False}
_LEAST = 1e-5  # added to the advantages' deviation, as in the code


class AdvantageWeightedConfig(AlgorithmConfig):
    """Settings of AWR, whichever actions it is for."""

    actor_learning_rate: float = setting(5e-5, "of the policy", source=CODE, gt=0)
    value_learning_rate: float = setting(5e-3, "of the value function", source=f"{CODE}; choice 4", gt=0)
    actor_optimizer: Optimizer = setting(SGD(momentum=0.9), "what steps the policy", source=CODE)
    value_optimizer: Optimizer = setting(SGD(momentum=0.9), "what steps the value function", source=CODE)
    actor_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")
    value_encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the value function")
    n_value_updates: int = setting(200, "N_V: gradient steps of the value in a round", source=CODE, gt=0)
    n_actor_updates: int = setting(1000, "N_π: gradient steps of the policy in a round", source=CODE, gt=0)
    lam: float = setting(0.95, "λ: share of what follows in a return; 0 is one step", source=CODE, ge=0, le=1)
    horizon: int | None = setting(
        64, "K: steps that a return looks ahead; None: Monte-Carlo returns of the data, whatever lam and td_steps", gt=0
    )
    beta: float = setting(1.0, "β: temperature of the weight", source=CODE, gt=0)
    max_weight: float = setting(20.0, "w: ceiling of the weight", source=CODE, gt=0)
    normalize_advantages: bool = setting(True, "whether advantages are normalised over a batch before they weigh", source=AGENT)
    value_scale: float = setting(100.0, "c: unit of the value network's output; in the code 1 / (1 - γ)", source=AGENT, gt=0)


class AWRConfig(AdvantageWeightedConfig, ContinuousConfig):
    action_std: float = setting(0.4, "σ: standard deviation of the policy", source=CODE, gt=0)


class AWR(Algorithm):
    """AWR, offline or online, where its own draws explore. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = AWRConfig
    actions: ClassVar = "continuous"
    has_td_errors: ClassVar = False
    exemptions: ClassVar = {"one_update_in_float32": "errors of both signs, in units of c, cancel in the gradient of a bias"}
    presets: ClassVar = {
        "paper": Preset(f"{CODE}: HalfCheetah", PAPER),
        "d3rlpy-2020": Preset(
            "d3rlpy's manual of October 2020, with its rounds as in choice 1; the code of 0.32 normalises, and learns σ",
            MANUAL,
        ),
    } | TaskPresets(__file__, AWRConfig)

    def wants(self, config: AdvantageWeightedConfig) -> Wants:
        if config.horizon is None:
            return transitions(config, following=False, extra=(RETURNS,))
        return transitions(config, ahead=config.horizon)

    def networks(self, spec: Spec, config: AdvantageWeightedConfig) -> dict[str, Network]:
        policy = self.policy_network(spec, config)
        value = ValueFunction(config.value_encoder, spec.observation)
        return {
            "policy": Network(policy, "actor_learning_rate", optimizer=config.actor_optimizer),
            "value": Network(value, "value_learning_rate", True, config.value_optimizer),
        }

    def policy_network(self, spec: Spec, config: Any) -> nn.Module:
        return DeterministicPolicy(config.actor_encoder, spec.observation, spec.action.shape[0])

    def schedule(self, step: int) -> tuple[str, ...]:
        within = step % (self.config_.n_value_updates + self.config_.n_actor_updates)
        if within < self.config_.n_value_updates:
            return ("value_phase", "evaluate") if within == 0 else ("evaluate",)
        return ("actor",)

    def value_phase(self, learner: Verbs, batch: Batch) -> None:
        """Where one begins: its returns are of the values so far."""
        learner.copy("value")

    def evaluate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, "value", batch)

    def actor(self, learner: Verbs, batch: Batch) -> None:
        """All other steps."""
        learner.minimise(self.actor_loss, "policy", batch)

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        value = h.value_scale * nets.value(batch.observation)
        error = self.returns(nets.target.value, batch, h) - value
        return (error / h.value_scale).square(), {"value": value, "error": error.abs()}

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_π of each sample, [B]. The weight has no gradient."""
        with torch.no_grad():
            advantage = self.returns(nets.value, batch, h) - h.value_scale * nets.value(batch.observation)
            if self.config_.normalize_advantages:
                everyone = whole_batch(advantage)
                advantage = (advantage - everyone.mean()) / (everyone.std(0, correction=0, keepdim=True) + _LEAST)
            weight = (advantage / h.beta).exp().minimum(h.max_weight)
        log_prob = self.distribution(nets, batch.observation, h).log_prob(batch.action)
        return -weight * log_prob, {"weight": weight, "log_prob": log_prob}

    @torch.no_grad()
    def returns(self, value: NetworkCall, batch: Batch, h: Hyper) -> Tensor:
        """R of each sample, [B], as a sum of errors of one step: R_t = r_t + γ (V(s_{t+1}) + λ Σ_k (λ γ)ᵏ δ_{t+1+k})."""
        if self.config_.horizon is None:
            return batch.extra[RETURNS]
        ahead = {name.removeprefix("ahead/"): part for name, part in batch.extra.items() if name.startswith("ahead/")}
        seen = pytree.tree_map(
            lambda first, rest: torch.cat((first[:, None], rest), 1).flatten(0, 1), batch.next_observation, observations(ahead)
        )
        values = h.value_scale * value(seen).unflatten(0, (len(batch.reward), -1))  # [B, K + 1]
        discount = ahead["discount"]
        error = ahead["mask"] * (ahead["reward"] + discount * values[:, 1:] - values[:, :-1])  # δ, [B, K]
        trace = torch.cat((torch.ones_like(discount[:, :1]), h.lam * discount[:, :-1]), 1).cumprod(1)
        return batch.reward + batch.discount * (values[:, 0] + h.lam * (trace * error).sum(1))

    def ports(self, spec: Spec, config: AWRConfig) -> Ports:
        return {"action": Noise(spec.action.shape)}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        if "action" not in noise:
            return nets.policy(observation), state
        return self.distribution(nets, observation, nets.h).sample(noise["action"]), state

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return self.distribution(nets, observation, nets.h).log_prob(action)

    def distribution(self, nets: Nets, observation: Any, h: Hyper) -> Any:
        mean = nets.policy(observation)
        return Gaussian(mean, torch.as_tensor(h.action_std, dtype=mean.dtype, device=mean.device).log())

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """V(s) for whatever action, [1, B]."""
        return nets.h.value_scale * nets.value(observation)[None]
