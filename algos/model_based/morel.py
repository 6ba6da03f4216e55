r"""Model-based offline RL (MOReL): SAC in a model that halts where its members disagree, which pays little and ends there.

    d(s, a) = max_ij ‖s'_i - s'_j‖                                                                      `Outcomes.disagreement`
    r̃, end  = (κ, true) where d(s, a) > θ,    (r, as the model has it) elsewhere                                  `MOReL.halted`
    θ       = β max_D d

So the policy learns to stay where the members agree, as they do on the data D.

Symbols   β = `pessimism`, max_D d = `largest_disagreement`, κ = `halt_reward`.
When      As MOPO, where few unknown actions would do harm at once: episodes that end badly. κ has to be below what can be earned.
Paper     Kidambi, Rajeswaran, Netrapalli, Joachims: MOReL, NeurIPS 2020, arXiv:2005.05951.
Code      github.com/aravindr93/mjrl, projects/morel, commit 5b0ce8b (Apache 2.0). Read, not copied.
Choices   1. The paper plans by a natural policy gradient on whole episodes in the model; here SAC learns from short rollouts that
             begin in the data, and from the data.
          2. max_D d is found once, when training meets the data, and is a setting then, which is saved.
          3. In the code the halting step pays 0 on Hopper, whose rewards are positive; the paper has -κ with κ the largest reward.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...data.config import setting
from ...data.dataset import Dataset
from ...data.sampling import TransitionSampler
from ..actor_critic.sac import SAC, SACConfig
from ..config import Preset
from ..dynamics.model import Model, Outcomes
from ..dynamics.settings import ModelRollouts
from ..nets import Hyper
from .shared import InAModel

CODE = "mjrl 5b0ce8b, projects/morel/configs/d4rl_hopper_medium.txt"
ROLLOUTS = ModelRollouts(horizon=5, n_transitions=50_000, interval=1000, real=0.05, penalty="none", lam=0.0)
_ROWS = 8192  # transitions that are looked at together


class MOReLConfig(SACConfig):
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source="as MOPO's")
    pessimism: float = setting(3.0, "β: how many times the data's largest disagreement is borne", source=CODE, gt=0)
    largest_disagreement: float | None = setting(None, "max_D d; None: as the data have it", gt=0)
    halt_reward: float = setting(0.0, "κ: what halting pays, unscaled", source=CODE)


class MOReL(InAModel, SAC):
    """MOReL, offline. Data: observations are vectors, actions continuous in [-1, 1] after the action scaler."""

    Config: ClassVar = MOReLConfig
    presets: ClassVar = {"hopper": Preset(CODE, {"gamma": 0.999})}

    def completed(self, config: Any, dataset: Dataset) -> Any:
        config = super().completed(config, dataset)
        if config.largest_disagreement is None and (model := self.given_model(config)) is not None:
            config = config.model_copy(update={"largest_disagreement": largest_disagreement(model, dataset)})
        return config

    def wants(self, config: Any) -> Any:
        return replace(super().wants(config), judge=partial(self.halted, config.largest_disagreement))

    def halted(self, largest: float, found: Outcomes, reward: Tensor, ended: Tensor, h: Hyper) -> tuple[Tensor, Tensor]:
        """Rewards and ends where members disagree, and as they are elsewhere, [B] each."""
        unknown = found.disagreement() > h.pessimism * largest
        return torch.where(unknown, h.halt_reward, reward), ended | unknown


@torch.no_grad()
def largest_disagreement(model: Model, dataset: Dataset) -> float:
    """Max d(s, a) over a dataset."""
    sampler = TransitionSampler(dataset, 1, next_action=False, free_memory=lambda device: 0)
    found = 0.0
    for at in torch.from_numpy(np.arange(sampler.n_windows)).split(_ROWS):
        step = sampler.at(at)
        found = max(found, float(model(step.observation, step.action).disagreement().max()))
    return found
