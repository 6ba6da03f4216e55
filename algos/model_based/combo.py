r"""Conservative offline model-based policy optimisation (COMBO): CQL whose values are raised at the data alone.

    critic   L_Q = E_{D ∪ M}[ Σ_i (y - Q_i(s, a))² ] + ω Σ_i ( E_ρ[log Σ_k exp(Q_i(s, a_k)) / p(a_k)] - E_D[Q_i(s, a)] )
                                                                                                                 `COMBO.gap`

D is the data, M what the present policy does in a model, ρ both of them or M alone, and a_k are CQL's. So the model's transitions
are learned from, and what values gain there is taken back; no measure of the model's uncertainty is needed.

Symbols   ω = `conservative_weight`; the share of D in a batch is `rollouts.real`.
When      As MOPO, where its λ cannot be told: ω is easier. Narrow data with a good model.
Paper     Yu, Kumar, Rafailov, Rajeswaran, Levine, Finn: COMBO, NeurIPS 2021, arXiv:2102.08363.
Code      The authors' is not public; github.com/yihaosun1124/OfflineRL-Kit, commit cdee07f (MIT), read, not copied.
Choices   1. ρ is both by default, as in OfflineRL-Kit; the paper names M, which is `pushed="generated"`.
          2. The two means are of those rows of a batch that are theirs, as sums divided by how many there are.
          3. The paper chooses ω by the values that it leads to; presets `d4rl-TASK` are OfflineRL-Kit's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ...data.batch import Batch
from ...data.config import setting
from ..actor_critic.cql import CQL, CQLConfig
from ..config import Preset
from ..dynamics.settings import ModelRollouts
from ..nets import Nets
from ..presets import TaskPresets
from .shared import KIT, InAModel

_NONE = 1e-6  # where a batch has no row of a kind, as data that are held out
ROLLOUTS = ModelRollouts(horizon=5, n_transitions=50_000, interval=1000, real=0.5, penalty="none", lam=0.0)


class COMBOConfig(CQLConfig):
    rollouts: ModelRollouts = setting(ROLLOUTS, "how the model generates", source=f"{KIT}/run_combo.py")
    pushed: Literal["all", "generated"] = setting("all", "where values are pushed down: choice 1", source=f"{KIT}/run_combo.py")


class COMBO(InAModel, CQL):
    """COMBO, offline. Data: observations are vectors, actions continuous in [-1, 1] after the action scaler."""

    Config: ClassVar = COMBOConfig
    exemptions: ClassVar = {**CQL.exemptions, **InAModel.exemptions}
    presets: ClassVar = {
        "offlinerl-kit": Preset(f"{KIT}/run_combo.py; horizon and ω are chosen by task", {}),
    } | TaskPresets(__file__, COMBOConfig)

    def gap(self, nets: Nets, batch: Batch) -> Tensor:
        """Of each member and sample, [members, B]; its mean over the batch is that of the equation."""
        high, data = self.sides(nets, batch)
        real = batch.extra["real"]
        down = 1 - real if self.config_.pushed == "generated" else real * 0 + 1
        return high * (down / down.mean().clamp(min=_NONE)) - data * (real / real.mean().clamp(min=_NONE))
