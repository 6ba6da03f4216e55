r"""TD3 with behaviour cloning (TD3+BC): TD3 whose actor also keeps to the data's actions.

    actor    L_π = E[ (a - π(s))² - λ Q_1(s, π(s)) ],    λ = α / mean |Q_1(s, π(s))|        `TD3PlusBC.actor_loss`

The critic is TD3's. λ makes the weight of Q independent of the reward's unit; it is taken over the batch, and has no gradient.

Symbols   α = `alpha`; the others as in `td3.py`.
When      A first try with continuous actions: fast, one coefficient, few surprises. Data that are poor throughout hold it back.
Paper     Fujimoto, Gu: A Minimalist Approach to Offline Reinforcement Learning, NeurIPS 2021, arXiv:2106.06860.
Code      github.com/sfujim/TD3_BC, TD3_BC.py (MIT). Read, not copied.
Choices   The square is the mean over an action's entries, as in the code's `mse_loss`. The paper standardises observations:
          `preset="paper"` does, the bare constructor does not, as in d3rlpy.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..networks.training import whole_batch
from .td3 import TD3, DelayedConfig


class TD3PlusBCConfig(DelayedConfig):
    alpha: float = setting(2.5, "α: weight of Q against imitation", source="Fujimoto and Gu 2021, section 5", gt=0)


class TD3PlusBC(TD3):
    """TD3+BC. Data: continuous actions in [-1, 1] after the action scaler."""

    Config: ClassVar = TD3PlusBCConfig
    presets: ClassVar = {
        "paper": Preset("Fujimoto and Gu 2021, Table 2 and section 5", {"observation_scaler": "standard"}),
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/td3_plus_bc.py", {}),
        "d3rlpy-paper": Preset("Seno and Imai 2021, Table 4", {"observation_scaler": "standard"}),
    }

    @loss("sample")
    def actor_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        action = nets.policy(batch.observation)
        value = nets.critic(batch.observation, action, 1)[0]
        weight = h.alpha / whole_batch(value.detach().abs()).mean()
        imitation = (action - batch.action).square().mean(-1)
        return imitation - weight * value, {"imitation": imitation, "value": value}
