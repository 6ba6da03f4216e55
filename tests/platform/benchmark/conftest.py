"""One store for the benchmarks of all tests of a process: to make one takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3ray.platform.tracking.runs import Tracking


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "benchmarks"


@pytest.fixture(scope="session")
def tracking(storage: Path) -> Tracking:
    return Tracking.open(str(storage))
