"""A policy has the same names for every job that takes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.api.policies import _model
from d3ray.platform.judging.policies import keep
from d3ray.platform.tracking.runs import Tracking

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory, local_ray: Path) -> Path:
    """An experiment of two seeds, trained, scored and registered."""
    folder = tmp_path_factory.mktemp("names")
    settings = ["d3ray/cartpole-replay", "algorithm=DiscreteBC", "algorithm.encoder.hidden_units=[8]", "seeds=[0, 1]", "name=tiny"]
    settings += ["n_steps=4", "n_steps_per_epoch=2", "evaluation=CartPole-v1", "evaluation.episodes=1", f"storage={folder}"]
    assert run_command("train", settings) == 0
    return folder


def trial(storage: Path) -> Path:
    return next((storage / "tiny" / "trials").glob("*seed1*"), None) or sorted((storage / "tiny" / "trials").iterdir())[1]


def run_id(storage: Path) -> str:
    tracking = Tracking.open(str(storage))
    (run,) = tracking.client.search_runs(
        [tracking.experiment_id], f"tags.`d3ray.trial` = '{trial(storage).name}' and tags.`d3ray.kind` = 'seed'"
    )
    return run.info.run_id


NAMES: dict[str, Callable[[Path], str]] = {
    "experiment": lambda storage: "tiny",
    "trial": lambda storage: f"tiny/{trial(storage).name}",
    "folder": lambda storage: str(storage / "tiny"),
    "folder of a trial": lambda storage: str(trial(storage)),
    "run": lambda storage: f"runs:/{run_id(storage)}",
    "model": lambda storage: "models:/tiny@candidate",
    "package": lambda storage: str(next(trial(storage).glob("policy/*"))),
}


@pytest.mark.parametrize("kind", NAMES)
def test_it_is_evaluated_exported_and_judged(kind: str, storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, where = NAMES[kind](storage), f"storage={storage}"
    assert run_command("export", [name, str(tmp_path / "policy.onnx"), where]) == 0
    if kind in ("trial", "folder of a trial", "run"):
        assert trial(storage).name in capsys.readouterr().out
    assert run_command("evaluate", [name, "episodes=1", where]) == 0
    assert run_command("evaluate", [str(tmp_path / "policy.onnx"), "environment=CartPole-v1", "episodes=1"]) == 0
    kept = keep([name], str(storage), None)
    assert len(kept) == (2 if kind in ("experiment", "folder") else 1)
    assert all(Path(one.path).is_dir() for one in kept)


def test_a_seed_has_one_option(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("export", ["tiny", str(tmp_path / "policy.onnx"), "policy_seed=1", f"storage={storage}"]) == 0
    assert "seed 1 of" in capsys.readouterr().out


def test_a_trial_that_is_not_there_is_named(storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = f"tiny/{trial(storage).name}x"
    for job in (["export", near, str(tmp_path / "policy.onnx")], ["evaluate", near]):
        assert run_command(job[0], [*job[1:], f"storage={storage}"]) == BAD_INPUT
        assert f"did you mean {trial(storage).name!r}?" in capsys.readouterr().err
    assert run_command("export", ["runs:/0", str(tmp_path / "policy.onnx"), f"storage={storage}"]) == BAD_INPUT
    assert "There is no runs:/0" in capsys.readouterr().err


def test_a_model_is_promoted_by_any_of_its_names(storage: Path) -> None:
    for named in ("tiny", "models:/tiny", "models:/tiny@candidate", str(storage / "tiny")):
        assert _model(named, "candidate", str(storage)) == "tiny"
    assert _model("models:/tiny@champion", "champion", str(storage)) == "tiny"
    with pytest.raises(ConfigError, match="models:/tiny/2 is one version, and what moves is the candidate of a model: write tiny"):
        _model("models:/tiny/2", "candidate", str(storage))
