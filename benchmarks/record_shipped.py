"""Records the datasets that come with the package: `python benchmarks/record_shipped.py TARGET_FOLDER`.

Agents are trained online with d3ray and saved at several stages; each stage, and a random policy, then plays with some noise, and
what they did becomes one dataset of mixed quality. Minutes on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from d3ray import DQN, TD3, Dataset
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import EnvironmentEvaluator
from d3ray.algos.environments.explorers import EpsilonGreedy, GaussianNoise


def cartpole() -> Dataset:
    """CartPole-v1: DQN after some thousand steps of learning, a fifth of the actions random, and a random policy."""
    parts = [collect("CartPole-v1", None, n_steps=6_000, seed=100, name="random")]
    agent = DQN(learning_rate=1e-3, target_update_interval=100, encoder={"hidden_units": (64, 64)}, seed=1)

    def record(agent: DQN, epoch: int, metrics: object) -> None:
        print(epoch, metrics, flush=True)
        explorer = EpsilonGreedy(start=0.2, end=0.2, duration=1)
        parts.append(
            collect("CartPole-v1", agent.policy(), n_steps=6_000, seed=100 + epoch, explorer=explorer, name=f"epoch {epoch}")
        )
        print(parts[-1].statistics.return_, flush=True)

    evaluators = {"evaluation": EnvironmentEvaluator("CartPole-v1", episodes=10)}
    agent.fit_online(
        "CartPole-v1",
        explorer=EpsilonGreedy(duration=3_000),
        n_steps=14_000,
        n_steps_per_epoch=2_000,
        evaluators=evaluators,
        callbacks=[record],
        capacity=50_000,
    )
    return Dataset.concat(parts, name="d3ray/cartpole-replay")


def pendulum() -> Dataset:
    """Pendulum-v1: TD3 from its first swings to its best, with noise, and a random policy."""
    parts = [collect("Pendulum-v1", None, n_steps=6_000, seed=200, name="random")]
    encoder = {"hidden_units": (64, 64)}
    rate = 1e-3
    agent = TD3(
        action_scaler="min_max",
        actor_learning_rate=rate,
        critic_learning_rate=rate,
        actor_encoder=encoder,
        critic_encoder=encoder,
        seed=1,
    )

    def record(agent: TD3, epoch: int, metrics: object) -> None:
        print(epoch, metrics, flush=True)
        parts.append(
            collect(
                "Pendulum-v1",
                agent.policy(),
                n_steps=6_000,
                seed=200 + epoch,
                explorer=GaussianNoise(std=0.2),
                name=f"epoch {epoch}",
            )
        )
        print(parts[-1].statistics.return_, flush=True)

    evaluators = {"evaluation": EnvironmentEvaluator("Pendulum-v1", episodes=10)}
    agent.fit_online(
        "Pendulum-v1",
        n_steps=10_000,
        n_steps_per_epoch=2_000,
        random_steps=1_000,
        update_start_step=1_000,
        evaluators=evaluators,
        callbacks=[record],
        capacity=50_000,
    )
    return Dataset.concat(parts, name="d3ray/pendulum-replay")


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    for make in (cartpole, pendulum):
        dataset = make()
        print(dataset, dataset.statistics.return_, dataset.statistics.reward, flush=True)
        dataset.write(target / dataset.name.removeprefix("d3ray/"), n_shards=4)
