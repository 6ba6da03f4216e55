"""A loop from logs to a policy and back: where it stands, and how its rounds ended."""

from __future__ import annotations

from typing import Literal

from .base import Record

Step = Literal["ingest", "doctor", "train", "register", "judge", "canary", "promote"]
Ended = Literal["nothing new", "stopped", "not promoted", "promoted", "rolled back"]


class RoundEnd(Record):
    """One round that is over."""

    number: int
    ended: Ended
    why: str  # in a sentence
    episodes: int  # of the log
    fingerprint: str
    version: str | None  # of the model, that was made in it
    begun: float
    time: float  # seconds since 1970


class LoopState(Record):
    """Where a loop stands: what a killed one goes on from."""

    name: str
    number: int = 1  # of the round
    step: Step = "ingest"  # that is to be done next
    begun: float  # the round
    seen: int = 0  # episodes of the log when the last policy was trained
    episodes: int = 0  # of the log in this round
    fingerprint: str = ""  # of the dataset in this round
    version: str | None = None  # of the model, that was made in this round
    canary_since: float | None = None  # from when on the version acts in a share of the episodes
    rounds: tuple[RoundEnd, ...] = ()  # the newest ones
