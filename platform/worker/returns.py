"""Evaluations of a trial: returns in an environment, and when they are due."""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ...algos.base import Algorithm, Evaluator
from ...algos.environments.evaluate import Evaluation, by_target, evaluate
from ...algos.environments.goals import aimed
from ...algos.environments.make import make
from ...algos.environments.scores import reference_in
from ...algos.environments.vector import Policy, VectorEnvironment
from ...data.spec import Environment
from ..settings.config import EvaluationConfig
from ..settings.evaluation import environment_id, evaluation_seed

_GRACE = 30.0  # seconds beyond the limit after which a step is taken to hang


class Returns:
    """Mean return and length of episodes; normalised too where there is a reference.

    The episodes of an evaluation depend on the trial's seed and on its gradient step, and on nothing that was played before:
    a resumed trial plays what an uninterrupted one plays.

    Environments live in a thread of their own. So a step that does not come back holds the trial until the limit of time alone,
    then it is left behind with its environments, and the next evaluation makes others. Of code that keeps Python to itself, as an
    extension that never gives up the interpreter's lock, nothing in the process can get away.

    Args:
        environment: Where to play.
        config: `episodes`, `n_envs`, `epsilon` and the limits.
        dataset: The name of the dataset, which may have references of its own.
        grace: Seconds that a last step may take beyond `config.timeout`; None: 30.
    """

    def __init__(self, environment: str | Environment, config: EvaluationConfig, dataset: str, grace: float | None = None) -> None:
        self.environment, self.config, self.dataset = environment, config, dataset
        self.grace = _GRACE if grace is None else grace
        self._vector: VectorEnvironment | None = None
        self._thread: _Thread | None = None

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        """`return`, `length`, perhaps `normalized_return`, `success`, `success_task1`, `cost`; as `return_target_1800` for others.

        `cut` stands there where a limit ended episodes: of how many. Where a step hung there is nothing else.
        """
        found: dict[str, float] = {}
        for name, policy in by_target(algorithm.policy()).items():
            played = self._played(policy, evaluation_seed(algorithm.seed, algorithm.step))
            if played is None:
                return {**found, f"cut{name}": float(self.config.episodes)}
            found |= {f"return{name}": played.mean, f"length{name}": float(played.lengths.mean())}
            if (reference := reference_in(environment_id(self.environment), self.dataset)) is not None:
                found[f"normalized_return{name}"] = float(reference.score(played.mean))
            found |= {f"{word}{name}": value for word, value in played.told().items()}
            if played.cut:
                found[f"cut{name}"] = float(played.cut)
        return found

    def _played(self, policy: Policy, seed: int) -> Evaluation | None:
        """The episodes; None where a step hangs."""
        self._thread = self._thread or _Thread()
        limit, config = self.config.timeout, self.config
        how: dict[str, Any] = {"epsilon": config.epsilon, "max_steps": config.max_steps, "timeout": limit}

        def play() -> Evaluation:
            if self._vector is None:
                environment = aimed(self.environment, getattr(policy, "spec", None))
                self._vector = make(environment, n=min(config.episodes, config.n_envs or 10), evaluating=True)
            return evaluate(policy, self._vector, episodes=config.episodes, seed=seed, **how)

        try:
            return self._thread.run(play, None if limit is None else limit + self.grace)
        except _HangsError:
            self._thread = self._vector = None
            warnings.warn(
                f"An evaluation in {environment_id(self.environment)} measured nothing: a step of the environment did not come "
                f"back within evaluation.timeout, {limit:g} seconds, and {self.grace:g} more; training goes on.",
                stacklevel=3,
            )
            return None

    def close(self) -> None:
        if self._thread is not None:
            if self._vector is not None:
                with contextlib.suppress(_HangsError):
                    self._thread.run(self._vector.close, self.grace)
            self._thread.end()
        self._thread = self._vector = None


class _HangsError(Exception):
    """Work in a thread took longer than its timeout."""


class _Thread:
    """Does one thing after the other in a thread that keeps no process alive; some environments draw in their own thread alone."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="d3ray evaluation", daemon=True).start()

    def run(self, work: Callable[[], Any], timeout: float | None) -> Any:
        """Return or raise what `work` does. Raises _HangsError if it takes longer than `timeout` seconds."""
        context, found = contextvars.copy_context(), Future[Any]()
        self._asked.put((lambda: context.run(work), found))
        try:
            return found.result(timeout)
        except TimeoutError:
            if found.done():  # just now, or it is what `work` raised
                return found.result()
            self.end()
            raise _HangsError from None

    def end(self) -> None:
        self._asked.put(None)

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            work, found = asked
            try:
                found.set_result(work())
            except BaseException as error:  # whoever waits raises it
                found.set_exception(error)


class Every:
    """An evaluator that is called at multiples of `every` logging steps, `offset` ahead of the learner's, and at the last."""

    def __init__(self, evaluator: Evaluator, every: int, last: int, offset: int = 0) -> None:
        self.evaluator, self.every, self.last, self.offset = evaluator, every, last, offset

    def __call__(self, algorithm: Algorithm, epoch: int) -> Mapping[str, float]:
        step = algorithm.step + self.offset
        due = step % self.every == 0 or step >= self.last
        return self.evaluator(algorithm, epoch) if due else {}
