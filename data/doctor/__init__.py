"""The doctor: `doctor(dataset)` says what is wrong with a dataset, what that means, and which option mends it."""

from .check_environment import EnvironmentFacts
from .examine import doctor
from .findings import KINDS, SEVERITIES, Finding, Kind, Severity
from .pieces import n_pieces
from .report import Histogram, Report

__all__ = [
    "KINDS",
    "SEVERITIES",
    "EnvironmentFacts",
    "Finding",
    "Histogram",
    "Kind",
    "Report",
    "Severity",
    "doctor",
    "n_pieces",
]
