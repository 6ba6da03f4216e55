"""`d3ray play POLICY`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...data.errors import ConfigError
from ..command.base import Result, option
from .acting import ActingConfig, acting, check_fits

if TYPE_CHECKING:
    from ...algos.environments.vector import VectorEnvironment


class PlayConfig(ActingConfig):
    """How it is shown."""

    render: Literal["window", "text"] | None = option(None, "null: a window where there is a display, else text where it has that")
    fps: float | None = option(None, "steps a second of text; null: as many as the environment does", gt=0, also="framerate")


@dataclass(frozen=True, kw_only=True)
class PlayResult(Result):
    """Undiscounted returns and steps of the episodes."""

    returns: np.ndarray
    lengths: np.ndarray


def run(config: PlayConfig) -> PlayResult:
    """Plays the episodes, the same as `evaluate` with the seed and one environment.

    Raises:
        ConfigError: it is no policy, no environment is named, its spaces are not the policy's, or it cannot be shown here.
        StorageError: the policy is damaged or cannot be fetched.
    """
    from ...algos.environments.evaluate import evaluate
    from ...algos.environments.video import drawn, has_display, render_modes
    from ...platform.words import count

    with acting(config) as (policy, environment):
        modes = render_modes(environment)
        text = config.render == "text" or (config.render is None and "ansi" in modes and not has_display())
        if not text and not has_display():
            raise ConfigError(f"There is no display here for {environment.id}: d3ray record {config.policy} makes a video instead.")
        with drawn(environment, "ansi" if text else "human", config.max_steps) as vector:
            check_fits(policy, vector, environment.id)
            watch = _Reader(vector, config.fps) if text else None
            played = evaluate(policy, vector, episodes=config.episodes, seed=config.seed, epsilon=config.epsilon, watch=watch)
    over = f"{count(config.episodes, 'episode')} (seed {config.seed})"
    return PlayResult(
        made=f"{environment.id}: return {played.mean:.2f} ± {played.std:.2f} over {over}.",
        returns=played.returns,
        lengths=played.lengths,
    )


class _Reader:
    """Prints what the environment shows at each step, at a pace that can be followed."""

    def __init__(self, vector: VectorEnvironment, fps: float | None) -> None:
        self._vector, self._pause = vector, 1 / (fps or vector.single.metadata.get("render_fps") or 4)
        self._episode, self._next = -1, 0.0

    def __call__(self, episode: int) -> None:
        if episode != self._episode:
            self._episode = episode
            print(f"Episode {episode}")
        elif (wait := self._next - time.monotonic()) > 0:
            time.sleep(wait)
        self._next = time.monotonic() + self._pause
        print(self._vector.single.render(), flush=True)  # with the codes that mark where one is
