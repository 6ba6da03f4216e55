r"""What algorithms with a limit of costs share: the limit as critics see it, a critic of costs, and learnt multipliers.

    limit        l = L/T · Σ_{k<T} γᵏ: an episode of T steps that costs L in all, evenly, costs l from its first step, discounted
    cost critic  Qc(s, a) = E[ Σ γᵏ c ], as a critic of rewards; of an ensemble the larger one counts, for costs are to be feared
    multiplier   κ = κ₀ exp(θ) of the constraint E[x] ≤ b: θ ascends E[κ (x - b)], so κ grows while it is broken      `prices.py`

Symbols   L = `cost_limit`, T = `episode_steps`, κ₀ = `initial_multiplier`; c = `batch.extra["cost"]`, summed over n steps.
Code      github.com/liuzuxin/OSRL, commit 03a4586 (Apache-2.0), has l as here. Read, not copied.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Never

import numpy as np
import torch
from torch import Tensor

from ...data.config import setting
from ...data.errors import ConfigError, DataError, named
from ...data.spec import Spec
from ...data.storage.costs import COST
from ..base import Algorithm
from ..config import TrainedConfig
from ..critics import critic_network
from ..definition import LossValue, Network, Verbs, transitions
from ..losses.prices import price_loss
from ..nets import Hyper, Nets
from ..networks.perceptrons import Temperature
from ..networks.q_functions import Mean, td_loss
from ..optimizers import Adam, Optimizer
from ..wants import Wants

if TYPE_CHECKING:
    from ...data.batch import Batch
    from ...data.dataset import Dataset

OSRL = "OSRL 03a4586"
MOST = math.exp(5)  # of exp(θ), the least being its inverse: where OSRL clips CPQ's multiplier


class LimitConfig(TrainedConfig):
    """Settings of a limit of costs."""

    cost_limit: float = setting(
        10.0, "L: what an episode may cost, undiscounted, as evaluations sum it", source=f"{OSRL}, examples/configs", ge=0
    )
    episode_steps: int | None = setting(
        None, "T: steps of an episode, over which the limit is spread; None: of the longest in the data", gt=0
    )


class MultiplierConfig(LimitConfig):
    """Settings of a learnt multiplier."""

    multiplier_learning_rate: float = setting(1e-3, "of the multiplier", gt=0)
    multiplier_optimizer: Optimizer = setting(Adam(), "what steps the multiplier")
    initial_multiplier: float = setting(1.0, "κ₀: the multiplier's first value; it stays within e⁻⁵ and e⁵ of it", gt=0)


class Constrained(Algorithm):
    """Algorithms that keep the costs of data, a column `cost`, below a limit."""

    exemptions: ClassVar[Mapping[str, str]] = {
        "bootstraps_by_the_batchs_discount": "goals are, but the limit that costs are held against is discounted by γ itself"
    }

    def wants(self, config: Any) -> Wants:
        return transitions(config, extra=(COST,))

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """Settles how long an episode is. Raises DataError of data without costs; warns where the limit says nothing."""
        if COST not in dataset.kinds:
            raise DataError(
                f"{self.name} keeps costs below a limit, and {dataset.name!r} has no column 'cost': ingest with one, or give "
                f"Dataset.from_arrays extra={{'cost': …}}; {named('cost_limit')} means nothing without."
            )
        config = super().completed(config, dataset)
        each, limit = np.asarray(dataset.cost_returns), config.cost_limit
        if not each.any():
            warnings.warn(f"{self.name}: all costs of {dataset.name!r} are zero, so no limit is ever broken.", stacklevel=2)
        elif each.min() > limit:
            warnings.warn(
                f"{self.name}: cost_limit is {limit:g}, and no episode of {dataset.name!r} costs less than {each.min():.4g}: what "
                "keeps within it is to be put together of parts of episodes.",
                stacklevel=2,
            )
        if config.episode_steps is not None:
            return config
        return config.model_copy(update={"episode_steps": int(dataset.statistics.steps.max)})  # pyright: ignore[reportArgumentType]

    def fitter_online(self, env: Any, buffer: Any = None, explorer: Any = None, **arguments: Any) -> Never:
        """Refused. Raises ConfigError, which says why."""
        raise ConfigError(
            f"{self.name} learns offline only: what it does before it knows the costs would break the limit. Collect data with "
            "their costs, and call fit on them."
        )

    def discounted_limit(self, h: Hyper) -> Tensor:
        """The limit l of costs from a state on, ()."""
        steps = torch.arange(self.config_.episode_steps, device=h.gamma.device, dtype=h.gamma.dtype)
        return h.cost_limit * (h.gamma**steps).mean()

    def multiplier_network(self, config: Any) -> Network:
        return Network(Temperature(), "multiplier_learning_rate", optimizer=config.multiplier_optimizer)

    def multiplier(self, nets: Nets, h: Hyper) -> Tensor:
        """κ, ()."""
        return h.initial_multiplier * nets.multiplier()

    def ascent(self, nets: Nets, excess: Tensor, h: Hyper) -> Tensor:
        """-κ (x - b) of each sample [B], whose `excess` x - b has no gradient; 0 where a step would lead κ out of its bounds."""
        return h.initial_multiplier * price_loss(nets.multiplier(), excess, 1 / MOST, MOST)


class CostCritics(Constrained):
    """`Constrained` algorithms whose network `cost_critic` has a target: the kind of update `cost_critic`."""

    def cost_network(self, spec: Spec, config: Any) -> Network:
        """An ensemble as the critic's, of expectations: a distribution's atoms would be those of rewards."""
        return critic_network(spec, config.model_copy(update={"q_function": Mean()}))

    def cost_critic(self, learner: Verbs, batch: Batch) -> None:
        learner.minimise(self.cost_loss, "cost_critic", batch)

    def cost_loss(self, nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        """L_Qc of each member and sample, [members, B]."""
        raise self.unwritten("cost_loss(nets, batch, h)", "is marked @loss('member sample')")


def cost_td_loss(nets: Nets, batch: Batch, following: Tensor) -> LossValue:
    """(c + γ Qc'(s', a') - Qc_i(s, a))² of each member, [members, B]; `following` is Qc'(s', a'), [B]."""
    found, metrics = td_loss(nets.cost_critic, batch, following * batch.discount + batch.extra[COST])
    return found, {"cost_value": metrics["q_value"]}
