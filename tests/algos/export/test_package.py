"""Policy packages: whole or not there, checked when written and when read, the same bytes every time, no torch to act."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import d3ray
from d3ray.algos.base import Algorithm
from d3ray.algos.export.package import copy_package, is_package, read_package, read_record
from d3ray.algos.export.packing import read_torch_policy, write_package
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.registry import algorithm_class
from d3ray.algos.saving import parts
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError, StorageError
from d3ray.data.spec import Box, Environment, Spec

ROOT = str(Path(d3ray.__file__).parent)
SMALL = VectorEncoder(hidden_units=(16, 16))
FILES = [
    "golden.safetensors",
    "manifest.json",
    "policy.json",
    "policy.onnx",
    "policy.safetensors",
    "values.onnx",
    "values.safetensors",
]
MACHINE = (ROOT, "/tmp", "/root", "/home", sys.prefix)

WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "onnx", "ray", "mlflow"):
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Blocker())
"""


def dataset(*, discrete: bool = False) -> Dataset:
    rng = np.random.default_rng(7)
    n = 120
    action = rng.integers(0, 3, n) if discrete else rng.uniform(-2, 2, (n, 3)).astype(np.float32)
    terminated = np.zeros(n, bool)
    terminated[19::20] = True
    spec = None if discrete else Spec(observation=Box(shape=(5,)), action=Box(shape=(3,), low=-2.0, high=2.0))
    observation = rng.normal(3, 10, (n, 5)).astype(np.float32)
    reward = rng.normal(size=n).astype(np.float32)
    return Dataset.from_arrays(
        observation, action, reward, terminated, spec=spec, name="noise", environment=Environment(id="Noise-v0", kwargs={"size": 3})
    )


def trained(name: str = "TD3PlusBC", seed: int = 0) -> Algorithm:
    cls = algorithm_class(name)
    discrete = cls.actions == "discrete"
    small = {field: SMALL for field in cls.Config.model_fields if field.endswith("encoder") and field != "share_encoder"}
    scalers = {"observation_scaler": "standard"} | ({} if discrete else {"action_scaler": "min_max"})
    algorithm = cls(**{**small, **scalers, "batch_size": 16, "seed": seed})
    return algorithm.fit(dataset(discrete=discrete), n_steps=3, n_steps_per_epoch=3)


@pytest.fixture(scope="module")
def algorithm() -> Algorithm:
    return trained()


@pytest.fixture(scope="module")
def made(algorithm: Algorithm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that tests only read."""
    folder = tmp_path_factory.mktemp("packages") / "made"
    write_package(algorithm, folder, dataset())
    return folder


@pytest.fixture
def package(made: Path, tmp_path: Path) -> Path:
    """A package to spoil."""
    folder = tmp_path / "package"
    copy_package(made, folder)
    return folder


def change(package: Path, name: str, content: bytes) -> None:
    """Replaces a part and owns up to it in the manifest."""
    (package / name).write_bytes(content)
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["parts"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (package / "manifest.json").write_text(json.dumps(manifest))


def test_a_package_acts_as_the_algorithm(made: Path, algorithm: Algorithm) -> None:
    policy = read_package(made)
    observation = dataset().columns["observation"]
    state = policy.start(32)
    for n in (1, 7, 32):
        wanted = algorithm.predict(observation[:n])
        np.testing.assert_allclose(policy.predict(observation[:n]), wanted, atol=1e-5)
        state, action = policy.step(state, observation[:n])
        np.testing.assert_allclose(action, wanted, atol=1e-5)


def test_a_package_says_what_it_is(made: Path, algorithm: Algorithm) -> None:
    assert sorted(path.name for path in made.iterdir()) == FILES
    record, data = read_record(made), dataset()
    assert (record.algorithm, record.seed, record.step, record.dtype) == ("TD3PlusBC", 0, 3, "float32")
    assert record.data is not None
    assert (record.data.name, record.data.fingerprint) == ("noise", data.fingerprint)
    assert record.environment == Environment(id="Noise-v0", kwargs={"size": 3})
    assert record.spaces == data.spec
    assert record.networks == ("policy",)
    np.testing.assert_allclose(record.scalers["observation"]["mean"], data.statistics.observation.mean)  # pyright: ignore
    assert record.scalers["action"] == {"name": "min_max", "minimum": [-2.0] * 3, "maximum": [2.0] * 3}
    assert [(p.name, p.dtype, p.shape) for p in (*record.inputs, *record.outputs)] == [
        ("observation", "float32", ("batch", 5)),
        ("action", "float32", ("batch", 3)),
    ]
    assert (record.state_inputs, record.noise_inputs, record.options) == ((), (), {})
    weights = load_file(made / "policy.safetensors")
    head = algorithm.fit_.learner.modules["policy"].head.weight.detach().numpy()
    assert (weights["networks.policy.head.weight"] == head).all()
    assert {"observation_scale", "observation_shift", "action_scale", "action_shift"} < weights.keys()
    assert not any("critic" in name for name in weights)


def test_golden_actions_are_those_of_the_algorithm(made: Path, algorithm: Algorithm) -> None:
    golden = load_file(made / "golden.safetensors")
    for n in (1, 32):
        observation = golden[f"batch_{n}/observation"]
        assert observation.shape == (n, 5)
        np.testing.assert_allclose(golden[f"batch_{n}/action"], algorithm.predict(observation), atol=1e-6)
    assert golden["batch_32/action"].std(0).min() > 0.01  # they tell policies apart


@pytest.mark.parametrize("name", ["DiscreteBC", "DQN"])
def test_discrete_policies_come_back_too(name: str, tmp_path: Path) -> None:
    algorithm = trained(name)
    algorithm.save_policy(tmp_path / "package")
    observation = dataset(discrete=True).columns["observation"]
    action = read_package(tmp_path / "package").predict(observation)
    assert action.dtype == np.int64
    assert (action == algorithm.predict(observation)).all()
    assert set(load_file(tmp_path / "package" / "golden.safetensors")["batch_32/action"]) > {0}


def test_reading_needs_no_torch(made: Path) -> None:
    code = """
import numpy as np
from d3ray.algos.export.package import read_package
policy = read_package("made")
state, action = policy.step(policy.start(2), np.zeros((2, 5)))
assert action.shape == (2, 3), action.shape
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], cwd=made.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_file_names_this_machine(made: Path) -> None:
    found = [(path.name, text) for path in made.iterdir() for text in MACHINE if text.encode() in path.read_bytes()]
    assert found == []


def test_a_dataset_that_is_named_by_its_path_loses_its_folders(algorithm: Algorithm, tmp_path: Path) -> None:
    data = dataset()
    data.name = "/somewhere/private/noise"
    assert write_package(algorithm, tmp_path / "package", data).data.name == "noise"  # pyright: ignore


def test_the_same_policy_makes_the_same_bytes(made: Path, tmp_path: Path) -> None:
    write_package(trained(), tmp_path / "again", dataset())
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (made / name).read_bytes(), name


@pytest.mark.parametrize("name", [name for name in FILES if name != "manifest.json"])
def test_a_changed_file_is_named(name: str, package: Path) -> None:
    content = bytearray((package / name).read_bytes())
    content[len(content) // 2] ^= 1
    (package / name).write_bytes(content)
    with pytest.raises(StorageError, match=f"was damaged: {name} is not what was written"):
        read_package(package)
    (package / name).unlink()
    with pytest.raises(StorageError, match=f"is not whole: {name} is missing"):
        read_package(package)


def test_another_graph_under_a_true_manifest_fails_its_golden_actions(package: Path, tmp_path: Path) -> None:
    write_package(trained(seed=1), tmp_path / "other")
    change(package, "policy.onnx", (tmp_path / "other" / "policy.onnx").read_bytes())
    with pytest.raises(StorageError, match=r"policy\.onnx in .* does not act as the policy did: at batch 1"):
        read_package(package)


def test_a_graph_that_is_none_is_refused(package: Path) -> None:
    change(package, "policy.onnx", b"not a graph")
    with pytest.raises(StorageError, match="onnxruntime cannot read the policy's graph"):
        read_package(package)


def test_newer_formats_and_other_folders_are_refused(package: Path, tmp_path: Path) -> None:
    manifest = json.loads((package / "manifest.json").read_text())
    for format_, version in (("d3ray-policy", 2), ("d3ray-checkpoint", 1)):
        (package / "manifest.json").write_text(json.dumps({**manifest, "format": format_, "version": version}))
        with pytest.raises(StorageError, match=f"format {format_} {version}; this d3ray reads d3ray-policy 1"):
            read_package(package)
    assert not is_package(package)
    with pytest.raises(StorageError, match="holds no policy package"):
        read_package(tmp_path)


def test_a_graph_that_takes_other_inputs_than_its_record_names_is_refused(package: Path) -> None:
    about = json.loads((package / "policy.json").read_text())
    about["noise_inputs"] = [{"name": "noise", "dtype": "float32", "shape": ["batch", 8], "distribution": "normal"}]
    change(package, "policy.json", json.dumps(about).encode())
    with pytest.raises(StorageError, match=r"graph takes \[.observation.\], and policy\.json names \[.noise., .observation.\]"):
        read_package(package)


def test_a_record_that_is_none_is_refused(package: Path) -> None:
    change(package, "policy.json", b'{"algorithm": "BC"}')
    with pytest.raises(StorageError, match=r"cannot be read: .*needs 'config'"):
        read_package(package)


def test_wrong_observations_are_refused(made: Path) -> None:
    policy = read_package(made)
    with pytest.raises(DataError, match=r"shape \(4, 6\); this policy takes \(batch, 5\)"):
        policy.predict(np.zeros((4, 6)))
    with pytest.raises(DataError, match=r"needs a batch axis"):
        policy.step(None, np.zeros(5))
    with pytest.raises(DataError, match=r"^observation is NaN or infinite in 1 of 4 rows, first in row 2\.$"):
        policy.predict(np.where(np.arange(4)[:, None] == 2, np.nan, np.zeros((4, 5))))
    with pytest.raises(DataError, match="complex"):
        policy.predict(np.zeros((4, 5), complex))


def test_a_failed_write_leaves_the_earlier_package(package: Path, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    full = OSError(28, os.strerror(28))

    def failing(path: Path, data: bytes) -> None:
        if path.name == "policy.safetensors":
            raise full
        path.write_bytes(data)

    monkeypatch.setattr(parts, "_write", failing)
    with pytest.raises(StorageError, match="could not be written: the disk is full"):
        write_package(trained(seed=1), package)
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before
    assert [path.name for path in package.parent.iterdir()] == ["package"]


def test_a_package_is_replaced_and_other_folders_are_not(package: Path, tmp_path: Path) -> None:
    write_package(trained(seed=1), package)
    assert read_record(package).seed == 1
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(StorageError, match="something else than a policy package"):
        write_package(trained(seed=1), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_torch_modules_come_back_from_the_package_alone(made: Path, algorithm: Algorithm) -> None:
    observation = dataset().columns["observation"]
    policy = read_torch_policy(made)
    assert (policy.predict(observation) == algorithm.predict(observation)).all()
    with torch.no_grad():
        algorithm_head: Any = algorithm.fit_.learner.modules["policy"].head.weight
        assert policy.module.networks["policy"].head.weight is not algorithm_head
