"""Problems whose decisions tests log, and decisions that say by their numbers which they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from d3ray.data.decision_log import DecisionRows
from d3ray.data.spec import Box, Dict, Discrete, Spec

POINT = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-1.0, high=1.0))
CHOICE = Spec(observation=Dict(spaces={"seen": Box(shape=(2,)), "kind": Discrete(n=3)}), action=Discrete(n=2), action_mask=True)


def decisions(
    episode: Sequence[str | None] | str | None,
    step: Sequence[int] | int,
    role: str = "champion",
    version: str = "1",
    shift: float = 0.0,
) -> DecisionRows:
    """Decisions of `POINT`: the observation of step k is [k, k + shift], the action k / 100 and its log-probability -k - 1."""
    episodes, steps = ([episode], [step]) if isinstance(step, int) else (episode, step)
    assert not isinstance(episodes, str)
    assert episodes is not None
    k = np.asarray(steps, np.float32)
    return DecisionRows(
        version=version,
        role=role,
        episode=episodes,  # pyright: ignore[reportArgumentType]
        step=np.asarray(steps),
        observation=np.stack([k, k + shift], 1),
        action=k[:, None] / 100,
        log_prob=-k - 1,
    )


def choices(episode: Sequence[str | None], step: Sequence[int], legal: Sequence[Sequence[int] | None]) -> DecisionRows:
    """Decisions of `CHOICE`: step k sees [k, -k] of kind k % 3 and does the first that is legal."""
    k = np.asarray(step, np.float32)
    action = [0 if flags is None or flags[0] else 1 for flags in legal]
    shown = {"seen": np.stack([k, -k], 1), "kind": np.asarray(step) % 3}
    return DecisionRows(
        "1", "champion", list(episode), np.asarray(step), shown, action, log_prob=np.log([0.5] * len(k)), legal=list(legal)
    )
