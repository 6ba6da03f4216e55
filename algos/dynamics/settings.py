"""How an algorithm learns from what a model of the dynamics generates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, model_validator

from ...data.config import Config, setting
from ...data.uris import is_remote

Penalty = Literal["none", "variance", "aleatoric", "difference", "bellman"]
MANUAL = "d3rlpy's manual of October 2020, MOPO"


def _placed(given: Any) -> Any:
    return str(Path(given).absolute()) if isinstance(given, str | Path) and not is_remote(given) else given


Dynamics = Annotated[Any, BeforeValidator(_placed), PlainSerializer(lambda given: given if isinstance(given, str) else None)]
"""A trained model: an object, which is not saved, or the path of a saved one; None: there is none."""


class ModelRollouts(Config):
    """Rollouts of the policy in a model, from observations of the data on: a share of each batch comes from them."""

    horizon: int = setting(5, "steps of each", source=MANUAL, gt=0)
    n_transitions: int = setting(400, "how many begin in each round", source=MANUAL, gt=0)
    interval: int = setting(1000, "gradient steps from one round to the next", gt=0)
    real: float = setting(0.5, "share of each batch that is data", ge=0, lt=1)
    capacity: int | None = setting(
        None,
        "transitions that are kept, of which the oldest make room; None: those of five rounds",
        source="MOPO's code, model_retain_epochs",
        gt=0,
    )
    penalty: Penalty = setting(
        "variance", "u: none, or how uncertain the model is: variance, aleatoric, difference, bellman", source=MANUAL
    )
    lam: float = setting(1.0, "λ: rewards become r - λ u", source=MANUAL, ge=0)

    @model_validator(mode="after")
    def _holds_a_round(self) -> Self:
        if self.capacity is not None and self.capacity < (made := self.horizon * self.n_transitions):
            raise ValueError(
                f"horizon {self.horizon} of {self.n_transitions:,} rollouts makes {made:,} transitions in a round, and capacity is "
                f"{self.capacity:,}: give a larger capacity, or a shorter horizon."
            )
        return self

    @property
    def rows(self) -> int:
        return self.capacity or 5 * self.horizon * self.n_transitions
