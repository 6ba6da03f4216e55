r"""Actor-critic with experience replay (ACER): steps of the present policy, and of earlier ones weighed by how likely they are now.

    L_π(φ) = -Σ_i z_i φ_i(s) - β H(π(·|s)),   z = g - max(0, (kᵀg - δ) / |k|²) k                           `ACER.policy_loss`
        g = ∇_φ [ min(c, ρ) log π(a|s) (Q^ret - V(s)) + Σ_b max(0, 1 - c / ρ(b)) π(b|s) log π(b|s) (Q(s, b) - V(s)) ]
        k = ∇_φ KL(π_avg(·|s) ‖ π(·|s)),   θ_avg ← (1 - τ) θ_avg + τ θ after each step
    L_Q(ψ) = w ½ E[ (Q^ret - Q_ψ(s,a))² ]                                                                  `ACER.critic_loss`

φ(s) is what the distribution is made of: logarithms of probabilities, or mean and log σ. ρ(b) = π(b|s) / μ(b|s), μ what acted.
Q^ret is Retrace's goal, with ratios cut off at 1: `estimators.py`. What stands before log π and φ has no gradient.

    Discrete     V(s) = Σ_b π(b|s) Q(s, b).
    Continuous   Q(s,a) = V(s) + A(s,a) - 1/n Σ_i A(s,u_i), u_i ~ π: stochastic dueling. Retrace takes ρ^(1/dim) for ρ, the sum over
                 b is one draw of π, and V has a loss beside Q's: w ½ E[ (min(1, ρ) (Q^ret - Q(s,a)) + V' - V(s))² ], V' = V(s).

Symbols   c = `truncation`, δ = `max_divergence`, β = `entropy_weight`, w = `value_weight`, n = `n_samples`, τ = `tau`.
When      Online, where steps of the environment are dear: each is learned from `n_times_replay` times more. 0: on-policy alone.
Paper     Wang, Bapst, Heess, Mnih, Munos, Kavukcuoglu, de Freitas: Sample Efficient Actor-Critic with Experience Replay, ICLR 2017,
          arXiv:1611.01224: equations 4 to 12, algorithms 1 to 3.
Code      PFRL 0.4.0, agents/acer.py and examples/atari/train_acer_ale.py. Read, not copied.
Choices   1. Environments side by side take the place of asynchronous workers; a batch is the mean over a segment of each.
          2. Each older segment is drawn from all that is remembered, and may go on over an end; PFRL's ends there.
          3. Exactly `n_times_replay` of them follow a new one, as in PFRL; in the paper their number is Poisson's.
          4. Entropy is beside the trust region, as in PFRL.
          5. Policy and critic are networks of their own, with a gradient's norm each; in the paper they share their first layers.
          6. No encoder may be recurrent: memories that are kept with older steps would be those of older networks.
          7. Of continuous actions PFRL's φ has σ where this has log σ: their k and g differ by the factor σ.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import grad

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..definition import LossValue, Network, Verbs, loss
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.perceptrons import ValueFunction
from ..networks.q_functions import Mean
from ..optimizers import Optimizer, RMSprop
from ..presets import TaskPresets
from .estimators import retrace
from .segments import Segments
from .sequences import Columns
from .shared import TANH, OnPolicy, RolloutsConfig, flat

PAPER = "Wang et al. 2017"
PFRL = "PFRL 0.4.0, agents/acer.py"
EXAMPLE = "PFRL 0.4.0, examples/atari/train_acer_ale.py"
SQUARES = RMSprop(alpha=0.99, epsilon=4e-3, epsilon_inside=True, max_grad_norm=40.0)


class ACERConfig(RolloutsConfig):
    learning_rate: float = setting(7e-4, "of all networks", source=EXAMPLE, gt=0)
    optimizer: Optimizer = setting(SQUARES, "what steps all networks", source=EXAMPLE)
    value_encoder: Encoder = setting(TANH, "hidden layers of the critic")
    update_interval: int = setting(40, "steps of all environments together in a segment", source=f"{EXAMPLE}: 5 of each", gt=0)
    entropy_weight: float = setting(0.01, "β: what is given for entropy", source=PFRL, ge=0)
    value_weight: float = setting(0.5, "w: of the critic's loss", source=PFRL, ge=0)
    truncation: float = setting(10.0, "c: where ratios are cut off, and what is lost by it is given back", source=PFRL, ge=1)
    use_trust_region: bool = setting(True, "whether steps that lead away from the average policy are shortened", source=PFRL)
    max_divergence: float = setting(1.0, "δ: how far the divergence may grow along a step", source=f"{PAPER}, section 7", gt=0)
    tau: float = setting(0.01, "τ: share of the policy that enters the average one at each step", source=PFRL, gt=0, le=1)
    n_times_replay: int = setting(4, "older segments that follow each new one", source=EXAMPLE, ge=0)
    replay_start_size: int = setting(10_000, "transitions that are there before older ones are learned from", source=PFRL, ge=0)
    use_q_opc: bool = setting(False, "whether advantages are of returns that are not weighed by ratios", source=PFRL)
    n_samples: int = setting(5, "n: draws of the policy over which A(s,·) has mean 0, of continuous actions", source=PFRL, gt=0)


class ACER(OnPolicy):
    """Actor-critic with experience replay, online."""

    Config: ClassVar = ACERConfig
    recurrent: ClassVar = ()  # what was remembered at older steps is of older networks
    exemptions: ClassVar = {"n_samples": "of continuous actions alone"}
    presets: ClassVar = TaskPresets(__file__, ACERConfig)

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        def network(module: Any, *, target: bool = False) -> Network:
            return Network(module, "learning_rate", target, config.optimizer)

        policy = network(super().networks(spec, config)["policy"].module, target=True)
        if spec.discrete:
            return {"policy": policy, "critic": network(Mean().discrete(config.value_encoder, spec.observation, spec.n_actions, 1))}
        advantage = Mean().continuous(config.value_encoder, spec.observation, spec.action.shape[0], 1)
        return {
            "policy": policy,
            "value": network(ValueFunction(config.value_encoder, spec.observation)),
            "advantage": network(advantage),
        }

    def wants(self, config: Any) -> Segments:
        return Segments(self, config.update_interval, replays=config.n_times_replay, replay_start=config.replay_start_size)

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("improve", "evaluate", "average")

    def evaluate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.critic_loss, "critic" if self.spec_.discrete else ("value", "advantage"), batch)

    def average(self, learner: Verbs, batch: Batch) -> None:
        """The average policy follows."""
        learner.track("policy")

    # ---- what a segment is completed with

    def behave(self, nets: Nets, segment: Columns, h: Hyper) -> Tensor:
        """Gives the parameters of the policy's distributions, [T, n, P]."""
        return nets.policy(flat(segment, "observation")).parameters().unflatten(0, segment["reward"].shape)

    def complete(self, nets: Nets, segment: Columns, h: Hyper) -> Columns:
        """Gives targets, and the factors of logarithms of probabilities, [T, n, ...] each."""
        shape, observation, action = segment["reward"].shape, flat(segment, "observation"), segment["action"].flatten(0, 1)
        policy = nets.policy(observation)
        behaviour = policy.of(segment["behaviour"].flatten(0, 1))
        ratio = (policy.log_prob(action) - behaviour.log_prob(action)).exp()
        value, q_value = self.estimates(nets, observation, action, "segment", h)
        following, _ = self.estimates(nets, flat(segment, "next_observation"), None, "next", h)
        trace = ratio if self.spec_.discrete else ratio ** (1 / self.spec_.action.shape[0])

        def aimed_at(trace: Tensor) -> Tensor:
            q, after, ratios = (x.unflatten(0, shape) for x in (q_value, following, trace))
            return retrace(segment["reward"], q, after, segment["discount"], segment["ends"], ratios).flatten()

        goal = aimed_at(trace)
        aim = aimed_at(torch.ones_like(trace)) if self.config_.use_q_opc else goal
        found = {
            "goal": goal,
            "ratio": ratio,
            "value": value,
            "weight": ratio.clamp(max=h.truncation) * (aim - value),
            "average": nets.target.policy(observation).parameters(),
            **self.corrections(nets, observation, policy, behaviour, value, h),
        }
        return {name: x.unflatten(0, shape) for name, x in found.items()}

    def estimates(self, nets: Nets, observation: Any, action: Tensor | None, name: str, h: Hyper) -> tuple[Tensor, Tensor]:
        """V(s) and Q(s, a), [B] each; without an action V(s) twice."""
        if self.spec_.discrete:
            each = nets.critic(observation)[0]
            value = (nets.policy(observation).probs * each).sum(-1)
            return value, value if action is None else each.gather(-1, action[:, None])[:, 0]
        value = nets.value(observation)
        return value, value if action is None else value + self.dueling(nets, observation, action, name)

    def dueling(self, nets: Nets, observation: Any, action: Tensor, name: str) -> Tensor:
        """A(s, a) - 1/n Σ_i A(s, u_i), [B]; draws of `nets` at an address of that name."""
        policy, n = nets.policy(observation), self.config_.n_samples
        noise = nets.noise(f"{name} dueling", (n, *action.shape))
        with torch.no_grad():
            draws = [policy.sample(one) for one in noise]
        mean = sum(nets.advantage(observation, draw)[0] for draw in draws) / n
        return nets.advantage(observation, action)[0] - mean

    def corrections(self, nets: Nets, observation: Any, policy: Any, behaviour: Any, value: Tensor, h: Hyper) -> Columns:
        """max(0, 1 - c / ρ(b)) π(b|s) (Q(s,b) - V(s)) of each action, [B, A]; of continuous ones that of a draw `other`, [B]."""
        if self.spec_.discrete:
            lost = (1 - h.truncation * (behaviour.log_probs - policy.log_probs).exp()).clamp(min=0) * policy.probs
            return {"correction": lost * (nets.critic(observation)[0] - value[:, None])}
        other = policy.sample(nets.noise("other", policy.mean.shape))
        lost = (1 - h.truncation * (behaviour.log_prob(other) - policy.log_prob(other)).exp()).clamp(min=0)
        return {"other": other, "correction": lost * self.dueling(nets, observation, other, "other")}

    # ---- losses

    def gain(self, policy: Any, batch: Batch) -> Tensor:
        """Gives the gain whose gradient is g, [B]."""
        known = batch.extra
        gain = known["weight"] * policy.log_prob(batch.action)
        if self.spec_.discrete:
            return gain + (known["correction"] * policy.log_probs).sum(-1)
        return gain + known["correction"] * policy.log_prob(known["other"])

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        policy, known = nets.policy(batch.observation), batch.extra
        parameters = policy.parameters()
        now = parameters.detach()
        ascent = grad(lambda x: self.gain(policy.of(x), batch).sum())(now)
        divergence = policy.divergence_from(known["average"])
        if self.config_.use_trust_region:
            away = grad(lambda x: policy.of(x).divergence_from(known["average"]).sum())(now)
            ascent = within(ascent, away, h.max_divergence)
        entropy = policy.entropy()
        return -(ascent * parameters).sum(-1) - h.entropy_weight * entropy, {"entropy": entropy, "kl": divergence, **_told(known)}

    @loss("sample")
    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        known = batch.extra
        if self.spec_.discrete:
            q_value = nets.critic(batch.observation)[0].gather(-1, batch.action[:, None])[:, 0]
            return h.value_weight * 0.5 * (known["goal"] - q_value).square(), {"q_value": q_value}
        value = nets.value(batch.observation)
        q_value = value + self.dueling(nets, batch.observation, batch.action, "loss")
        aim = (known["ratio"].clamp(max=1) * (known["goal"] - q_value) + value).detach()
        error = (known["goal"] - q_value).square() + (aim - value).square()
        return h.value_weight * 0.5 * error, {"q_value": q_value}


def within(ascent: Tensor, away: Tensor, limit: Tensor | float) -> Tensor:
    """z, [B, P]: ascents g without as much of k as leads further away than the limit."""
    squares = away.square().sum(-1)
    beyond = ((away * ascent).sum(-1) - limit).clamp(min=0)
    return ascent - torch.where(squares > 0, beyond / squares, 0)[:, None] * away


def _told(known: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"value": known["value"], "ratio": known["ratio"]}
