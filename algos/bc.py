r"""Behaviour cloning (BC) for continuous actions: do what the data did.

    L(φ) = E[ (a - π_φ(s))² ],    the mean over the entries of an action        `BC.imitation_loss`

Symbols   π = `policy`, deterministic.
Paper     Pomerleau: ALVINN, NIPS 1988; the loss as in d3rlpy's manual (October 2020).
Choices   The mean over an action's entries, as in d3rlpy 2.8.1 (`imitators.py`); a sum would scale the learning rate by A.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..data.batch import Batch
from ..data.config import setting
from ..data.spec import Spec
from .base import Algorithm
from .config import ContinuousConfig, Preset
from .definition import Network
from .learner import Learner, LossValue
from .nets import Hyper, Nets
from .networks.encoders import DefaultEncoder, Encoder
from .networks.heads import DeterministicPolicy

MANUAL = "d3rlpy's manual of October 2020; the same in d3rlpy 2.8.1"


class BCConfig(ContinuousConfig):
    """Settings of `BC`."""

    learning_rate: float = setting(1e-3, "Adam", source=MANUAL, gt=0)
    batch_size: int = setting(100, "transitions in a gradient step", source=MANUAL, gt=0)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")


class BC(Algorithm):
    """Behaviour cloning.

    Data: continuous actions in [-1, 1] after the action scaler. Rewards are not looked at. Expect about the data's mean return.
    """

    Config: ClassVar = BCConfig
    actions: ClassVar = "continuous"
    bootstraps: ClassVar = False
    presets: ClassVar = {"d3rlpy": Preset(MANUAL, {})}

    def networks(self, spec: Spec, config: BCConfig) -> dict[str, Network]:
        return {
            "policy": Network(DeterministicPolicy(config.encoder, spec.observation, spec.action.shape[0]), rate="learning_rate")
        }

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Learner, batch: Batch) -> None:
        """The only kind of update."""
        learner.minimise(self.imitation_loss, "policy", batch)

    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B]."""
        return (nets.policy(batch.observation) - batch.action).square().mean(-1), {}

    def act(self, nets: Nets, observation: Any) -> Tensor:
        return nets.policy(observation)
