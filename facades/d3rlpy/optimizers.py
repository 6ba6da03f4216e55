"""d3rlpy's `optimizers`: factories of optimisers and of their schedules by its names, with its defaults."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import ClassVar

from .parts import Part


@dataclass
class LRSchedulerFactory(Part):
    """No schedule; base of the others."""

    kind: ClassVar = "none"


@dataclass
class WarmupSchedulerFactory(LRSchedulerFactory):
    """The rate grows in a straight line over its first steps."""

    warmup_steps: int
    kind: ClassVar = "warmup"


@dataclass
class CosineAnnealingLRFactory(LRSchedulerFactory):
    """The rate falls as a cosine over `T_max` steps."""

    T_max: int
    eta_min: float = 0.0
    last_epoch: int = -1
    kind: ClassVar = "cosine_annealing"


@dataclass
class OptimizerFactory(Part):
    """Base of all: what clips gradients, and a schedule."""

    clip_grad_norm: float | None = None
    lr_scheduler_factory: LRSchedulerFactory = field(default_factory=LRSchedulerFactory)


@dataclass
class AdamFactory(OptimizerFactory):
    """Adam."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    kind: ClassVar = "adam"


@dataclass
class AdamWFactory(AdamFactory):
    """AdamW."""

    kind: ClassVar = "adam_w"


@dataclass
class SGDFactory(OptimizerFactory):
    """Gradient descent."""

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    kind: ClassVar = "sgd"


@dataclass
class RMSpropFactory(OptimizerFactory):
    """RMSprop, as DQN's."""

    alpha: float = 0.95
    eps: float = 1e-2
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = True
    kind: ClassVar = "rmsprop"


lr_schedulers = optimizers = sys.modules[__name__]  # where d3rlpy has them
