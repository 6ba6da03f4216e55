"""RLlib's algorithms, as trials know them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ...data.errors import ConfigError
from .names import EXACT, ONLINE, PREFIX, rllib_names

if TYPE_CHECKING:
    from ...algos.base import Algorithm
    from ...data.spec import Environment
    from ..places import Data
    from ..subjects.kind import Experiment
    from .algorithm import RllibAlgorithm


class Rllib:
    """See `subjects.kind.Kind`. Ray's part of it is imported once an algorithm is made."""

    is_timed: ClassVar[bool] = False
    has_coefficients: ClassVar[bool] = False
    one_gpu: ClassVar[str] = "RLlib's learner has one GPU"

    def names(self) -> Collection[str]:
        return rllib_names()

    def online_names(self) -> Collection[str]:
        return [PREFIX + name for name in ONLINE]

    def check_name(self, name: str) -> None:
        pass

    def settings_of(self, name: str) -> list[str]:
        return list(self.make({"name": name}, seed=0, device=None).check_settings().model_dump())

    def make(self, settings: Mapping[str, Any], *, seed: int, device: str | None) -> Algorithm:
        from .algorithm import RllibAlgorithm

        rest = {name: value for name, value in settings.items() if name != "name"}
        return cast("Algorithm", RllibAlgorithm(settings["name"], rest, seed=seed, device=device))

    def check(self, experiment: Experiment) -> None:
        name = experiment.algorithm.name
        if experiment.online is not None:
            raise ConfigError(f"online is for d3ray's own algorithms: how {name} acts, its own settings say.")
        if experiment.evaluation is not None and experiment.evaluation.holdout:
            raise ConfigError(f"evaluation.holdout is {experiment.evaluation.holdout}; it measures d3ray's own algorithms only.")
        if experiment.resources.gpu == "auto":
            raise ConfigError(f"resources.gpu is auto, which is for d3ray's own algorithms: {name} needs a number.")

    def check_data(self, algorithm: Algorithm, dataset: Data, place: str | Environment | None) -> None:
        _theirs(algorithm).for_run(algorithm.seed, dataset, place).spec_of()

    def why_not_longer(self, experiment: Experiment, first: int) -> str:
        name = experiment.algorithm.name
        goes_on = name.removeprefix(PREFIX) in EXACT and not experiment.resources.gpu
        return "" if goes_on else f"{name} does not go on from a checkpoint bit for bit"

    def members(
        self, algorithm: Algorithm, seeds: Sequence[int], dataset: Data, place: str | Environment | None
    ) -> list[RllibAlgorithm]:
        return [_theirs(algorithm).for_run(seed, dataset, place) for seed in seeds]

    def write_package(
        self, algorithm: Algorithm, folder: Path, dataset: Data, environment: str | Environment | None, run: str, holdout: float
    ) -> None:
        from .export import write_package

        write_package(_theirs(algorithm), folder, dataset, environment, run)

    def load(self, reached: Algorithm, folder: Path, device: str | None) -> Algorithm:
        from ...algos.saving.checkpoint import read_checkpoint

        tensors, meta, _ = read_checkpoint(folder)
        one: Any = _theirs(reached)
        return one.for_run(one.seed, one.dataset, one.environment).load_state(tensors, meta)


def _theirs(algorithm: Algorithm) -> RllibAlgorithm:
    return cast("RllibAlgorithm", algorithm)
