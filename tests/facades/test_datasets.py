"""d3rlpy's functions give the catalog's dataset and an environment that fits it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray import MDPDataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.datasets import get_atari, get_cartpole, get_d4rl, get_dataset, get_pendulum


def logged(path: Path, *, observation: int, discrete: bool, **more: Any) -> dict[str, Any]:
    """The files of an entry: 60 steps of random numbers."""
    rng, n = np.random.default_rng(0), 60
    with h5py.File(path, "w") as out:
        out["observations"] = rng.normal(size=(n, observation)).astype("f4")
        out["actions"] = rng.integers(0, 2, n) if discrete else rng.uniform(-1, 1, (n, 3)).astype("f4")
        out["rewards"], out["terminals"] = np.ones(n, "f4"), np.arange(n) % 20 == 19
        for name, value in more.items():
            out[name] = value
    return {"files": [{"url": str(path)}]}


@pytest.fixture
def replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published names with files of this machine."""
    end = np.arange(60) % 20 == 19
    cartpole = logged(tmp_path / "c.h5", observation=4, discrete=True, episode_terminals=end, discrete_action=True, version="1.1.0")
    names = ("d3rlpy/cartpole-replay", "d3rlpy/cartpole-random")
    entries: dict[str, Any] = {name: {**cartpole, "environment": {"id": "CartPole-v1"}} for name in names}
    entries["d4rl/hopper-medium-v2"] = {
        **logged(tmp_path / "h.hdf5", observation=11, discrete=False, timeouts=~end & False),
        "environment": {"id": "Hopper-v4"},
    }
    entries["d4rl/kitchen-mixed-v0"] = logged(tmp_path / "k.hdf5", observation=60, discrete=False)
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": entries}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("replaced")
def test_a_dataset_comes_with_its_environment() -> None:
    for dataset, environment in (get_cartpole(), get_cartpole("random"), get_dataset("cartpole-replay")):
        assert environment.spec is not None
        assert environment.spec.id == "CartPole-v1"
        assert dataset.n_transitions == 60
        assert dataset.spec.n_actions == environment.action_space.n  # pyright: ignore[reportAttributeAccessIssue]
    assert get_cartpole(render_mode="rgb_array")[1].render_mode == "rgb_array"


@pytest.mark.usefixtures("replaced")
def test_d4rl_comes_with_the_nearest_environment_of_gymnasium() -> None:
    pytest.importorskip("mujoco")
    for dataset, environment in (get_d4rl("hopper-medium-v2"), get_dataset("d4rl/hopper-medium-v2")):
        assert environment.spec is not None
        assert environment.spec.id == "Hopper-v4"
        assert dataset.episodes[0].observations.shape[1:] == environment.observation_space.shape


@pytest.mark.usefixtures("replaced")
def test_what_cannot_be_given_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^d4rl/kitchen-mixed-v0 has no environment in gymnasium; Dataset\.open\('d4rl/kitchen"):
        get_d4rl("kitchen-mixed-v0")
    with pytest.raises(DataError, match=r"^There is no dataset 'd4rl/hoper-medium-v2'; did you mean 'd4rl/hopper-medium-v2'\?$"):
        get_d4rl("hoper-medium-v2")
    with pytest.raises(DataError, match=r"'d3rlpy/pendulum-expert'; did you mean 'd3rlpy/pendulum-r"):
        get_pendulum("expert")  # pyright: ignore[reportArgumentType]


def test_atari_is_frames_as_the_data_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(MDPDataset, "open", opened.append)
    _, environment = get_atari("breakout-mixed-v0", num_stack=4)
    assert environment.observation_space.shape == (4, 84, 84)
    assert environment.reset(seed=0)[0].dtype == np.uint8
    assert environment.unwrapped.spec is not None
    assert environment.unwrapped.spec.kwargs["repeat_action_probability"] == 0.25
    assert get_atari("ms-pacman-expert-v2", sticky_action=False)[1].observation_space.shape == (1, 84, 84)
    assert opened == ["atari/breakout-mixed-v0", "atari/ms-pacman-expert-v2"]
