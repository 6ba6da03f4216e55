"""`d3ray export`: from whatever holds a policy to every form of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from d3ray.algos.base import Algorithm
from d3ray.algos.export.package import is_package, read_package, read_record
from d3ray.algos.export.packing import write_package
from d3ray.algos.imitation.bc import BC
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.saving.checkpoint import checkpoint_name, write_checkpoint
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Environment, Spec
from d3ray.data.version import __version__
from d3ray.jobs.command.running import run_command
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer

SMALL = VectorEncoder(hidden_units=(16,))


def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    n = 60
    observation, action = rng.normal(size=(n, 4)).astype(np.float32), rng.uniform(-1, 1, (n, 2)).astype(np.float32)
    return Dataset.from_arrays(observation, action, np.ones(n, np.float32), np.arange(n) % 20 == 19, name="noise")


OBSERVATION = dataset().columns["observation"][:9]


def trained(seed: int = 0, n_steps: int = 2) -> BC:
    return BC(encoder=SMALL, batch_size=8, observation_scaler="standard", seed=seed).fit(dataset(), n_steps, 2)


def stack(seeds: Sequence[int]) -> Stack:
    one = BC(encoder=SMALL, batch_size=8, observation_scaler="standard")
    return Stack(one, seeds=seeds).fit(dataset(), n_steps=2, n_steps_per_epoch=2)


def acts(path: Path) -> np.ndarray:
    """Actions of an exported graph or package."""
    if path.is_dir():
        return read_package(path).predict(OBSERVATION)
    session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["action"], {"observation": OBSERVATION})[0]


def check_same(path: Path, algorithm: Algorithm) -> None:
    np.testing.assert_allclose(acts(path), algorithm.predict(OBSERVATION), atol=1e-5)


def export(source: Path, target: Path, *more: str) -> int:
    return run_command("export", [str(source), str(target), *more])


def test_a_saved_algorithm_becomes_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    algorithm = trained()
    algorithm.save(tmp_path / "saved")
    for name in ("policy.onnx", "policy.pt", "policy.pt2", "package"):
        assert export(tmp_path / "saved", tmp_path / "out" / name) == 0
        assert str(tmp_path / "out" / name) in capsys.readouterr().out
    check_same(tmp_path / "out" / "policy.onnx", algorithm)
    check_same(tmp_path / "out" / "package", algorithm)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["package", "policy.onnx", "policy.pt", "policy.pt2"]


def test_the_newest_whole_checkpoint_of_a_folder_counts(tmp_path: Path) -> None:
    for steps in (2, 4, 6):
        tensors, meta = trained(n_steps=steps).state()
        write_checkpoint(tmp_path / checkpoint_name(steps), tensors, meta)
    (tmp_path / checkpoint_name(6) / "tensors.safetensors").write_bytes(b"half")
    assert export(tmp_path, tmp_path / "policy.onnx") == 0
    check_same(tmp_path / "policy.onnx", trained(n_steps=4))


def test_a_seed_of_a_stack_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = stack((3, 5))
    write_checkpoint(tmp_path / "checkpoint", *seeds.state())
    assert export(tmp_path / "checkpoint", tmp_path / "policy.onnx") == 2
    assert "holds the seeds 3, 5: say which with seed=3" in capsys.readouterr().err
    assert export(tmp_path / "checkpoint", tmp_path / "policy.onnx", "seed=4") == 2
    assert "holds no seed 4; there is 3, 5" in capsys.readouterr().err
    assert export(tmp_path / "checkpoint", tmp_path / "policy.onnx", "seed=5") == 0
    check_same(tmp_path / "policy.onnx", seeds.seed(1))


def test_a_package_becomes_every_form(tmp_path: Path) -> None:
    algorithm = trained()
    write_package(algorithm, tmp_path / "package")
    for name in ("policy.onnx", "policy.pt", "copy"):
        assert export(tmp_path / "package", tmp_path / name) == 0
    assert (tmp_path / "policy.onnx").read_bytes() == (tmp_path / "package" / "policy.onnx").read_bytes()
    assert is_package(tmp_path / "copy")
    np.save(tmp_path / "observation.npy", OBSERVATION)
    np.save(tmp_path / "action.npy", algorithm.predict(OBSERVATION))
    code = """
import numpy as np, torch
action = torch.jit.load("policy.pt")(torch.from_numpy(np.load("observation.npy"))).numpy()
assert np.abs(action - np.load("action.npy")).max() <= 1e-5
"""
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)


def test_a_graph_says_what_it_is(tmp_path: Path) -> None:
    names = {"observation": ("x", "y", "speed x", "speed y"), "action": ("left", "right")}
    spec = Spec(observation=Box(shape=(4,), low=-9.0, high=9.0), action=Box(shape=(2,), low=-1.0, high=1.0)).with_names(names)
    noise = dataset().columns
    steps = ~noise["closing"]
    arrays = (noise["observation"][steps], noise["action"][steps], np.ones(60, np.float32), np.arange(60) % 20 == 19)
    named = Dataset.from_arrays(*arrays, spec=spec, environment=Environment(id="Point-v0"), name="points")
    algorithm = BC(encoder=SMALL, batch_size=8, seed=7).fit(named, 2, 2)
    algorithm.save_policy(tmp_path / "alone.onnx")
    write_package(algorithm, tmp_path / "package", named, run="first/BC-1, seed 7")
    golden = hashlib.sha256((tmp_path / "package" / "golden.safetensors").read_bytes()).hexdigest()
    for place, more in (("alone.onnx", {}), ("package/policy.onnx", {"d3ray.run": "first/BC-1, seed 7"})):
        told = onnxruntime.InferenceSession(tmp_path / place).get_modelmeta().custom_metadata_map
        assert Spec.model_validate_json(told.pop("d3ray.spaces")) == spec  # names and bounds too
        assert told == {
            "d3ray.algorithm": "BC",
            "d3ray.data": "points",
            "d3ray.environment": '{"id":"Point-v0"}',
            "d3ray.golden": golden,
            "d3ray.seed": "7",
            "d3ray.step": "2",
            "d3ray.version": __version__,
            **more,
        }


def experiment(storage: Path) -> Experiment:
    return Experiment.begin(str(storage), "first", {"algorithm": {"name": "BC"}}, {"name": "noise", "fingerprint": "0" * 64})


def finished(trial: Trial, returns: dict[int, float], metric: str = "evaluation/return") -> None:
    """Ends a trial as its worker would: a package and a status for each seed."""
    for seed in returns:
        folder = trial.folder.local
        assert folder is not None
        write_package(trained(seed), folder / "policy" / f"seed-{seed}")
    if metric == "evaluation/return":
        trial.settle({s: {"status": "FINISHED", "step": 2, "metrics": {metric: value}} for s, value in returns.items()})
    else:
        best = {s: {"metric": metric, "value": value, "step": 2} for s, value in returns.items()}
        trial.settle({s: {"status": "FINISHED", "step": 2, "metrics": {}, "best": best[s]} for s in returns})


@pytest.mark.parametrize(("metric", "best"), [("evaluation/return", 2), ("holdout/action_error", 1)])
def test_the_best_seed_of_an_experiment_is_taken(
    metric: str, best: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = experiment(tmp_path)
    for lr, returns in ((1e-3, {0: 5.0, 1: -1.0}), (1e-4, {2: 9.0})):
        finished(first.trial({"algorithm": {"name": "BC", "learning_rate": lr}}, list(returns)), returns, metric)
    first.close()
    assert export(tmp_path / "first", tmp_path / "chosen") == 0
    assert read_record(tmp_path / "chosen").seed == best
    out = capsys.readouterr().out
    assert f"seed {best} of BC-" in out
    told = "evaluation/return 9, best of 3 in training; expect less" if best == 2 else "best of 3 in training; expect more"
    assert told in out
    assert export(tmp_path / "first", tmp_path / "zero.onnx", "seed=0") == 0
    check_same(tmp_path / "zero.onnx", trained(0))
    flatters = metric != "evaluation/return"  # a seed whose checkpoint was chosen, not its last
    assert ("best in training" in capsys.readouterr().out) == flatters
    assert export(tmp_path / "first", tmp_path / "seven.onnx", "seed=7") == 2
    assert "has no seed 7; there is 0, 1, 2" in capsys.readouterr().err


def test_an_unfinished_trial_gives_its_best_checkpoint_or_else_its_newest(tmp_path: Path) -> None:
    first = experiment(tmp_path)
    trial = first.trial({"algorithm": {"name": "BC"}}, [3, 5])
    writer, seeds = Writer(trial), stack((3, 5))
    writer.commit(2, *seeds.state(), [], keep=2)
    folder = Path(trial.folder.name)
    assert export(folder, tmp_path / "newest.onnx", "seed=5") == 0
    check_same(tmp_path / "newest.onnx", seeds.seed(1))
    writer.keep_best(5, *trained(5, n_steps=6).state())
    assert export(folder, tmp_path / "best.onnx", "seed=5") == 0
    check_same(tmp_path / "best.onnx", trained(5, n_steps=6))
    first.close()


def test_the_best_by_a_sweeps_objective_is_taken(tmp_path: Path) -> None:
    settings = {"objective": {"metric": "holdout/td_error"}}
    first = Experiment.begin(str(tmp_path), "swept", settings, {"name": "noise"})
    trial = first.trial({"algorithm": {"name": "BC"}}, [0, 1])
    for seed in (0, 1):
        write_package(trained(seed), Path(trial.folder.name) / "policy" / f"seed-{seed}")
    metrics = {0: {"holdout/td_error": 2.0}, 1: {"holdout/td_error": 1.0}}
    trial.settle({seed: {"status": "FINISHED", "step": 2, "metrics": metrics[seed]} for seed in (0, 1)})
    assert export(tmp_path / "swept", tmp_path / "chosen") == 0
    assert read_record(tmp_path / "chosen").seed == 1  # the smallest of an error
    first.close()


def test_seeds_that_nothing_was_measured_of_are_not_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = experiment(tmp_path)
    assert export(tmp_path / "first", tmp_path / "policy.onnx") == 2
    assert "has no trials yet" in capsys.readouterr().err
    trial = first.trial({"algorithm": {"name": "BC"}}, [0, 1])
    assert export(tmp_path / "first", tmp_path / "policy.onnx") == 2
    assert "no return was measured to choose by: say which of 0, 1, as seed=0" in capsys.readouterr().err
    assert export(Path(trial.folder.name), tmp_path / "policy.onnx", "seed=1") == 2
    assert "neither a policy nor a checkpoint yet" in capsys.readouterr().err
    first.close()


def test_targets_are_not_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained().save(tmp_path / "saved")
    target = tmp_path / "policy.onnx"
    target.write_bytes(b"mine")
    assert export(tmp_path / "saved", target) == 2
    assert "already: say --replace" in capsys.readouterr().err
    assert target.read_bytes() == b"mine"
    assert export(tmp_path / "saved", target, "--replace") == 0
    check_same(target, trained())
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    assert export(tmp_path / "saved", tmp_path / "thesis", "--replace") == 2
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_what_holds_no_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(tmp_path, tmp_path / "policy.onnx") == 2
    assert "is no policy: name a policy package" in capsys.readouterr().err
    assert export(tmp_path / "missing", tmp_path / "policy.onnx") == 2
    assert "missing is no policy" in capsys.readouterr().err
    assert export(tmp_path, tmp_path / "policy.tflite") == 2
    assert "choose from .onnx, .pt, .pt2, or no ending" in capsys.readouterr().err


def test_a_format_is_enough_and_then_it_lies_beside_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = trained()
    algorithm.save(tmp_path / "logs" / "model_2")
    for name, made in (("torchscript", "model_2.pt"), ("onnx", "model_2.onnx"), ("package", "model_2-policy")):
        assert run_command("export", ["logs/model_2", "--format", name]) == 0
        assert f"policy: {Path('logs') / made}\n" in capsys.readouterr().out.replace("policy:    ", "policy: ")
    check_same(tmp_path / "logs" / "model_2.onnx", algorithm)
    check_same(tmp_path / "logs" / "model_2-policy", algorithm)
    for arguments, sentence in (
        (["logs/model_2", "a.onnx", "--format", "torchscript"], "TARGET is a.onnx and format is torchscript, which ends in .pt"),
        (["logs/model_2"], "d3ray export needs TARGET or format"),
        (["logs/model_2", "--format", "tflite"], "tflite"),
        (["logs/model_2", "--format", "onnx"], "There is logs/model_2.onnx already: say --replace"),
    ):
        assert run_command("export", arguments) == 2
        assert sentence in capsys.readouterr().err
