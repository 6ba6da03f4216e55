r"""Trust region policy optimisation (TRPO): a step along the natural gradient, as far as the policy may go from the one that acted.

    minimise  L_π(φ) = E[ -ρ Â - β H(π_φ(·|s)) ],   ρ = π_φ(a|s) / π_old(a|s),                             `TRPO.policy_loss`
    such that E[ KL(π_old(·|s) ‖ π_φ(·|s)) ] ≤ κ                                                            `TRPO.divergence`
    L_V(ψ) = E[ (G - V_ψ(s))² ] in minibatches afterwards                                       `ActorCritic.value_loss`

The step is found by conjugate gradients and a line search: `learning/trust_region.py`. It never exceeds κ; where no part of it
lowers the loss, none is taken.

Symbols   κ = `max_kl`, β = `entropy_weight`.
When      Online, where a policy must not break; PPO costs less and usually learns as well.
Paper     Schulman, Levine, Moritz, Jordan, Abbeel: Trust Region Policy Optimization, ICML 2015, arXiv:1502.05477.
Code      PFRL 0.4.0, agents/trpo.py. Read, not copied.
Choices   1. All of a rollout's steps count in products with the curvature; the paper takes a tenth of them.
          2. The value function is fitted by gradient steps, as in PFRL; the paper's followers also use L-BFGS.
          3. The divergence of continuous policies is that of the normals before they are cut off, never less than that of what is
             acted.
          4. κ and the damping are PFRL's reproduction's of MuJoCo.
          5. No encoder may be recurrent: every product with the curvature would go through all steps of a rollout, one after the
             other. PFRL's manual says that its own does not support them either.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import model_validator
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..config import ContinuousConfig, Preset, sourced
from ..definition import LossValue, Verbs, loss
from ..learning.trust_region import Limits
from ..nets import Hyper, Nets
from .rollouts import Rollouts
from .sequences import Columns
from .shared import ActorCritic, ActorCriticConfig, SequencesConfig, acted, entropy_and_density

PFRL = "PFRL 0.4.0, agents/trpo.py"
MUJOCO = "PFRL 0.4.0, examples/mujoco/reproduction/trpo/train_trpo.py"


class _Once(SequencesConfig, ContinuousConfig):
    pass


@sourced(MUJOCO, "gamma")
class TRPOConfig(ActorCriticConfig):
    once: ClassVar = _Once
    never: ClassVar = (*ActorCriticConfig.never, "sequence_length")

    learning_rate: float = setting(1e-3, "of the value function", source=MUJOCO, gt=0)
    update_interval: int = setting(5_000, "steps of all environments together between two updates", source=MUJOCO, gt=0)
    lam: float = setting(0.97, "λ of the advantages", source=MUJOCO, ge=0, le=1)
    max_kl: float = setting(0.01, "κ: how far a step may go", source="Schulman et al. 2015, section 8.1", gt=0)
    damping: float = setting(0.1, "added to the curvature", source=MUJOCO, ge=0)
    conjugate_iterations: int = setting(10, "of conjugate gradients", source=PFRL, gt=0)
    backtracks: int = setting(10, "how often a step is halved", source=PFRL, ge=0)
    batch_size: int = setting(64, "transitions of the value function's minibatches", source=PFRL, gt=0)
    n_passes: int = setting(5, "of the value function over a rollout", source=MUJOCO, gt=0)

    @model_validator(mode="after")
    def _of_single_steps(self) -> Self:
        for name, encoder in (("policy_encoder", self.policy_encoder), ("value_encoder", self.value_encoder)):
            if encoder.remembers:
                raise ValueError(
                    f"{name} is {encoder.label}, and TRPO takes no recurrent encoder: every product with the curvature of its step "
                    "would go through all steps of a rollout, one after the other; choose PPO."
                )
        return self


class TRPO(ActorCritic):
    """Trust region policy optimisation, online."""

    Config: ClassVar = TRPOConfig
    recurrent: ClassVar = ()
    reads_values: ClassVar = "its line search tries shares of a step until loss and divergence allow one"
    presets: ClassVar = {
        "pfrl": Preset(PFRL, {"update_interval": 2048, "lam": 0.95, "damping": 0.01, "n_passes": 3, "entropy_weight": 0.01}),
        "pfrl-mujoco": Preset(MUJOCO, {}),
    }

    def wants(self, config: Any) -> Rollouts:
        return Rollouts(self, config.update_interval, config.batch_size, config.n_passes, whole=True)

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("improve",) if self.fit_.sources.opened.begins(step) else ("evaluate",)

    def improve(self, learner: Verbs, batch: Batch) -> None:
        config = self.config_
        limits = Limits(config.max_kl, config.damping, config.conjugate_iterations, config.backtracks)
        learner.constrain(self.policy_loss, self.divergence, "policy", batch, limits)

    def evaluate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.value_loss, "value", batch)

    def complete(self, nets: Nets, rollout: Columns, h: Hyper) -> Columns:
        """And what the policy that acted says of its actions."""
        return super().complete(nets, rollout, h) | acted(nets, rollout)

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        entropy, density = entropy_and_density(nets.policy(batch.observation), batch.action)
        ratio = (density - batch.extra["log_prob"]).exp()
        return -ratio * batch.extra["advantage"] - h.entropy_weight * entropy, {"entropy": entropy}

    def divergence(self, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        """KL(π_old ‖ π) of each sample, [B]."""
        return nets.policy(batch.observation).divergence_from(batch.extra["old"])
