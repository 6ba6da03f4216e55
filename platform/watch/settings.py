"""What is watched of a service's log, and what is an alarm."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ...data.config import Config, setting
from ..record.watch import Group


class AlarmSettings(Config):
    """When something is an alarm."""

    title: ClassVar[str] = "alarms"

    level: float = setting(0.01, "drift: how probable a change by chance alone may be, over all columns together", gt=0, lt=1)
    distance: float = setting(0.1, "drift: smallest change that counts, as a difference of cumulative shares", ge=0, le=1)
    groups: tuple[Group, ...] = setting(
        ("first observation",),
        "drift: columns that count, of first observation, observation, action, reward, cost, nearest; policies change the others",
    )
    outside: float = setting(0.05, "share of steps with an entry beyond the reference's range", ge=0, le=1)
    returns: float | None = setting(None, "the newest episodes' mean return is below this, with its whole interval; null: none is")
    fallback: float = setting(0.05, "share of decisions that the fallback made", ge=0, le=1)
    ess: float | None = setting(None, "effective episodes behind the estimate are fewer; null: any number will do", ge=0)


class WatchSettings(Config):
    title: ClassVar[str] = "watch"

    log: str = Field(
        description="log folder or URI of a served policy; of several in one service LOG/NAME",
        json_schema_extra={"operand": True, "example": "service/log"},
    )
    reference: str | None = setting(
        None, "dataset that the policy learned from; null: the one that its package names, where this machine has it"
    )
    champion: str | None = setting(
        None, "models:/NAME@champion or the folder of a policy package, whose value the log is asked for; null: of nobody"
    )
    last: int = setting(1000, "newest episodes that are compared with the reference", gt=0)
    windows: int = setting(12, "into which the episodes are cut to show returns over time", gt=0, le=200)
    episode_timeout: float = setting(3600.0, "seconds after its last decision after which an episode counts as cut", ge=0)
    missing_reward: float | None = setting(None, "reward of a decision without an outcome; null: it waits, and is then left out")
    gamma: float = setting(0.99, "γ of the estimate", gt=0, le=1)
    alarms: AlarmSettings = setting(AlarmSettings(), "when something is an alarm")
    webhook: str | None = setting(None, "address that new alarms are posted to as JSON; null: none")
    set_alarm: bool = setting(False, "also let the service's fallback act while there is an alarm")
    out: str | None = setting(None, "folder of the page and the numbers; null: watch in the log")
    tracking: str | None = setting(None, "MLflow's tracking URI; null: MLFLOW_TRACKING_URI, else the database in storage")
    storage: str = setting("./d3ray_results", "results folder, for its MLflow database")
