"""Checks of goals: whether any step reaches the one that stands beside it, and whether data come near those that tasks set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..operations.goals import ASKED, GOAL, SEEN
from .check_environment import EnvironmentFacts
from .findings import Finding, found
from .sample import chosen
from .survey import Survey

_PAIRS = 1_000  # states whose nearest ones are looked for
_FAR = 3.0  # a goal is far where it is so many times as far from all states as these are from those of other episodes
_REACHED = ("achieved_goal", SEEN)  # what is compared with a goal beside observations


def goals_unreached(survey: Survey) -> Iterator[Finding]:
    """Find goals beside observations to which no step comes nearer than a step is long."""
    kinds, raw = survey.dataset.kinds, survey.sample.raw
    goal = next((name for key in (GOAL, ASKED) if (name := f"observation/{key}") in raw), "")
    reached = next((name for key in _REACHED if (name := f"observation/{key}") in raw and goal and kinds[name] == kinds[goal]), "")
    if not reached:
        return
    after = survey.sample.following[reached]
    scale = _scale(raw[reached])
    step = _length((after - raw[reached]) / scale)
    left = np.minimum(_length((raw[goal] - raw[reached]) / scale), _length((raw[goal] - after) / scale))
    near, typical = float(left.min()), float(np.median(step))
    if near > typical > 0:
        sentence = (
            f"None of {len(left):,} steps comes to its goal, {goal.partition('/')[2]!r}: the nearest stays {near:.3g} spreads "
            f"away, {near / typical:.3g} times the length of a step, half of them {np.median(left):.3g}."
        )
        yield found("goals_unreached", sentence, nearest=near, step=typical)


def goals_far(survey: Survey, facts: EnvironmentFacts | None) -> Iterator[Finding]:
    """Find goals of the environment's tasks that are far from all states."""
    raw = survey.sample.raw
    if facts is None or facts.goals is None or not len(facts.goals):
        return
    size = facts.goals.shape[1:]
    names = ("observation", *(f"observation/{key}" for key in _REACHED))
    name = next((one for one in names if one in raw and raw[one].shape[1:] == size), None)
    if name is None or len(raw[name]) < 2:
        return
    scale, episode = _scale(raw[name]), survey.sample.episode
    states = raw[name].reshape(len(raw[name]), -1) / scale
    some = chosen(len(states), _PAIRS, "goals")
    several = len(np.unique(episode)) > 1
    other = (episode[some][:, None] != episode) if several else (some[:, None] != np.arange(len(states)))
    usual = float(np.quantile(_nearest(states[some], states, other), 0.95))
    distance = _nearest(facts.goals.reshape(len(facts.goals), -1) / scale, states, None)
    far = int(np.count_nonzero(distance > _FAR * usual))
    if far:
        n = len(distance)
        sentence = (
            f"{far} of {n} goals that the environment sets are far from all states: the nearest state is "
            f"{distance.max():.3g} spreads from one, where states have one of another episode within {usual:.3g}."
        )
        severity = None if far == n else "note"
        yield found("goals_far", sentence, severity=severity, far=far, goals=n, farthest=float(distance.max()), usual=usual)


def _scale(values: np.ndarray) -> np.ndarray:
    spread = values.reshape(len(values), -1).std(0, dtype=np.float64)
    return np.where(spread > 0, spread, 1)


def _length(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows.reshape(len(rows), -1), axis=1)


def _nearest(rows: np.ndarray, states: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    """The distance of each row to the nearest of the states that are allowed; infinite where none is."""
    squares = np.square(rows).sum(1)[:, None] + np.square(states).sum(1) - 2 * rows @ states.T
    return np.sqrt(np.maximum(squares if allowed is None else np.where(allowed, squares, np.inf), 0).min(1))
