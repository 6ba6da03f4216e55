"""What settings of an evaluation mean for a dataset: where policies play, whether they can, and what is measured there."""

from __future__ import annotations

from ...algos.base import Algorithm
from ...algos.environments.evaluate import success_of
from ...algos.environments.packages import tells_success
from ...algos.environments.scores import reference_in
from ...algos.judging.models import names_of_model
from ...algos.judging.scorers import SCORERS, Scorer, soft_opc_scorer
from ...algos.recurrence import remembers
from ...algos.wants import Stretches
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.operations.goals import GOAL
from ...data.random import bits, fold, root_key
from ...data.spec import Dict, Discrete, Environment, MultiDiscrete, ObservationSpace, Spec, Tuple, kinds_text, space_columns
from ..places import Data
from .config import EvaluationConfig


def evaluation_seed(seed: int, step: int) -> int:
    """The seed of the episodes that are played after gradient step `step` of a trial with `seed`."""
    return int(bits(fold(fold(root_key(seed), "evaluation"), step), 1)) & 0x7FFFFFFF


def environment_to_play(config: EvaluationConfig, dataset: Data, algorithm: Algorithm | None = None) -> str | Environment | None:
    """The environment named, or the dataset's own; None for an algorithm without a policy.

    Raises:
        ConfigError: there is neither, and nothing is held out; or what cannot play is to, or nothing of it is held out.
    """
    if algorithm is not None and not algorithm.acts():
        if config.environment is not None or not config.holdout:
            raise ConfigError(f"evaluation: {algorithm.name} has no policy that could play: say {{holdout: 0.1}} alone.")
        return None
    environment = config.environment or dataset.environment
    if environment is None and not config.holdout:
        raise ConfigError(
            f"evaluation: the dataset {dataset.name!r} does not say where it was recorded; name one, or say holdout: 0.1."
        )
    return environment


def check_spaces(dataset: Data, spec: Spec, environment: str, setting: str = "evaluation") -> None:
    """Raises ConfigError, of a setting, where what is trained on a dataset cannot act in an environment with these spaces."""
    for what in ("observation", "action"):
        ours, theirs = _described(getattr(dataset.spec, what)), _described(getattr(spec, what))
        same = ours == theirs
        if isinstance(dataset.spec.action, Discrete) and isinstance(spec.action, Discrete) and what == "action":
            a, b = dataset.spec.action, spec.action
            same = a.start == b.start and a.n <= b.n  # the data may lack the last ones
        if not same:
            cure = _of_goals(dataset.spec.observation, spec.observation) if what == "observation" else ""
            raise ConfigError(
                f"{setting}: {dataset.name!r} has {what}s of {ours}, and {environment} has {theirs}: "
                f"{cure or 'name the environment that the data are from'}."
            )


def _of_goals(ours: ObservationSpace, theirs: ObservationSpace) -> str:
    """What to do where spaces differ by their goals alone, or by having one; empty: they differ otherwise."""
    a, b = space_columns(ours), space_columns(theirs)
    if b.pop(f"observation/{GOAL}", None) is None:
        return ""
    here = a.pop(f"observation/{GOAL}", None)
    if here is None and list(map(_described, a.values())) == list(map(_described, b.values())):
        return "leave the environment's goals out, which the algorithm is not told"
    if here is not None and {n: _described(x) for n, x in a.items()} == {n: _described(x) for n, x in b.items()}:
        return "set goals.part of the environment and algorithm.goal_part to the same entries"
    return ""


def _described(space: ObservationSpace) -> str:
    match space:
        case Discrete() | MultiDiscrete():
            return kinds_text(space)
        case Dict() | Tuple():
            leaves = {name.partition("/")[2]: leaf for name, leaf in sorted(space_columns(space).items())}
            return "{" + ", ".join(f"{key}: {_described(leaf).removeprefix('the shape ')}" for key, leaf in leaves.items()) + "}"
        case _:
            return f"the shape {list(space.shape)}"


def measured(
    config: EvaluationConfig | None, environment: str | Environment | None, dataset: Data, algorithm: Algorithm
) -> list[str]:
    """The metrics that every trial has beside the algorithm's own losses.

    Raises ConfigError where a scorer that is asked for does not suit the algorithm or the actions.
    """
    found = [] if environment is None else ["evaluation/return", "evaluation/length"]
    if environment is not None:
        found += ["evaluation/normalized_return"] * (reference_in(environment_id(environment), dataset.name) is not None)
        if tells_success(environment_id(environment)):
            goals = environment.goals if isinstance(environment, Environment) else None
            tasks = dict.fromkeys(goals.tasks if goals else ())
            found += ["evaluation/success", *(f"evaluation/{success_of(task)}" for task in tasks)]
    if config is not None and config.holdout:
        if algorithm.goal_conditioned:
            raise ConfigError(
                f"evaluation.holdout: {algorithm.name} acts for a goal, and what is held out does not say which: leave it out."
            )
        if algorithm.acts():
            found.append("holdout/action_match" if dataset.spec.discrete else "holdout/action_error")
        if algorithm.models_dynamics and isinstance(dataset, Dataset):
            found += [f"holdout/{name}" for name in names_of_model(int(max(dataset.episodes.steps)))]
        found += ["holdout/td_error"] * algorithm.learns_values()
        for name in config.scorers:
            _check_scorer(name, algorithm, dataset)
            found.append(f"scorers/{name}")
    return [*found, "time/updates_per_second"]


def scorers(config: EvaluationConfig) -> list[Scorer]:
    known = SCORERS if config.return_threshold is None else {**SCORERS, "soft_opc": soft_opc_scorer(config.return_threshold)}
    return [known[name] for name in config.scorers]


def _check_scorer(name: str, algorithm: Algorithm, dataset: Data) -> None:
    of_actions = name in ("continuous_action_diff", "discrete_action_match")
    if of_actions and dataset.spec.discrete != (name == "discrete_action_match"):
        other = "discrete_action_match" if dataset.spec.discrete else "continuous_action_diff"
        kind = dataset.spec.action_kind
        raise ConfigError(f"evaluation.scorers: {dataset.name!r} has {kind} actions, which {name} is not for; say {other}.")
    if not of_actions and not algorithm.learns_values():
        raise ConfigError(f"evaluation.scorers: {algorithm.name} learns no values, so there is no {name} of it.")
    config = algorithm.check_settings()
    if isinstance(algorithm.wants(config), Stretches) or remembers(config):
        raise ConfigError(
            f"evaluation.scorers: {algorithm.name} acts on what came before, and scorers show it single observations."
        )


def environment_id(environment: str | Environment) -> str:
    return environment if isinstance(environment, str) else environment.id
