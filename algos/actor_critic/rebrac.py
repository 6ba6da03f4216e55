r"""ReBRAC: TD3+BC whose critic, too, is kept to the data, with a weight of its own, and whose critics have layer norm.

    critic   L_Q = E[ Σ_i (r + γ (min_j Q'_j(s', ã) - β₂ |ã - a'|²) - Q_i(s, a))² ],    a' is the data's        `ReBRAC.goal`
             ã = clip(π'(s') + clip(ε, -c, c), -1, 1),    ε ~ N(0, σ²)
    actor    L_π = E[ β₁ |π(s) - a|² - λ min_i Q_i(s, π(s)) ],    λ = 1 / mean |min_i Q_i(s, π(s))|             `ReBRAC.actor_loss`

λ makes β₁ independent of the reward's unit; β₂ is in units of return. Where an episode terminated there is no a' and no penalty.

Symbols   β₁ = `actor_beta`, β₂ = `critic_beta`; the others as in `td3.py`. |·|² is a sum over the entries of an action.
When      As TD3+BC where its score is not enough: two weights to tune by dataset, and networks and batches that cost more.
Paper     Tarasov, Kurenkov, Nikulin, Kolesnikov: Revisiting the Minimalist Approach to Offline RL, 2023, arXiv:2305.09836.
Code      github.com/tinkoff-ai/ReBRAC, src/algorithms/rebrac.py, commit 694385b (Apache 2.0). Read, not copied.
Choices   1. Steps at which an episode was cut are left out, for no a' follows, as in the code, whose reader skips the last step
             before a timeout; d3rlpy 2.8.1 takes a zero for a' there. Online, a step waits for the next one.
          2. L_π has the least critic, as in code and d3rlpy; TD3 and TD3+BC climb the first.
          3. Delayed updates fall on steps d, 2d, …, as in `td3.py`; in code and d3rlpy on 0, d, 2d, ….
          4. Hidden layers begin as in the code, biases at 0.1; its last layers begin within 1e-3 and 3e-3 of 0, ours as torch's.
             Its layer norm adds 1e-6 to the variance, torch's 1e-5.
          5. β₁ and β₂ are chosen by dataset in the paper: presets `d4rl-DATASET`. Bare defaults are those of halfcheetah-medium.
          6. With td_steps = n, a' follows the n-th step.
          7. The code moves the actor's target towards the actor as it was before its step, and the critics' towards the critics
             after theirs; here both move after all steps.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss, transitions
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.q_functions import Values, reduced
from ..networks.training import whole_batch
from ..presets import TaskPresets
from ..wants import Wants
from .td3 import TD3, DelayedConfig

CODE = "authors' code 694385b, src/algorithms/rebrac.py"
CONFIGS = "authors' code 694385b, configs/rebrac"
THREE = (256, 256, 256)


class ReBRACConfig(DelayedConfig):
    batch_size: int = setting(1024, "transitions in a gradient step", source=CODE, gt=0)
    actor_learning_rate: float = setting(1e-3, "of the policy", source=CODE, gt=0)
    critic_learning_rate: float = setting(1e-3, "of the critics", source=CODE, gt=0)
    actor_encoder: Encoder = setting(
        DefaultEncoder(hidden_units=THREE, initial_bias=0.1), "hidden layers of the policy", source=CODE
    )
    critic_encoder: Encoder = setting(
        DefaultEncoder(hidden_units=THREE, initial_bias=0.1, normalization="layer"), "hidden layers of the critics", source=CODE
    )
    actor_beta: float = setting(0.001, "β₁: weight of the actor's distance from the data", source=CONFIGS, ge=0)
    critic_beta: float = setting(0.01, "β₂: weight of the same in the critic's goal", source=CONFIGS, ge=0)


class ReBRAC(TD3):
    """ReBRAC, offline or online. Data: continuous actions in [-1, 1] after the action scaler; steps must follow each other."""

    Config: ClassVar = ReBRACConfig
    presets: ClassVar = {
        "paper": Preset(f"{CODE} and configs/rebrac: β₁ and β₂ are chosen by dataset", {}),
        "d3rlpy": Preset(
            "d3rlpy 2.8.1, algos/qlearning/rebrac.py", {"actor_encoder": DefaultEncoder(), "critic_encoder": DefaultEncoder()}
        ),
    } | TaskPresets(__file__, ReBRACConfig)

    def wants(self, config: Any) -> Wants:
        return transitions(config, next_action=True)

    @torch.no_grad()
    def goal(self, nets: Nets, batch: Batch, h: Hyper) -> Values:
        assert batch.next_action is not None
        action = self.next_action(nets, batch, h)
        following = reduced(nets.target.critic.distribution(batch.next_observation, action), "min")
        penalty = h.critic_beta * (action - batch.next_action).square().sum(-1)
        return (following - penalty) * batch.discount + batch.reward

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        action = nets.policy(batch.observation)
        value = reduced(nets.critic(batch.observation, action), "min")
        imitation = (action - batch.action).square().sum(-1)
        return h.actor_beta * imitation - value / whole_batch(value.detach().abs()).mean(), {"imitation": imitation, "value": value}
