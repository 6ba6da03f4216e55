r"""Behaviour cloning (BC) for continuous actions: do what the data did.

    deterministic   L(φ) = E[ (a - π_φ(s))² ],    the mean over the entries of an action                   `BC.imitation_loss`
    stochastic      L(φ) = E[ -log π_φ(a|s) ],    π normal; its mean has passed through tanh, its σ depends on s

When      Data of one good behaviour, and always once: what does not beat it has learnt nothing from the rewards. The best tenth
          (preset `10-percent`) may be the episodes that began well: pendulum-bc-10-percent in learning.md fails where BC does not.
Paper     Pomerleau: ALVINN, NIPS 1988; the first loss as in d3rlpy's manual (October 2020).
Choices   1. The mean over an action's entries, as in d3rlpy 2.8.1 (`imitators.py`); a sum would scale the learning rate by A.
          2. The stochastic policy maximises its likelihood and so learns how far actions spread. d3rlpy 2.8.1 takes the squared
             error of a draw, in whose expectation σ² is a penalty, so that σ falls to its bound.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..config import ActionsConfig, Bounds, Preset
from ..critics import DistributionPolicy
from ..definition import LossValue, Network, loss
from ..nets import Hyper, Nets
from ..networks.perceptrons import GaussianPolicy, PointPolicy
from .cloning import TENTH, Cloning, CloningConfig


class BCConfig(CloningConfig, ActionsConfig):
    policy_type: Literal["deterministic", "stochastic"] = setting(
        "deterministic", "one action a state, or a normal distribution", source="d3rlpy 2.8.1, algos/qlearning/bc.py"
    )
    log_std_bounds: Bounds = setting((-4.0, 15.0), "where log σ is clipped", source="d3rlpy 2.8.1, algos/qlearning/bc.py")


class BC(Cloning, DistributionPolicy):
    """Behaviour cloning.

    Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at.
    Expect what the data did in a state on average: above their mean return where behaviours vary, below it where errors add up.
    """

    Config: ClassVar = BCConfig
    compiled_from: ClassVar = 200_000  # steps are short already
    actions: ClassVar = "continuous"
    exemptions: ClassVar = {"log_std_bounds": "the default policy is deterministic"}
    presets: ClassVar = {
        "d3rlpy": Preset("d3rlpy 2.8.1, algos/qlearning/bc.py", {}),
        "d3rlpy-2020": Preset("d3rlpy's manual of October 2020", {}),
        "10-percent": TENTH,
    }

    def networks(self, spec: Spec, config: BCConfig) -> dict[str, Network]:
        if config.policy_type == "deterministic":
            policy = PointPolicy(config.encoder, spec.observation, spec.action.shape[0])
        else:
            policy = GaussianPolicy(config.encoder, spec.observation, spec.action.shape[0], config.log_std_bounds, True)
        return {"policy": Network(policy, "learning_rate", optimizer=config.optimizer)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    @loss("sample")
    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        policy = nets.policy(batch.observation)
        if self.config_.policy_type == "deterministic":
            return (policy.mode() - batch.action).square().mean(-1), {}
        return -policy.log_prob(batch.action), {}
