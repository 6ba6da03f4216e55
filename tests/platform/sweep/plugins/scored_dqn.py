"""A plugin: DQN with a metric that a setting decides, so that a test knows who is best."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from d3ray.algos.definition import loss
from d3ray.algos.registry import register_algorithm
from d3ray.algos.values.dqn import DQN, DQNConfig
from d3ray.data.config import setting


class ScoredDQNConfig(DQNConfig):
    """Settings of `ScoredDQN`."""

    score: float = setting(0.0, "what the metric train/score is")


@register_algorithm
class ScoredDQN(DQN):
    """DQN that logs `score`."""

    Config: ClassVar = ScoredDQNConfig

    @loss("member sample")
    def critic_loss(self, nets: Any, batch: Any, h: Any) -> Any:
        """As DQN's."""
        loss, metrics = super().critic_loss(nets, batch, h)
        return loss, {**metrics, "score": torch.zeros_like(loss.detach()) + h.score}
