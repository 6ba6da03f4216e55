r"""Proximal policy optimisation (PPO): several passes over a rollout, as long as the policy stays near the one that acted.

    L_π(φ) = E[ -min(ρ Â, clip(ρ, 1 ± ε) Â) - β H(π_φ(·|s)) ],   ρ = π_φ(a|s) / π_old(a|s)                  `PPO.policy_loss`
    L_V(ψ) = w E[ (G - V_ψ(s))² ],   or with ε_v the larger of that and (G - V_old - clip(V_ψ - V_old, ± ε_v))²    `PPO.value_loss`

    Once a minibatch has E[ ρ - 1 - log ρ ] > κ, the policy stays as it is until the next rollout.           `PPO.too_far`

Advantages Â are generalised ones, and goals G = Â + V_old, both worked out once at the networks that acted: `estimators.py`.

Symbols   ε = `clip`, ε_v = `value_clip`, κ = `max_kl`, β = `entropy_weight`, w = `value_weight`.
When      Online, discrete or continuous actions, where steps of the environment are cheap. Collect in several environments at once.
Paper     Schulman, Wolski, Dhariwal, Radford, Klimov: Proximal Policy Optimization Algorithms, 2017, arXiv:1707.06347.
Code      PFRL 0.4.0, agents/ppo.py; CleanRL and Huang et al.: The 37 Implementation Details of PPO, ICLR blog track 2022, for what
          papers leave out. Read, not copied.
Choices   1. Policy and value function are networks of their own, each with its optimiser and its gradient's norm; PFRL and CleanRL
             add the losses up and clip the norm of both together.
          2. Advantages are standardised over the rollout, as in PFRL; CleanRL does it in each minibatch.
          3. What is cut off of a continuous action counts with the probability of being cut off (Fujita and Maeda 2018); PFRL and
             CleanRL take the density of the action before it is cut off.
          4. A step that a time limit cuts off is followed by the value of what was seen there; CleanRL takes it for an end.
          5. `pfrl` has PFRL's β = 0.01; the paper's is of Atari alone.
          6. Settable, and off by default: observations and rewards scaled by what was seen (`observation_scaler`, `reward_scaler`
             "running"), a rate that falls (`optimizer.schedule`), weights that begin orthogonal (`policy_encoder.initializer`) and
             small (`last_scale`).
          7. κ is off by default. With it the policy alone stays as it is for the rest of a rollout, as in Spinning Up; CleanRL and
             Stable-Baselines3 end the value function's passes too.
          8. With recurrent encoders a minibatch is of whole sub-sequences, and policy and value function remember for themselves:
             `sequences.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset, sourced
from ..definition import LossValue, Verbs, loss
from ..nets import Hyper, Nets
from ..presets import TaskPresets
from ..recurrence import remembers
from .rollouts import Rollouts
from .sequences import Columns, said
from .shared import ActorCritic, SequencesConfig, acted, entropy_and_density

PAPER = "Schulman et al. 2017, Table 3"
PFRL = "PFRL 0.4.0, agents/ppo.py"


@sourced(PAPER, "learning_rate", "update_interval", "gamma", "lam", "policy_encoder", "value_encoder")
class PPOConfig(SequencesConfig):
    batch_size: int = setting(64, "transitions of a minibatch", source=PAPER, gt=0)
    n_passes: int = setting(10, "passes over a rollout", source=PAPER, gt=0)
    clip: float = setting(0.2, "ε: how far ρ counts from 1", source="Schulman et al. 2017, section 6.1", gt=0)
    value_clip: float | None = setting(None, "ε_v: how far V counts from what it was; None: as far as it is", source=PFRL, gt=0)
    max_kl: float | None = setting(
        None,
        "κ: divergence from the policy that acted beyond which the policy stays for the rest of a rollout; None: it goes on",
        source="Achiam 2018, Spinning Up: 1.5 times its target_kl of 0.01",
        gt=0,
    )


class PPO(ActorCritic):
    """Proximal policy optimisation, online."""

    Config: ClassVar = PPOConfig
    holds: ClassVar = ("policy",)
    presets: ClassVar = {"paper": Preset(PAPER, {})} | TaskPresets(__file__, PPOConfig)

    def wants(self, config: Any) -> Rollouts:
        pieces = {"recurrent": remembers(config), "sequence_length": config.sequence_length}
        return Rollouts(self, config.update_interval, config.batch_size, config.n_passes, **pieces)

    def schedule(self, step: int) -> tuple[str, ...]:
        if self.config_.max_kl is None:
            return ("improve",)
        return ("begin", "improve", "judge") if self.fit_.sources.opened.begins(step) else ("improve", "judge")

    def begin(self, learner: Verbs, batch: Batch) -> None:
        """A rollout's first step: the policy may move again."""
        learner.release("policy")

    def judge(self, learner: Verbs, batch: Batch) -> None:
        learner.hold(self.too_far, "policy", batch)

    def too_far(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """Tells whether the mean divergence is beyond κ, ()."""
        difference = said(nets, "policy", batch).log_prob(batch.action) - batch.extra["log_prob"]
        divergence = difference.exp() - 1 - difference
        return (divergence if batch.weight is None else batch.weight * divergence).mean() > h.max_kl

    def complete(self, nets: Nets, rollout: Columns, h: Hyper) -> Columns:
        """And what the policy that acted says of its actions."""
        found = super().complete(nets, rollout, h)
        return found | acted(nets, rollout | found)

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        entropy, density = entropy_and_density(said(nets, "policy", batch), batch.action)
        difference, advantage = density - batch.extra["log_prob"], batch.extra["advantage"]
        ratio = difference.exp()
        near = ratio.clamp(1 - h.clip, 1 + h.clip)
        gain: Tensor = (ratio * advantage).minimum(near * advantage)
        metrics = {"entropy": entropy, "kl": ratio - 1 - difference, "clipped": (ratio != near).to(ratio.dtype)}
        return -gain - h.entropy_weight * entropy, metrics

    @loss("sample")
    def value_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        value, goal, old = said(nets, "value", batch), batch.extra["goal"], batch.extra["value"]
        error = (goal - value).square()
        if self.config_.value_clip is not None:
            near = old + (value - old).clamp(-h.value_clip, h.value_clip)
            error = error.maximum((goal - near).square())
        return h.value_weight * error, {"value": old, "value_error": (goal - value).abs()}
