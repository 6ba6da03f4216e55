r"""Goal-conditioned implicit Q-learning (GCIQL): IQL whose rewards say whether a goal was reached, drawn in hindsight.

    value, critic   L_V, L_Q of `iql.py`, of V(s, g) and Q(s, a, g)
    actor           L_π = E[ -min_i Q_i(s, π(s, g), g) / mean |min_i Q_i| - α log π(a|s, g) ]                `GCIQL.actor_loss`
                    or, with `extraction` "awr", E[ -min(exp(α (min_i Q_i(s, a, g) - V(s, g))), 100) log π(a|s, g) ]

π is normal with deviation 1, and π(s, g) its mean clipped to [-1, 1]. Goals are drawn in hindsight (`hindsight.py`), of values and
of the actor apart.

Symbols   ε of IQL = `expectile`, α = `alpha`; the others as in `iql.py`.
When      Goals that can be reached by putting parts of episodes together, in worlds with luck in them.
Paper     Kostrikov, Nair, Levine: IQL, 2021, arXiv:2110.06169; as in Park et al.: OGBench, ICLR 2025, arXiv:2410.20092.
Code      github.com/seohongpark/ogbench, impls/agents/gciql.py, commit 1d41409 (MIT). Read, not copied.
Choices   1. Actor, critic and value see each other as the last step left them, as in the code.
          2. Layer norm adds 1e-5 to the variance, as torch's; JAX's adds 1e-6.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..critics import QConfig, TargetsConfig
from ..definition import LossValue, Network, Verbs, due, loss
from ..in_sample.iql import InSampleValues
from ..nets import Hyper, Nets
from ..networks.encoders import Encoder
from ..networks.q_functions import reduced
from ..optimizers import Adam, Optimizer
from ..presets import TaskPresets
from .shared import CODE, MOST, NORMALISED, GoalConditioned, GoalValuesConfig, aimed, climbing, log_prob


class GCIQLConfig(QConfig, TargetsConfig, GoalValuesConfig):
    critic_learning_rate: float = setting(3e-4, "of the critics", source=CODE, gt=0)
    critic_optimizer: Optimizer = setting(Adam(), "what steps the critics", source=CODE)
    critic_encoder: Encoder = setting(NORMALISED, "hidden layers of the critics", source=CODE)
    extraction: Literal["ddpg+bc", "awr"] = setting(
        "ddpg+bc", "how the policy is learnt from values: climbing Q near the data, or by weights", source=f"{CODE}/gciql.py"
    )
    alpha: float = setting(
        0.3, "α: weight of the data's actions, or inverse temperature of the weights", source=f"{CODE}/gciql.py", ge=0
    )


class GCIQL(GoalConditioned, InSampleValues):
    """GCIQL. Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at."""

    Config: ClassVar = GCIQLConfig
    presets: ClassVar = TaskPresets(__file__, GCIQLConfig)
    actions: ClassVar = "continuous"

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        return {"policy": self.policy_network(spec, config), **self.value_networks(spec, config)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return due(step, actor=1, joint_step=1, targets=self.config_.target_update_interval or 1)

    def joint_step(self, learner: Verbs, batch: Batch) -> None:
        """The critics move before the value that is their goal; it reads their targets, which move last."""
        learner.minimise(self.critic_loss, "critic", batch)
        learner.minimise(self.value_loss, "value", batch)

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        seen = aimed(batch.observation, batch.extra["actor_goal"])
        mean = nets.policy(seen)
        probability = log_prob(mean, batch.action)
        if self.config_.extraction == "awr":
            with torch.no_grad():
                advantage = self.least(nets, seen, batch.action) - nets.value(seen)
                weight = (h.alpha * advantage).exp().clamp(max=MOST)
            return -weight * probability, {"weight": weight, "log_prob": probability}
        return climbing(self.least(nets, seen, mean.clamp(-1, 1)), probability, h)

    def least(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return reduced(nets.critic(observation, action), "min")
