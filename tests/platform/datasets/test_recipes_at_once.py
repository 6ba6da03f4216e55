"""Runs side by side in Ray's workers give what they give alone, and one that fails keeps none of the others from it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.datasets.recipes import make

from .tiny_recipes import TINY, write_catalog

BAD = {"environment": {"id": "Hoper-v4"}, "recipe": {**TINY, "kind": "random"}}


@pytest.mark.slow  # it starts a Ray
def test_environments_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(tmp_path / "catalog.json", tiny__bad=BAD)))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "together"))
    monkeypatch.chdir(tmp_path)
    told: list[tuple[float, str]] = []

    @contextmanager
    def progress(description: str, total: float | None = None) -> Generator[Any]:
        told.append((total or 0, description))
        yield lambda *, to, note: told.append((to, note))

    names = ["tiny/hopper-medium", "tiny/hopper-full-replay", "tiny/pendulum-expert"]
    with ray_session(num_cpus=0):  # as on the head of a cluster
        together = make([*names, "tiny/bad"], at_once=2, progress=progress)
    assert list(together.datasets) == names
    assert isinstance(together.failed["tiny/bad"], ConfigError)
    (total, first), *rest = told
    assert (total, first) == (300 * 2 + 300 * 2 + 300 * 2, "making 4 datasets")
    assert max(done for done, _ in rest) == 300 * 4  # all but what failed
    assert {note.split(":")[0] for _, note in rest if "return" in note} == {"Hopper-v4", "Pendulum-v1"}
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "alone"))
    alone = make(names, at_once=1)
    for name in names:
        assert alone.datasets[name].fingerprint == together.datasets[name].fingerprint


@pytest.mark.slow  # it starts a Ray
def test_a_worker_that_is_killed_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CATALOG", str(write_catalog(tmp_path / "catalog.json")))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    killed: list[str] = []

    def advance(*, to: float, note: str) -> None:
        environment = note.split(":", maxsplit=1)[0]
        if "return" in note and not killed:  # whoever is heard first
            killed.append(environment)
            (folder,) = (tmp_path / "cache" / "recipes").glob(f"{environment}.*[!k]")
            workers = [p for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::follow")]
            (worker,) = [p for p in workers if any(str(folder) in file.path for file in p.open_files())]
            worker.kill()

    @contextmanager
    def progress(description: str, total: float | None = None) -> Generator[Any]:
        yield advance

    names = ["tiny/hopper-full-replay", "tiny/pendulum-expert"]
    made = make(names, at_once=2, progress=progress)
    gone, there = names if killed == ["Hopper-v4"] else names[::-1]
    assert str(made.failed[gone]).startswith(f"The worker that trained in {killed[0]} is gone (")
    assert (list(made.failed), list(made.datasets)) == ([gone], [there])
    assert list(make(names).datasets) == names
