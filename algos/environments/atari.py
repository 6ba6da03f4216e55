"""Atari games as the literature plays them: gymnasium's preprocessing, and the two wrappers of Baselines that it has not."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, ReshapeObservation

from ...data.errors import ConfigError
from ...data.spec import Atari, Environment

Game = gymnasium.Env[np.ndarray, Any]


class LifeLoss(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """A lost life ends an episode, and the next one goes on with the same game. Any other reset begins a new game.

    gymnasium's own `terminal_on_life_loss` begins a new game at every life, so that only first lives are ever seen.
    """

    def __init__(self, game: Game) -> None:
        super().__init__(game)
        self.lives, self.lost = 0, False

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = int(info["lives"])
        self.lost, self.lives = 0 < lives < self.lives and not (terminated or truncated), lives
        return observation, reward, terminated or self.lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info, begins = None, dict[str, Any](), not self.lost
        if self.lost:
            observation, _, terminated, truncated, info = self.env.step(0)  # shows the new life: Baselines' does nothing for a step
            begins = terminated or truncated
        if begins:
            observation, info = self.env.reset(seed=seed, options=options)
        self.lost, self.lives = False, int(info["lives"])
        return observation, info


class FireReset(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """Takes actions 1, FIRE, and 2 where an episode begins: some games wait for it, and a greedy policy may never press it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        shown = self.env.reset(seed=seed, options=options)
        for action in (1, 2):
            observation, _, terminated, truncated, info = self.env.step(action)
            shown = self.env.reset(seed=seed, options=options) if terminated or truncated else (observation, info)
        return shown

    @staticmethod
    def waits(game: Game) -> bool:
        return cast("Any", game.unwrapped).get_action_meanings()[1:2] == ["FIRE"]


class AtariGame(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """A game of the Arcade Learning Environment that shows single grey frames, [1, size, size] uint8.

    `evaluating`: episodes are whole games, whatever the config says of lives. Raises ConfigError where a package is missing, or the
    id is of no Atari game.
    """

    def __init__(self, config: Environment, *, evaluating: bool = False) -> None:
        self.config, how = config, cast("Atari", config.atari)
        if "frameskip" in config.kwargs:
            raise ConfigError(f"{config.id}: atari says how frames are skipped: set atari.frame_skip, not kwargs.frameskip.")
        if "ale_py" not in str(gymnasium.spec(config.id).entry_point):
            raise ConfigError(f"{config.id} is no game of the Arcade Learning Environment: leave atari out.")
        kwargs: dict[str, Any] = {**config.kwargs, "frameskip": 1, "obs_type": "grayscale"}  # colours nobody would look at
        game: Game = gymnasium.make(config.id, disable_env_checker=True, **kwargs)
        game = AtariPreprocessing(game, noop_max=how.noop_max, frame_skip=how.frame_skip, screen_size=how.screen_size)
        if how.life_loss and not evaluating:
            game = LifeLoss(game)
        if how.fire_reset and FireReset.waits(game):
            game = FireReset(game)
        super().__init__(ReshapeObservation(game, (1, how.screen_size, how.screen_size)))
