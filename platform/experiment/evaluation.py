"""What a trial measures beside its losses: returns in an environment, and errors on episodes that were held out."""

from __future__ import annotations

from collections.abc import Mapping

from ...algos.base import Algorithm, Evaluator
from ...algos.environments.evaluate import by_target, evaluate
from ...algos.environments.make import make
from ...algos.environments.scores import reference_in
from ...algos.environments.vector import VectorEnvironment
from ...data.errors import ConfigError
from ...data.random import bits, fold, root_key
from ...data.spec import Dict, Discrete, Environment, MultiDiscrete, ObservationSpace, Spec, Tuple, space_columns
from .config import EvaluationConfig
from .places import Data


class Returns:
    """Mean return and length of episodes; D4RL-normalised too where there is a reference.

    The episodes of an evaluation depend on the trial's seed and on its gradient step, and on nothing that was played before:
    a resumed trial plays what an uninterrupted one plays.
    """

    def __init__(self, environment: str | Environment, episodes: int, n_envs: int | None, dataset: str) -> None:
        self.environment, self.episodes, self.n_envs, self.dataset = environment, episodes, n_envs, dataset
        self._vector: VectorEnvironment | None = None

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        """`return`, `length`, and perhaps `normalized_return`; again, as `return_target_1800`, for further returns asked for."""
        if self._vector is None:
            self._vector = make(self.environment, n=min(self.episodes, self.n_envs or 10))
        found: dict[str, float] = {}
        for name, policy in by_target(algorithm.policy()).items():
            seed = evaluation_seed(algorithm.seed, algorithm.step)
            played = evaluate(policy, self._vector, episodes=self.episodes, seed=seed)
            found |= {f"return{name}": played.mean, f"length{name}": float(played.lengths.mean())}
            if (reference := reference_in(_id(self.environment), self.dataset)) is not None:
                found[f"normalized_return{name}"] = float(reference.score(played.mean))
        return found

    def close(self) -> None:
        """Closes the environments."""
        if self._vector is not None:
            self._vector.close()
            self._vector = None


class Every:
    """An evaluator that is called at multiples of `every` logging steps, `offset` ahead of the learner's, and at the last."""

    def __init__(self, evaluator: Evaluator, every: int, last: int, offset: int = 0) -> None:
        self.evaluator, self.every, self.last, self.offset = evaluator, every, last, offset

    def __call__(self, algorithm: Algorithm, epoch: int) -> Mapping[str, float]:
        """What the evaluator gives, or nothing."""
        step = algorithm.step + self.offset
        due = step % self.every == 0 or step >= self.last
        return self.evaluator(algorithm, epoch) if due else {}


def evaluation_seed(seed: int, step: int) -> int:
    """The seed of the episodes that are played after gradient step `step` of a trial with `seed`."""
    return int(bits(fold(fold(root_key(seed), "evaluation"), step), 1)) & 0x7FFFFFFF


def environment_to_play(config: EvaluationConfig, dataset: Data) -> str | Environment | None:
    """The environment named, or the dataset's own.

    Raises:
        ConfigError: there is neither, and nothing is held out.
    """
    environment = config.environment or dataset.environment
    if environment is None and not config.holdout:
        raise ConfigError(
            f"evaluation: the dataset {dataset.name!r} does not say where it was recorded; name one, or say holdout: 0.1."
        )
    return environment


def check_spaces(dataset: Data, spec: Spec, environment: str) -> None:
    """Raises ConfigError where what is trained on a dataset cannot act in an environment with these spaces."""
    for what in ("observation", "action"):
        ours, theirs = _described(getattr(dataset.spec, what)), _described(getattr(spec, what))
        same = ours == theirs
        if isinstance(dataset.spec.action, Discrete) and isinstance(spec.action, Discrete) and what == "action":
            same = dataset.spec.action.n <= spec.action.n  # the data may lack the last ones
        if not same:
            raise ConfigError(
                f"evaluation: {dataset.name!r} has {what}s of {ours}, and {environment} has {theirs}: "
                "name the environment that the data are from."
            )


def _described(space: ObservationSpace) -> str:
    match space:
        case Discrete():
            return f"{space.n} kinds"
        case MultiDiscrete():
            return f"{list(space.nvec)} kinds"
        case Dict() | Tuple():
            leaves = {name.partition("/")[2]: leaf for name, leaf in sorted(space_columns(space).items())}
            return "{" + ", ".join(f"{key}: {_described(leaf).removeprefix('the shape ')}" for key, leaf in leaves.items()) + "}"
        case _:
            return f"the shape {list(space.shape)}"


def measured(
    config: EvaluationConfig | None, environment: str | Environment | None, dataset: Data, algorithm: Algorithm
) -> list[str]:
    """The metrics that every trial has beside the algorithm's own losses."""
    found = [] if environment is None else ["evaluation/return", "evaluation/length"]
    if environment is not None:
        found += ["evaluation/normalized_return"] * (reference_in(_id(environment), dataset.name) is not None)
    if config is not None and config.holdout:
        found.append("holdout/action_match" if dataset.spec.discrete else "holdout/action_error")
        found += ["holdout/td_error"] * algorithm.learns_values()
    return [*found, "time/updates_per_second"]


def _id(environment: str | Environment) -> str:
    return environment if isinstance(environment, str) else environment.id
