"""The wheel carries everything and works alone: built from a copy of the tree, installed away from it, run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from .source_tree import FLOORS, ROOT

pytestmark = pytest.mark.long

SHIPPED = ROOT / "data" / "shipped" / "cartpole-replay"
PARTS = ("__init__.py", "py.typed", "pyproject.toml", "README.md", "LICENSE", *FLOORS)


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for part in PARTS:  # a copy, so that the build leaves nothing in the tree
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / "source" / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / "source").mkdir(exist_ok=True)
            shutil.copy(ROOT / part, folder / "source" / part)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", folder, folder / "source", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel, and this one's dependencies without this one's d3ray."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder).strip()
    # A folder that is named in a .pth file has its own .pth files left alone: an editable d3ray there stays out.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python.parent


def test_the_wheel_carries_every_file_and_no_other(wheel: Path) -> None:
    files = {file.relative_to(ROOT) for floor in FLOORS for file in (ROOT / floor).rglob("*") if file.is_file()}
    ours = {file.as_posix() for file in files if "__pycache__" not in file.parts} | {"__init__.py", "py.typed"}
    carried = zipfile.ZipFile(wheel).namelist()
    assert {name.removeprefix("d3ray/") for name in carried if name.startswith("d3ray/")} == ours
    assert {name.split("/")[0] for name in carried} == {"d3ray", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}


def test_the_installed_command_runs(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import d3ray.platform, d3ray; print(d3ray.__file__)", cwd=tmp_path)
    assert str(installed.parent) in where
    assert "Usage: d3ray COMMAND" in run(installed / "d3ray", "--help", cwd=tmp_path)
    assert run(installed / "python", "-m", "d3ray.jobs", "--version", cwd=tmp_path).startswith("d3ray ")


@pytest.mark.skipif(not SHIPPED.is_dir(), reason="no dataset is shipped yet")
def test_a_shipped_dataset_opens_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "import d3ray; dataset = d3ray.Dataset.open('d3ray/cartpole-replay'); print(dataset.n_transitions > 0)"
    assert run(installed / "python", "-c", code, cwd=tmp_path) == "True\n"
