"""What a loop is told: where logs come from, how a policy is trained, and what it has to show before it acts."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ...data.config import Config, setting
from ...data.doctor.findings import KINDS
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ..judging.settings import JudgeSettings
from ..record.watch import AlarmKind
from ..settings.config import ExperimentConfig
from ..watch.settings import WatchSettings

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class IngestSettings(Config):
    """How decisions become episodes."""

    title: ClassVar[str] = "ingest"

    episode_timeout: float = setting(3600.0, "seconds after its last decision after which an episode is taken as it is", ge=0)
    missing_reward: float | None = setting(None, "reward of a decision without an outcome; null: it waits, and is then left out")
    join: str | None = setting(None, "CSV of outcomes that came by another way")
    least: int = setting(100, "new episodes that are worth a round", ge=1)


class CanarySettings(Config):
    """What a new version has to show in a share of the episodes, which the service gives it: `canary=models:/NAME@canary`."""

    title: ClassVar[str] = "canary"

    episodes: int = setting(100, "complete episodes of its own before it is decided on", ge=20)
    hours: float = setting(24.0, "after which too few of them are an answer too: it is not promoted", gt=0)


class LoopSettings(Config):
    title: ClassVar[str] = "loop"

    name: str = setting(..., "the loop's name, also its model's in the registry; its experiments are NAME-1, NAME-2, …")
    log: str = setting(..., "log folder or URI of the service")
    dataset: str = setting(..., "dataset folder or URI that the log's episodes are added to; the first round makes it")
    base: str | None = setting(None, "dataset that policies learn from beside the log's, and alone before there is one")
    ingest: IngestSettings = setting(IngestSettings(), "how decisions become episodes")
    stop_on: tuple[str, ...] = setting((), "findings of the doctor that end a round, beside those that are errors")
    train: dict[str, Any] | None = setting(None, "what d3ray train takes, without name and dataset")
    sweep: dict[str, Any] | None = setting(None, "or what d3ray sweep takes")
    by: Literal["estimate", "play"] = setting(
        "estimate", "what a new version is held against the champion by: logs, or episodes of both"
    )
    judge: dict[str, Any] = setting({}, "what d3ray judge takes, without policies and dataset")
    environment: str | Environment | None = setting(None, "gymnasium id to play in; null: the one that the package names")
    episodes: int = setting(100, "that each of the two plays", ge=20, le=2000)
    canary: CanarySettings | None = setting(None, "what it has to show in the service before it is promoted; null: nothing")
    watch: dict[str, Any] = setting({}, "what d3ray watch takes, without the log")
    roll_back_on: tuple[AlarmKind, ...] = setting(
        (), "alarms of the watch after which a champion that the loop promoted gives way to the one before"
    )
    storage: str = setting("./d3ray_results", "folder of all results, and of the loop's own state")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name is {self.name!r}; it has letters, digits, '.', '_' and '-' only.")
        if self.train is not None and self.sweep is not None:
            raise ConfigError("train and sweep are two ways to a policy: say one of them.")
        for name in self.stop_on:
            if name not in KINDS:
                raise ConfigError(f"The doctor finds nothing called {name!r}{did_you_mean(name, KINDS)}")
        if self.train is not None or self.sweep is not None:
            self.experiment_of(1, self.dataset)
        self.judge_of(1, self.dataset, ("models:/x/1",))
        self.watch_of()
        return self

    def experiment_of(self, number: int, dataset: str) -> ExperimentConfig:
        """Make the experiment of a round. Raises ConfigError, where neither `train` nor `sweep` says what is trained too."""
        if self.train is None and self.sweep is None:
            raise ConfigError("Nothing is to be trained: say train={algorithm: NAME}, or sweep.")
        what, kind, given = "train", ExperimentConfig, self.train or {}
        if self.sweep is not None:
            from ..sweep.config import SweepConfig  # which loads torch

            what, kind, given = "sweep", SweepConfig, self.sweep
        own = {"name": f"{self.name}-{number}", "dataset": dataset, "storage": self.storage}
        _leave_out(what, given, own)
        return kind.checked({**given, **own}, title=what)

    def judge_of(self, number: int, dataset: str, policies: tuple[str, ...]) -> JudgeSettings:
        """Make the judgement of a round. Raises ConfigError."""
        own: dict[str, Any] = {"name": f"{self.name}-{number}-judge", "policies": policies, "dataset": dataset}
        own |= {"storage": self.storage}
        _leave_out("judge", self.judge, own)
        return JudgeSettings.checked({**self.judge, **own}, title="judge")

    def watch_of(self) -> WatchSettings:
        """Make what looks at the log. Raises ConfigError."""
        own = {"log": self.log, "storage": self.storage}
        _leave_out("watch", self.watch, own)
        shared = {"episode_timeout": self.ingest.episode_timeout, "missing_reward": self.ingest.missing_reward}
        return WatchSettings.checked({"reference": self.base or self.dataset, **shared, **self.watch, **own}, title="watch")


def _leave_out(what: str, given: dict[str, Any], own: Any) -> None:
    for name in own:
        if name in given:
            raise ConfigError(f"{what}.{name} is the loop's own: leave it out.")
