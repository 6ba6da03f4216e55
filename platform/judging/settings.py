"""What judging is asked for."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ...algos.judging.estimates import ESTIMATORS
from ...algos.judging.intervals import KINDS, Kind
from ...algos.judging.resampling import LEVEL
from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ...data.uris import label
from ..settings.config import ResourcesConfig, absolute
from ..words import POLICY

EPOCHS = 10  # of FQE's training, by which it is seen whether its values have settled


class JudgeSettings(Config):
    title: ClassVar[str] = "judgement"

    policies: str | tuple[str, ...] = Field(
        description=f"{POLICY}; also an .onnx file; of an experiment all seeds",
        json_schema_extra={"operand": "several", "example": "policies/hopper"},
    )
    dataset: str = Field(
        description="dataset folder, URI or catalog name: the logs",
        json_schema_extra={"operand": True, "example": "d3ray/pendulum-replay"},
    )
    name: str | None = setting(None, "the judgement's name, also its folder's; null: judge-DATASET")
    gamma: float = setting(0.99, "γ: what is estimated is the return discounted by it", gt=0, le=1)
    fqe: dict[str, Any] = setting(
        {}, "settings of FQE, as {n_critics: 3}; scalers of vectors and value_bounds are set where nothing is said"
    )
    n_steps: int | None = setting(
        None, "gradient steps of FQE, of logs of one step at most; null: as the data ask for; 0: importance sampling alone", ge=0
    )
    seeds: tuple[int, ...] = setting((0, 1, 2), "seeds of FQE, whose spread shows what the data leave open", min_length=1)
    model: str | None = setting(
        None, "a model of the dynamics to follow the policies in: an experiment, trial or folder of a ProbabilisticEnsemble"
    )
    behaviour: Literal["recorded", "estimated"] | None = setting(
        None, "probabilities of what was logged: recorded in the column log_prob, or estimated; null: recorded where there are some"
    )
    holdout: float | None = setting(
        None,
        "share of the logs that training kept back, by which alone policies are judged that learned from the rest; null: what "
        "their training kept back, if that is known and the same of all; 0: all of the logs",
        ge=0,
        lt=1,
    )
    estimators: tuple[str, ...] | None = setting(None, "which, as [DM, WDR]; null: all that the logs allow", min_length=1)
    interval: Kind = setting("bootstrap", f"kind of interval: {', '.join(KINDS)}")
    level: float = setting(LEVEL, "how often the truth shall lie within an interval", gt=0, lt=1)
    bounds: tuple[float, float] | None = setting(None, "smallest and largest return, for hoeffding and bernstein")
    cost_limit: float | None = setting(
        None,
        "what an episode may cost, undiscounted, by the column cost of the logs: costs are estimated too, as returns are, and a "
        "policy whose upper bound is above the limit is not promoted; null: costs are not looked at",
        ge=0,
    )
    environment: str | Environment | None = setting(
        None, "gymnasium id to play the policies in too, and say what estimates were worth; null: nothing is played"
    )
    episodes: int = setting(20, "episodes that each policy plays there", ge=2)
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig, description="CPUs and GPUs of a trial")
    storage: str = setting("./d3ray_results", "folder or URI of all results")
    tracking: str | None = setting(
        None, "MLflow's tracking URI for models:/…; null: MLFLOW_TRACKING_URI, else the database in storage"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.n_steps is not None and 0 < self.n_steps < EPOCHS:
            raise ConfigError(
                f"n_steps is {self.n_steps}; FQE takes {EPOCHS} or more, to see whether it settles, or none at all: 0."
            )
        if "reward_scaler" in self.fqe:
            raise ConfigError("fqe.reward_scaler cannot be set: estimates are in the units of the data's rewards.")
        for name in {"algo", "gamma"} & self.fqe.keys():
            raise ConfigError(f"fqe.{name} cannot be set: it is {'policies' if name == 'algo' else 'gamma'} that says it.")
        for name in self.estimators or ():
            if name not in ESTIMATORS:
                raise ConfigError(f"There is no estimator {name!r}{did_you_mean(name, ESTIMATORS)}")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds are {self.bounds[0]:g} and {self.bounds[1]:g}; the smallest return comes first.")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.policies,) if isinstance(self.policies, str) else self.policies

    @property
    def played(self) -> Environment | None:
        """Where policies are played too."""
        return Environment(id=self.environment) if isinstance(self.environment, str) else self.environment

    @property
    def experiment_name(self) -> str:
        return self.name or f"judge-{label(absolute(self.dataset)).removesuffix('.d3ray')}"

    @property
    def storage_place(self) -> str:
        return absolute(self.storage)
