"""Suites have further names: `d3ray report` knows them, and an experiment's own name comes before them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.benchmark.report import SCORES
from d3ray.platform.tracking.runs import Tracking

from .fake_benchmark import HOPPER, write_benchmark


def test_a_benchmark_is_reported_by_another_name_of_its_suite(
    tracking: Tracking, storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [1.0]}}, suite="paper-table-2", storage=storage, n_evaluations=1)
    assert run_command("report", ["paper-table-3", f"storage={storage}", f"out={tmp_path}"]) == 0
    assert "There is a report on paper-table-2." in capsys.readouterr().out
    assert ",1.0," in (tmp_path / SCORES).read_text()
    assert run_command("report", ["paper-table-4", f"storage={storage}"]) == BAD_INPUT
    (storage / "paper-table-7").mkdir()
    (storage / "paper-table-7" / "experiment.json").write_text(json.dumps({"configuration": {"suite": "micro"}}))
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [2.0]}}, suite="micro", name="paper-table-7", storage=storage, n_evaluations=1)
    assert run_command("report", ["paper-table-7", f"storage={storage}"]) == 0
    assert "There is a report on paper-table-7." in capsys.readouterr().out
