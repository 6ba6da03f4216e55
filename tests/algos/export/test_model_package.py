"""Packages of models of the dynamics: they answer as the model, without torch, and come back into torch whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import CQL, ProbabilisticEnsemble
from d3ray.algos.export.model_package import is_model_package, read_model
from d3ray.algos.export.model_packing import read_torch_model, write_model_package
from d3ray.algos.export.package import is_package, read_package
from d3ray.algos.testing import tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError, StorageError

SMALL = {"encoder": {"name": "vector", "hidden_units": [16, 16]}, "n_members": 4, "n_elites": 3, "batch_size": 16}
KINDS = {
    "never": {"termination": "never"},
    "discrete": {},
    "learned": {"termination": "learned"},
    "hopper": {"termination": "hopper"},
    "float64": {"dtype": "float64"},
    "unscaled": {"observation_scaler": None, "reward_scaler": None},
}


def trained(kind: str) -> tuple[Any, Dataset]:
    data = tiny_dataset(discrete=kind == "discrete")
    return ProbabilisticEnsemble(**SMALL, **KINDS[kind], seed=3, device="cpu").fit(data, n_steps=40, n_steps_per_epoch=40), data


@pytest.fixture(scope="module")
def model() -> tuple[Any, Dataset]:
    return trained("learned")


@pytest.fixture(scope="module")
def made(model: tuple[Any, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "model"
    model[0].export(folder)
    return folder


def rows(data: Dataset, n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(data.columns["observation"][:n]), np.asarray(data.columns["action"][:n])


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_answers_as_the_model(kind: str, tmp_path: Path) -> None:
    model, data = trained(kind)
    record = write_model_package(model, tmp_path / "model", data)
    package, (seen, action) = read_model(tmp_path / "model"), rows(data)
    for ours, told in zip(package.predict(seen, action, True), model.predict(seen, action, with_variance=True), strict=True):
        np.testing.assert_allclose(ours, told, rtol=1e-4, atol=1e-5)
    found = model.model()(torch.as_tensor(seen), torch.as_tensor(action))
    out = package.run(package.inputs(seen, action)[0])
    np.testing.assert_allclose(out["members/next_observation"], found.following.transpose(0, 1), rtol=1e-4, atol=1e-5)
    if found.end is not None:
        np.testing.assert_allclose(out["members/terminated"], found.end.T, atol=1e-5)
    elif kind == "hopper":
        upright = (out["members/next_observation"][..., 0] > 0.7) & (np.abs(out["members/next_observation"][..., 1]) < 0.2)
        np.testing.assert_array_equal(out["members/terminated"], ~upright)
    else:
        assert not out["terminated"].any()
    assert record.members == 3
    assert record.held_out_error == pytest.approx(model.model().held_out[0])
    assert record.data is not None
    assert record.data.fingerprint == data.fingerprint
    single = package.predict(seen[0], action[0])
    assert single[0].shape == seen[0].shape
    assert np.ndim(single[1]) == 0


def test_a_step_draws_a_member_and_then_from_it(made: Path, model: tuple[Any, Dataset]) -> None:
    seen, action = (np.repeat(part[:1], 40_000, 0) for part in rows(model[1]))
    following, reward, ended = read_model(made).step(seen, action, np.random.default_rng(0))
    found = model[0].model()(torch.as_tensor(seen[:1]), torch.as_tensor(action[:1]))
    mean = found.mean[:, 0].numpy()
    variance = (found.deviation[:, 0].numpy() ** 2 + mean**2).mean(0) - mean.mean(0) ** 2  # of a mixture with equal shares
    drawn = np.concatenate((following, reward[:, None]), 1)
    np.testing.assert_allclose(drawn.mean(0), mean.mean(0), atol=4 * np.sqrt(variance / len(drawn)).max())
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.05)
    assert ended.mean() == pytest.approx(float(found.end.mean()), abs=0.01)
    again = read_model(made).step(seen, action, np.random.default_rng(0))
    np.testing.assert_array_equal(again[0], following)


def test_reading_needs_no_torch(made: Path, model: tuple[Any, Dataset], tmp_path: Path) -> None:
    seen, action = rows(model[1], 3)
    np.savez(tmp_path / "rows.npz", seen=seen, action=action)
    script = (
        "import sys, numpy as np\nfrom d3ray.algos.export.model_package import read_model\n"
        f"rows = np.load({str(tmp_path / 'rows.npz')!r})\n"
        f"print(read_model({str(made)!r}).predict(rows['seen'], rows['action'])[1].tolist())\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(json.loads(done.stdout), model[0].predict(seen, action)[1], rtol=1e-4)


@pytest.mark.parametrize("ending", ["onnx", "pt", "pt2"])
def test_every_form_answers_at_any_batch_size(ending: str, model: tuple[Any, Dataset], tmp_path: Path) -> None:
    (algorithm, data), file = model, tmp_path / f"model.{ending}"
    algorithm.export(file)
    seen, action = rows(data, 7)
    noise = np.zeros((7, seen.shape[1] + 1), np.float32)
    inputs = {"observation": seen, "action": action.astype(np.float32), "noise": noise}
    if ending == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        found: Any = session.run(["next_observation", "reward"], inputs)
    else:
        tensors = {name: torch.as_tensor(part) for name, part in inputs.items()}
        module: Any = torch.jit.load(str(file)) if ending == "pt" else torch.export.load(str(file)).module()
        found = module(tensors)[:2]
    for ours, told in zip(found, algorithm.predict(seen, action), strict=True):
        np.testing.assert_allclose(np.asarray(ours), told, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="overwrite=True"):
        algorithm.export(file)


def test_it_comes_back_into_torch_and_makes_the_same_bytes(made: Path, model: tuple[Any, Dataset], tmp_path: Path) -> None:
    back = read_torch_model(made)
    assert back.step == model[0].step
    assert all(torch.equal(tensor, model[0].model().state_dict()[name]) for name, tensor in back.model().state_dict().items())
    back.export(tmp_path / "again")
    for file in made.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
    assert all(str(made).encode() not in file.read_bytes() for file in made.iterdir())


def test_algorithms_learn_in_a_package_as_in_its_model(made: Path, model: tuple[Any, Dataset]) -> None:
    small: dict[str, Any] = {f"{name}_encoder": {"name": "vector", "hidden_units": [8]} for name in ("actor", "critic")}
    small |= {"batch_size": 8, "rollouts": {"n_transitions": 4, "interval": 5}, "seed": 1, "device": "cpu"}
    ours, theirs = (CQL(dynamics=given, **small).fit(model[1], n_steps=6) for given in (str(made), model[0]))
    tensors, others = ours.state()[0], theirs.state()[0]
    assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())


def test_what_is_not_whole_or_no_model_is_refused(made: Path, model: tuple[Any, Dataset], tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "changed")
    graph = tmp_path / "changed" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match=r"was damaged: model\.onnx is not what was written"):
        read_model(tmp_path / "changed")
    with pytest.raises(StorageError, match="is of the format d3ray-model 1; this d3ray reads d3ray-policy 1"):
        read_package(made)
    assert is_model_package(made)
    assert not is_package(made)
    with pytest.raises(DataError, match="Actions have the shape"):
        read_model(made).predict(rows(model[1], 3)[0], rows(model[1], 2)[1])
    with pytest.raises(ConfigError, match="ProbabilisticEnsemble has no policy"):
        model[0].save_policy(tmp_path / "policy")
    with pytest.raises(ConfigError, match="has not been trained yet"):
        ProbabilisticEnsemble(**SMALL).export(tmp_path / "untrained")
    assert not (tmp_path / "untrained").exists()
