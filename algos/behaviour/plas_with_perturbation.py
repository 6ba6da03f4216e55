r"""PLAS with a perturbation: what the latent policy chooses may be moved a little, to actions that the data do not have.

    policy   a = clip(b + Φ ξ(s, b), -1, 1),    b = D(s, m π(s))                                `PLASWithPerturbation.acting`

π and ξ climb the first critic together. All else is as in `plas.py`, the loss of the behaviour model too.

Symbols   Φ = `action_flexibility`; the others as in `plas.py`.
When      As PLAS, where the critic may be trusted a little beyond what the behaviour did.
Paper     Zhou, Bajracharya, Held: PLAS: Latent Action Space for Offline Reinforcement Learning, CoRL 2020, arXiv:2011.07213.
Code      github.com/Wenxuan-Zhou/PLAS, algos.py, commit 9fbc6ff (MIT). Read, not copied.
Choices   1. Φ = 0.05, as in the code's `LatentPerturbation` and d3rlpy 2.8.1; the paper shows the best of several for each task.
          2. The decoder ends in tanh, unlike d3rlpy's: choice 4 of `plas.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ...data.spec import Spec
from ..definition import Network, Verbs
from ..nets import Hyper, Nets
from ..networks.behaviour import Perturbation
from .behaviour_model import perturbed
from .plas import CODE, PLAS, PLASConfig


class PLASWithPerturbationConfig(PLASConfig):
    action_flexibility: float = setting(0.05, "Φ: how far the perturbation moves an action", source=CODE, ge=0)


class PLASWithPerturbation(PLAS):
    """PLAS with a perturbation. Data and warm-up: as for `PLAS`."""

    Config: ClassVar = PLASWithPerturbationConfig

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        perturbation = Perturbation(config.actor_encoder, spec.observation, spec.action.shape[0])
        return {
            **super().networks(spec, config),
            "perturbation": Network(perturbation, "actor_learning_rate", True, config.actor_optimizer),
        }

    def actor(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.actor_loss, ("policy", "perturbation"), batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        super().targets(learner, batch)
        learner.track("perturbation", rate="tau")

    def acting(self, nets: Nets, side: Nets, observation: Any, h: Hyper) -> Tensor:
        return perturbed(side.perturbation, observation, super().acting(nets, side, observation, h), h)
