"""One cluster for all tests of a run, made whole again after each, and what an experiment comes to that nobody disturbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import LocalCluster
from .runs import TRAIN, Runs, write_dataset


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They take minutes, on a cluster of their own: `make test-faults` runs them."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def _cluster() -> Iterator[LocalCluster]:
    cluster = LocalCluster()
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def cluster(_cluster: LocalCluster) -> LocalCluster:
    """A head and three nodes."""
    return _cluster.whole()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset."""
    return write_dataset(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="session")
def undisturbed(_cluster: LocalCluster, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The experiment of `train`, run once without a fault."""
    runs = Runs(tmp_path_factory.mktemp("undisturbed"), {**TRAIN, "dataset": str(tiny)}, _cluster.whole().environment())
    command = runs.start()
    assert command.wait() == 0, command.log.read_text()
    return runs


@pytest.fixture
def train(cluster: LocalCluster, tiny: Path, tmp_path: Path) -> Iterator[Callable[..., Runs]]:
    """An experiment to disturb, with further settings."""
    begun: list[Runs] = []

    def make(**settings: Any) -> Runs:
        begun.append(Runs(tmp_path / f"runs-{len(begun)}", {**TRAIN, "dataset": str(tiny), **settings}, cluster.environment()))
        return begun[-1]

    yield make
    for runs in begun:
        runs.end()
