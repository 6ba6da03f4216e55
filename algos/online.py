"""Training while acting: an environment fills a replay buffer, and the learner draws from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.errors import ConfigError
from ..data.replay import ReplayBuffer
from .base import Callback, Epoch, Evaluator
from .environments.explorers import EpsilonGreedy, Explorer, GaussianNoise, random_actions
from .environments.make import is_given, make
from .fit import Fit

if TYPE_CHECKING:
    from .base import Algorithm


def fit_online(algorithm: Algorithm, env: Any, **arguments: Any) -> ReplayBuffer:
    """Trains until `n_steps` gradient steps are done; arguments as `fitter_online`'s. Returns the replay buffer."""
    buffer = arguments.pop("buffer", None)
    vector = make(env, n=arguments.pop("n_envs", 1), seed=algorithm.seed)
    try:
        if buffer is None:
            buffer = ReplayBuffer(arguments.pop("capacity", 1_000_000), vector.spec, vector.n)
        for _ in fitter_online(algorithm, vector, buffer, **arguments):
            pass
    finally:
        if not is_given(env):
            vector.close()
    return buffer


def fitter_online(
    algorithm: Algorithm,
    env: Any,
    buffer: ReplayBuffer,
    *,
    explorer: Explorer | None = None,
    n_steps: int = 1_000_000,
    n_steps_per_epoch: int = 10_000,
    update_interval: int = 1,
    n_updates: int = 1,
    random_steps: int = 0,
    update_start_step: int = 0,
    evaluators: Mapping[str, Evaluator] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Iterator[Epoch]:
    """The online training loop, an epoch at a time.

    Args:
        algorithm: What learns; one that was fitted offline goes on from there.
        env: A `VectorEnvironment`. One step of it is a step of each of its environments.
        buffer: Filled while training; what is in it already is drawn from too.
        explorer: Disturbs the greedy action. None: epsilon-greedy from 1 to 0.1 over 10,000 steps for discrete actions,
            else normal noise of a tenth of half the action range.
        n_steps: Gradient steps to do.
        n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples.
        update_interval: Steps of the vector between updates.
        n_updates: Gradient steps at each update.
        random_steps: Steps of the vector with uniform random actions, first.
        update_start_step: Steps of the vector before the first update; at least what fills one batch.
        evaluators: As `Algorithm.fitter`'s.
        callbacks: As `Algorithm.fitter`'s.

    Yields:
        Epoch: metrics as offline, and `train/environment_steps`.

    Raises:
        ConfigError: a count is not positive.
        DataError: the environment's actions are of the wrong kind for the algorithm.
    """
    if min(n_steps, n_steps_per_epoch, update_interval, n_updates) < 1:
        raise ConfigError("n_steps, n_steps_per_epoch, update_interval and n_updates must be positive.")
    if not hasattr(algorithm, "fit_"):
        algorithm.fit_ = Fit.start_online(
            algorithm, env.spec, (getattr(env.single, "spec", None) and env.single.spec.id) or "the environment"
        )
    fit, seed, space = algorithm.fit_, algorithm.seed, env.spec.action
    learner, policy = fit.learner, fit.policy()
    explorer = explorer or (EpsilonGreedy(duration=10_000) if env.spec.discrete else GaussianNoise())
    source = fit.sampler_of(buffer)
    training = fit.augmented(source)
    observation = env.reset()
    buffer.cut_episodes()  # those that an earlier run left unfinished do not go on here
    begin = max(update_start_step, -(-fit.config.batch_size // env.n))
    end, now = learner.step + n_steps, 0
    while learner.step < end:
        action = random_actions(space, env.n, step=now, seed=seed)
        if now >= random_steps:
            action = explorer.explore(policy.predict(observation), space, step=now, seed=seed)
        result = env.step(action)
        buffer.append(observation, action, result.reward, result.terminated, result.truncated, result.observation)
        observation = result.observation
        if result.ended.any():
            observation = env.reset(np.flatnonzero(result.ended).tolist())
        now += 1
        if now < begin or now % update_interval or source.n_windows == 0:
            continue
        stop = min(learner.step + n_updates, end)
        while learner.step < stop:
            fit.update(training)
            if learner.step % n_steps_per_epoch and learner.step < end:
                continue
            metrics = fit.metrics()[0] | {"train/environment_steps": float(now * env.n)}
            yield algorithm.finish_epoch(-(-learner.step // n_steps_per_epoch), metrics, evaluators, callbacks)
