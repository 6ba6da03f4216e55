"""Q-functions: what a critic estimates of the return, chosen by name for every algorithm that has one."""

from .mean import Mean
from .reductions import picked, reduced
from .registry import QFunction

__all__ = ["Mean", "QFunction", "picked", "reduced"]
