"""Values of a package: those of the algorithm, scalers inside, where it learns values of actions; older packages do without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.algos.export.package import read_package, read_values
from d3ray.algos.export.packing import write_package
from d3ray.algos.registry import algorithm_class
from d3ray.algos.testing.tiny import data_for, maker
from d3ray.data.errors import StorageError

SCALED = {"observation_scaler": "standard"}


def trained(name: str, **settings: Any) -> Any:
    cls = algorithm_class(name)
    made = maker(cls, **settings)()
    return made.fit(data_for(maker(cls)), n_steps=3, n_steps_per_epoch=3)


@pytest.mark.parametrize("name", ["DQN", "IQN", "DiscreteCQL"])
def test_values_of_discrete_actions_are_those_of_predict_value(name: str, tmp_path: Path) -> None:
    algorithm = trained(name, **SCALED)
    write_package(algorithm, tmp_path / "p")
    values, seen = read_values(tmp_path / "p"), np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    assert values is not None
    found = values.run({"observation": seen, "action_mask": np.ones((7, 3), bool)})
    wanted = np.stack([algorithm.predict_value(seen, np.full(7, action)) for action in range(3)], 1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["TD3PlusBC", "FQL"])
def test_values_of_continuous_actions_are_those_of_predict_value(name: str, tmp_path: Path) -> None:
    algorithm = trained(name, **SCALED, action_scaler="min_max")
    write_package(algorithm, tmp_path / "p")
    values, rng = read_values(tmp_path / "p"), np.random.default_rng(0)
    assert values is not None
    seen, action = rng.normal(size=(7, 5)).astype(np.float32), rng.uniform(-1, 1, (7, 3)).astype(np.float32)
    np.testing.assert_allclose(
        values.run({"observation": seen, "action": action}), algorithm.predict_value(seen, action), atol=1e-5
    )


@pytest.mark.parametrize("name", ["BC", "DecisionTransformer", "DiscreteAWR"])
def test_who_values_no_actions_or_remembers_has_none(name: str, tmp_path: Path) -> None:
    write_package(trained(name), tmp_path / "p")
    assert read_values(tmp_path / "p") is None
    assert "values.onnx" not in json.loads((tmp_path / "p/manifest.json").read_text())["parts"]


def test_an_older_package_reads_on(tmp_path: Path) -> None:
    """One as it was written before there were values: the same without those two files."""
    folder = tmp_path / "p"
    write_package(trained("TD3PlusBC"), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("values.onnx", "values.safetensors"):
        del manifest["parts"][name]
        (folder / name).unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert read_values(folder) is None
    assert read_package(folder).predict(np.zeros((2, 5), np.float32)).shape == (2, 3)


def test_values_that_are_not_those_that_were_written_are_refused(tmp_path: Path) -> None:
    """Values of another training under this one's golden numbers, and with its hashes."""
    from d3ray.algos.export.package import KIND
    from d3ray.algos.saving.parts import read_parts, write_parts

    write_package(trained("TD3PlusBC"), tmp_path / "one")
    write_package(trained("SAC"), tmp_path / "other")
    parts = {**read_parts(tmp_path / "one", KIND), "values.onnx": read_parts(tmp_path / "other", KIND)["values.onnx"]}
    write_parts(tmp_path / "mixed", KIND, parts)
    with pytest.raises(StorageError, match="does not value as the critic did"):
        read_values(tmp_path / "mixed")
