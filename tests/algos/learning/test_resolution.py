"""Observations that are large beside their spread: kept exact in float64, or refused before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import d3ray
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.package import read_package
from d3ray.data.errors import DataError

SECONDS = 1.7e9  # since 1970
RNG = np.random.default_rng(0)
PART = RNG.uniform(-1, 1, (400, 2))
ENDS = np.arange(400) % 10 == 9


def arrays(offset: float) -> tuple[Any, ...]:
    return PART + offset, (0.8 * PART).astype(np.float32), np.ones(400), ENDS


def policy(**settings: Any) -> d3ray.BC:
    return d3ray.BC(**({"seed": 0, "learning_rate": 1e-3, "observation_scaler": "standard", "batch_size": 32} | settings))


@pytest.mark.parametrize("scaler", ["standard", "min_max"])
def test_float64_is_scaled_before_it_is_rounded(scaler: str, tmp_path: Path) -> None:
    """What is learned from 1.7e9 + x is what is learned from x; float32 told 128 seconds apart, and learned a constant."""
    data = d3ray.Dataset.from_arrays(*arrays(SECONDS), keep_float64=True)
    offset = policy(observation_scaler=scaler).fit(data, n_steps=200)
    action = offset.predict(PART[:50] + SECONDS)
    plain = policy(observation_scaler=scaler).fit(d3ray.Dataset.from_arrays(*arrays(0.0), keep_float64=True), n_steps=200)
    np.testing.assert_allclose(action, plain.predict(PART[:50]), atol=1e-3)
    assert np.abs(action - 0.8 * PART[:50]).max() < 0.2
    offset.save_policy(tmp_path / "policy")
    np.testing.assert_allclose(read_package(tmp_path / "policy").predict(PART[:50] + SECONDS), action, atol=1e-5)


def test_a_key_that_is_a_time_is_scaled_before_it_is_rounded() -> None:
    observations = {"time": PART[:, :1] + SECONDS, "place": PART[:, 1:]}
    data = d3ray.Dataset.from_arrays(observations, *arrays(0.0)[1:], keep_float64=True)
    found = policy(observation_scaler={"time": "standard"}).fit(data, n_steps=200)
    seen = {"time": observations["time"][:50], "place": observations["place"][:50]}
    assert np.abs(found.predict(seen) - 0.8 * PART[:50]).max() < 0.3
    with pytest.raises(DataError, match=r"observation/time of 'dataset' reach 1\.7e\+09 with a standard deviation of 0\.5"):
        policy(observation_scaler={"place": "standard"}).fit(data, n_steps=1)


class Clock(gymnasium.Env[Any, Any]):
    """Shows a time, and pays 1 where the action is its offset from 1.7e9."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return PART[0] + SECONDS, {}

    def step(self, action: Any) -> Any:
        near = float(np.abs(action - 0.8 * PART[self.t]).max() < 0.2)
        self.t += 1
        return PART[self.t] + SECONDS, near, self.t == 8, False, {}


def test_environments_show_a_policy_of_float64_what_they_have() -> None:
    trained = policy().fit(d3ray.Dataset.from_arrays(*arrays(SECONDS), keep_float64=True), n_steps=200)
    assert evaluate(trained.policy(), Clock(), episodes=1).mean == 8


def test_what_float32_cannot_tell_apart_is_refused_before_training() -> None:
    data = d3ray.Dataset.from_arrays(*arrays(SECONDS), keep_float64=True)
    said = (
        r"entry 0, reach 1\.7e\+09 .* set observation_scaler='standard', which subtracts their mean in float64, or dtype='float64'"
    )
    with pytest.raises(DataError, match=said) as refused:
        policy(observation_scaler=None).fit(data, n_steps=1)
    assert refused.value.mends == {"observation_scaler": "standard"}
    policy(observation_scaler=None, dtype="float64").fit(data, n_steps=1)
    with pytest.raises(DataError, match="subtract an offset from them"):  # models of the dynamics predict raw numbers
        d3ray.ProbabilisticEnsemble().fit(data, n_steps=1)


def test_what_would_lose_its_spread_as_float32_is_not_made_float32() -> None:
    with pytest.raises(
        DataError, match=r"observations, entry 0, reaches 1\.7e\+09 .* subtract an offset from them, or set keep_float64"
    ):
        d3ray.Dataset.from_arrays(*arrays(SECONDS))
    d3ray.Dataset.from_arrays(*arrays(1e5))  # seven digits are enough for it
    d3ray.Dataset.from_arrays(np.full((400, 2), SECONDS), *arrays(0.0)[1:])  # a constant has no spread to lose
    d3ray.Dataset.from_arrays(1 + 1e-9 * PART, *arrays(0.0)[1:])  # nor has what scalers take for one


def test_whole_numbers_are_scaled_before_they_are_rounded() -> None:
    ticks = np.round(PART * 50).astype(np.int64) + int(SECONDS)
    found = policy().fit(d3ray.Dataset.from_arrays(ticks, *arrays(0.0)[1:]), n_steps=200)
    assert np.abs(found.predict(ticks[:50]) - 0.8 * PART[:50]).max() < 0.2
