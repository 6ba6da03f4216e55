"""How acting and learning alternate in an online run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...data.config import Config, setting

_D3RLPY = "d3rlpy 2.8.1, fit_online"


class Share(Config):
    """The dataset's share of each batch: in a straight line from `start` to `end` over `duration` gradient steps, then `end`."""

    start: float = setting(1.0, "share at the first gradient step of the run", ge=0, le=1)
    end: float = setting(0.0, "share from `duration` on", ge=0, le=1)
    duration: int = setting(..., "gradient steps until `end`", gt=0)


class Alternation(Config):
    """Counts of acting and learning. A step is one of each environment, unless it is called a gradient step."""

    update_interval: int = setting(1, "steps between updates", source=_D3RLPY, gt=0)
    n_updates: int = setting(1, "gradient steps at each update", source=_D3RLPY, gt=0)
    random_steps: int = setting(0, "steps with uniform random actions, first", source=_D3RLPY, ge=0)
    update_start_step: int = setting(0, "steps before the first update", source=_D3RLPY, ge=0)
    mixture: Annotated[float, Field(ge=0, le=1)] | Share = setting(
        0.5, "the dataset's share of each batch, where there is one", source="RLPD (Ball et al. 2023), section 4.1"
    )
