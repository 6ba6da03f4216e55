"""The log of a served policy: what it was shown, what it did and how probable that was, and what came of it, told later."""

from __future__ import annotations

from .outcomes import Answer as Answer
from .outcomes import Outcome as Outcome
from .outcomes import OutcomeLedger as OutcomeLedger
from .reader import read_log as read_log
from .writer import DecisionRows as DecisionRows
from .writer import DecisionWriter as DecisionWriter
