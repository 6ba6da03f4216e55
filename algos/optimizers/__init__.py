"""Optimisers: the settings that name one, schedules of the learning rate, and what steps a network of one seed or of a stack."""

from .config import ADAM, SGD, Adam, AdamW, Group, Muon, Optimizer, RMSprop
from .rows import RowOptimizer, remembered, where_held
from .schedules import Cosine, Linear, Schedule, WarmUp

__all__ = [
    "ADAM",
    "SGD",
    "Adam",
    "AdamW",
    "Cosine",
    "Group",
    "Linear",
    "Muon",
    "Optimizer",
    "RMSprop",
    "RowOptimizer",
    "Schedule",
    "WarmUp",
    "remembered",
    "where_held",
]
