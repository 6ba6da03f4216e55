"""What policies return when they play, in the form of a configuration whose seeds are episodes that begin alike for all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ...algos.environments.evaluate import Evaluation
from ..storage.outbox import Line
from .reading import Configuration, SeedRun

RETURNED = "return"


def as_configuration(name: str, algorithm: str, settings: dict[str, Any], environment: str, played: Evaluation) -> Configuration:
    """A policy's episodes.

    Args:
        name: What the policy is called.
        algorithm: That made it.
        settings: The algorithm's.
        environment: Where it played.
        played: What its episodes gave.
    """
    episodes = tuple(
        SeedRun(k, "FINISHED", "", 0, 0, None, 1, None, partial(_measured, float(value), int(length)))
        for k, (value, length) in enumerate(zip(played.returns, played.lengths, strict=True))
    )
    settings = {"algorithm": {"name": algorithm, **settings}}
    return Configuration(name, algorithm, settings, 0, episodes, {"name": None}, environment, label=name)


def _measured(value: float, length: int) -> Iterator[Line]:
    return iter([Line(0, 0, {RETURNED: value, "length": float(length)})])
