"""d3ray's own algorithms, and those that users register."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ...algos.registry import algorithm_class, algorithm_names, make_algorithm, online_names
from ...data.config import Config, former_names

if TYPE_CHECKING:
    from ...algos.base import Algorithm
    from ...data.dataset import Dataset
    from ...data.spec import Environment
    from ..places import Data
    from .kind import Experiment


class Own:
    """See `Kind`."""

    is_timed: ClassVar[bool] = True
    has_coefficients: ClassVar[bool] = True
    one_gpu: ClassVar[str] = ""

    def names(self) -> Collection[str]:
        return [*algorithm_names(), *online_names()]

    def online_names(self) -> Collection[str]:
        return online_names()

    def check_name(self, name: str) -> None:
        algorithm_class(name)

    def settings_of(self, name: str) -> list[str]:
        config = algorithm_class(name).Config
        return ["preset", *config.model_fields, *former_names(config)]

    def make(self, settings: Mapping[str, Any], *, seed: int, device: str | None) -> Algorithm:
        return make_algorithm(settings, seed=seed, device=device)

    def check(self, experiment: Experiment) -> None:
        pass

    def check_data(self, algorithm: Algorithm, dataset: Data, place: str | Environment | None) -> None:
        from ...algos.learning.setup import aimed, config_for_dataset

        config_for_dataset(algorithm, aimed(algorithm, cast("Dataset", dataset)))

    def why_not_longer(self, experiment: Experiment, first: int) -> str:
        algorithm = experiment.sample
        compiled = _why_not_compiled(experiment, algorithm, first)
        return compiled or _why_not_scheduled(algorithm, first) or _why_not_measured(experiment, first)

    def members(self, algorithm: Algorithm, seeds: Sequence[int], dataset: Data, place: str | Environment | None) -> None:
        pass

    def write_package(
        self, algorithm: Algorithm, folder: Path, dataset: Data, environment: str | Environment | None, run: str, holdout: float
    ) -> None:
        from ...algos.export.model_packing import write_model_package
        from ...algos.export.packing import write_package

        if algorithm.acts():
            write_package(algorithm, folder, cast("Dataset", dataset), environment, run, holdout)
        else:
            write_model_package(algorithm, folder, cast("Dataset", dataset), environment, run)

    def load(self, reached: Algorithm, folder: Path, device: str | None) -> Algorithm:
        from ...algos.saving.saving import load

        return load(folder, device)


def _why_not_compiled(experiment: Experiment, algorithm: Algorithm, first: int) -> str:
    """Compiled steps round otherwise than steps that are not; whether they are compiled follows from how many there are in all."""
    from ...algos.definition import COMPILED_FROM

    least = COMPILED_FROM if experiment.resources.gpu else algorithm.compiled_from
    if algorithm.compile_graph is None and least is not None and first < least <= experiment.n_steps:
        return (
            f"training of {least:,} steps and more is compiled, which rounds otherwise; with algorithm.compile_graph=false it goes "
            "on as it began"
        )
    compiled = algorithm.compile_graph or (algorithm.compile_graph is None and least is not None and first >= least)
    if compiled and first % experiment.n_steps_per_epoch:
        return f"step {first:,} is not the end of an epoch, within which compiled steps are done in groups"
    return ""


def _why_not_scheduled(algorithm: Algorithm, first: int) -> str:
    """A schedule has a length of its own, so more steps change nothing of it; but past its end nothing may be learned any more."""
    for name, schedule in _schedules(algorithm.check_settings()):
        if (end := schedule.spent()) is not None and end <= first:
            return f"the learning rate is 0 from step {end:,} on, where the {schedule.name} schedule of algorithm.{name} ends"
    return ""


def _schedules(settings: Config, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings:
        if isinstance(value, Config):
            if (schedule := getattr(value, "schedule", None)) is not None:
                yield f"{above}{name}", schedule
            yield from _schedules(value, f"{above}{name}.")


def _why_not_measured(experiment: Experiment, first: int) -> str:
    """The last step is measured wherever it lies; a run of more steps does not stop there, and cannot take it for the best."""
    every = experiment.evaluation and experiment.evaluation.every
    name, every = ("evaluation.every", every) if every else ("n_steps_per_epoch", experiment.n_steps_per_epoch)
    if experiment.checkpoint.best is None or first % every == 0:
        return ""
    return f"checkpoint.best has looked at step {first:,} too, which is no multiple of {name}, {every:,}"
