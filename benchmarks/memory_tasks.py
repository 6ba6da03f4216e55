"""Tasks in which one observation does not tell what to do: a T-maze, and CartPole without its velocities.

Importing it makes `TMaze-v0` and `PositionCartPole-v0` known to gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.data.dataset import Dataset

CORRIDOR = 7
FORWARD, LEFT, RIGHT = range(3)


class TMaze(gymnasium.Env[np.ndarray, int]):
    """A corridor of 7 cells, then a junction; what is shown at the first step alone says to which side the goal lies.

    After Bakker: Reinforcement Learning with Long Short-Term Memory, NeurIPS 2001. Observations are (side, junction): -1 or 1 at
    the first step and 0 after it; 1 at the junction, else 0. Actions: forward, left, right. A turn at the junction ends the episode
    with 1 where it is the right one, -1 where it is not; what runs against a wall costs 0.05 and stays. After 40 steps the episode
    is cut.

    Who remembers scores 1. Who does not sees the same in every corridor and at every junction, so the turn has nothing to do with
    the side: at most 0 in the mean, and in given episodes at most what turning always to the same side brings.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.side, self.cell = int(self.np_random.choice((-1, 1))), 0
        return np.array([self.side, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        junction, forward = self.cell == CORRIDOR, action == FORWARD
        turned = junction and not forward
        reward = -0.05 if junction == forward else 0.0
        if turned:
            reward = 1.0 if action == (LEFT if self.side < 0 else RIGHT) else -1.0
        self.cell += forward and not junction
        return np.array([0, self.cell == CORRIDOR], np.float32), reward, turned, False, {}


class Positions(gymnasium.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """CartPole-v1 that shows where the cart is and how the pole stands, and not how fast either moves.

    Who remembers can tell the speeds and balance for all 500 steps. Who does not cannot damp a swing: `best_without_memory` says
    how far policies come that push to one side of a line through x and θ.
    """

    def __init__(self, env: gymnasium.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[::2]


def positions() -> gymnasium.Env[np.ndarray, int]:
    """CartPole-v1 without velocities."""
    return Positions(gymnasium.make("CartPole-v1"))


gymnasium.register("TMaze-v0", TMaze, max_episode_steps=40)
gymnasium.register("PositionCartPole-v0", positions)


class Guided:
    """A policy that knows the T-maze: it goes forward, and turns to the side that it was shown."""

    def start(self, n: int) -> np.ndarray:
        """The side of each environment, [n]; not known yet."""
        return np.zeros(n, np.float32)

    def step(self, state: np.ndarray, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        side = np.where(observation[:, 0] != 0, observation[:, 0], state)
        return side, np.where(observation[:, 1] == 0, FORWARD, np.where(side < 0, LEFT, RIGHT))


def t_maze_data(n_steps: int = 5_000) -> Dataset:
    """The T-maze played by `Guided`, a fifth of whose actions are replaced with uniform ones."""
    wandering = {"name": "constant_epsilon_greedy", "epsilon": 0.2}
    return collect("TMaze-v0", Guided(), n_steps=n_steps, n_envs=10, explorer=wandering, name="t-maze")


# ---- what a policy without memory can reach


class Turned:
    """Forward, and always to the same side at the junction of the T-maze."""

    def __init__(self, action: int) -> None:
        self.action = action

    def start(self, n: int) -> None:
        """Nothing is remembered."""

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return None, np.where(observation[:, 1] == 0, FORWARD, self.action)


class Leaning:
    """Pushes CartPole's cart to where x cos α + θ sin α is positive."""

    def __init__(self, angle: float) -> None:
        self.weights = np.array([np.cos(angle), np.sin(angle)])

    def start(self, n: int) -> None:
        """Nothing is remembered."""

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return None, (observation @ self.weights > 0).astype(np.int64)


def best_without_memory(episodes: int = 100, seed: int = 0, angles: int = 360) -> dict[str, float]:
    """By environment, the best mean return of `Turned`, and of `Leaning` at so many angles, in the episodes of an evaluation."""
    tried: dict[str, list[Any]] = {
        "TMaze-v0": [Turned(LEFT), Turned(RIGHT)],
        "PositionCartPole-v0": [Leaning(angle) for angle in np.linspace(0, 2 * np.pi, angles, endpoint=False)],
    }
    return {
        name: max(evaluate(policy, name, episodes=episodes, seed=seed, n_envs=20).mean for policy in policies)
        for name, policies in tried.items()
    }


if __name__ == "__main__":
    print(best_without_memory())
