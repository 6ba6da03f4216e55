"""A served policy as its log shows it: traffic, drift, returns over time, alarms."""

from __future__ import annotations

from typing import Literal

from .base import Record

AlarmKind = Literal["drift", "outside", "returns", "fallback", "support"]
Group = Literal["first observation", "observation", "action", "reward", "cost", "nearest"]  # of columns


class Changed(Record):
    """How a number of each step differs between the data that a policy learned from and what it is asked now."""

    name: str  # as observation[3], first observation[3], action, reward
    group: str
    old: float  # means
    new: float
    old_std: float
    new_std: float
    distance: (
        float  # from 0 to 1: the largest difference of cumulative shares, or half the sum of differences of categories' shares
    )
    p: float  # that chance gives as much in any column
    outside: float | None  # share of new steps beyond the recorded range
    shown: bool  # whether it counts as changed


class Traffic(Record):
    """Decisions of one version in one role."""

    version: str
    role: str
    decisions: int
    episodes: int
    first: float  # seconds since 1970, by the clocks of those who decided
    last: float


class Returns(Record):
    """Episodes of some time, and what they returned."""

    begin: float
    end: float  # seconds since 1970, of the first and the last episode's first decision
    version: str  # "" where several acted
    episodes: int
    mean: float
    interval: tuple[float, float] | None  # None: too few episodes


class WatchedValue(Record):
    """What a policy would return by the whole log, whoever acted there."""

    source: str  # the policy
    gamma: float
    episodes: int = 0
    estimator: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    ess: float | None = None  # effective episodes behind it
    refused: str = ""  # why there is no value


class WatchAlarm(Record):
    """Something that a person should look at."""

    kind: AlarmKind
    why: str  # in one sentence


class Watched(Record):
    """What one look at a log found."""

    log: str
    policy: str  # its name in the service
    time: float  # of the look
    reference: str | None  # the data that it was compared with
    compared: tuple[int, int]  # episodes of the reference and of the log; (0, 0): not compared
    traffic: tuple[Traffic, ...]
    waiting: int  # decisions in no complete episode, with those that were asked for again
    notes: tuple[str, ...]  # what the log's reader had to say
    reasons: dict[str, int]  # why the fallback acted, and how often
    drift: tuple[Changed, ...]
    returns: tuple[Returns, ...]
    values: tuple[WatchedValue, ...]
    alarms: tuple[WatchAlarm, ...]
