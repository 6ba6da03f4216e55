r"""Advantage actor-critic (A2C): one step down the policy gradient after a few steps of several environments.

    L_π(φ) = E[ -Â log π_φ(a|s) - β H(π_φ(·|s)) ]                                                          `A2C.policy_loss`
    L_V(ψ) = w E[ (G - V_ψ(s))² ]                                                              `ActorCritic.value_loss`

Advantages Â = G - V(s) have returns of as many steps as the rollout goes on, λ = 1, or generalised ones: `estimators.py`.

Symbols   β = `entropy_weight`, w = `value_weight`, λ = `lam`.
When      Online, in many environments at once; PPO is steadier and needs no more steps.
Paper     Mnih, Badia, Mirza, Graves, Harley, Lillicrap, Silver, Kavukcuoglu: Asynchronous Methods for Deep Reinforcement Learning,
          ICML 2016, arXiv:1602.01783, without the asynchrony: Wu et al. 2017, arXiv:1708.05144, section 5.
Code      PFRL 0.4.0, agents/a2c.py and examples/mujoco/reproduction. Read, not copied.
Choices   1. Policy and value function are networks of their own, with a gradient's norm each, as in `ppo.py`.
          2. `update_interval` counts the steps of all environments: 40 are five of each of eight, which are PFRL's `update_steps`.
          3. Advantages are not standardised, as in paper and PFRL.
          4. Encoders may be recurrent, as in PFRL's A3C and not in its A2C: `sequences.py`.
"""

from __future__ import annotations

from typing import ClassVar

from ...data.batch import Batch
from ...data.config import setting
from ..config import Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..optimizers import Optimizer, RMSprop
from .sequences import said
from .shared import ActorCritic, SequencesConfig, entropy_and_density

PFRL = "PFRL 0.4.0, agents/a2c.py"
EXAMPLE = "PFRL 0.4.0, examples/atari/train_a2c_ale.py"
SQUARES = RMSprop(alpha=0.99, epsilon=1e-5, epsilon_inside=True, max_grad_norm=0.5)


class A2CConfig(SequencesConfig):
    learning_rate: float = setting(7e-4, "of both networks", source=EXAMPLE, gt=0)
    optimizer: Optimizer = setting(SQUARES, "what steps policy and value function", source=EXAMPLE)
    update_interval: int = setting(40, "steps of all environments together between two updates", source=PFRL, gt=0)
    lam: float = setting(1.0, "λ of the advantages; 1: returns of as many steps as there are", source=PFRL, ge=0, le=1)
    value_weight: float = setting(0.5, "w: of the value function's loss", source=PFRL, ge=0)
    entropy_weight: float = setting(0.01, "β: what is given for entropy", source=PFRL, ge=0)
    standardize_advantages: bool = setting(False, "whether a rollout's advantages are brought to mean 0 and deviation 1")


class A2C(ActorCritic):
    """Advantage actor-critic, online."""

    Config: ClassVar = A2CConfig
    presets: ClassVar = {
        "pfrl": Preset(PFRL, {}),
        "pfrl-gae": Preset(f"{PFRL}, use_gae", {"lam": 0.95}),
    }

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        entropy, density = entropy_and_density(said(nets, "policy", batch), batch.action)
        return -batch.extra["advantage"] * density - h.entropy_weight * entropy, {"entropy": entropy}
