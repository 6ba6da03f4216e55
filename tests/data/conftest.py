"""Where the datasets of a test lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.operations import difference, relabelled
from d3ray.data.storage import episode_table
from d3ray.data.storage import rows as rows_module

PLACES = {
    "memory": lambda data, path: data,
    "one file": lambda data, path: data.write(path / "one"),
    "five files": lambda data, path: data.write(path / "five", n_shards=5),
    "compressed": lambda data, path: data.write(path / "zstd", n_shards=3, compression="zstd"),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Dataset], Dataset]:
    """Puts a dataset where a test wants to have it, in a folder of its own, with an empty cache and small blocks."""
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    for module in (rows_module, difference, relabelled, episode_table):
        monkeypatch.setattr(module, "BLOCK", 64)
    made = iter(range(100))
    return lambda data: PLACES[request.param](data, tmp_path / f"{next(made)}")
