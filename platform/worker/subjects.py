"""What a trial trains and what it leaves: d3ray's own algorithms and RLlib's, offline and online, behind the same calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...algos.base import Algorithm
from ...algos.export.model_packing import write_model_package
from ...algos.export.packing import write_package as write_own_package
from ...algos.learning.setup import config_for_dataset
from ...algos.saving.checkpoint import read_checkpoint
from ...algos.saving.saving import load
from ...algos.stack import Stack
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.spec import Environment
from ..places import Data
from ..rllib.algorithm import RllibAlgorithm
from ..rllib.export import write_package as write_rllib_package
from ..rllib.names import is_rllib
from ..settings.algorithms import make_algorithm
from ..settings.config import EvaluationConfig
from ..settings.evaluation import environment_to_play
from ..settings.online import OnlineConfig, is_online
from ..storage.experiments import Package
from .actors import RayActors
from .in_turn import InTurn
from .online import OnlineMember

Subject = Algorithm | Stack | InTurn


def make_subject(
    choice: Mapping[str, Any],
    seeds: Sequence[int],
    device: str | None,
    dataset: Data,
    evaluation: EvaluationConfig | None,
    online: OnlineConfig | None = None,
    *,
    actor_cpu: float = 1.0,
    plugins: Sequence[str] = (),
) -> Subject:
    """What a trial trains: the algorithm of one seed, or several seeds: as a stack, or in turn. Raises ConfigError."""
    first = make_algorithm(choice, seed=seeds[0], device=device)
    place = learns_in(first, dataset, evaluation, online)
    if is_rllib(first.name):
        members = [cast("RllibAlgorithm", first).for_run(seed, dataset, place) for seed in seeds]
    elif place is not None:
        own = [make_algorithm(choice, seed=seed, device=device) for seed in seeds]
        members = [_member(one, place, dataset, online, num_cpus=actor_cpu, plugins=tuple(plugins)) for one in own]
    else:
        return first if len(seeds) == 1 else Stack(first, seeds)
    return InTurn(first, members)


def _member(
    algorithm: Algorithm, place: str | Environment, dataset: Data, online: OnlineConfig | None, **of_actors: Any
) -> OnlineMember:
    online = online or OnlineConfig()
    actors = RayActors(online.actors, online.actor_steps, **of_actors) if online.actors else None
    if not is_online(algorithm.name):
        return OnlineMember(algorithm, place, dataset if isinstance(dataset, Dataset) else None, online, actors)
    if "mixture" in online.arguments():
        raise ConfigError(f"{algorithm.name} learns from what its own policy just did: online.mixture has no place there.")
    return OnlineMember(algorithm, place, None, online, actors)


def learns_in(
    algorithm: Algorithm, dataset: Data, evaluation: EvaluationConfig | None, online: OnlineConfig | None = None
) -> str | Environment | None:
    """Where an algorithm learns that learns in an environment: that of the evaluation, else the dataset's own.

    Raises:
        ConfigError: there is neither.
    """
    if online is None and not is_online(algorithm.name):
        return None
    return environment_to_play((evaluation or EvaluationConfig()).model_copy(update={"holdout": 0.0}), dataset)


def check_data(
    algorithm: Algorithm, dataset: Data, evaluation: EvaluationConfig | None, online: OnlineConfig | None = None
) -> None:
    """Raises ConfigError or DataError before any work where an algorithm cannot be trained on a dataset, or while it acts."""
    place = learns_in(algorithm, dataset, evaluation, online)
    if is_rllib(algorithm.name):
        cast("RllibAlgorithm", algorithm).for_run(algorithm.seed, dataset, place).spec_of()
    elif place is not None:
        member = _member(algorithm, place, dataset, online)
        member.run.close()
    else:
        config_for_dataset(algorithm, cast("Dataset", dataset))


def leaves(algorithm: Algorithm) -> Package | None:
    """What it leaves to be taken away, a policy or a model of the dynamics; None where it values another's policy."""
    if is_rllib(algorithm.name) or algorithm.acts():
        return "policy"
    return "model" if algorithm.models_dynamics else None


def write_package(
    algorithm: Algorithm, folder: Path, dataset: Data, environment: str | Environment | None, run: str, holdout: float = 0.0
) -> None:
    """What a trained algorithm leaves, as a package. Arguments and errors as `algos.export.packing.write_package`'s."""
    if is_rllib(algorithm.name):
        write_rllib_package(cast("RllibAlgorithm", algorithm), folder, dataset, environment, run)
    elif leaves(algorithm) == "model":
        write_model_package(algorithm, folder, cast("Dataset", dataset), environment, run)
    else:
        write_own_package(algorithm, folder, cast("Dataset", dataset), environment, run, holdout)


def load_best(algorithm: Algorithm, folder: Path, device: str | None) -> Algorithm:
    """The algorithm of a kept checkpoint, where `algorithm` is what the trial has reached. Raises StorageError."""
    if not is_rllib(algorithm.name):
        return load(folder, device)
    tensors, meta, _ = read_checkpoint(folder)
    reached = cast("Any", algorithm)
    return reached.for_run(reached.seed, reached.dataset, reached.environment).load_state(tensors, meta)
