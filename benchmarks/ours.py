"""What benchmarks ask of d3ray, in a process of its own: see `workers.py`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import as_d3rlpy  # noqa: F401  # makes them known
from workers import serve, timed

from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.registry import make_algorithm
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset
from d3ray.data.formats.registry import read
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import Environment


@cache
def open_dataset(path: str) -> Dataset:
    """A dataset folder, a file of a known format, one of CS285's pickles, or ".../random/ENVIRONMENT", played by random actions."""
    if Path(path).parent.name == "random":
        return collect(Path(path).name, n_steps=100_000, n_envs=10)
    if path.endswith(".pkl"):
        environment = Environment(id=Path(path).stem.rpartition("_")[2])
        vector = make(environment)
        vector.close()
        imported = read(path, timeout_at=1000, actions="clip", spec=vector.spec)
        return Dataset.from_steps(imported.steps, name=Path(path).stem, spec=vector.spec, environment=environment)
    if Path(path).is_dir():
        return Dataset.open(path)
    imported = read(path)
    return Dataset.from_steps(imported.steps, name=Path(path).stem, spec=imported.spec, environment=imported.environment)


class Speed:
    """What is being measured: an algorithm, a stack of seeds, or a sampler; set up once and warmed up."""

    algorithm: Any
    dataset: Dataset
    sampler: TransitionSampler
    device: str

    def set_up_fit(self, dataset: str, algorithm: dict[str, Any], device: str, warm: int, seeds: int = 1) -> None:
        """`warm` gradient steps are done and not measured."""
        self.dataset, self.device = open_dataset(dataset), device
        one = make_algorithm(algorithm, seed=0, device=device)
        self.algorithm = one if seeds == 1 else Stack(one, range(seeds))
        self.fit(warm)

    def fit(self, n: int) -> dict[str, float]:
        """A whole call of `fit`: draws, updates, metrics."""
        return timed(lambda: self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, show_progress=False), self.device)

    def set_up_draws(self, dataset: str, batch_size: int, device: str, warm: int) -> None:
        """Batches of observation, action, reward, discount, next observation and next action."""
        self.device = device
        self.sampler = TransitionSampler(open_dataset(dataset), batch_size, 0, device=device)
        self.draw(warm)

    def draw(self, n: int) -> dict[str, float]:
        """`n` batches."""

        def work() -> None:
            for _ in range(n):
                self.sampler.sample()

        return timed(work, self.device)


def learn(
    dataset: str,
    algorithm: dict[str, Any],
    seed: int,
    n_steps: int,
    every: int,
    environment: str,
    episodes: int,
    evaluation_seed: int,
) -> dict[str, Any]:
    """Trains and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    data, begin = open_dataset(dataset), time.perf_counter()
    learner = make_algorithm(algorithm, seed=seed, device="cpu")
    evaluations = []
    for epoch in learner.fitter(data, n_steps=n_steps, n_steps_per_epoch=every, show_progress=False):
        played = evaluate(learner.policy(), environment, episodes=episodes, seed=evaluation_seed)
        evaluations.append({"step": int(epoch.metrics["step"]), "return": played.mean, "std": played.std})
    return {"evaluations": evaluations, "seconds": time.perf_counter() - begin, "data_return": float(data.episodes.returns.mean())}


def learn_online(
    algorithm: dict[str, Any],
    seed: int,
    n_steps: int,
    every: int,
    environment: str,
    online: dict[str, Any],
    episodes: int,
    evaluation_seed: int,
) -> dict[str, Any]:
    """Trains while acting, and evaluates the greedy policy every so many gradient steps, in the same episodes each time."""
    begin = time.perf_counter()
    learner = make_algorithm(algorithm, seed=seed, device="cpu")
    evaluations = []

    def look(learner: Any, _: int, metrics: Mapping[str, float]) -> None:
        played = evaluate(learner.policy(), environment, episodes=episodes, seed=evaluation_seed)
        acted = int(metrics["train/environment_steps"])
        evaluations.append({"step": int(metrics["step"]), "acted": acted, "return": played.mean, "std": played.std})

    learner.fit_online(environment, n_steps=n_steps, n_steps_per_epoch=every, callbacks=[look], **online)
    return {"evaluations": evaluations, "seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    speed = Speed()
    tasks = {name: getattr(speed, name) for name in ("set_up_fit", "fit", "set_up_draws", "draw")}
    serve({**tasks, "learn": learn, "learn_online": learn_online})
