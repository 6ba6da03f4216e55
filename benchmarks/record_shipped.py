"""Records the datasets that come with the package: `python benchmarks/record_shipped.py TARGET_FOLDER`.

Agents are trained online with d3ray and saved at several stages; each stage, and a random policy, then plays with some noise, and
what they did becomes one dataset of mixed quality. Minutes on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from d3ray import DQN, TD3, Dataset
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import EnvironmentEvaluator
from d3ray.algos.environments.explorers import EpsilonGreedy, GaussianNoise

SMALL = {"hidden_units": (64, 64)}


def recorded(agent: Any, environment: str, name: str, explorer: Any, seed: int, **online: Any) -> Dataset:
    """A random policy's steps, and those of each stage of an agent with an explorer."""
    parts = [collect(environment, None, n_steps=6_000, seed=seed, name="random")]

    def record(agent: Any, epoch: int, metrics: object) -> None:
        print(epoch, metrics, flush=True)
        how = {"n_steps": 6_000, "seed": seed + epoch, "explorer": explorer, "name": f"epoch {epoch}"}
        parts.append(collect(environment, agent.policy(), **how))
        print(parts[-1].statistics.return_, flush=True)

    evaluators = {"evaluation": EnvironmentEvaluator(environment, episodes=10)}
    common = {"n_steps_per_epoch": 2_000, "capacity": 50_000, "evaluators": evaluators, "callbacks": [record]}
    agent.fit_online(environment, **common, **online)
    return Dataset.concat(parts, name=name)


def cartpole() -> Dataset:
    """CartPole-v1: DQN after some thousand steps of learning, a fifth of the actions random, and a random policy."""
    agent = DQN(learning_rate=1e-3, target_update_interval=100, encoder=SMALL, seed=1)
    played, learning = EpsilonGreedy(start=0.2, end=0.2, duration=1), EpsilonGreedy(duration=3_000)
    return recorded(agent, "CartPole-v1", "d3ray/cartpole-replay", played, 100, explorer=learning, n_steps=14_000)


def pendulum() -> Dataset:
    """Pendulum-v1: TD3 from its first swings to its best, with noise, and a random policy."""
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    agent = TD3(action_scaler="min_max", **rates, actor_encoder=SMALL, critic_encoder=SMALL, seed=1)
    begin = {"random_steps": 1_000, "update_start_step": 1_000}
    return recorded(agent, "Pendulum-v1", "d3ray/pendulum-replay", GaussianNoise(std=0.2), 200, n_steps=10_000, **begin)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    for make in (cartpole, pendulum):
        dataset = make()
        print(dataset, dataset.statistics.return_, dataset.statistics.reward, flush=True)
        dataset.write(target / dataset.name.removeprefix("d3ray/"), n_shards=4)
