"""Behaviour cloning of either kind of actions: settings, batches, and its one kind of update."""

from __future__ import annotations

from typing import Any, ClassVar

from ...data.batch import Batch
from ...data.config import setting
from ..base import Algorithm
from ..config import AlgorithmConfig, Preset, SampledConfig
from ..definition import LossValue, Verbs, transitions
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..optimizers import Adam, Optimizer
from ..wants import Wants

MANUAL = "d3rlpy's manual of October 2020; the same in d3rlpy 2.8.1"
TENTH = Preset(
    "10 % BC, Chen et al. 2021 (Decision Transformer), section 5: the best tenth of the transitions, by their episodes' returns",
    {"sampler": {"name": "weighted", "by": "top", "share": 0.1, "share_of": "transitions"}},
)


class CloningConfig(SampledConfig):
    once: ClassVar = AlgorithmConfig

    learning_rate: float = setting(1e-3, "of the policy", source=MANUAL, gt=0)
    optimizer: Optimizer = setting(Adam(), "what steps the policy", source=MANUAL)
    batch_size: int = setting(100, "transitions in a gradient step", source=MANUAL, gt=0)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")


class Cloning(Algorithm):
    """Algorithms whose network `policy` learns what the data did, and nothing else: the kind of update `imitate`."""

    has_td_errors: ClassVar = False
    recurrent: ClassVar = ("policy",)

    def wants(self, config: Any) -> Wants:
        return transitions(config, following=False)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.imitation_loss, "policy", batch)

    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B]."""
        raise NotImplementedError
