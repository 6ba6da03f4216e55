"""What trials train, by the name that a config gives: d3ray's own algorithms, a user's, and RLlib's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...algos.base import Algorithm
from ...algos.registry import algorithm_class, algorithm_names
from ...algos.registry import make_algorithm as make_own
from ...algos.stack import Stack
from ...data.dataset import Dataset
from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ..rllib.names import PREFIX, is_rllib, rllib_names
from .config import EvaluationConfig
from .evaluation import environment_to_play
from .places import Data

if TYPE_CHECKING:
    from ..rllib.algorithm import RllibAlgorithm


def subject_names() -> list[str]:
    """Every algorithm that a config may name, sorted."""
    return sorted([*algorithm_names(), *rllib_names()])


def check_name(name: str) -> None:
    """Raises ConfigError for a name that there is not, naming the nearest."""
    if name not in subject_names():
        meant = f"; did you mean {PREFIX + name!r}?" if PREFIX + name in rllib_names() else did_you_mean(name, subject_names())
        raise ConfigError(f"There is no algorithm {name!r}{meant}")
    if not is_rllib(name):
        algorithm_class(name)


def make_algorithm(choice: Mapping[str, Any], *, seed: int, device: str | None = None) -> Algorithm:
    """The algorithm that a config names, unfitted: RLlib's are shaped as d3ray's where trials use them.

    Raises:
        ConfigError: the name, preset or a setting is unknown, or a value is out of range.
    """
    settings = dict(choice)
    if "name" in settings:
        check_name(settings["name"])
    if not is_rllib(settings.get("name")):
        return make_own(settings, seed=seed, device=device)
    from ..rllib.algorithm import RllibAlgorithm

    return cast("Algorithm", RllibAlgorithm(settings.pop("name"), settings, seed=seed, device=device))


def make_subject(
    choice: Mapping[str, Any], seeds: Sequence[int], device: str | None, dataset: Data, evaluation: EvaluationConfig | None
) -> Algorithm | Stack:
    """What a trial trains: the algorithm of one seed, or a stack of several. Raises ConfigError."""
    first = make_algorithm(choice, seed=seeds[0], device=device)
    if not is_rllib(first.name):
        return first if len(seeds) == 1 else Stack(first, seeds)
    from ..rllib.stack import RllibStack

    return cast("Stack", RllibStack(cast("RllibAlgorithm", first), seeds, dataset, learns_in(first, dataset, evaluation)))


def learns_in(algorithm: Any, dataset: Data, evaluation: EvaluationConfig | None) -> str | Environment | None:
    """Where an algorithm learns that learns in an environment: that of the evaluation, else the dataset's own.

    Raises:
        ConfigError: there is neither.
    """
    if not getattr(algorithm, "is_online", False):
        return None
    return environment_to_play((evaluation or EvaluationConfig()).model_copy(update={"holdout": 0.0}), dataset)


def check_data(algorithm: Any, dataset: Data, evaluation: EvaluationConfig | None) -> None:
    """Raises ConfigError or DataError before any work where an algorithm cannot be trained on a dataset."""
    from ...algos.learning.setup import config_for_dataset

    if is_rllib(algorithm.name):
        algorithm.for_run(algorithm.seed, dataset, learns_in(algorithm, dataset, evaluation)).spec_of()
    else:
        config_for_dataset(algorithm, cast("Dataset", dataset))


def write_package(algorithm: Algorithm, folder: Path, dataset: Data, environment: str | Environment | None) -> None:
    """The policy of a trained algorithm as a package. Raises as `algos.package.write_package`."""
    from ...algos.export.packing import write_package as write_own

    if is_rllib(algorithm.name):
        cast("RllibAlgorithm", algorithm).write_package(folder, dataset, environment)
    else:
        write_own(algorithm, folder, cast("Dataset", dataset), environment)


def load_best(algorithm: Algorithm, folder: Path, device: str | None) -> Algorithm:
    """The algorithm of a kept checkpoint, where `algorithm` is what the trial has reached. Raises StorageError."""
    if not is_rllib(algorithm.name):
        from ...algos.saving.saving import load

        return load(folder, device)
    from ...algos.saving.checkpoint import read_checkpoint

    tensors, meta, _ = read_checkpoint(folder)
    reached = cast("Any", algorithm)
    return reached.for_run(reached.seed, reached.dataset, reached.environment).load_state(tensors, meta)
