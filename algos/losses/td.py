"""The error of critics towards a goal."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...data.batch import Batch
from ..networks.q_functions import Goal, as_values

LossValue = tuple[Tensor, dict[str, Tensor]]


def td_loss(critic: Any, batch: Batch, goal: Goal, features: Tensor | None = None) -> LossValue:
    """The Q-function's own loss towards a goal, [members, B], of the transitions that each member learns from.

    Args:
        critic: As `nets.critic`.
        batch: With `extra["kept"]` [members, B] where members learn from transitions of their own.
        goal: What Q goes towards, `Values` [N, B] or of each member, or numbers [B]; no gradient reaches it.
        features: `critic.features(batch.observation)` of a critic of discrete actions, where a loss has more to read off them.
    """
    if features is None:
        loss, metrics = critic.td_loss(batch.observation, batch.action, as_values(goal))
    else:
        loss, metrics = critic.loss(features, batch.action, as_values(goal))
    return learned_from(loss, batch), metrics


def learned_from(loss: Tensor, batch: Batch) -> Tensor:
    """A loss [members, B] where each member learns from it; 0 elsewhere."""
    kept = batch.extra.get("kept")
    return loss if kept is None else loss * kept
