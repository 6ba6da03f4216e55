"""Optimisers: the settings that name one, schedules of the learning rate, and what steps a network of one seed or of a stack."""

from .config import SGD, Adam, AdamW, Muon, Optimizer, RMSprop
from .rows import RowOptimizer
from .schedules import Cosine, Linear, Schedule, WarmUp

__all__ = ["SGD", "Adam", "AdamW", "Cosine", "Linear", "Muon", "Optimizer", "RMSprop", "RowOptimizer", "Schedule", "WarmUp"]
