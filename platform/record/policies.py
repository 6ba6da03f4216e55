"""Policies that were written, played, judged and promoted."""

from __future__ import annotations

from typing import Literal

from .base import Record


class Policy(Record):
    """A policy that was written, or a model of the dynamics."""

    target: str
    kind: Literal["onnx", "torchscript", "torch.export", "package"]
    source: str  # which it is, in words
    noun: Literal["policy", "model"]  # what it is


class PolicyAbout(Record):
    """What a policy takes and gives."""

    what: str  # which policy it is, in words
    algorithm: str
    seed: int
    step: int
    observation: str  # its spaces, in a few words
    action: str
    size: int | None  # entries of an observation; None where it is no array
    names: tuple[str, ...] | None  # what these entries are called, in their order; None where that is not known
    remembers: bool  # it has a memory, or draws: one observation does not settle its action
    environment: str | None
    fingerprint: str | None  # of what it learned from; None: not known


class Video(Record):
    """Episodes that a policy played, drawn."""

    file: str
    said: str  # their returns, in words


class Evidence(Record):
    """What speaks for a version of a model, by which it is promoted or not."""

    version: str
    by: str  # "play", or the estimator's name
    mean: float  # return, or its estimate
    lower: float  # end of its interval
    level: float  # of that interval
    episodes: int | None  # that were played, or that the logs hold; None: not known
    ess: float | None  # effective episodes behind an estimate's weights; None: it has none
    source: str  # what was played, or the judgement's folder


class Promotion(Record):
    """How a promotion went."""

    passed: bool  # whether the candidate is the champion now
    why: str  # what decided it, in a sentence
    candidate: Evidence | None = None
    champion: Evidence | None = None
    above: float | None = None  # what the candidate's lower bound had to be above
    what: str = ""  # that in words


class Rollback(Record):
    """How going back to an earlier champion went."""

    version: str | None  # the champion now; None: there is no earlier one
    why: str


class Estimated(Record):
    """What an estimator makes of a policy's return."""

    value: float | None
    interval: tuple[float, float] | None
    ess: float | None  # effective episodes behind its weights; None: it has none
    caveat: str | None  # what the interval does not hold
    refused: str | None  # why it says nothing


class Judged(Record):
    """A policy, by what logs of another say."""

    label: str
    estimates: dict[str, Estimated]  # by estimator
    warnings: list[str]
    played: float | None  # its mean return, where it was played too


class Judgement(Record):
    """Policies by logs, the largest lower bound first."""

    dataset: str
    trusted: str | None  # the estimator that decides; None where all are refused
    episodes: int  # of the logs
    data: float | None  # the return of the logs themselves
    policies: list[Judged]
