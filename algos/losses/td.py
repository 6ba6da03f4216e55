"""The error of critics towards a goal."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...data.batch import Batch

LossValue = tuple[Tensor, dict[str, Tensor]]


def td_loss(critic: Any, batch: Batch, goal: Any) -> LossValue:
    """The Q-function's own loss towards a goal, [members, B], of the transitions that each member learns from.

    Args:
        critic: As `nets.critic`.
        batch: With `extra["kept"]` [members, B] where members learn from transitions of their own.
        goal: What Q goes towards; no gradient reaches it.
    """
    loss, metrics = critic.td_loss(batch.observation, batch.action, goal)
    return learned_from(loss, batch), metrics


def learned_from(loss: Tensor, batch: Batch) -> Tensor:
    """A loss [members, B] where each member learns from it; 0 elsewhere."""
    kept = batch.extra.get("kept")
    return loss if kept is None else loss * kept
