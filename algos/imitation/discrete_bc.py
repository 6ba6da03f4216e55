r"""Behaviour cloning for discrete actions (DiscreteBC): classify what the data did.

    L(φ) = E[ -log π_φ(a|s) + β / A · Σ_a' log π_φ(a'|s)² ]        `DiscreteBC.imitation_loss`

Symbols   A = number of actions, β = `beta`.
When      Data of one good behaviour with discrete actions, and always once: what does not beat it has learnt nothing from the
          rewards.
Paper     The first term is cross entropy; both in d3rlpy's manual (October 2020), which gives β and not the form of its term.
Choices   The regulariser is taken on normalised log-probabilities, as in d3rlpy 2.8.1 (`imitators.py`, through
          `Categorical.logits`); it pulls the policy towards the uniform one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..base import Algorithm
from ..config import AlgorithmConfig, Preset
from ..definition import LossValue, Network, Verbs, loss, transitions
from ..nets import Hyper, Nets
from ..networks.encoders import DefaultEncoder, Encoder
from ..networks.heads import CategoricalPolicy
from ..optimizers import Adam, Optimizer
from ..ports import Tensors
from ..wants import Wants
from .bc import MANUAL, TENTH, UNUSED


class DiscreteBCConfig(AlgorithmConfig):
    """Settings of `DiscreteBC`."""

    learning_rate: float = setting(1e-3, "of the policy", source=MANUAL, gt=0)
    optimizer: Optimizer = setting(Adam(), "what steps the policy", source=MANUAL)
    batch_size: int = setting(100, "transitions in a gradient step", source=MANUAL, gt=0)
    beta: float = setting(0.5, "β: weight of the regulariser", source=MANUAL, ge=0)
    encoder: Encoder = setting(DefaultEncoder(), "hidden layers of the policy")


class DiscreteBC(Algorithm):
    """Behaviour cloning for discrete actions. Rewards are not looked at.

    Expect the data's most frequent behaviour: above their mean return where behaviours vary, below it where errors add up.
    """

    Config: ClassVar = DiscreteBCConfig
    actions: ClassVar = "discrete"
    has_td_errors: ClassVar = False
    exemptions: ClassVar = UNUSED
    presets: ClassVar = {"d3rlpy": Preset(MANUAL, {}), "10-percent": TENTH}

    def wants(self, config: Any) -> Wants:
        return transitions(config, following=False)

    def networks(self, spec: Spec, config: DiscreteBCConfig) -> dict[str, Network]:
        policy = CategoricalPolicy(config.encoder, spec.observation, spec.n_actions)
        return {"policy": Network(policy, "learning_rate", optimizer=config.optimizer)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    def imitate(self, learner: Verbs, batch: Batch) -> None:
        """The only kind of update."""
        learner.minimise(self.imitation_loss, "policy", batch)

    @loss("sample")
    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L of each sample, [B]."""
        log_prob = nets.policy(batch.observation).log_softmax(-1)
        taken = log_prob.gather(-1, batch.action[:, None])[:, 0]
        return h.beta * log_prob.square().mean(-1) - taken, {"log_prob": taken}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy(observation).argmax(-1), state
