"""Checks against the environment that a dataset names, where somebody who can make it says what it is like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import DataError
from ..spec import Spec
from ..storage.schema import check_spec
from .findings import Finding, found
from .survey import Survey


@dataclass(frozen=True)
class EnvironmentFacts:
    """An environment, to be compared with data."""

    spec: Spec | None = None
    time_limit: int | None = None  # steps
    goals: np.ndarray | None = None  # [n, …] of its tasks, or of a few episodes, in the form of an observation; None: it sets none
    problem: str = ""  # why nothing is known, in one sentence


def environment_unknown(survey: Survey, facts: EnvironmentFacts | None) -> Iterator[Finding]:
    if survey.dataset.environment is None:
        yield found("environment_unknown", "The dataset does not say where its steps were taken.")
    elif facts is not None and facts.problem:
        name = survey.dataset.environment.id
        remedy = "Make the environment available (its package may be missing), and inspect again."
        yield found("environment_unknown", f"{name} cannot be compared with: {facts.problem}", remedy=remedy)


def spaces_disagree(survey: Survey, facts: EnvironmentFacts | None) -> Iterator[Finding]:
    """Compare keys, shapes and kinds with the environment's spaces, then the bounds of actions."""
    environment = survey.dataset.environment
    if facts is None or facts.spec is None or environment is None:
        return
    kinds = {name: (column.dtype, column.shape) for name, column in survey.columns.items()}
    largest = {
        name: tuple(np.atleast_1d(column.moments.high).astype(np.int64).tolist())
        for name, column in survey.columns.items()
        if column.moments is not None and column.is_vector and np.dtype(column.dtype).kind in "iu"
    }
    try:
        check_spec(kinds, largest, facts.spec)
    except DataError as error:
        sentence = str(error).replace("The spec", environment.id, 1)
        yield found("spaces_disagree", sentence)
        return
    ours, theirs = (spec.action.bounds() for spec in (survey.dataset.spec, facts.spec))
    if ours is not None and theirs is not None and not all(np.allclose(a, b) for a, b in zip(ours, theirs, strict=True)):
        said = [f"{low.min():g} to {high.max():g}" for low, high in (ours, theirs)]
        sentence = f"The dataset's actions may reach from {said[0]}, those of {environment.id} from {said[1]}."
        yield found("spaces_disagree", sentence, severity="warning")
