"""Environments of packages beside gymnasium: MinAtar as images, LunarLander, and what is said where a package is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from d3ray.algos.environments.make import environment_of, make
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box, Discrete, Spec

GAMES = {"Asterix": (4, 5), "Breakout": (4, 3), "Freeway": (7, 3), "Seaquest": (10, 6), "SpaceInvaders": (6, 4)}


@pytest.mark.parametrize("game", GAMES)
def test_a_game_of_minatar_is_an_image_with_channels_first(game: str) -> None:
    pytest.importorskip("minatar")
    channels, actions = GAMES[game]
    with make(f"MinAtar/{game}-v1", seed=0) as vector:
        image = Box(shape=(channels, 10, 10), dtype="uint8", low=0.0, high=1.0)
        assert vector.spec == Spec(observation=image, action=Discrete(n=actions))
        assert image.channels == "first"
        known = environment_of(vector.single)
        assert known is not None
        with make(known) as again:
            assert again.spec == vector.spec
        shown = vector.reset()
        for t in range(20):
            game_shows = vector.single.unwrapped.game.state()
            np.testing.assert_array_equal(shown[0], np.moveaxis(game_shows, 2, 0))
            shown = vector.step(np.array([t % actions])).observation


def test_an_episode_of_minatar_follows_from_its_seed_and_actions() -> None:
    """Whatever was done before it: the game would repeat the last action of the episode before in the first step of some."""
    pytest.importorskip("minatar")
    with make("MinAtar/Breakout-v1") as vector:
        firsts: list[list[np.ndarray]] = []
        for before in (0, 1):  # nothing, or left
            vector.reset(seeds=[0])
            vector.step(np.array([before]))
            firsts.append([])
            for seed in range(40):
                vector.reset(seeds=[seed])
                firsts[-1].append(vector.step(np.array([0])).observation)
                vector.step(np.array([before]))
    np.testing.assert_array_equal(firsts[0], firsts[1])


def test_lunar_lander_is_played() -> None:
    pytest.importorskip("Box2D")
    with make("LunarLander-v3", seed=0) as vector:
        assert vector.spec.n_actions == 4
        vector.reset()
        assert np.isfinite(vector.step(np.array([2])).observation).all()


@pytest.mark.parametrize(
    ("environment", "module", "extra"),
    [
        ("MinAtar/Breakout-v1", "minatar.gym", "minatar"),
        ("LunarLander-v3", "gymnasium.envs.box2d", "box2d"),
        ("Hopper-v4", "gymnasium.envs.mujoco", "mujoco"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, environment: str, module: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(module)]:
        monkeypatch.delitem(sys.modules, name)
    for parent in ("Box2D", "mujoco", "minatar.gym", "pygame"):
        monkeypatch.setitem(sys.modules, parent, None)
    import gymnasium

    monkeypatch.delitem(gymnasium.registry, "MinAtar/Breakout-v1", raising=False)
    with pytest.raises(
        ConfigError, match=rf"^{environment} needs a package that is missing: .*; pip install 'd3ray\[{extra}\]' "
    ) as said:
        make(environment)
    assert "gymnasium[" not in str(said.value)
