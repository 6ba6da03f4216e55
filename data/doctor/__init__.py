"""The doctor: `doctor(dataset)` says what is wrong with a dataset, what that means, and which option mends it."""

from .check_environment import EnvironmentFacts
from .examine import doctor
from .findings import KINDS, SEVERITIES, Finding, Kind, Severity
from .report import Histogram, Report
from .sample import n_pieces

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
