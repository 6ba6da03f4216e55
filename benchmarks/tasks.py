"""What benchmarks learn from and act in: data of noise, data that are played, and small tasks that gymnasium does not have.

Importing it makes `Catch-v0`, `TMaze-v0` and `PositionCartPole-v0` known to gymnasium.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from d3ray import MDPDataset
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.explorers import random_actions
from d3ray.algos.environments.make import make
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Discrete, Environment, Spec

KEPT = Path(__file__).parent / "results" / "at_random.json"
Stepped = tuple[np.ndarray, float, bool, bool, dict[str, Any]]

# ---- noise of known shapes


def hopper_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of Hopper's shapes: observation 11, action 3 in [-1, 1], 200 to 1,000 steps an episode. It is noise."""
    return _noise(n, 11, 3, (200, 1_000), seed)


def cartpole_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of CartPole's shapes: observation 4, two actions, 10 to 200 steps an episode. It is noise."""
    return _noise(n, 4, None, (10, 200), seed)


def frames_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of an Atari game's shapes: frames [1, 84, 84] of bytes, four actions, 500 steps an episode. It is noise."""
    rng = np.random.default_rng(seed)
    end = (np.arange(n) % 500 == 499) | (np.arange(n) == n - 1)
    frames, action = rng.integers(0, 256, (n, 1, 84, 84), np.uint8), rng.integers(0, 4, n)
    reward, none = rng.standard_normal(n, np.float32), np.zeros(n, bool)
    finals = rng.integers(0, 256, (int(end.sum()), 1, 84, 84), np.uint8)
    return Dataset.from_arrays(frames, action, reward, none, end, final_observations=finals, name="noise-frames")


def _noise(n: int, size: int, action: int | None, lengths: tuple[int, int], seed: int) -> Dataset:
    """Episodes that reach the longest length are truncated with their final observation recorded; the others terminate."""
    rng = np.random.default_rng(seed)
    length = rng.integers(lengths[0], lengths[1] * 2, n // lengths[0] + 1).clip(max=lengths[1])
    last = np.cumsum(length)
    last = np.r_[last[last < n], n] - 1
    end, cut = np.zeros(n, bool), np.zeros(n, bool)
    end[last] = True
    cut[last] = np.diff(np.r_[-1, last]) == lengths[1]
    cut[-1] = True
    observation = rng.standard_normal((n, size), np.float32)
    acted = rng.integers(0, 2, n) if action is None else rng.uniform(-1, 1, (n, action)).astype(np.float32)
    arrays = observation, acted, rng.standard_normal(n, np.float32), end & ~cut, cut
    finals = rng.standard_normal((len(last), size), np.float32)
    space = Discrete(n=2) if action is None else Box(shape=(action,), low=-1, high=1)
    spec = Spec(observation=Box(shape=(size,)), action=space)
    return Dataset.from_arrays(*arrays, final_observations=finals, spec=spec, name=f"noise-{size}")


# ---- datasets by the names that studies give them

MADE = "d3ray-ogbench/"  # before names of datasets that `d3ray make` makes


@cache
def open_dataset(path: str) -> Dataset:
    """A dataset folder, a file of a known format, one of CS285's pickles, or what is played by random actions: ".../random/ENV".

    ".../d3ray-ogbench/NAME" is what `d3ray make d3ray-ogbench/NAME` has made;
    "…/half-random" is CartPole with half of the actions random, `half_random`, and "…/t-maze" the T-maze, `t_maze_data`;
    "…/pendulum_small" has every seventh episode of "…/pendulum_replay.h5".
    """
    from d3ray.data.formats.registry import read

    place = Path(path)
    if place.name == "pendulum_small":
        episodes = open_dataset(str(place.with_name("pendulum_replay.h5"))).episodes
        return MDPDataset.from_episodes([episodes[k] for k in range(0, 175, 7)])
    if place.parent.name == "random":
        return collect(place.name, n_steps=100_000, n_envs=10)
    if place.name in PLAYED:
        return PLAYED[place.name]()
    if place.is_dir() or f"{place.parent.name}/" == MADE:
        return Dataset.open(path if place.is_dir() else MADE + place.name)
    if place.suffix != ".pkl":
        imported = read(path)
        return Dataset.from_steps(imported.steps, name=place.stem, spec=imported.spec, environment=imported.environment)
    environment = Environment(id=place.stem.rpartition("_")[2])
    vector = make(environment)
    vector.close()
    imported = read(path, timeout_at=1000, actions="clip", spec=vector.spec)
    return Dataset.from_steps(imported.steps, name=place.stem, spec=vector.spec, environment=environment)


def for_peer(dataset: Dataset, path: Path) -> None:
    """An .npz file that makes of d3rlpy's MDPDataset exactly our transitions.

    d3rlpy takes the next observation from the next row and never draws the last row of a truncated episode. So such an episode is
    handed over with its closing row, where that was recorded: the closing row is the one that is not drawn.
    """
    table = dataset.to_steps()
    observation = table.columns["observation"]
    keep, closing = np.ones(len(observation), bool), table.first_row + table.steps
    keep[closing] = ~table.terminated & table.final_recorded
    timeout, truncated = np.zeros(len(observation), np.float32), ~table.terminated
    timeout[np.where(table.final_recorded, closing, closing - 1)[truncated]] = 1
    action, terminal = table.columns["action"], table.columns["terminated"].astype(np.float32)
    np.savez(
        path,
        observations=observation[keep].astype(np.uint8 if observation.dtype == np.uint8 else np.float32),
        actions=action[keep].reshape(-1, 1) if action.ndim == 1 else action[keep].astype(np.float32),
        rewards=table.columns["reward"][keep].reshape(-1, 1).astype(np.float32),
        terminals=terminal[keep],
        timeouts=timeout[keep],
    )


# ---- policies that are not learned


class Fixed:
    """A policy that remembers nothing of an episode."""

    def start(self, n: int) -> Any:
        """What it remembers of `n` environments."""

    def step(self, state: Any, observation: np.ndarray) -> tuple[Any, np.ndarray]:
        return None, self.act(observation)

    def act(self, observation: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class AtRandom(Fixed):
    """Uniform random actions, drawn by (seed, step)."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space, self.seed, self.drawn = space, seed, 0

    def act(self, observation: np.ndarray) -> np.ndarray:
        self.drawn += 1
        return random_actions(self.space, len(observation), step=self.drawn, seed=self.seed)


class Balancing(Fixed):
    """Balances CartPole's pole for all 500 steps: it pushes to where x/10 + 3 x'/10 + θ + θ' is positive."""

    def act(self, observation: np.ndarray) -> np.ndarray:
        return (observation @ np.array([0.1, 0.3, 1.0, 1.0]) > 0).astype(np.int64)


class Turned(Fixed):
    """Forward, and always to the same side at the junction of the T-maze."""

    def __init__(self, action: int) -> None:
        self.action = action

    def act(self, observation: np.ndarray) -> np.ndarray:
        return np.where(observation[:, 1] == 0, FORWARD, self.action)


class Guided(Fixed):
    """Knows the T-maze: it goes forward, and turns to the side that it was shown, which is what it remembers."""

    def start(self, n: int) -> np.ndarray:
        return np.zeros(n, np.float32)

    def step(self, state: np.ndarray, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        side = np.where(observation[:, 0] != 0, observation[:, 0], state)
        return side, np.where(observation[:, 1] == 0, FORWARD, np.where(side < 0, LEFT, RIGHT))


def at_random(environment: str, episodes: int, seed: int) -> float:
    """The mean return of random actions over the episodes that an evaluation with `seed` resets; played once and kept."""
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    found = kept.setdefault(environment, {})
    if str(episodes) not in found:
        vector = make(environment)
        vector.close()
        found[str(episodes)] = evaluate(AtRandom(vector.spec.action, seed), environment, episodes=episodes, seed=seed).mean
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return found[str(episodes)]


def half_random(n_steps: int = 1_500) -> Dataset:
    """CartPole played by `Balancing`, half of whose actions are replaced with uniform ones: poor data, in which all can be seen.

    It is a function of the environment's dynamics alone, and its fingerprint tells whether it is the same somewhere else.
    """
    wandering = {"name": "constant_epsilon_greedy", "epsilon": 0.5}
    return collect("CartPole-v1", Balancing(), n_steps=n_steps, n_envs=10, explorer=wandering, name="half-random-cartpole")


def t_maze_data(n_steps: int = 5_000) -> Dataset:
    """The T-maze played by `Guided`, a fifth of whose actions are replaced with uniform ones."""
    wandering = {"name": "constant_epsilon_greedy", "epsilon": 0.2}
    return collect("TMaze-v0", Guided(), n_steps=n_steps, n_envs=10, explorer=wandering, name="t-maze")


PLAYED = {"half-random": half_random, "t-maze": t_maze_data}  # by the name that studies give them


# ---- environments

GRID, CELL = 12, 7
CORRIDOR = 7
FORWARD, LEFT, RIGHT = range(3)


class Catch(gymnasium.Env[np.ndarray, int]):
    """A ball falls and drifts, a paddle below it moves; frames are [1, 84, 84] bytes, of a grid of 12 × 12 cells.

    11 steps an episode, whose last brings 1 where the paddle, three cells wide, is under the ball, and -1 where it is not.
    Actions: left, stay, right. The ball drifts by a cell, or by none, to a side that each episode draws, and bounces off the walls.
    Who does not look scores -0.5: a paddle covers three cells of twelve.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (1, GRID * CELL, GRID * CELL), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column = 0, int(self.np_random.integers(GRID))
        self.drift, self.paddle = int(self.np_random.integers(-1, 2)), int(self.np_random.integers(1, GRID - 1))
        return self._frame(), {}

    def step(self, action: int) -> Stepped:
        self.paddle = min(max(self.paddle + int(action) - 1, 1), GRID - 2)
        if not 0 <= self.column + self.drift < GRID:
            self.drift = -self.drift
        self.row, self.column = self.row + 1, self.column + self.drift
        fallen = self.row == GRID - 1
        reward = 0.0 if not fallen else 1.0 if abs(self.column - self.paddle) <= 1 else -1.0
        return self._frame(), reward, fallen, False, {}

    def _frame(self) -> np.ndarray:
        cells = np.zeros((GRID, GRID), np.uint8)
        cells[-1, self.paddle - 1 : self.paddle + 2] = 128
        cells[self.row, self.column] = 255
        return cells.repeat(CELL, 0).repeat(CELL, 1)[None]


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

    def step(self, action: int) -> Stepped:
        junction, forward = self.cell == CORRIDOR, action == FORWARD
        turned = junction and not forward
        reward = -0.05 if junction == forward else 0.0
        if turned:
            reward = 1.0 if action == (LEFT if self.side < 0 else RIGHT) else -1.0
        self.cell += forward and not junction
        return np.array([0, self.cell == CORRIDOR], np.float32), reward, turned, False, {}


class Positions(gymnasium.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """CartPole-v1 that shows where the cart is and how the pole stands, and not how fast either moves.

    Who remembers can tell the speeds and balance for all 500 steps. Who does not cannot damp a swing: `at_most`
    in learning.yaml has how far policies come that push to one side of a line through x and θ.
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


gymnasium.register("Catch-v0", Catch)
gymnasium.register("TMaze-v0", TMaze, max_episode_steps=40)
gymnasium.register("PositionCartPole-v0", positions)
