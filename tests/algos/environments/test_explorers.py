"""Explorers: how often and how far they depart, and that a draw depends on (seed, step) alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from scipy import stats

from d3ray.algos.environments.explorers import (
    BLOCK,
    Boltzmann,
    ConstantEpsilonGreedy,
    EpsilonGreedy,
    Explorer,
    ExplorerSetting,
    ExponentialEpsilonGreedy,
    GaussianNoise,
    Greedy,
    LinearDecayEpsilonGreedy,
    NormalNoise,
    OrnsteinUhlenbeck,
    PolicyDraws,
    random_actions,
    read_explorer,
    register_explorer,
)
from d3ray.data.config import setting
from d3ray.data.errors import ConfigError
from d3ray.data.random import fold, normal, root_key
from d3ray.data.spec import Box, Discrete, Leaf

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


def test_epsilon_falls_as_it_is_said_to() -> None:
    steps = (0, 50, 100, 10_000)
    linear = EpsilonGreedy(start=1.0, end=0.2, duration=100)
    assert [linear.compute_epsilon(step) for step in steps] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert [ConstantEpsilonGreedy(epsilon=0.3).compute_epsilon(step) for step in steps] == [0.3] * 4
    exponential = ExponentialEpsilonGreedy(start=0.8, end=0.1, decay=0.99)
    assert [exponential.compute_epsilon(step) for step in steps] == pytest.approx([0.8, 0.8 * 0.6050061, 0.8 * 0.3660323, 0.1])


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


def test_gaussian_noise_has_a_mean_a_deviation_for_each_entry_and_a_schedule() -> None:
    wide = Box(shape=(2,), low=-10.0, high=10.0)  # a half of the range is 10
    explorer = GaussianNoise(std=(0.01, 0.02), mean=0.1, final_std=(0.03, 0.0), duration=100)
    for step, deviations in ((0, (0.1, 0.2)), (50, (0.2, 0.1)), (100, (0.3, 0.0)), (1000, (0.3, 0.0))):
        noise = explorer.explore(np.zeros((4000, 2), np.float32), wide, step=step, seed=0)
        assert noise.mean(0) == pytest.approx([1.0, 1.0], abs=0.03)
        assert noise.std(0) == pytest.approx(deviations, rel=0.05)


def test_boltzmann_draws_in_proportion_to_the_exponential_of_values() -> None:
    values = np.tile([0.0, np.log(4.0), np.log(16.0)], (20_000, 1))
    for temperature, odds in ((1.0, np.array([1, 4, 16])), (2.0, np.array([1, 2, 4]))):
        drawn = Boltzmann(temperature=temperature).explore(values, Discrete(n=3), step=3, seed=0)
        assert stats.chisquare(np.bincount(drawn, minlength=3), 20_000 * odds / odds.sum()).pvalue > 1e-3
    assert (Boltzmann(T=1e-3).explore(values, Discrete(n=3), step=0, seed=0) == 2).all()
    assert Boltzmann.departs_from == "values"
    assert PolicyDraws.departs_from == "draw"


def test_explorers_refuse_actions_of_the_other_kind() -> None:
    for explorer in (GaussianNoise(), OrnsteinUhlenbeck()):
        with pytest.raises(ConfigError, match="did you mean 'epsilon_greedy'"):
            explorer.explore(np.zeros(1, np.int64), Discrete(n=2), step=0, seed=0)
    with pytest.raises(ConfigError, match="did you mean 'gaussian'"):
        Boltzmann().explore(np.zeros((1, 2)), ARM, step=0, seed=0)


def test_ornstein_uhlenbeck_is_the_process_that_it_says() -> None:
    """Against x ← x + θ (μ - x) + σ ε step by step, with PFRL's constants, from a start long before."""
    theta, sigma, mu, n = 0.15, 0.3, 0.5, 200
    free, key = Box(shape=(2,)), fold(root_key(7), "ornstein uhlenbeck")
    draws = normal(fold(key, torch.arange(-400, n)), (6,), torch.float64).numpy()
    x = np.full(6, mu)
    by_hand = []
    for draw in draws:
        x = x + theta * (mu - x) + sigma * draw
        by_hand.append(x)
    explorer, still = OrnsteinUhlenbeck(mu=mu), np.zeros((3, 2))
    for step in (0, 1, BLOCK - 1, BLOCK, n - 1, 5):  # in any order: there is no state
        noise = explorer.explore(still, free, step=step, seed=7)
        np.testing.assert_allclose(noise.reshape(-1), by_hand[step + 400], atol=1e-11)
    whole = np.stack([explorer.noise((3, 2), step=step, seed=8) - mu for step in range(4000)])
    assert whole.std() == pytest.approx(sigma / np.sqrt(2 * theta - theta**2), rel=0.05)  # of the stationary law
    lag = (whole[1:] * whole[:-1]).mean() / (whole**2).mean()
    assert lag == pytest.approx(1 - theta, abs=0.02)
    between = np.corrcoef(whole.reshape(4000, -1).T) - np.eye(6)  # environments and entries do not share noise
    assert abs(between).max() < 0.15
    calm = OrnsteinUhlenbeck(start_with_mu=True, mu=mu, sigma=(0.3, 0.0))
    assert calm.noise((3, 2), step=0, seed=7).tolist() == [[mu, mu]] * 3
    assert (calm.noise((3, 2), step=1, seed=7)[:, 1] == mu).all()
    np.testing.assert_allclose(calm.noise((3, 2), step=1, seed=7)[:, 0], mu + sigma * draws[401].reshape(3, 2)[:, 0], atol=1e-11)
    halves = OrnsteinUhlenbeck().explore(np.float32([[0.0, -2.0]]), ARM, step=4, seed=1) - [[0.0, -2.0]]
    plain = OrnsteinUhlenbeck().noise((1, 2), step=4, seed=1)
    np.testing.assert_allclose(halves, plain * [[1, 2]], atol=1e-6)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    explorer, proposed = GaussianNoise(std=0.1), np.zeros((2, 2), np.float32)
    there = {step: explorer.explore(proposed, ARM, step=step, seed=5) for step in (63, 64, 200)}
    for step in (200, 64, 63):  # in another order, and over the edge of a block
        assert explorer.explore(proposed, ARM, step=step, seed=5).tolist() == there[step].tolist()
    assert len({there[step].tobytes() for step in there}) == 3
    assert explorer.explore(proposed, ARM, step=64, seed=6).tolist() != there[64].tolist()
    assert Greedy().explore(proposed, ARM, step=1, seed=5) is proposed


def test_an_explorer_is_read_from_its_name_and_comes_back_from_json() -> None:
    adapter: TypeAdapter[Explorer] = TypeAdapter(ExplorerSetting)
    every = [Greedy(), PolicyDraws(), EpsilonGreedy(start=0.5), ConstantEpsilonGreedy(epsilon=0.2), ExponentialEpsilonGreedy()]
    every += [Boltzmann(temperature=3.0), GaussianNoise(std=(0.1, 0.3)), OrnsteinUhlenbeck(sigma=0.2)]
    for explorer in every:
        assert adapter.validate_json(adapter.dump_json(explorer)) == explorer
        assert read_explorer(explorer.name) == type(explorer)()
    assert read_explorer({"name": "gaussian", "std": 0.3}) == GaussianNoise(std=0.3)
    for wrong, message in (
        ("gausian", "There is no explorer 'gausian'; did you mean 'gaussian'"),
        ({"name": "epsilon_greedy", "start": 2}, "The explorer 'epsilon_greedy': start is 2"),
        ({"name": "gaussian", "sdt": 1}, "The explorer 'gaussian' has no setting 'sdt'; did you mean 'std'"),
        ({"name": "gaussian", "std": -0.1}, "The explorer 'gaussian': std"),
        (0.1, "float is no explorer"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_explorer(wrong)


def test_names_of_d3rlpy_and_pfrl_are_understood() -> None:
    settings = {"start_epsilon": 0.9, "end_epsilon": 0.2}
    assert LinearDecayEpsilonGreedy(**settings, duration=5) == EpsilonGreedy(start=0.9, end=0.2, duration=5)
    assert EpsilonGreedy(**settings, decay_steps=5) == EpsilonGreedy(start=0.9, end=0.2, duration=5)
    assert ExponentialEpsilonGreedy(**settings, decay=0.9).start == 0.9
    assert NormalNoise(mean=0.0, std=0.3) == GaussianNoise(scale=0.3)
    assert Boltzmann(T=2.0).temperature == 2.0


def test_a_users_own_explorer_is_known_by_its_name() -> None:
    @register_explorer
    class Stubborn(Explorer):
        name: str = "stubborn"
        action: int = setting(0, "what is always done")

        def explore(self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
            return np.full_like(proposed, self.action)

    made = read_explorer({"name": "stubborn", "action": 1})
    assert made.explore(np.zeros(2, np.int64), Discrete(n=2), step=0, seed=0).tolist() == [1, 1]
    assert TypeAdapter(ExplorerSetting).dump_python(made) == {"name": "stubborn", "action": 1}

    class Other(Explorer):
        name: str = "stubborn"

    with pytest.raises(ConfigError, match="There is an explorer 'stubborn' already"):
        register_explorer(Other)
