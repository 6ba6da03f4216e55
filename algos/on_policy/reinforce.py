r"""REINFORCE: the policy gradient of whole episodes, without a value function.

    L(φ) = 1/E Σ_e Σ_t [ -G_t log π_φ(a_t|s_t) - β H(π_φ(·|s_t)) ],   G_t = Σ_{k≥t} γ^{k-t} r_k            `REINFORCE.policy_loss`

over E episodes that ended since the last step: where several end at once, all of them.

Symbols   E = `n_episodes`, β = `entropy_weight`.
When      Short episodes, as a baseline, or to see a policy gradient work.
Paper     Williams: Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning, Machine Learning 8,
          1992.
Code      PFRL 0.4.0, agents/reinforce.py. Read, not copied.
Choices   1. γ is 1 by default, for PFRL's has no discount; a smaller one is the usual variant with less variance.
          2. An episode that a time limit cut off counts as it is: nothing stands for what it did not collect.
          3. A recurrent policy reads each episode from its beginning to its end, and gradients go all the way back.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...data.batch import Batch
from ...data.config import setting
from ..config import ContinuousConfig, Preset
from ..definition import LossValue, loss
from ..nets import Hyper, Nets
from ..recurrence import remembers
from .estimators import returns
from .rollouts import Rollouts
from .sequences import Columns, said
from .shared import OnPolicy, OnPolicyConfig, RolloutsConfig, entropy_and_density

PFRL = "PFRL 0.4.0, agents/reinforce.py and examples/gym/train_reinforce_gym.py"


class _Once(RolloutsConfig, ContinuousConfig):
    pass


class REINFORCEConfig(OnPolicyConfig):
    once: ClassVar = _Once

    learning_rate: float = setting(1e-3, "of the policy", source=PFRL, gt=0)
    gamma: float = setting(1.0, "γ: discount of one step", source=PFRL, ge=0, le=1)
    n_episodes: int = setting(1, "E: episodes of a gradient step", source=PFRL, gt=0)
    entropy_weight: float = setting(0.0, "β: what is given for entropy", source=PFRL, ge=0)


class REINFORCE(OnPolicy):
    """REINFORCE, online."""

    Config: ClassVar = REINFORCEConfig
    presets: ClassVar = {"pfrl": Preset(PFRL, {"n_episodes": 10})}

    def wants(self, config: Any) -> Rollouts:
        return Rollouts(self, 0, episodes=config.n_episodes, recurrent=remembers(config))

    def complete(self, nets: Nets, rollout: Columns, h: Hyper) -> Columns:
        """Returns to the end of each episode, and how many steps an episode has on average."""
        steps = rollout["ends"].numel() / rollout["ends"].sum()
        found = returns(rollout["reward"], rollout["ends"], h.gamma)
        return {"return": found, "steps": steps.to(found.dtype).expand(found.shape)}

    @loss("sample")
    def policy_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B], times the steps of an episode, so that their mean is a sum over episodes."""
        entropy, density = entropy_and_density(said(nets, "policy", batch), batch.action)
        each = -batch.extra["return"] * density - h.entropy_weight * entropy
        return batch.extra["steps"] * each, {"entropy": entropy}
