"""What benchmarks ask of d3ray, in a process of its own: see `workers.py`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import catch  # noqa: F401  # makes Catch-v0 known
from arrays import half_random
from learning_study import PLAYED
from memory_tasks import t_maze_data
from seeds import learn, learn_online
from workers import serve, timed

from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.make import make
from d3ray.algos.registry import algorithm_class, make_algorithm
from d3ray.algos.stack import Stack
from d3ray.algos.testing import data_for, maker
from d3ray.data.dataset import Dataset
from d3ray.data.formats.registry import read
from d3ray.data.mdp_dataset import MDPDataset
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import Environment


@cache
def open_dataset(path: str) -> Dataset:
    """A dataset folder, a file of a known format, one of CS285's pickles, or what is played by random actions: ".../random/ENV".

    "…/half-random" is CartPole with half of the actions random, `half_random`, and "…/t-maze" the T-maze, `t_maze_data`;
    "…/pendulum_small" has every seventh episode of "…/pendulum_replay.h5".
    """
    if Path(path).name == "pendulum_small":
        episodes = open_dataset(str(Path(path).with_name("pendulum_replay.h5"))).episodes
        return MDPDataset.from_episodes([episodes[k] for k in range(0, 175, 7)])
    if Path(path).parent.name == "random":
        return collect(Path(path).name, n_steps=100_000, n_envs=10)
    if Path(path).name in PLAYED:
        return {"half-random": half_random, "t-maze": t_maze_data}[Path(path).name]()
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
        if judged := algorithm.get("judged"):
            policy = make_algorithm({"name": judged}, seed=0, device=device).build_with_dataset(self.dataset)
            algorithm = {**{k: v for k, v in algorithm.items() if k != "judged"}, "algo": policy}
        one = make_algorithm(algorithm, seed=0, device=device)
        self.algorithm = one if seeds == 1 else Stack(one, range(seeds))
        self.fit(warm)

    def set_up_tiny(self, page: str) -> None:
        """A page with tiny networks on tiny data, warm."""
        make = maker(algorithm_class(page))
        self.dataset, self.device = data_for(make), "cpu"
        self.algorithm = make(seed=0)
        self.fit(100)

    def fit(self, n: int) -> dict[str, float]:
        """A whole call of `fit`: draws, updates, metrics."""
        return timed(lambda: self.algorithm.fit(self.dataset, n_steps=n, n_steps_per_epoch=n, show_progress=False), self.device)

    def draw_for_fit(self, n: int) -> dict[str, float]:
        """`n` of the batches that the algorithm of `set_up_fit` learns from."""
        source = self.algorithm.fit_.sampler(self.dataset)
        first = int(self.algorithm.step)

        def work() -> None:
            for step in range(first, first + n):
                source.sample(step)

        return timed(work, self.device)

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


if __name__ == "__main__":
    speed = Speed()
    tasks = {name: getattr(speed, name) for name in ("set_up_fit", "set_up_tiny", "fit", "draw_for_fit", "set_up_draws", "draw")}
    learning = {"learn": lambda dataset, **asked: learn(open_dataset(dataset), **asked), "learn_online": learn_online}
    serve({**tasks, **learning})
