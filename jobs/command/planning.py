"""What `train`, `sweep` and `benchmark` do with `--plan`: say what the work would take, and launch nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError
from .base import RestartableConfig, Result, option
from .console import note

if TYPE_CHECKING:
    from ...platform.driver.work import Work
    from ...platform.record.settings import Planned


class PlannableConfig(RestartableConfig):
    """The flags of a job that trains: it can be planned, and gone on with trial by trial."""

    trial: str | None = option(
        None, "name of the only trial that --resume goes on with, also where it was cancelled alone; null: all that are left"
    )

    plan: bool = option(
        False, "say how long it would take, how many GPU hours and how much disk, from a probe of 30 s; train nothing"
    )
    format: Literal["text", "json"] = option("text", "of the plan; json: one JSON object, every number as it is")

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if self.trial is not None and not self.resume:
            raise ConfigError("trial names what --resume goes on with: say --resume too.")
        if self.trial is not None and self.plan:
            raise ConfigError("plan is of all that is left: leave trial out.")
        if self.plan and self.replace:
            raise ConfigError("plan changes nothing, and replace deletes the earlier run; say one of them.")


@dataclass(frozen=True, kw_only=True)
class PlanResult(Result):
    plan: Planned


def planned(work: Work, config: PlannableConfig, **about: Any) -> PlanResult:
    """The plan of some work; `about` as for `platform.planning.plan.plan`. Raises as the work itself would before it trains."""
    from ...platform.planning.plan import plan

    note("A few trials are trained for half a minute, to see how long they take.")
    found = plan(work, resume=config.resume, **about)
    return PlanResult(made=found.model_dump_json(indent=1) if config.format == "json" else str(found), plan=found)
