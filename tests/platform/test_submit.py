"""What a submitted job takes along, and what is said of a cluster that lacks something. Jobs themselves: `test_submit_job.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from d3ray.jobs.yaml_text import read_yaml
from d3ray.platform.cluster import carried_config
from d3ray.platform.cluster_check import missing
from d3ray.platform.staging import PACKAGE, requirements, stage_package


def test_the_staged_package_is_the_imported_one_and_nothing_beside_it(tmp_path: Path) -> None:
    staged = stage_package(tmp_path)
    assert {path.name for path in staged.iterdir()} == {"__init__.py", "py.typed", "data", "algos", "platform", "jobs"}
    ours = {
        path.relative_to(PACKAGE)
        for floor in ("data", "algos", "platform", "jobs")
        for path in (PACKAGE / floor).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.relative_to(staged) for path in staged.rglob("*") if path.is_file()} == ours | {
        Path("__init__.py"),
        Path("py.typed"),
    }
    assert any(path.suffix == ".arrow" for path in ours)  # data files too
    code = "import d3ray, d3ray.platform.staging as s; print(d3ray.__file__); d3ray.Dataset.open('d3ray/cartpole-replay')"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(staged / "__init__.py")


def test_a_config_file_travels_in_the_package(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("dataset: there\n")
    arguments, files = carried_config(["--config", str(config), "format=json"])
    assert arguments == ["--config", "d3ray:submitted/mine.yaml", "format=json"]
    assert files == {"mine.yaml": b"dataset: there\n"}
    assert carried_config([f"--config={config}"])[0] == ["--config", "d3ray:submitted/mine.yaml"]
    assert carried_config(["a", "b=c"]) == (["a", "b=c"], {})
    staged = stage_package(tmp_path, files)
    code = "from d3ray.jobs.yaml_text import read_yaml; print(read_yaml('d3ray:submitted/mine.yaml'))"
    found = subprocess.run([sys.executable, "-c", code], cwd=staged.parent, capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(read_yaml(config))


def test_requirements_are_those_of_the_project() -> None:
    names = {Requirement(text).name for text in requirements()}
    assert {"ray", "torch", "numpy", "mlflow"} <= names
    assert "pytest" not in names
    assert missing(requirements()) == []


def test_what_is_missing_is_named_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(["no-such-thing>=3", "numpy>=99", "numpy>=1", 'absent; python_version < "3"']) == [
        "no-such-thing>=3",
        f"numpy>=99 (it has {np.__version__})",
    ]
