"""`d3ray make` is killed while it trains; the next one goes on, and what it makes is what an undisturbed one makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from d3ray import Dataset
from d3ray.platform.datasets.recipes import make

from .tiny_recipes import write_catalog

NAMES = ("tiny/hopper-full-replay", "tiny/hopper-medium")


def evaluations(cache: Path) -> int:
    """How many are noted of the one run."""
    files = list(cache.glob("recipes/*/evaluations.json"))
    return len(json.loads(files[0].read_bytes())) if files else 0


@pytest.mark.long
@pytest.mark.parametrize("by", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["killed", "interrupted"])
def test_a_run_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: signal.Signals) -> None:
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(tmp_path / "catalog.json")))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "d3ray.jobs", "make", *NAMES]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 120
        while evaluations(tmp_path / "cache") < 2:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(by)
        said = process.stderr.read()
    done = evaluations(tmp_path / "cache")
    assert 2 <= done < 6, "it had ended before it was killed"
    if by == signal.SIGINT:
        assert process.returncode == 130
        assert said.endswith(f"kept. To go on: d3ray make {' '.join(NAMES)}\n")
    assert list((tmp_path / "cache").glob("datasets/**/*.arrow")) == []
    resumed = make(NAMES).datasets
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "other"))
    undisturbed = make(NAMES).datasets
    for name in NAMES:
        assert resumed[name].fingerprint == undisturbed[name].fingerprint
    told = [made[NAMES[0]].provenance["made"] for made in (resumed, undisturbed)]
    assert told[0] == told[1]
    assert Dataset.open(NAMES[0]).n_transitions == 300
