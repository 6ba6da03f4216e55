"""The settings of a sweep: an experiment's, and what is searched, by whom, for what, and for how long."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ...data.config import setting
from ...data.errors import ConfigError
from ..settings.config import EVALUATED, EvaluationConfig, ExperimentConfig, Limits, all_seeds_together
from ..settings.objective import Objective
from ..subjects.kind import is_online, kind_of
from .scheduler_config import PBT, NoScheduler, SchedulerConfig
from .search_space import ALGORITHM, DATASET, SearchSpace, applied
from .searchers import SearcherConfig

CONFIGURATIONS = 20  # where nothing else limits them
MOST = 10**6


class BudgetConfig(Limits):
    """When a sweep begins nothing new any more; what runs then goes on to its end. Counted over every resume."""

    configurations: int | None = setting(
        None,
        f"most configurations; null: all of a grid, else {CONFIGURATIONS}, and no limit where hours or gpu_hours are one",
        gt=0,
    )


class SweepConfig(ExperimentConfig):
    """Configurations of an experiment, each with some seeds."""

    title: ClassVar[str] = "sweep"

    seeds_per_trial: int = all_seeds_together()
    evaluation: EvaluationConfig | None = Field(
        default_factory=EvaluationConfig,
        description="environment or held-out share, for something has to be compared; null: losses only",
    )
    search: dict[str, Any] = Field(
        description="what is searched: dotted names of settings, with a space each (choice, grid, uniform, loguniform, integers)",
        json_schema_extra={"dotted": True, "example": {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-3]}}},
    )
    searcher: SearcherConfig = Field(default_factory=SearcherConfig, description="who proposes configurations")
    scheduler: SchedulerConfig = Field(
        default_factory=NoScheduler, description="what stops trials early, or changes them: none, asha, median or pbt"
    )
    objective: Objective = Field(default_factory=Objective, description="what makes a configuration the best")
    budget: BudgetConfig = Field(default_factory=BudgetConfig, description="when to end")

    @model_validator(mode="before")
    @classmethod
    def _first_of_searched(cls, value: Any) -> Any:
        """The dataset and the algorithm need not be said where they are searched."""
        if not isinstance(value, dict) or not isinstance(search := value.get("search"), dict):
            return value
        found = dict(value)
        for name, field in ((DATASET, "dataset"), (ALGORITHM, "algorithm")):
            space = search.get(name)
            listed = next(iter(space.values()), None) if isinstance(space, dict) else None
            if field not in found and isinstance(listed, list) and listed:
                found[field] = listed[0]
        return found

    @model_validator(mode="after")
    def _check_sweep(self) -> Self:
        space = self.space
        space.check(self)
        listed = space.size() if self.searcher.name == "grid" else None
        if (n := self.max_configurations(listed)) is not None and n > MOST:
            raise ConfigError(f"search has {n:,} configurations, and a sweep {MOST:,} at most: say budget.configurations.")
        metric = self.objective.metric
        if self.evaluation is None and metric.startswith(EVALUATED):
            raise ConfigError(f"objective.metric is {metric}, which nothing measures: say evaluation too, or another metric.")
        if self.objective.seeds == "lower_bound" and len(self.seeds) < 2:
            raise ConfigError("objective.seeds is lower_bound, which needs two seeds at least; name more, or say mean.")
        self.scheduler.suits(self)
        if isinstance(self.scheduler, PBT):
            self._check_population(self.scheduler, space)
        return self

    def _check_population(self, chosen: PBT, space: SearchSpace) -> None:
        if self.online is not None or any(is_online(name) or not kind_of(name).has_coefficients for name in space.algorithms):
            raise ConfigError("scheduler: pbt changes coefficients while a trial trains, which is for what learns from data.")
        if len(space.algorithms) > 1:
            raise ConfigError("scheduler: in pbt one trial goes on from another's weights, so all must have one algorithm.")
        limit = self.budget.configurations
        if chosen.population is not None and limit not in (None, chosen.population):
            many = f"scheduler.population is {chosen.population} and budget.configurations {limit}"
            raise ConfigError(f"{many}; with pbt they are one: say one of them.")
        if (size := self.max_configurations(space.size())) is None:
            raise ConfigError("scheduler: pbt compares all trials of a population: say scheduler.population, how many there are.")
        if size < 2:
            raise ConfigError(f"scheduler: pbt compares the trials of a population, and here is {size}; let there be 2 at least.")
        chosen.perturbed(space.spaces, self.coefficients())

    def why_not_longer(self, first: int) -> str:
        if "n_steps" in self.search:
            return "n_steps is searched"
        if self.scheduler.name != "none":
            return f"the scheduler {self.scheduler.name} has decided by how many steps there were"
        if not self.searcher.is_blind:
            return f"the searcher {self.searcher.name} has proposed by what came of {first:,} steps"
        if not self.objective.metric.startswith(EVALUATED) and first % self.n_steps_per_epoch:
            return f"{self.objective.metric} is a mean over epochs, and step {first:,} is not the end of one"
        space = self.space
        drawn = (space.configuration(lambda _, one: one.at(0.0), {ALGORITHM: name}) for name in space.algorithms)
        return next(filter(None, (ExperimentConfig.why_not_longer(applied(self, one), first) for one in drawn)), "")

    @property
    def space(self) -> SearchSpace:
        return SearchSpace(self.search, self.algorithm.name)

    @property
    def experiment(self) -> str:
        """The sweep's name, given or derived: sweep-ALGORITHM-DATASET, without what is searched."""
        if self.name is not None:
            return self.name
        algorithm = self.algorithm.name.replace("/", "-")
        known = [algorithm] * (ALGORITHM not in self.search) + [self.data_name] * (DATASET not in self.search)
        return "-".join(["sweep", *known])

    def coefficients(self) -> dict[str, str]:
        """The searched numbers that may change while a trial trains, by name, with what the algorithm calls them."""
        found: dict[str, str] = {}
        for name, space in self.space.spaces.items():
            head, _, setting_name = name.partition(".")
            if space.is_choice or not setting_name or "." in setting_name:
                continue
            fixed = {ALGORITHM: head} if head != "algorithm" and ALGORITHM in self.search else {}
            drawn = self.space.configuration(lambda _, one: one.at(0.0), fixed)
            settings = applied(self, drawn).sample.check_settings()
            if isinstance(getattr(settings, setting_name, None), float):
                found[name] = setting_name
        return found

    def max_configurations(self, end: int | None) -> int | None:
        """The most configurations that there may be, of a searcher that has `end` at most; None: no limit."""
        asked = self.budget.configurations
        if isinstance(self.scheduler, PBT) and self.scheduler.population is not None:
            asked = self.scheduler.population
        if asked is None and self.searcher.name != "grid" and not (self.budget.hours or self.budget.gpu_hours):
            asked = CONFIGURATIONS
        return min((limit for limit in (asked, end) if limit is not None), default=None)

    def decided(self, end: int | None) -> dict[str, Any]:
        """Return what must be equal in a resumed sweep, but for `budget`, which may be raised; JSON. `end` as above."""
        searched = {
            "search": dict(self.search),
            "searcher": self.searcher.model_dump(mode="json"),
            "scheduler": self.scheduler.model_dump(mode="json"),
            "objective": {**self.objective.model_dump(mode="json"), "mode": self.objective.direction},
            "budget": {**self.budget.model_dump(mode="json"), "configurations": self.max_configurations(end)},
        }
        about = {"seeds": list(self.seeds), "seeds_per_trial": self.seeds_per_trial, "dataset": self.dataset_place}
        return {**self.configuration(), **about, **searched}
