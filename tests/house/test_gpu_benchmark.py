"""The GPU table on the CPU, small: every row that was asked for has a number or a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .source_tree import ROOT

BENCHMARKS = ROOT / "benchmarks"
CONTENDERS = ("d3ray", "d3rlpy", "d3rlpy, compile_graph", "bare torch", "JAX")  # what compiles for the CPU takes half a minute
SMALL = ("--device", "cpu", "--rows", "2000", "--seconds", "0.05", "--rounds", "2", "--at-once", "1")


def measured(out: Path, *arguments: str, environment: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
    """The report and the page of a run."""
    command = [sys.executable, "benchmarks/gpu.py", *SMALL, "--out", str(out), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "gpu.json").read_text()), (out / "gpu.md").read_text()


def cells_of(page: str) -> dict[tuple[str, str], list[str]]:
    """The lines of its tables, by their first two cells."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    return {(line[0], line[1]): line[2:] for line in lines}


@pytest.mark.long
def test_every_contender_has_a_number_or_a_reason(tmp_path: Path) -> None:
    report, page = measured(tmp_path, "--only", "td3+bc", "--contenders", *CONTENDERS)
    lines = cells_of(page)
    assert [cell["contender"] for cell in report["cells"]] == list(CONTENDERS)
    for cell in report["cells"]:
        speed, over, *_ = lines["TD3+BC", cell["contender"]]
        if cell["runs"]:
            assert [run["per_second"] > 0 and run["control_ms"] > 0 for run in cell["runs"]] == [True, True]
            assert speed[0].isdigit()
            assert speed.endswith("updates")
            assert bool(over) == (cell["contender"] != "d3ray")
        else:
            assert speed == f"– {cell['reason']}"
            assert cell["reason"]
    by_name = {cell["contender"]: cell for cell in report["cells"]}
    assert by_name["d3ray"]["runs"]
    assert by_name["bare torch"]["runs"]
    assert by_name["d3rlpy, compile_graph"]["reason"] == "it compiles for a CUDA device alone"
    assert "≥ 6,000; ≥ 30 × d3rlpy, compile_graph; ≥ 0.6 × JAX" in lines["TD3+BC", "d3ray"]
    assert "met" not in page  # targets are a card's


@pytest.mark.long
def test_what_fails_is_a_reason_and_ends_nothing(tmp_path: Path) -> None:
    """There is no such interpreter of the peers' beside ours, ours has no d3rlpy, and Ray cannot be imported."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    environment = {"D3RAY_PEER_PYTHON": str(tmp_path / "nowhere"), "PYTHONPATH": path}
    who = ("--contenders", "d3ray", "d3rlpy")
    report, page = measured(tmp_path / "out", "--only", "dqn", "trials", *who, environment=environment)
    ours, theirs = report["cells"]
    assert (len(ours["runs"]), theirs["reason"]) == (2, "not installed: d3rlpy")
    assert report["trials"]["reason"] == "not installed: ray"
    assert cells_of(page)["four, each on a share of 0.25", "– not installed: ray"]


def test_a_rate_together_is_of_the_time_in_which_all_train() -> None:
    """Two from 0 to 10 s at 5 a second, and from 4 to 14 s at 2 and then at 1: in the six seconds that they share 5 and 2, 1."""
    code = (
        "import numpy as np\nfrom gpu_side import together\n"
        "one = np.array([0.0, 10.0]), np.array([100, 150])\n"
        "other = np.array([4.0, 7.0, 14.0]), np.array([0, 6, 13])\n"
        "print(together([one, other]), together([one, (other[0] + 20, other[1])]), together([one]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert [float(word) for word in done.stdout.split()] == pytest.approx([5 + 9 / 6, 63 / 34, 5])
