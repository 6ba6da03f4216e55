"""Pong for 2,000 updates through every command: recorded, trained as a trial, exported, played by the exported graph alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from d3ray.algos.export.package import read_package
from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command
from d3ray.platform.results.experiment import results_of
from d3ray.platform.results.reading import find_experiment

pytest.importorskip("ale_py", reason="Atari's games come with the extra atari")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def test_pong_passes_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    game = "environment={id: ALE/Pong-v5, atari: dopamine}"
    assert run_command("collect", ["target=pong", game, "n_steps=4000", "n_envs=2"]) == 0
    frames = Dataset.open("pong").columns["observation"]
    assert (frames.dtype, frames.shape[1:]) == (np.dtype(np.uint8), (1, 84, 84))

    learning = ["algorithm.name=DQN", "algorithm.preset=atari", "n_steps=2000", "n_steps_per_epoch=1000"]
    playing = ["evaluation.episodes=1", "evaluation.epsilon=0.001", "evaluation.every=2000"]
    where = f"storage={tmp_path / 'results'}"
    assert run_command("train", ["pong", *learning, *playing, "name=player", where]) == 0
    (seed,) = results_of(find_experiment(str(tmp_path / "results"), "player")).seeds
    assert (seed.status, seed.step) == ("FINISHED", 2_000)
    assert np.isfinite(seed.metrics["train/critic_loss"])
    assert -21 <= seed.metrics["evaluation/return"] <= 21

    assert run_command("export", ["player", "package", where]) == 0
    package = read_package("package")
    stacks = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84), dtype=np.uint8)
    (actions,) = onnxruntime.InferenceSession("package/policy.onnx").run(["action"], {"observation": stacks})
    assert np.array_equal(actions, package.predict(stacks))
    capsys.readouterr()
    assert run_command("evaluate", ["package", "episodes=1"]) == 0
    assert "ALE/Pong-v5" in capsys.readouterr().out
