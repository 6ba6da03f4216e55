"""How the learning table trains and evaluates seeds of ours: one by itself, or several as one stack.

A stack takes far less time than its seeds one after the other. Row k learns what seed k learns alone but for the rounding of
batched products, which grows: the same experiment, not the same number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch.utils import _pytree as pytree  # it has no public name yet

from d3ray.algos.base import Algorithm
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.learning.fit import Fit
from d3ray.algos.model_based.probabilistic_ensemble import ProbabilisticEnsemble
from d3ray.algos.online.actors import LocalActors
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.registry import make_algorithm
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset


def learn(
    data: Dataset,
    algorithm: dict[str, Any],
    seeds: list[int],
    n_steps: int,
    every: int,
    environment: str,
    episodes: int,
    evaluation_seed: int,
) -> list[dict[str, Any]]:
    """Trains and evaluates the greedy policies every so many gradient steps, in the same episodes each time: an answer a seed."""
    begin, curves = time.perf_counter(), Curves(seeds, environment, episodes, evaluation_seed)
    if "model" in algorithm:
        algorithm = {**algorithm, "dynamics": model_of(data, algorithm["model"], *seeds)}
        del algorithm["model"]
    first = make_algorithm(algorithm, seed=seeds[0], device="cpu")
    trained = first if len(seeds) == 1 else Stack(first, seeds)
    for _ in trained.fitter(data, n_steps=n_steps, n_steps_per_epoch=every, show_progress=False):
        curves.add([first] if trained is first else [trained.seed(k) for k in range(len(seeds))], step=trained.step)
    return curves.answers(time.perf_counter() - begin)


def model_of(data: Dataset, settings: dict[str, Any], seed: int) -> ProbabilisticEnsemble:
    """A model of the data's dynamics, one seed's own."""
    n_steps, own = settings["n_steps"], {name: value for name, value in settings.items() if name != "n_steps"}
    return ProbabilisticEnsemble(**own, seed=seed, device="cpu").fit(data, n_steps, n_steps, show_progress=False)


def learn_online(
    algorithm: dict[str, Any],
    seeds: list[int],
    n_steps: int,
    every: int,
    environment: str,
    online: dict[str, Any],
    episodes: int,
    evaluation_seed: int,
) -> list[dict[str, Any]]:
    """The same of what learns while acting."""
    begin, curves = time.perf_counter(), Curves(seeds, environment, episodes, evaluation_seed)
    if len(seeds) > 1:
        with OnlineStack(algorithm, seeds, environment, **online) as stack:
            for step in range(every, n_steps + 1, every):
                stack.advance(step)
                curves.add([run.algorithm for run in stack.runs], step=step, acted=stack.steps)
        return curves.answers(time.perf_counter() - begin)
    learner = make_algorithm(algorithm, seed=seeds[0], device="cpu")
    if "actors" in online:  # which learn the same wherever they are
        online = {**online, "actors": LocalActors(online["actors"])}
    for _, metrics in learner.fitter_online(environment, n_steps=n_steps, n_steps_per_epoch=every, **online):
        curves.add([learner], step=int(metrics["step"]), acted=int(metrics["train/environment_steps"]))
    return curves.answers(time.perf_counter() - begin)


class Curves:
    """What evaluations of each seed gave so far."""

    def __init__(self, seeds: list[int], environment: str, episodes: int, evaluation_seed: int) -> None:
        self.environment, self.episodes, self.evaluation_seed = environment, episodes, evaluation_seed
        self.curves: list[list[dict[str, float]]] = [[] for _ in seeds]

    def add(self, algorithms: Sequence[Algorithm], **at: int) -> None:
        """Plays the greedy policy of each seed."""
        for algorithm, curve in zip(algorithms, self.curves, strict=True):
            n_envs = min(self.episodes, 20)
            played = evaluate(
                algorithm.policy(), self.environment, episodes=self.episodes, seed=self.evaluation_seed, n_envs=n_envs
            )
            curve.append({**at, "return": played.mean, "std": played.std})

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """One a seed; `seconds` are of all of them together, where they were `stacked`."""
        return [{"evaluations": curve, "seconds": seconds, "stacked": len(self.curves)} for curve in self.curves]


class OnlineStack:
    """Seeds that learn while acting, updated as one stack.

    Each has the environments, the replay buffer and the explorer that `fit_online` gives it; its acting networks are the stack's
    row itself, not a copy.

    Args:
        algorithm: Name, preset and settings.
        seeds: One a row, two or more.
        environment: A gymnasium id.
        **online: Arguments of `fit_online`.
    """

    def __init__(self, algorithm: dict[str, Any], seeds: list[int], environment: str, **online: Any) -> None:
        self.runs = [OnlineRun(make_algorithm(algorithm, seed=seed, device="cpu"), environment, **online) for seed in seeds]
        first = self.runs[0].algorithm
        self.fit = Fit(first, first.config_, first.spec_, seeds)
        self.sources = [run.algorithm.fit_.sources.over(run.buffer) for run in self.runs]
        for k, run in enumerate(self.runs):
            for network, tensors in run.algorithm.fit_.learner.live.items():
                for name, tensor in tensors.items():
                    tensor.data = self.fit.learner.live[network][name][k]

    @property
    def steps(self) -> int:
        """Steps of each seed's environments together."""
        return self.runs[0].rollout.steps * self.runs[0].vector.n

    def advance(self, n_steps: int) -> None:
        """Acts and learns until `n_steps` gradient steps are done; what an update begins it ends."""
        settings, learner = self.runs[0].settings, self.fit.learner
        while learner.step < n_steps:
            for run in self.runs:
                run.rollout.step(run.policy)
            steps = self.runs[0].rollout.steps
            enough = all(run.buffer.n_transitions >= run.algorithm.config_.batch_size for run in self.runs)
            if enough and steps >= settings.update_start_step and steps % settings.update_interval == 0:
                for _ in range(settings.n_updates):
                    self.update()

    def update(self) -> None:
        """One gradient step of every row."""
        learner = self.fit.learner
        batches = [source.sample(learner.step) for source in self.sources]
        learner.update(pytree.tree_map(lambda *parts: torch.stack(parts), *batches))
        for k, (source, batch) in enumerate(zip(self.sources, batches, strict=True)):
            if hasattr(source, "update"):
                source.update(batch.index, learner.errors[k])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            run.close()
