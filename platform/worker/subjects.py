"""What a trial trains and what it leaves: d3ray's own algorithms and RLlib's, offline and online, behind the same calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...algos.base import Algorithm
from ...algos.stack import Stack
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.spec import Environment
from ..places import Data
from ..settings.config import EvaluationConfig
from ..settings.evaluation import environment_to_play
from ..settings.online import OnlineConfig
from ..storage.trials import Package
from ..subjects.kind import is_online, kind_of, make_algorithm
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
    """Make what a trial trains: the algorithm of one seed, or several seeds: as a stack, or in turn. Raises ConfigError."""
    first = make_algorithm(choice, seed=seeds[0], device=device)
    place = learns_in(first, dataset, evaluation, online)
    members = kind_of(first.name).members(first, seeds, dataset, place)
    if members is None and place is not None:
        own = [make_algorithm(choice, seed=seed, device=device) for seed in seeds]
        logged = _logged(dataset, evaluation)
        members = [_member(one, place, logged, online, num_cpus=actor_cpu, plugins=tuple(plugins)) for one in own]
    if members is None:
        return first if len(seeds) == 1 else Stack(first, seeds)
    return InTurn(first, members)


def split(dataset: Any, evaluation: EvaluationConfig | None) -> tuple[Any, Any]:
    """Split data into training and held-out parts, the latter None if there is none."""
    if evaluation is None or not evaluation.holdout:
        return dataset, None
    return dataset.split(evaluation.holdout, seed=0)  # the same for every seed, so that seeds compare


def _logged(dataset: Data, evaluation: EvaluationConfig | None) -> Dataset | None:
    """What of the data is learned from while acting."""
    return split(dataset, evaluation)[0] if isinstance(dataset, Dataset) else None


def _member(
    algorithm: Algorithm, place: str | Environment, logged: Dataset | None, online: OnlineConfig | None, **of_actors: Any
) -> OnlineMember:
    online = online or OnlineConfig()
    actors = RayActors(online.actors, online.actor_steps, **of_actors) if online.actors else None
    if not is_online(algorithm.name):
        return OnlineMember(algorithm, place, logged, online, actors)
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
    kind = kind_of(algorithm.name)
    if place is None or kind.members(algorithm, [algorithm.seed], dataset, place) is not None:
        kind.check_data(algorithm, dataset, place)
    else:
        if online is not None and online.pretrain:
            kind.check_data(algorithm, dataset, None)
        _member(algorithm, place, _logged(dataset, evaluation), online).run.close()


def leaves(algorithm: Algorithm) -> Package | None:
    """Return what it leaves to package, a policy or a model of the dynamics; None if it values another's policy."""
    if algorithm.acts():
        return "policy"
    return "model" if algorithm.models_dynamics else None
