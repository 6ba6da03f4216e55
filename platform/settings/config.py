"""The settings of an experiment: what `d3ray train`, `sweep` and `benchmark` have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ...data.config import Config, recorded, setting
from ...data.errors import ConfigError
from ...data.spec import Environment
from ...data.uris import without_password
from ..places import environment_place
from ..subjects.kind import is_online, kind_of, make_algorithm
from .online import OnlineConfig
from .plugins import import_plugins, located

if TYPE_CHECKING:
    from ...algos.base import Algorithm

EVALUATED = ("evaluation/", "holdout/", "scorers/")  # what metrics that nothing but an evaluation gives begin with
ScorerName = Literal[
    "td_error",
    "discounted_sum_of_advantage",
    "average_value_estimation",
    "value_estimation_std",
    "initial_state_value_estimation",
    "soft_opc",
    "continuous_action_diff",
    "discrete_action_match",
]


def all_seeds_together() -> Any:
    """`seeds_per_trial` of configurations that are compared by all their seeds: as many as there are, where it is not said."""
    return Field(
        default_factory=lambda known: len(known.get("seeds", (0,))),
        description="seeds that train as one stack in one process; left out: all of them",
        gt=0,
    )


class AlgorithmChoice(Config):
    """An algorithm by name, perhaps with a preset, and its settings beside them. `algorithm: CQL` is short for its name."""

    model_config = ConfigDict(extra="allow")
    shorthand: ClassVar[str] = "name"

    name: str = setting(..., "which algorithm, as TD3PlusBC; its settings stand beside it")
    preset: str | None = setting(None, "a named set of values, as paper")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that were given, without name and preset."""
        return dict(self.model_extra or {})

    @classmethod
    def open_names(cls, given: Any) -> Iterable[str]:
        """The settings of the algorithm that is named; of none, what most have."""
        from ... import algos  # noqa: F401  # pyright: ignore[reportUnusedImport] - makes d3ray's own known by their names
        from ...algos import registry
        from ...algos.config import AlgorithmConfig  # brings torch

        name = given.get("name") if isinstance(given, dict) else given
        own = name in (*registry.algorithm_names(), *registry.online_names())
        return (registry.algorithm_class(name).Config if own else AlgorithmConfig).model_fields


class EvaluationConfig(Config):
    """How policies are scored while they learn. `evaluation: Hopper-v4` is short for its environment."""

    shorthand: ClassVar[str] = "environment"

    environment: str | Environment | None = setting(None, "gymnasium id, or {id: …, kwargs: {…}}; null: the dataset's own")
    episodes: int = setting(10, "episodes of an evaluation", gt=0)
    every: int | None = setting(None, "gradient steps between evaluations; null: after every epoch", gt=0)
    n_envs: int | None = setting(None, "environments stepped at once; null: as many as episodes, at most 10", gt=0)
    epsilon: float = setting(
        0.0, "share of uniform random actions, as 0.001 on Atari; 0: none", ge=0, le=1, exclude_if=lambda value: value == 0
    )
    max_steps: int | None = setting(
        100_000, "steps after which an episode of an evaluation is cut; null: it may go on for ever", since="0.2", gt=0
    )
    timeout: float | None = setting(
        3600.0, "seconds that an evaluation of a seed may take, then training goes on; null: for ever", since="0.2", gt=0
    )
    holdout: float = setting(0.0, "share of the episodes that is not trained on, and measured on instead; 0: none", ge=0, lt=1)
    scorers: tuple[ScorerName, ...] = setting(
        (), "scorers of all held-out transitions, as td_error: metrics `scorers/NAME`", exclude_if=lambda value: not value
    )
    return_threshold: float | None = setting(
        None, "return from which on a held-out episode is a success for soft_opc", exclude_if=lambda value: value is None
    )

    @model_validator(mode="after")
    def _check_scorers(self) -> Self:
        if self.scorers and not self.holdout:
            raise ConfigError("evaluation.scorers look at held-out episodes: say evaluation.holdout too, as 0.1.")
        if ("soft_opc" in self.scorers) != (self.return_threshold is not None):
            raise ConfigError("evaluation.scorers: soft_opc and evaluation.return_threshold, which makes a success, go together.")
        return self


class CheckpointConfig(Config):
    """Checkpoints to keep, and the policy to package."""

    every: int | None = setting(None, "gradient steps between checkpoints; null: after every epoch", gt=0)
    keep: int = setting(2, "newest checkpoints kept", gt=0)
    best: str | None = setting(
        None,
        "metric whose best checkpoint is kept and packaged in place of the last, as evaluation/return; the largest counts, of "
        "losses and errors the smallest",
    )


class ResourcesConfig(Config):
    """Resources of a trial."""

    cpu: float = setting(1.0, "CPUs of a trial, also its number of threads", gt=0)
    gpu: Annotated[float, Field(ge=0)] | Literal["auto"] = setting(
        0.0,
        "GPUs of a trial; a fraction shares one; several train one model together, each on its shard of every batch; auto: the "
        "share that its memory asks for, as a first one shows",
    )
    actor_cpu: float = setting(1.0, "CPUs of each of a trial's actors, where it has some: online.actors", ge=0)
    grow_to: int | None = setting(
        None, "trials at once that the cluster may grow to; null: what the file of its launcher says, where there is one", gt=0
    )

    @property
    def wanted(self) -> dict[str, float]:
        """Resources as Ray names them; of `auto` any part of a GPU will do."""
        return {"CPU": self.cpu, "GPU": 0.0001 if self.gpu == "auto" else self.gpu}


class Limits(Config):
    """When nothing new begins any more; what runs then goes on to its end. Counted over every resume."""

    hours: float | None = setting(None, "hours during which trials run", gt=0)
    gpu_hours: float | None = setting(None, "hours of GPUs that trials hold, those of a fraction in proportion", gt=0)


class TimeLimits(Config):
    """How long training may take, counted over every resume and looked at after every epoch; a resume may say more.

    `time_limit: 3600` is short for that of each trial.
    """

    shorthand: ClassVar[str] = "trial"

    trial: float | None = setting(
        None, "seconds that a trial may train, then it has finished with what it has reached; null: no limit", since="0.2", gt=0
    )
    experiment: float | None = setting(
        None,
        "seconds during which trials may run, then those that run finish so and no other begins; null: no limit",
        since="0.2",
        gt=0,
    )


class Conditions(Config):
    """How experiments run, whatever it is that they train: steps, seeds, evaluation, and what runs may use."""

    n_steps: int = setting(500_000, "gradient steps of a seed", gt=0)
    n_steps_per_epoch: int = setting(10_000, "gradient steps between two rows of metrics", gt=0)
    seeds: tuple[int, ...] = setting((0,), "seeds, each a run of its own", min_length=1)
    seeds_per_trial: int = setting(1, "seeds that train as one stack in one process", gt=0)
    evaluation: EvaluationConfig | None = setting(None, "environment or held-out share; null: losses only")
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig, description="what is kept")
    resources: ResourcesConfig = Field(default_factory=ResourcesConfig, description="CPUs and GPUs of a trial")
    retries: int = setting(
        3,
        "how often a trial is begun again whose worker died without a checkpoint between, and how often --resume tries again what "
        "failed; then it stays failed",
        ge=0,
    )
    time_limit: TimeLimits = Field(default_factory=TimeLimits, description="seconds that training may take; a number: each trial's")
    loggers: tuple[Literal["csv", "tensorboard"], ...] = setting(
        (), "metrics as files too, beside MLflow: csv, tensorboard; folders of these names in the experiment's own"
    )
    system_metrics: bool = setting(False, "metrics of CPUs, memory and GPUs too, as `system/…`, an epoch each")
    storage: str = setting("./d3ray_results", "folder or URI of all results")
    plugins: tuple[str, ...] = setting((), "modules or files to import first: your own algorithms, environments, scalers")

    @field_validator("plugins")
    @classmethod
    def _locate(cls, plugins: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return located(plugins, (info.context or {}).get("folder"))

    @model_validator(mode="after")
    def _check_conditions(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds are {list(self.seeds)}; each may stand there once.")
        import_plugins(self.plugins)
        for name, every in (
            ("checkpoint.every", self.checkpoint.every),
            ("evaluation.every", self.evaluation and self.evaluation.every),
        ):
            if every is not None and every % self.n_steps_per_epoch:
                raise ConfigError(
                    f"{name} is {every}; it must be a multiple of n_steps_per_epoch, which is {self.n_steps_per_epoch}."
                )
        if self.evaluation is None and (self.checkpoint.best or "").startswith(EVALUATED):
            raise ConfigError(f"checkpoint.best is {self.checkpoint.best}, which nothing measures: say evaluation too.")
        return self

    @property
    def storage_place(self) -> str:
        """The storage, a local one as an absolute path."""
        return absolute(self.storage)

    def groups(self) -> list[tuple[int, ...]]:
        return [self.seeds[i : i + self.seeds_per_trial] for i in range(0, len(self.seeds), self.seeds_per_trial)]


class _Subject(Config):
    """Subject of an experiment; a base, as pydantic lists the fields of a last base first."""

    name: str | None = setting(None, "the experiment's name, also its folder's and its model's; null: ALGORITHM-DATASET")
    dataset: str | None = Field(
        description="dataset folder, file of logs, URI or catalog name; null to learn in an environment alone, see online",
        json_schema_extra={"operand": True, "example": "d3ray/cartpole-replay"},
    )
    algorithm: AlgorithmChoice = Field(
        description="name, preset and settings of the algorithm", json_schema_extra={"example": {"name": "DQN"}}
    )
    online: OnlineConfig | None = setting(
        None, "learn while acting, where evaluation plays; a number: of environments; null: from data, if the algorithm can"
    )


class ExperimentConfig(Conditions, _Subject):
    """One algorithm on one dataset, or in an environment, with some seeds."""

    title: ClassVar[str] = "experiment"

    @model_validator(mode="before")
    @classmethod
    def _without_dataset(cls, value: Any) -> Any:
        """Who learns in an environment need not say that there is no dataset."""
        if not isinstance(value, dict) or "dataset" in value:
            return value
        algorithm = value.get("algorithm")
        name = algorithm.get("name") if isinstance(algorithm, dict) else algorithm
        return {**value, "dataset": None} if value.get("online") is not None or is_online(name) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_dataset()
        _ = self.sample  # whose settings are checked
        kind_of(self.algorithm.name).check(self)
        self._check_pretraining()
        if self.is_online and self.resources.gpu == "auto":
            raise ConfigError(f"resources.gpu is auto, which is for what learns from data: {self.algorithm.name} needs a number.")
        if self.resources.gpu != "auto" and self.resources.gpu > 1:
            self._check_several_gpus(self.resources.gpu)
        return self

    def _check_several_gpus(self, n: float) -> None:
        """One model is trained on them together, which not every algorithm can."""
        from ...algos.learning.ranks import alone  # it imports torch, without which experiments can be looked at

        name, said = self.algorithm.name, f"resources.gpu is {n:g}"
        if n != int(n):
            raise ConfigError(f"{said}: a trial has a part of one GPU, or whole ones, as {int(n)} or {int(n) + 1}.")
        if why := kind_of(name).one_gpu or ("it learns while it acts, in one process" if self.is_online else ""):
            raise ConfigError(f"{said}, and {name} trains on one: {why}. Choose 1 or a part of it.")
        algorithm = self.sample
        settings = algorithm.check_settings()
        if (why := alone(algorithm, settings)) is not None:
            raise ConfigError(f"{said}, and {name} trains on one: {why}. Choose 1 or a part of it.")
        if algorithm.compile_graph:
            raise ConfigError(f"{said}, and compile_graph is for one: leave it out.")
        if settings.batch_size % int(n):
            fits = settings.batch_size // int(n) * int(n) or int(n)
            raise ConfigError(f"{said}, among which a batch_size of {settings.batch_size} cannot be shared evenly: choose {fits}.")

    @property
    def is_online(self) -> bool:
        return self.online is not None or is_online(self.algorithm.name)

    def _check_dataset(self) -> None:
        """A dataset may be missing only where an environment stands in its place."""
        if self.dataset is None and not self.is_online:
            raise ConfigError(
                f"the dataset is missing, and {self.algorithm.name} learns from one: a folder, URI or catalog name. To learn while "
                "it acts, say online=1."
            )
        if self.dataset is None and (self.evaluation is None or self.evaluation.environment is None):
            raise ConfigError(f"there is no place for {self.algorithm.name} to learn in: say evaluation=ENVIRONMENT, or a dataset.")
        if self.dataset is None and self.evaluation is not None and self.evaluation.holdout:
            raise ConfigError(f"evaluation.holdout is {self.evaluation.holdout}, a share of a dataset's episodes: there is none.")

    def _check_pretraining(self) -> None:
        if self.online is None or not self.online.pretrain:
            return
        said, name = f"online.pretrain is {self.online.pretrain}", self.algorithm.name
        if self.dataset is None:
            raise ConfigError(f"{said}, gradient steps on a dataset: there is none.")
        if is_online(name):
            raise ConfigError(f"{said}, and {name} learns from what its own policy just did: leave it out.")
        if self.online.pretrain % self.n_steps_per_epoch:
            raise ConfigError(f"{said}; it must be a multiple of n_steps_per_epoch, which is {self.n_steps_per_epoch}.")
        if self.online.pretrain >= self.n_steps:
            raise ConfigError(f"{said} of {self.n_steps} gradient steps in all, n_steps: none would be left to learn online.")

    @cached_property
    def sample(self) -> Algorithm:
        """The algorithm of the first seed, to be looked at: nobody trains or changes it. Raises ConfigError."""
        return self.make_algorithm(self.seeds[0])

    def make_algorithm(self, seed: int, device: str | None = None) -> Algorithm:
        """The algorithm, unfitted. Raises ConfigError."""
        choice = {"name": self.algorithm.name, "preset": self.algorithm.preset, **self.algorithm.settings}
        return make_algorithm(choice, seed=seed, device=device)

    def why_not_longer(self, first: int) -> str:
        """Why an experiment that was begun for `first` steps cannot go on to these, a clause; empty: it can, bit for bit."""
        return kind_of(self.algorithm.name).why_not_longer(self, first)

    @property
    def experiment(self) -> str:
        """The experiment's name, given or derived."""
        if self.name is not None:
            return self.name
        return f"{self.algorithm.name.replace('/', '-')}-{self.data_name}"

    @property
    def data_name(self) -> str:
        """The dataset's or the environment's name, as part of a folder's: other characters than those have are dashes."""
        if self.dataset is None:
            return self._environment.id.replace("/", "-")
        name = without_password(self.dataset).rstrip("/").rpartition("/")[2].removesuffix(".d3ray")
        return re.sub(r"[^A-Za-z0-9._+-]+", "-", name) or "data"

    @property
    def wanted(self) -> dict[str, float]:
        """Resources that a trial needs, as Ray names them, including its algorithm's own."""
        wanted = self.resources.wanted
        return {**wanted, "CPU": wanted["CPU"] + float(self.algorithm.settings.get("env_runners", 0))}

    @property
    def trial_cpus(self) -> float:
        """CPUs of a trial with its actors."""
        actors = (self.online and self.online.actors) or 0
        return self.wanted["CPU"] + actors * self.resources.actor_cpu

    @property
    def _environment(self) -> Environment:
        environment = self.evaluation.environment if self.evaluation else None
        return environment if isinstance(environment, Environment) else Environment(id=environment or "")

    @property
    def dataset_place(self) -> str:
        """The dataset, a folder as an absolute path; or the environment in its place."""
        if self.dataset is None:
            return environment_place(self._environment)
        return absolute(self.dataset) if Path(self.dataset).expanduser().exists() else self.dataset

    def configuration(self) -> dict[str, Any]:
        """Return what decides the results of a trial, seeds apart: JSON. Defaults and presets are written out.

        Defaults of settings that came later than their config are not, so that what was begun before compares equal.
        """
        algorithm = self.sample
        settings = recorded(algorithm.check_settings())
        compiled = {"compile_graph": True} if algorithm.compile_graph else {}  # other roundings; it came later too
        return {
            "algorithm": {"name": algorithm.name, **settings, "dtype": algorithm.dtype, **compiled},
            "n_steps": self.n_steps,
            "n_steps_per_epoch": self.n_steps_per_epoch,
            "evaluation": recorded(self.evaluation) if self.evaluation else None,
            **({"online": recorded(self.online)} if self.online else {}),
            "best": self.checkpoint.best,
        }


def asked(job: str, config: Config, kind: type[Config]) -> dict[str, Any]:
    """A job and the settings of a kind that were given to it, JSON: without defaults, and without what a command adds to them."""
    given = config.model_dump(mode="json", include=config.model_fields_set & set(kind.model_fields), exclude_unset=True)
    return {"job": job, "config": given}


def absolute(place: str) -> str:
    """A local path made absolute, a URI as it is."""
    return (
        place
        if "://" in place and not place.startswith("file://")
        else str(Path(place.removeprefix("file://")).expanduser().absolute())
    )
