"""Explorers: how often and how far they depart, and that a draw depends on (seed, step) alone."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from d3ray.algos.environments.explorers import EpsilonGreedy, Explorer, GaussianNoise, Greedy, random_actions
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box, Discrete

ARM = Box(shape=(2,), low=(-1.0, -4.0), high=(1.0, 0.0))


def test_random_actions_are_uniform_over_the_space() -> None:
    discrete = np.concatenate([random_actions(Discrete(n=3), 10, step=step, seed=0) for step in range(300)])
    assert stats.chisquare(np.bincount(discrete, minlength=3)).pvalue > 1e-3
    assert discrete.dtype == np.int64
    boxed = np.concatenate([random_actions(ARM, 10, step=step, seed=0) for step in range(300)])
    assert boxed.dtype == np.float32
    for entry, low, width in ((0, -1, 2), (1, -4, 4)):
        assert stats.kstest(boxed[:, entry], "uniform", args=(low, width)).pvalue > 1e-3
    free = np.concatenate([random_actions(Box(shape=(1,)), 10, step=step, seed=0) for step in range(300)])
    assert stats.kstest(free[:, 0], "norm").pvalue > 1e-3


def test_epsilon_falls_linearly_and_stays() -> None:
    explorer = EpsilonGreedy(start=1.0, end=0.2, duration=100)
    assert [explorer.epsilon(step) for step in (0, 50, 100, 10_000)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("space", [Discrete(n=4), ARM])
def test_epsilon_greedy_replaces_that_share(space: Discrete | Box) -> None:
    explorer = EpsilonGreedy(start=0.0, end=0.4, duration=400)
    proposed = np.zeros((500, *space.shape), np.int64 if isinstance(space, Discrete) else np.float32)
    assert explorer.explore(proposed, space, step=0, seed=0) is proposed
    after = explorer.explore(proposed, space, step=400, seed=0)
    assert after.dtype == proposed.dtype
    share = (after != 0).reshape(500, -1).any(1).mean()
    assert share == pytest.approx(0.4 * (0.75 if isinstance(space, Discrete) else 1), abs=0.07)
    assert not proposed.any()


def test_gaussian_noise_is_in_halves_of_the_range_and_clipped_to_it() -> None:
    proposed = np.tile(np.float32([0.0, -2.0]), (4000, 1))
    noise = GaussianNoise(std=0.1).explore(proposed, ARM, step=3, seed=1) - proposed
    assert noise.std(0) == pytest.approx([0.1, 0.2], rel=0.05)
    assert abs(noise.mean(0)).max() < 0.02
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06
    edge = GaussianNoise(std=0.5).explore(np.tile(np.float32([1.0, 0.0]), (100, 1)), ARM, step=3, seed=1)
    assert edge.max(0).tolist() == [1.0, 0.0]
    assert edge.dtype == np.float32
    free = GaussianNoise(std=3.0).explore(np.zeros((2000, 1)), Box(shape=(1,)), step=3, seed=1)
    assert free.std() == pytest.approx(3.0, rel=0.06)


def test_gaussian_noise_needs_continuous_actions() -> None:
    with pytest.raises(ConfigError, match="did you mean 'epsilon_greedy'"):
        GaussianNoise().explore(np.zeros(1, np.int64), Discrete(n=2), step=0, seed=0)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    explorer, proposed = GaussianNoise(std=0.1), np.zeros((2, 2), np.float32)
    there = {step: explorer.explore(proposed, ARM, step=step, seed=5) for step in (63, 64, 200)}
    for step in (200, 64, 63):  # in another order, and over the edge of a block
        assert explorer.explore(proposed, ARM, step=step, seed=5).tolist() == there[step].tolist()
    assert len({there[step].tobytes() for step in there}) == 3
    assert explorer.explore(proposed, ARM, step=64, seed=6).tolist() != there[64].tolist()
    assert Greedy().explore(proposed, ARM, step=1, seed=5) is proposed


def test_an_explorer_is_read_from_its_name() -> None:
    adapter: TypeAdapter[Explorer] = TypeAdapter(Explorer)
    for explorer in (EpsilonGreedy(start=0.5), GaussianNoise(std=0.3), Greedy()):
        assert adapter.validate_json(explorer.model_dump_json()) == explorer
    with pytest.raises(ValidationError):
        adapter.validate_python({"name": "epsilon_greedy", "start": 2})
