"""Evaluations of a trial: returns in an environment, and when they are due."""

from __future__ import annotations

from collections.abc import Mapping

from ...algos.base import Algorithm, Evaluator
from ...algos.environments.evaluate import by_target, evaluate
from ...algos.environments.make import make
from ...algos.environments.scores import reference_in
from ...algos.environments.vector import VectorEnvironment
from ...data.spec import Environment
from ..settings.evaluation import environment_id, evaluation_seed


class Returns:
    """Mean return and length of episodes; normalised too where there is a reference.

    The episodes of an evaluation depend on the trial's seed and on its gradient step, and on nothing that was played before:
    a resumed trial plays what an uninterrupted one plays.
    """

    def __init__(
        self, environment: str | Environment, episodes: int, n_envs: int | None, dataset: str, epsilon: float = 0.0
    ) -> None:
        self.environment, self.episodes, self.n_envs, self.dataset = environment, episodes, n_envs, dataset
        self.epsilon = epsilon
        self._vector: VectorEnvironment | None = None

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        """`return`, `length`, and perhaps `normalized_return`; again, as `return_target_1800`, for further returns asked for."""
        if self._vector is None:
            self._vector = make(self.environment, n=min(self.episodes, self.n_envs or 10), evaluating=True)
        found: dict[str, float] = {}
        for name, policy in by_target(algorithm.policy()).items():
            seed = evaluation_seed(algorithm.seed, algorithm.step)
            played = evaluate(policy, self._vector, episodes=self.episodes, seed=seed, epsilon=self.epsilon)
            found |= {f"return{name}": played.mean, f"length{name}": float(played.lengths.mean())}
            if (reference := reference_in(environment_id(self.environment), self.dataset)) is not None:
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
