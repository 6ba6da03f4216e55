"""Frames of bytes from an environment to a policy package: stored once, stacked when drawn, stacked when acting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest

from d3ray import Stack
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.jobs.data.collect import CollectConfig
from d3ray.jobs.data.collect import run as collect
from d3ray.jobs.policies.evaluate import EvaluateConfig
from d3ray.jobs.policies.evaluate import run as evaluate_package

SIDE = 12


class Crossing(gymnasium.Env[np.ndarray, int]):
    """A bright square crosses a dark field, left to right or right to left: which way, two frames tell and one does not.

    The action that says so is rewarded with 1.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.right, self.t = int(self.np_random.integers(2)), 0
        self.row, self.column = (int(n) for n in self.np_random.integers(5, 7, 2))
        return self._frame(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.column += 1 if self.right else -1
        return self._frame(), float(action == self.right), self.t == 5, False, {}

    def _frame(self) -> np.ndarray:
        frame = np.zeros((1, SIDE, SIDE), np.uint8)
        frame[0, self.row : self.row + 2, self.column : self.column + 2] = 255
        return frame


SETTINGS: dict[str, Any] = {
    "encoder": {"name": "pixel", "filters": ((8, 4, 2), (8, 3, 1)), "feature_size": 32},
    "observation_scaler": "pixel",
    "sampler": {"name": "uniform", "frames": 3, "frame_padding": "repeat"},
    "learning_rate": 1e-3,
    "target_update_interval": 20,
    "gamma": 0.5,
}


@pytest.fixture(autouse=True)
def crossing() -> Iterator[str]:
    gymnasium.register("Crossing-v0", Crossing)
    yield "Crossing-v0"
    del gymnasium.registry["Crossing-v0"]


def test_from_collecting_to_a_package_that_stacks_what_it_is_shown(crossing: str, tmp_path: Path) -> None:
    """Return 5 needs stacks whose newest frame is last, in drawing and in acting: from one frame nobody gets above 3.5 or so."""
    collect(CollectConfig(environment=crossing, target=str(tmp_path / "data"), n_steps=1500, n_envs=3))
    dataset = Dataset.open(tmp_path / "data")
    assert dataset.columns["observation"].shape == (1500 + 300, 1, SIDE, SIDE)  # once each, and 300 final ones
    assert dataset.columns["observation"].dtype == np.uint8
    stack = Stack(DQN(**SETTINGS), seeds=(0, 1)).fit(dataset, n_steps=300)
    learned = stack.seed(1)
    write_package(learned, tmp_path / "package", dataset)

    package = read_package(tmp_path / "package")
    assert (package.spec.observation.shape, package.frames, package.frame_padding) == ((3, SIDE, SIDE), 3, "repeat")  # pyright: ignore[reportAttributeAccessIssue]
    stacks = np.random.default_rng(0).integers(0, 256, (50, 3, SIDE, SIDE), dtype=np.uint8)
    session = onnxruntime.InferenceSession(tmp_path / "package" / "policy.onnx")
    assert [(port.type, port.shape[1:]) for port in session.get_inputs()] == [("tensor(uint8)", [3, SIDE, SIDE])]
    assert np.array_equal(session.run(["action"], {"observation": stacks})[0], learned.predict(stacks))

    result = evaluate_package(EvaluateConfig(policy=str(tmp_path / "package"), episodes=20))  # where it was recorded
    assert result.returns.tolist() == evaluate(learned.policy(), crossing, episodes=20).returns.tolist()
    assert result.mean >= 3.9  # of 5: at the first of five steps two frames that differ are still to come


def test_images_of_another_type_or_shape_are_refused_and_short_episodes_named(crossing: str) -> None:
    rng = np.random.default_rng(0)
    frames, n = rng.integers(0, 256, (40, 1, SIDE, SIDE), dtype=np.uint8), np.arange(40)
    short = Dataset.from_arrays(frames, n % 2, np.ones(40), n % 20 == 19, name="short")
    bright = Dataset.from_arrays(frames / np.float32(255), n % 2, np.ones(40), n % 20 == 19, name="bright")
    settings = {**SETTINGS, "sampler": {"name": "uniform", "frames": 25}}
    with pytest.warns(UserWarning, match=r"stacks of 25 frames .* 2 of the 2 episodes of 'short', .* shows 21 images: black"):
        DQN(**settings).fit(short, n_steps=1)
    learned = DQN(**{**SETTINGS, "sampler": None}).fit(short, n_steps=1)
    with pytest.raises(DataError, match=r"^observation is an image of bytes, 0 to 255, and float64 was given"):
        learned.predict(frames / 255)
    with pytest.raises(DataError, match=r"^'bright' has images of float32, and this DQN was fitted on images of uint8\.$"):
        learned.fit(bright, n_steps=1)

    class Wrong(Crossing):
        def _frame(self) -> np.ndarray:
            return super()._frame()[:, 1:]

    class Bright(Crossing):
        def _frame(self) -> np.ndarray:
            return super()._frame() / np.float32(255)

    with pytest.raises(DataError, match=r"shows an observation of shape \(1, 11, 12\), and its space says \(1, 12, 12\)\.$"):
        make(Wrong()).reset()
    with pytest.raises(DataError, match=r"shows an observation as float32, and its space says bytes\.$"):
        make(Bright()).reset()
