"""How settings name a scheduler: `scheduler: asha`, or `scheduler: {name: asha, grace_steps: 20_000}`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ...data.config import Config, by_name, setting
from ...data.errors import ConfigError, did_you_mean
from ..settings.config import EVALUATED, ExperimentConfig

COMPARES = "compares configurations over all their seeds"  # so these have to be in one trial


class NoScheduler(Config):
    """Every trial runs to its end."""

    name: Literal["none"] = "none"
    stop_diverging: bool = setting(
        False,
        "end a seed as FAILED also when what the objective is made of is not finite, or its values diverge (DivergenceWarning)",
    )

    def suits(self, experiment: ExperimentConfig) -> None:
        """Raises ConfigError where this scheduler cannot work with an experiment's steps and seeds."""
        if self.name != "none" and experiment.seeds_per_trial < len(experiment.seeds):
            raise ConfigError(
                f"scheduler: {self.name} {COMPARES}: set seeds_per_trial to {len(experiment.seeds)}, or leave it away."
            )


class _Stopping(NoScheduler):
    """Of those that stop trials."""

    grace_steps: int | None = setting(None, "", gt=0)

    def suits(self, experiment: ExperimentConfig) -> None:
        """Raises ConfigError where no trial could ever be stopped."""
        super().suits(experiment)
        every, n_steps = _measured_every(experiment), experiment.n_steps
        first = whole_epochs(self.first_step(experiment), every)  # it is looked at where it is measured
        if first < n_steps:
            return
        never = f"scheduler: {self.name} looks at trials at step {first} first, and n_steps is {n_steps}: none would be stopped"
        if self.grace_steps is not None and every < n_steps:
            raise ConfigError(f"{never}; make scheduler.grace_steps smaller, it is {self.grace_steps}.")
        which = "n_steps_per_epoch" if every == experiment.n_steps_per_epoch else "evaluation.every"
        raise ConfigError(f"{never}; make {which} smaller, it is {every}.")

    def first_step(self, experiment: ExperimentConfig) -> int:
        """Gradient steps before which no trial is stopped."""
        return self.grace_steps or whole_epochs(self._grace(experiment.n_steps), experiment.n_steps_per_epoch)

    def _grace(self, n_steps: int) -> float:
        raise NotImplementedError


class ASHA(_Stopping):
    """Asynchronous successive halving (Li et al. 2020): at each rung the best 1 / reduction_factor of those that came go on."""

    name: Literal["asha"] = "asha"  # pyright: ignore[reportIncompatibleVariableOverride]
    grace_steps: int | None = setting(
        None, "gradient steps at the first rung; null: n_steps / reduction_factor³, rounded up to a whole epoch", gt=0
    )
    reduction_factor: float = setting(
        4, "η: rungs lie this factor apart, and one in so many goes on", source="Li et al. 2020, section 4", gt=1
    )
    brackets: int = setting(1, "brackets; each starts one rung later than the one before", source="ray.tune.ASHAScheduler", gt=0)

    def suits(self, experiment: ExperimentConfig) -> None:
        """Raises ConfigError also where a bracket would have no rung."""
        super().suits(experiment)
        rungs = int(math.log(experiment.n_steps / self.first_step(experiment)) / math.log(self.reduction_factor)) + 1
        if self.brackets > rungs:
            raise ConfigError(f"scheduler.brackets is {self.brackets}; it must be at most {rungs}, the number of rungs.")

    def _grace(self, n_steps: int) -> float:
        return n_steps / self.reduction_factor**3


class Median(_Stopping):
    """The median stopping rule (Golovin et al. 2017): stops what is at its best worse than the median of the others' means."""

    name: Literal["median"] = "median"  # pyright: ignore[reportIncompatibleVariableOverride]
    grace_steps: int | None = setting(
        None, "gradient steps before a trial may be stopped; null: n_steps / 10, rounded up to a whole epoch", gt=0
    )
    min_samples: int = setting(
        3, "trials that must have come as far before one is stopped", source="ray.tune.MedianStoppingRule", gt=0
    )

    def _grace(self, n_steps: int) -> float:
        return n_steps / 10


class PBT(NoScheduler):
    """Population based training (Jaderberg et al. 2017): the worst go on from weights of the best, with other coefficients."""

    name: Literal["pbt"] = "pbt"  # pyright: ignore[reportIncompatibleVariableOverride]
    interval: int | None = setting(
        None, "gradient steps between two looks at a trial; null: n_steps / 20, rounded up to whole epochs and evaluations", gt=0
    )
    population: int | None = setting(None, "trials; null: as many as budget.configurations", gt=1)
    quantile: float = setting(
        0.25, "share that counts as the best, and as the worst", source="ray.tune PopulationBasedTraining", gt=0, le=0.5
    )
    resample_probability: float = setting(
        0.25,
        "probability of drawing a setting anew from its space in place of multiplying it",
        source="ray.tune PopulationBasedTraining",
        ge=0,
        le=1,
    )
    perturb_factors: tuple[float, ...] = setting(
        (0.8, 1.2), "a setting is multiplied by one of these", source="Jaderberg et al. 2017, section 4.1", min_length=1
    )
    settings: tuple[str, ...] | None = setting(
        None, "searched settings that are changed, as [algorithm.alpha]; null: all that are floats; others are drawn once"
    )

    def suits(self, experiment: ExperimentConfig) -> None:
        """Raises ConfigError also where steps do not fit each other: members meet at whole epochs, evaluations and checkpoints."""
        super().suits(experiment)
        for name, every in _meetings(experiment):
            if self.interval is not None and self.interval % every:
                raise ConfigError(f"scheduler.interval is {self.interval}; it must be a multiple of {name}, which is {every}.")
        n_steps, epoch, interval = experiment.n_steps, experiment.n_steps_per_epoch, self.steps(experiment)
        if n_steps % epoch:
            raise ConfigError(f"n_steps is {n_steps}; with pbt it must be a multiple of n_steps_per_epoch, which is {epoch}.")
        if not all(factor > 0 for factor in self.perturb_factors):
            raise ConfigError(f"scheduler.perturb_factors are {list(self.perturb_factors)}; all must be above 0.")
        if interval >= n_steps:
            raise ConfigError(
                f"scheduler.interval is {interval} and n_steps {n_steps}: nothing would be taken over; make it smaller."
            )

    def steps(self, experiment: ExperimentConfig) -> int:
        return self.interval or whole_epochs(experiment.n_steps / 20, math.lcm(*(every for _, every in _meetings(experiment))))

    def perturbed(self, searched: Iterable[str], floats: Iterable[str]) -> tuple[str, ...]:
        """The settings that are changed, by their names in the search.

        Args:
            searched: Names of all that is searched.
            floats: Those of them that are coefficients: numbers that can change while a trial trains.

        Raises:
            ConfigError: one that is asked for is not searched, or cannot change; or there is none.
        """
        floats = tuple(floats)
        for name in self.settings or ():
            if name not in floats:
                why = "shapes the program and cannot change" if name in set(searched) else "is not searched"
                raise ConfigError(f"scheduler.settings: {name!r} {why}{did_you_mean(name, floats)}")
        if not (chosen := floats if self.settings is None else self.settings):
            raise ConfigError("scheduler: pbt changes searched settings of the algorithm that are floats, and there is none.")
        return chosen


def _meetings(experiment: ExperimentConfig) -> list[tuple[str, int]]:
    """List the intervals that must end where members of a population are compared."""
    evaluated = experiment.evaluation and experiment.evaluation.every
    every = {"checkpoint.every": experiment.checkpoint.every, "evaluation.every": evaluated}
    return [("n_steps_per_epoch", experiment.n_steps_per_epoch), *((name, steps) for name, steps in every.items() if steps)]


def _measured_every(experiment: ExperimentConfig) -> int:
    """Gradient steps between two values of a sweep's objective."""
    metric: str = getattr(getattr(experiment, "objective", None), "metric", "")
    evaluated = experiment.evaluation is not None and metric.startswith(EVALUATED)
    return (evaluated and experiment.evaluation and experiment.evaluation.every) or experiment.n_steps_per_epoch


def whole_epochs(steps: float, epoch: int) -> int:
    """Steps rounded up to whole epochs; at least one."""
    return max(1, math.ceil(steps / epoch)) * epoch


_KNOWN = (NoScheduler, ASHA, Median, PBT)
SchedulerConfig = Annotated[
    Annotated[NoScheduler | ASHA | Median | PBT, Field(discriminator="name")],
    BeforeValidator(by_name("scheduler", _KNOWN)),
]
