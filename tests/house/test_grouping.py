"""How tests are handed out to two processes: a module as a whole, what shares a cluster too, the longest first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .source_tree import ROOT

pytestmark = pytest.mark.long

TOY = """
import os, pathlib, pytest, time

@pytest.mark.parametrize("i", range(6))
def test_one(i):
    time.sleep(0.1)
    with pathlib.Path(__file__).with_suffix(".workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""
MODULES = ("data/test_a.py", "data/test_b.py", "jobs/test_c.py", "faults/test_d.py", "faults/test_e.py")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with toy tests under this folder's own rules, and what pytest said of them on two processes."""
    folder = tmp_path_factory.mktemp("toys")
    (folder / "pytest.ini").touch()
    for module in MODULES:
        (folder / "tests" / module).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tests" / module).write_text(TOY)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--import-mode=importlib", f"--basetemp={folder / 'temp'}", "tests"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "tests", done.stdout


def test_a_module_runs_in_one_process(toys: tuple[Path, str]) -> None:
    ran = {module: (toys[0] / module).with_suffix(".workers").read_text().split() for module in MODULES}
    assert {module: len(workers) for module, workers in ran.items()} == dict.fromkeys(MODULES, 6)
    used = {module: set(workers) for module, workers in ran.items()}
    assert {module: len(workers) for module, workers in used.items()} == dict.fromkeys(MODULES, 1)
    assert set().union(*used.values()) == {"gw0", "gw1"}
    assert used["faults/test_d.py"] == used["faults/test_e.py"]


def test_what_takes_long_comes_first(toys: tuple[Path, str]) -> None:
    begun = list(dict.fromkeys(line.split("::")[0] for line in toys[1].splitlines() if line.startswith("tests/")))
    assert {begun[0].split("/")[1], begun[1].split("/")[1]} == {"faults", "jobs"}
    assert begun[-1].startswith("tests/data/")
