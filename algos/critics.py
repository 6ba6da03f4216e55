"""What algorithms with critics share, whichever actions they are for: how critics are set, and how they and their targets move."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..data.batch import Batch
from ..data.config import setting
from ..data.errors import named
from .base import Algorithm
from .config import AlgorithmConfig
from .definition import LossValue, Verbs
from .dynamics.settings import Dynamics, ModelRollouts
from .nets import Hyper, Nets
from .networks.q_functions import Bootstrap, Mean, QFunction, picked

if TYPE_CHECKING:
    from ..data.dataset import Dataset

_FAR = 3.0  # corners of the Huber loss: rewards that spread further are far beyond it
RATE = "SAC, Table 1; the authors' code of TD3, TD3+BC and IQL"


class CriticsConfig(AlgorithmConfig):
    """Settings of algorithms with critics; the defaults are those of most for continuous actions."""

    q_function: QFunction = setting(Mean(), "what critics estimate: mean, or a distribution of the return")
    n_critics: int = setting(2, "size of the ensemble", source=RATE, gt=0)
    share_encoder: bool = setting(False, "whether the ensemble has one encoder")
    bootstrap: Bootstrap = setting(
        False, "whether each critic learns from a half of the transitions, of its own", source="Osband et al. 2016"
    )
    tau: float = setting(0.005, "τ: share of a network that enters its target when it moves; 1 copies it", source=RATE, gt=0, le=1)
    target_update_interval: int | None = setting(
        None, "gradient steps from one move of the targets to the next; None: as the algorithm has it", gt=0
    )
    dynamics: Dynamics = setting(
        None,
        "a model that generates a share of each batch: a trained ProbabilisticEnsemble, or its path; None: none does",
        since="0.2",
    )
    rollouts: ModelRollouts = setting(ModelRollouts(), "how that model generates", since="0.2")


class Critics(Algorithm):
    """Algorithms whose network `critic` has a target: the kinds of update `critic` and `targets`, and Q(s, a) to predict.

    One with another order, or with other targets, writes its own.
    """

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Warns of returns that the Q-function cannot tell, and of rewards whose mean it does not learn."""
        from ..data.sampling import range_of_returns

        function = getattr(config, "q_function", None)
        if isinstance(function, Mean) and function.is_huber(discrete="discrete" in self.action_kinds()):
            self._warn_of_spread(config, dataset)
        if function is not None and (span := function.span):
            scaler = config.reward_scaler
            lowest, highest = range_of_returns(dataset, config.gamma, scaler and scaler.reward_transform())
            if lowest < span[0] or highest > span[1]:
                warnings.warn(
                    f"{self.name}: the discounted returns of {dataset.name!r} lie from {lowest:.4g} to {highest:.4g}, and its "
                    f"critic's atoms from {span[0]:g} to {span[1]:g}: what lies beyond is taken for the nearer end. Set v_min and "
                    f"v_max of {named('q_function')}, or a {named('reward_scaler')}.",
                    stacklevel=2,
                )
        return super().completed(config, dataset)

    def _warn_of_spread(self, config: Any, dataset: Dataset) -> None:
        rewards, scaler = dataset.statistics.reward, config.reward_scaler
        ends = np.cumsum(np.asarray([rewards.mean, rewards.std], np.float64))
        low, high = ends if scaler is None else scaler.transform(ends).tolist()
        if (spread := abs(float(high) - float(low))) > _FAR:
            warnings.warn(
                f"{self.name}: the rewards of {dataset.name!r} have a standard deviation of {spread:.3g}, and beyond errors of 1 "
                "the Huber loss of its critic goes with their median and not with their mean: where large rewards are rare, worse "
                f"actions look better. Set {named('q_function')} to {{name: mean, loss: squared}}, or to qr.",
                stacklevel=2,
            )

    def critic(self, learner: Verbs, batch: Batch) -> None:
        """The critics, down `critic_loss`."""
        learner.minimise(self.critic_loss, "critic", batch)

    def targets(self, learner: Verbs, batch: Batch) -> None:
        """The critics' target, by the share τ."""
        learner.track("critic", rate="tau")

    def critic_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Q of each member and sample, [members, B]."""
        raise NotImplementedError

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return nets.critic(observation, action)


class DiscreteCritics(Critics):
    """The same where an action is one of n, and a critic has a value for each."""

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        return picked(nets.critic(observation), action)
