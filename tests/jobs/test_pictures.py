"""OGBench from pictures, through every command: made by its script, trained on with IMPALA's encoder, played, exported, judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from d3ray.algos.environments.make import make
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import run_command
from d3ray.platform.results.experiment import results_of
from d3ray.platform.results.reading import find_experiment

NAME = "visual-cube-single-singletask-task1-v0"
SCRIPT = {"kind": "play", "environment": "visual-cube-single-v0", "episode": 40, "steps": 80, "task": NAME}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("local_ray")
def test_a_policy_from_pictures_goes_through_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ogbench")
    try:
        make(NAME).close()
    except ConfigError as error:
        pytest.skip(str(error))
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": {"tiny/cube": {"environment": {"id": NAME}, "script": SCRIPT}}}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    where = f"storage={tmp_path / 'results'}"
    assert run_command("make", ["tiny/cube"]) == 0, capsys.readouterr()

    learning = ["algorithm=FQL", "algorithm.preset=ogbench-visual-cube-single-play-singletask", "algorithm.batch_size=8"]
    playing = ["evaluation.episodes=2", "evaluation.max_steps=10"]
    counts = ["n_steps=120", "n_steps_per_epoch=60", "seeds=[0]", "name=seen"]
    (folder,) = (tmp_path / "cache" / "datasets" / "tiny").glob("cube.*")
    assert run_command("train", [str(folder), *learning, *playing, *counts, where]) == 0, capsys.readouterr()
    (seed,) = results_of(find_experiment(str(tmp_path / "results"), "seen")).seeds
    assert (seed.status, seed.step, seed.metrics["evaluation/success"]) == ("FINISHED", 120, 0.0)
    assert seed.metrics["evaluation/return"] == -10  # one a step, in each of ten
    losses = seed.curves["train/flow_loss"].values
    assert losses[-1] < 0.8 * losses[0]  # the flow learns what the script does; a frozen one stays where it was

    assert run_command("export", ["seen", "package", "seed=0", where]) == 0, capsys.readouterr()
    short = f"environment={{id: {NAME}, kwargs: {{max_episode_steps: 15}}}}"
    assert run_command("evaluate", ["package", "episodes=1", short]) == 0, capsys.readouterr()
    assert "15 steps on average (seed 0); solved: 0 %" in capsys.readouterr().out
    frames = Dataset.open(folder).columns["observation"][3:6]
    session = onnxruntime.InferenceSession("package/policy.onnx", providers=["CPUExecutionProvider"])
    fed: dict[str, Any] = {"observation": np.concatenate(frames, -1)[None], "noise/noise": np.zeros((1, 5), np.float32)}
    (action,) = session.run(None, fed)
    fed["observation"] = fed["observation"][..., ::-1].copy()
    (turned,) = session.run(None, fed)
    assert np.abs(action).max() <= 1
    assert np.abs(action - turned).max() > 1e-6  # it looks


def test_where_nothing_draws_one_sentence_says_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ogbench")
    from ogbench.manipspace.envs.manipspace_env import ManipSpaceEnv

    def undrawn(*_: Any, **__: Any) -> None:
        raise RuntimeError("an OpenGL platform library has not been loaded into this process.\nmore")

    monkeypatch.setattr(ManipSpaceEnv, "render", undrawn)
    with pytest.raises(ConfigError) as told:
        make("visual-cube-single-v0")
    assert str(told.value) == (
        "visual-cube-single-v0 shows pictures, and nothing draws them here: an OpenGL platform library has not been loaded into "
        "this process; without a display MuJoCo needs EGL, or OSMesa and MUJOCO_GL=osmesa."
    )
    make("cube-single-v0")


@pytest.mark.long
def test_what_mujoco_cannot_load_is_told() -> None:
    """In a process of its own: MuJoCo reads the variable when it is imported."""
    pytest.importorskip("ogbench")
    import os
    import subprocess
    import sys

    program = "from d3ray.algos.environments.make import make; make('visual-cube-single-v0')"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "MUJOCO_GL": "nothing"}, capture_output=True, text=True, check=False
    )
    assert "visual-cube-single-v0 needs MuJoCo, which does not load with MUJOCO_GL=nothing: invalid value for" in done.stderr
