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
from ..config import Preset
from ..definition import LossValue, Network, loss
from ..losses.classification import imitation_error
from ..nets import Hyper, Nets
from ..networks.perceptrons import CategoricalPolicy
from ..ports import Tensors
from .cloning import MANUAL, TENTH, Cloning, CloningConfig


class DiscreteBCConfig(CloningConfig):
    beta: float = setting(0.5, "β: weight of the regulariser", source=MANUAL, ge=0)


class DiscreteBC(Cloning):
    """Behaviour cloning for discrete actions. Rewards are not looked at.

    Expect the data's most frequent behaviour: above their mean return where behaviours vary, below it where errors add up.
    """

    Config: ClassVar = DiscreteBCConfig
    compiled_from: ClassVar = 200_000  # steps are short already
    actions: ClassVar = "discrete"
    presets: ClassVar = {"d3rlpy": Preset(MANUAL, {}), "10-percent": TENTH}

    def networks(self, spec: Spec, config: DiscreteBCConfig) -> dict[str, Network]:
        policy = CategoricalPolicy(config.encoder, spec.observation, spec.n_actions)
        return {"policy": Network(policy, "learning_rate", optimizer=config.optimizer)}

    def schedule(self, step: int) -> tuple[str, ...]:
        return ("imitate",)

    @loss("sample")
    def imitation_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        loss, log_prob = imitation_error(nets.policy(batch.observation), batch.action, h.beta)
        return loss, {"log_prob": log_prob}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        return nets.policy(observation).argmax(-1), state
