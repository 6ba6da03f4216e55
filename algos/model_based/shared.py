"""The base of algorithms that learn from a model's rollouts."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ..base import Algorithm
from ..dynamics.generated import Generated, no_model
from ..networks.dynamics import Predicted
from ..wants import Transitions

MOPO_CODE = "MOPO's code e5efe3e, examples/config/d4rl"
KIT = "OfflineRL-Kit, run_example"


class InAModel(Algorithm):
    """Algorithms that are nothing without `dynamics`."""

    brings_model: ClassVar = False  # whether it trains a model of its own, so that none is given
    exemptions: ClassVar = {"scalers_act_once": "a model is of raw numbers, and data that were scaled beforehand are others"}

    def completed(self, config: Any, dataset: Dataset) -> Any:
        if config.dynamics is None and not self.brings_model:
            raise ConfigError(no_model(self.name))
        return super().completed(config, dataset)

    def wants(self, config: Any) -> Any:
        """Generated transitions always, so that training without a model is refused."""
        found = super().wants(config)
        return found if isinstance(found, Generated) else Generated(self, config, config.rollouts, cast("Transitions", found))


def check_elites(name: str, config: Any) -> None:
    """Raises ConfigError where more members are to count than there are."""
    if config.n_elites > config.n_members:
        raise ConfigError(f"{name}: n_elites is {config.n_elites}, and there are {config.n_members} members to choose from.")


def ensemble_loss(
    network: Any, found: Predicted, goal: Tensor, ended: Tensor | None, held_out: Tensor, followed: Tensor, bound_weight: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Gives the losses of members at transitions of their own, [members, B], and metrics; held-out errors are noted.

    The negative log-likelihood of what they say, Σ_k ((y_k - μ_k)² / σ_k² + log σ_k²) / K, and a share of what draws the bounds of
    log σ² together (Chua et al. 2018, appendix A.1); with ends learned the cross entropy of those.

    Args:
        network: The ensemble, or the model around it.
        found: What the members say.
        goal: y, [members, B, K].
        ended: 1 where the MDP ended, [members, B]; None: that is not learned.
        held_out: 1 where a transition is held out, [members, B].
        followed: 0 where what followed was not recorded, [members, B].
        bound_weight: w, of the bounds.
    """
    squared = (goal - found.mean).square()
    nll = (squared * (-found.log_variance).exp() + found.log_variance).mean(-1) * followed
    each = nll + bound_weight * network.spread() / len(goal)
    if ended is not None:
        each = each + binary_cross_entropy_with_logits(found.end_logit, ended, reduction="none")
    network.note(squared.mean(-1), goal, held_out * followed)
    learned = (1 - held_out) * followed
    return each, {
        "error": (squared.detach().mean(-1) * learned).sum() / learned.sum().clamp(min=1),
        "held_out_error": network.held_out_error(),
        "deviation": (0.5 * found.log_variance).exp().mean(),
    }


def by_member(x: Tensor, members: int) -> Tensor:
    """[B, …] as [members, B / members, …]; where that is no whole number, the first come once more."""
    if left := -len(x) % members:
        x = torch.cat((x, *[x] * (left // len(x)), x[: left % len(x)]))
    return x.unflatten(0, (members, -1))
