"""Exports act as `predict` does, from raw observations, at any batch size, where neither torch nor d3ray is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import d3ray
from d3ray.algos.base import Algorithm
from d3ray.algos.export import graphs
from d3ray.algos.export.graphs import Portable, onnx_bytes, portable, program_bytes, torchscript_bytes
from d3ray.algos.networks.encoders import DenseEncoder, KeysEncoder, PixelEncoder, VectorEncoder
from d3ray.algos.registry import algorithm_class
from d3ray.algos.testing.tiny import tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, StorageError

from ...graphs import without_origin

ROOT = str(Path(d3ray.__file__).parent)
SMALL = VectorEncoder(hidden_units=(16, 16))
CONVOLUTIONS = PixelEncoder(filters=((4, 3, 1), (6, 2, 2)), feature_size=8, normalization="batch", spectral_norm=True)
NAMES = ("BC", "DiscreteBC", "DQN", "TD3", "TD3PlusBC")
MACHINE = (ROOT, "/tmp", "/root", "/home", sys.prefix)

WITHOUT_TORCH_AND_D3RAY = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "d3ray", "onnx", "pydantic"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
given = np.load(sys.argv[2])
for n in (1, 7, 32):
    (action,) = session.run(["action"], {"observation": given["observation"][:n]})
    wanted = given["action"][:n]
    assert action.shape == wanted.shape, (action.shape, wanted.shape)
    assert np.abs(action - wanted).max() <= 1e-5, np.abs(action - wanted).max()
print(session.get_inputs()[0].name, session.get_inputs()[0].type, session.get_inputs()[0].shape, session.get_outputs()[0].type)
"""


def dataset(*, discrete: bool, kind: str = "vector", reach: float = 1.0, mean: float = 3.0, spread: float = 10.0) -> Dataset:
    """Noise: 120 transitions in episodes of 20."""
    rng = np.random.default_rng(7)
    n = 120
    vector = rng.normal(mean, spread, (n, 5)).astype(np.float32)
    image = rng.integers(0, 256, (n, 2, 6, 6)).astype(np.uint8)
    observation: Any = {"vector": vector, "image": image, "dict": {"where": vector, "seen": image}}[kind]
    action = rng.integers(0, 3, n) if discrete else rng.uniform(-reach, reach, (n, 3)).astype(np.float32)
    terminated = np.zeros(n, bool)
    terminated[19::20] = True
    return Dataset.from_arrays(observation, action, rng.normal(size=n).astype(np.float32), terminated, name="noise")


def trained(name: str, data: dict[str, Any] | None = None, **settings: Any) -> Algorithm:
    """A small algorithm after three gradient steps."""
    cls = algorithm_class(name)
    small = {field: SMALL for field in cls.Config.model_fields if field.endswith("encoder") and field != "share_encoder"}
    algorithm = cls(**{**small, "batch_size": 16, **settings})
    return algorithm.fit(dataset(discrete=cls.actions == "discrete", **(data or {})), n_steps=3, n_steps_per_epoch=3)


def scaled(name: str) -> Algorithm:
    """With every scaler that it takes; raw actions reach ±2."""
    scalers = {"observation_scaler": "standard"}
    if algorithm_class(name).actions == "continuous":
        scalers["action_scaler"] = "min_max"
    return trained(name, {"reach": 2.0}, **scalers)


def raw(algorithm: Algorithm, n: int = 32) -> np.ndarray:
    """Raw observations of the data that `trained` trains on."""
    return dataset(discrete=algorithm.actions == "discrete").columns["observation"][:n]


def run_onnx(content: bytes, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["action"], inputs)[0]


@pytest.mark.parametrize("make", [trained, scaled], ids=["plain", "scaled"])
@pytest.mark.parametrize("name", NAMES)
def test_onnx_acts_as_predict_where_there_is_no_torch(name: str, make: Callable[[str], Algorithm], tmp_path: Path) -> None:
    algorithm = make(name)
    observation = raw(algorithm)
    algorithm.save_policy(tmp_path / "policy.onnx")
    np.savez(tmp_path / "given.npz", observation=observation, action=algorithm.predict(observation))
    command = [sys.executable, "-I", "-c", WITHOUT_TORCH_AND_D3RAY, "policy.onnx", "given.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    action = "tensor(int64)" if algorithm.actions == "discrete" else "tensor(float)"
    assert done.stdout.split("\n")[0] == f"observation tensor(float) ['batch', 5] {action}"


def test_actions_are_in_raw_units(tmp_path: Path) -> None:
    """Without the scaler inside, no action could leave [-1, 1]."""
    algorithm = scaled("BC")
    bias = algorithm.fit_.learner.modules["policy"].head.bias
    with torch.no_grad():
        bias.fill_(9.0)
    algorithm.save_policy(tmp_path / "policy.onnx")
    action = run_onnx((tmp_path / "policy.onnx").read_bytes(), {"observation": raw(algorithm)})
    np.testing.assert_allclose(
        action, dataset(discrete=False, reach=2.0).columns["action"].max(0) * np.ones_like(action), rtol=1e-3
    )


@pytest.mark.long
def test_torchscript_and_programs_act_as_predict_where_there_is_no_d3ray(tmp_path: Path) -> None:
    code = """
import sys, numpy as np, torch
sys.modules["d3ray"] = None
for name in ("BC", "DQN"):
    given = np.load(f"{name}.npz")
    for act in (torch.jit.load(f"{name}.pt"), torch.export.load(f"{name}.pt2").module()):
        for n in (1, 7, 32):
            gap = np.abs(act(torch.from_numpy(given["observation"][:n])).numpy() - given["action"][:n]).max()
            assert gap <= 1e-5, (name, n, gap)
"""
    for algorithm in (scaled("BC"), scaled("DQN")):
        observation = raw(algorithm)
        np.savez(tmp_path / f"{algorithm.name}.npz", observation=observation, action=algorithm.predict(observation))
        for ending in ("pt", "pt2"):
            algorithm.save_policy(str(tmp_path / f"{algorithm.name}.{ending}"))
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "settings"), [("DQN", {"n_critics": 2, "encoder": CONVOLUTIONS}), ("BC", {})], ids=["DQN", "BC"])
def test_images_enter_as_bytes(name: str, settings: dict[str, Any]) -> None:
    algorithm = trained(name, {"kind": "image"}, **settings)
    content = onnx_bytes(portable(algorithm.policy()))
    image = dataset(discrete=name == "DQN", kind="image").columns["observation"][:32]
    assert image.dtype == np.uint8
    np.testing.assert_allclose(run_onnx(content, {"observation": image}), algorithm.predict(image), atol=1e-5)


def test_dict_observations_are_one_input_a_key() -> None:
    encoder = KeysEncoder(hidden_units=(16,), encoders={"seen": CONVOLUTIONS, "where": DenseEncoder(hidden_units=(8, 8))})
    algorithm = trained("TD3", {"kind": "dict"}, actor_encoder=encoder)
    policy = portable(algorithm.policy())
    columns = dataset(discrete=False, kind="dict").columns
    inputs = {name: columns[name][:32] for name in ("observation/seen", "observation/where")}
    wanted = algorithm.predict({name.partition("/")[2]: array for name, array in inputs.items()})
    np.testing.assert_allclose(run_onnx(onnx_bytes(policy), inputs), wanted, atol=1e-5)
    for write in (torchscript_bytes, program_bytes):
        assert write(policy)


@pytest.mark.parametrize("name", ["TD3PlusBC", "DQN"])
def test_training_in_float64_keeps_the_types_of_the_data(name: str) -> None:
    algorithm = trained(name, dtype="float64", observation_scaler="min_max")
    observation = raw(algorithm)
    action = run_onnx(onnx_bytes(portable(algorithm.policy())), {"observation": observation})
    assert action.dtype == (np.int64 if name == "DQN" else np.float32)
    np.testing.assert_allclose(action, algorithm.predict(observation), atol=1e-5)


def test_batch_norm_is_at_rest() -> None:
    encoder = VectorEncoder(hidden_units=(16,), use_batch_norm=True, dropout_rate=0.5)
    algorithm = trained("DiscreteBC", encoder=encoder, observation_scaler="standard")
    content = onnx_bytes(portable(algorithm.policy()))
    observation = raw(algorithm)
    assert (run_onnx(content, {"observation": observation}) == algorithm.predict(observation)).all()


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(
    ("encoder", "kind"),
    [
        (DenseEncoder(hidden_units=(8, 8), normalization="batch"), "vector"),
        (VectorEncoder(hidden_units=(8, 8), normalization="layer", spectral_norm=True, activation="gelu"), "vector"),
        (PixelEncoder(filters=((4, 3, 1),), feature_size=8, normalization="layer", activation="silu"), "image"),
        (PixelEncoder(filters=((4, 3, 2),), feature_size=8, dropout_rate=0.5, activation="elu"), "image"),
    ],
    ids=["dense", "layer norm", "images, layer norm", "images, dropout"],
)
def test_every_encoder_is_written_in_every_form(encoder: Any, kind: str, members: int) -> None:
    policy = portable(trained("DQN", {"kind": kind}, encoder=encoder, n_critics=members).policy())
    for write in (onnx_bytes, torchscript_bytes, program_bytes):
        assert write(policy)  # each compares itself with the policy


def test_digits_survive_means_far_larger_than_spreads() -> None:
    """Scaled in float32 as a product and a sum, these actions were off by 4e-4."""
    data = {"mean": 1000.0, "spread": 0.01}
    algorithm = trained("TD3PlusBC", data, observation_scaler="standard")
    observation = dataset(discrete=False, **data).columns["observation"][:32]
    action = run_onnx(onnx_bytes(portable(algorithm.policy())), {"observation": observation})
    np.testing.assert_allclose(action, algorithm.predict(observation), atol=1e-5)


def test_the_graph_is_one_file_without_paths_and_unused_networks(tmp_path: Path) -> None:
    algorithm = scaled("TD3PlusBC")
    algorithm.save_policy(tmp_path / "folder" / "policy.onnx")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["policy.onnx"]
    content = (tmp_path / "folder" / "policy.onnx").read_bytes()
    assert [text for text in MACHINE if text.encode() in content] == []
    model = onnx.load_from_string(content)
    assert [opset.version for opset in model.opset_import if not opset.domain] == [20]
    named = {tensor.name for tensor in model.graph.initializer}
    assert any("policy" in name for name in named)
    assert not any("critic" in name for name in named)
    assert {said.key.partition(".")[0] for said in model.metadata_props} == {"d3ray"}
    assert not any(part.doc_string or part.metadata_props for part in (model.graph, *model.graph.node, *model.graph.initializer))
    assert not model.doc_string


@pytest.mark.long
def test_bytes_repeat_in_another_process(tmp_path: Path) -> None:
    algorithm = scaled("BC")
    algorithm.save(tmp_path / "saved")
    first = onnx_bytes(portable(algorithm.policy()))
    assert onnx_bytes(portable(algorithm.policy())) == first
    code = (  # and no module of torch.export's, which take seconds to read, is read for what can be traced
        "import sys, d3ray; d3ray.load('saved').save_policy('policy.onnx'); assert 'onnxscript' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    (tmp_path / "first.onnx").write_bytes(first)
    assert without_origin(tmp_path / "policy.onnx") == without_origin(tmp_path / "first.onnx")


def test_what_a_trace_cannot_hold_is_made_by_torch_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = portable(scaled("BC").policy())
    first = onnx_bytes(policy)

    def fails(policy: Any) -> Any:
        raise RuntimeError("aten::own is not supported")

    monkeypatch.setattr(graphs, "_traced", fails)
    assert onnxruntime.InferenceSession(onnx_bytes(policy)).get_inputs()[0].shape[0] == "batch"
    monkeypatch.setattr(graphs, "_exported", fails)
    with pytest.raises(ConfigError, match="BC cannot be written as ONNX: aten::own is not supported"):
        onnx_bytes(policy)
    monkeypatch.undo()
    assert onnx_bytes(policy) == first


def test_exporting_disturbs_no_training() -> None:
    one, other = scaled("TD3"), scaled("TD3")
    policy = portable(one.policy())
    data = dataset(discrete=False, reach=2.0)
    before = {name: tensor.clone() for name, tensor in policy.module.state_dict().items()}
    for algorithm in (one, other):
        algorithm.fit(data, n_steps=4, n_steps_per_epoch=4)
    tensors, wanted = one.state()[0], other.state()[0]
    assert all(torch.equal(tensors[name], wanted[name]) for name in wanted)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.module.state_dict().items())


@pytest.mark.parametrize("write", [onnx_bytes, torchscript_bytes, program_bytes])
@pytest.mark.parametrize("name", ["BC", "DQN"])
def test_an_export_that_acts_otherwise_is_refused(name: str, write: Callable[[Portable], bytes]) -> None:
    policy = portable(scaled(name).policy())
    policy.golden["batch_32/action"][3] += 1
    with pytest.raises(StorageError, match="does not act as the policy did: at batch 32"):
        write(policy)


def test_golden_actions_of_discrete_policies_are_those_that_rounding_cannot_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the action changes every 0.004 of a scaled observation's first entry; golden ones stay away from where it does."""
    algorithm = scaled("DQN")

    def act(self: Any, nets: Any, observation: torch.Tensor, *ports: Any) -> Any:
        return (observation[:, 0] * 250).floor().long() % 3, {}

    monkeypatch.setattr(type(algorithm), "act", act)
    golden = portable(algorithm.policy()).golden
    moved = golden["batch_32/observation"] + np.float32(2e-4 * 10)  # the data's spread is 10
    back = golden["batch_32/observation"] - np.float32(2e-4 * 10)
    assert (algorithm.predict(moved) == golden["batch_32/action"]).all()
    assert (algorithm.predict(back) == golden["batch_32/action"]).all()


def test_other_endings_are_refused_with_those_there_are(tmp_path: Path) -> None:
    algorithm = trained("BC")
    with pytest.raises(ConfigError, match=r"ends in '\.onx'.*\.onnx, \.pt, \.pt2, or no ending"):
        algorithm.save_policy(tmp_path / "policy.onx")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_is_not_finite_is_refused() -> None:
    algorithm = trained("BC")
    with torch.no_grad():
        algorithm.fit_.learner.modules["policy"].head.bias.fill_(torch.nan)
    with pytest.raises(ConfigError, match="not finite"):
        portable(algorithm.policy())


def test_a_policy_that_no_exporter_can_follow_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = trained("BC")
    act = type(algorithm).act

    def branching(self: Any, nets: Any, observation: torch.Tensor, *ports: Any) -> Any:
        action, state = act(self, nets, observation, *ports)
        return action * (2 if float(observation.sum()) > 0 else 1), state

    monkeypatch.setattr(type(algorithm), "act", branching)
    with pytest.raises(ConfigError, match="The policy of BC cannot be written as ONNX: ") as error:
        onnx_bytes(portable(algorithm.policy()))
    assert "\n" not in str(error.value)


def test_a_policy_that_is_there_is_replaced_only_if_that_is_said(tmp_path: Path) -> None:
    first, other = (d3ray.BC(batch_size=4, seed=seed).fit(tiny_dataset(discrete=False), 1, 1) for seed in (0, 1))
    for name in ("policy.onnx", "policy.pt", "package"):
        first.save_policy(tmp_path / name)
        before = [file.read_bytes() for file in sorted((tmp_path / name).rglob("*")) or [tmp_path / name]]
        with pytest.raises(ConfigError, match=rf"{name} is there already: .* say overwrite=True to replace it"):
            other.save_policy(tmp_path / name)
        assert [file.read_bytes() for file in sorted((tmp_path / name).rglob("*")) or [tmp_path / name]] == before
        other.save_policy(tmp_path / name, overwrite=True)
        assert [file.read_bytes() for file in sorted((tmp_path / name).rglob("*")) or [tmp_path / name]] != before
