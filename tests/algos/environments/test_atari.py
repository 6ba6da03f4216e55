"""Atari games: what is seen and paid, where episodes begin and end, and who is told what is missing."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import episode_seeds, evaluate
from d3ray.algos.environments.make import environment_of, make
from d3ray.algos.environments.packages import register
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment

DEEPMIND = Environment.checked({"id": "ALE/Breakout-v5", "atari": "deepmind", "kwargs": {"repeat_action_probability": 0.0}})
FIRE = np.array([1])
DOPAMINE = Environment.checked({"id": "ALE/Breakout-v5", "atari": "dopamine"})


def area_mean(screen: np.ndarray, size: int = 84) -> np.ndarray:
    """[210, 160] to the mean over the part of the screen that each of [size, size] pixels covers."""

    def shares(n: int) -> np.ndarray:
        edges = np.linspace(0, n, size + 1)
        low, high = np.maximum.outer(edges[:-1], np.arange(n)), np.minimum.outer(edges[1:], np.arange(n) + 1)
        return np.clip(high - low, 0, None) * size / n

    return shares(screen.shape[0]) @ screen @ shares(screen.shape[1]).T


class Bare:
    """The game without any wrapper, frame by frame, as Mnih et al. 2015 describe playing it."""

    def __init__(self, seed: int) -> None:
        register("ALE/Breakout-v5")
        self.game: Any = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0).unwrapped
        self.game.reset(seed=seed)
        for _ in range(self.game.np_random.integers(1, 31)):
            self.game.step(0)

    def step(self, action: int) -> tuple[np.ndarray, float]:
        """What is seen and paid after four frames with an action."""
        screens, paid = [], 0.0
        for _ in range(4):
            paid += self.game.step(action)[1]
            screens.append(self.game.ale.getScreenGrayscale().astype(float))
        return area_mean(np.maximum(screens[-1], screens[-2])), paid


def test_a_step_is_four_frames_of_which_the_larger_of_the_last_two_is_seen_small_and_grey() -> None:
    """Beside the bare game: an off-by-one in skipping or in the no-ops shows the ball elsewhere, by 100 grey levels."""
    bare = Bare(seed=1)
    bare.step(1)  # FIRE, and the second action that goes with it
    seen, _ = bare.step(2)
    paid: list[float] = []
    with make(DEEPMIND) as vector:
        shown = vector.reset(seeds=[1])
        for k in range(45):
            assert shown.shape == (1, 1, 84, 84)
            assert np.abs(shown[0, 0] - seen).max() <= 1  # bytes are rounded
            result = vector.step(np.array([k // 5 % 4]))
            if result.ended[0]:
                break
            shown, (seen, reward) = result.observation, bare.step(k // 5 % 4)
            assert result.reward[0] == reward
            paid.append(reward)
    assert k > 20
    assert sum(paid) > 0  # it hit a brick, so rewards were compared


def test_learning_sees_lives_and_evaluations_whole_games() -> None:
    lives, shown = [], []
    with make(DEEPMIND, seed=0) as vector:
        observation = vector.reset()
        while len(lives) < 6:
            result = vector.step(FIRE)
            if result.ended[0]:
                assert result.terminated[0]
                lives.append(result.info[0]["lives"])
                shown.append((result.observation, observation := vector.reset()))
    assert lives == [4, 3, 2, 1, 0, 4]
    wall = np.s_[0, 0, 20:40]
    assert all((after[wall] == before[wall]).all() for before, after in shown[:4])  # the same game goes on, bricks and all
    assert observation.dtype == np.uint8

    class Firing:
        def start(self, n: int) -> None: ...

        def step(self, state: None, observation: Any) -> Any:
            return state, FIRE

    game = make(DEEPMIND, evaluating=True)
    game.reset(seeds=episode_seeds(3, 1))
    steps = 1
    while not (result := game.step(FIRE)).ended[0]:
        steps += 1
    assert result.info[0]["lives"] == 0
    assert evaluate(Firing(), DEEPMIND, episodes=1, seed=3).lengths.tolist() == [steps]


def test_the_protocol_is_kept_with_what_was_recorded() -> None:
    """Dopamine's: no no-ops, no FIRE, so the first frame is the game's own first screen, and sticky actions."""
    dataset = collect(DOPAMINE, n_steps=12, seed=0)
    assert dataset.environment == DOPAMINE
    assert Environment.model_validate_json(DOPAMINE.model_dump_json()) == DOPAMINE
    assert dataset.columns["observation"].dtype == np.uint8
    with make(DOPAMINE) as vector:
        assert environment_of(vector.single) == DOPAMINE
        game: Any = vector.single.unwrapped
        vector.reset()
        screen = game.ale.getScreenGrayscale().astype(float)
        assert game.spec.kwargs["repeat_action_probability"] == 0.25
    assert np.abs(dataset.columns["observation"][0, 0] - area_mean(screen)).max() <= 1


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no such protocol; did you mean 'deepmind'\?$"):
        Environment.checked({"id": "ALE/Pong-v5", "atari": "deepmnd"})
    with pytest.raises(ConfigError, match=r"^CartPole-v1 is no game of the Arcade Learning Environment: leave atari out\.$"):
        make(Environment.checked({"id": "CartPole-v1", "atari": "deepmind"}))
    with pytest.raises(ConfigError, match=r"set atari\.frame_skip, not kwargs\.frameskip\.$"):
        make(Environment.checked({"id": "ALE/Pong-v5", "atari": "dopamine", "kwargs": {"frameskip": 4}}))
    with pytest.raises(ConfigError, match=r"^gymnasium knows no environment 'ALE/Pog-v5'; did you mean 'ALE/Pong-v5'\?$"):
        make("ALE/Pog-v5")

    for name in [name for name in gymnasium.registry if name.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(
        ConfigError, match=r"^ALE/Breakout-v5 needs a package that is missing: .*; pip install 'd3ray\[atari\]' brings it"
    ):
        make(DEEPMIND)
