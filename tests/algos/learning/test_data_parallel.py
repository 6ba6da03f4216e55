"""Two processes that share batches learn what one learns with whole batches: every page, over gloo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from d3ray.algos.learning.ranks import alone
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.testing import largest_difference, maker
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError

from . import parallel

REFUSED = [name for name in algorithm_names() if alone(made := maker(algorithm_class(name))(), made.check_settings())]
FIRST = ["BC", "TD3PlusBC", "AWAC/stack", "DQN/prioritized", "DQN/pixels", "DecisionTransformer", "DecisionTransformer/float32"]
WRONG = ["BC/drift", "BC/odd", REFUSED[0]]
REST = [
    *(name for name in algorithm_names() if name not in (*REFUSED, *FIRST)),
    *("TD3PlusBC/stack", "SAC/float32", "DecisionTransformer/stack"),
]
# Two repeat samples in an order of their own, so each shard draws its own noise, and CRL contrasts the goals of a shard, which no
# single process would.
BY_SHARD = {"BEAR", "CRL", "MCQ"}

Together = Callable[[Sequence[str]], Path]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Together:
    """Trains algorithms in two processes, once, and gives the folder of what they left."""
    done = dict[tuple[str, ...], Path]()

    def train(names: Sequence[str]) -> Path:
        if (key := tuple(names)) not in done:
            folder = tmp_path_factory.mktemp("ranks")
            command = [sys.executable, parallel.__file__]
            ranks = [subprocess.Popen([*command, str(rank), "2", str(folder), *names]) for rank in range(2)]
            try:
                assert [rank.wait(600) for rank in ranks] == [0, 0]
            finally:
                for rank in ranks:
                    rank.kill()
            done[key] = folder
        return done[key]

    return train


@pytest.mark.parametrize("name", [*FIRST, *(pytest.param(name, marks=pytest.mark.long) for name in REST)])
def test_two_processes_learn_what_one_does(together: Together, name: str) -> None:
    folder = together([*FIRST, *WRONG] if name in FIRST else REST)
    (state, metrics), (other, _) = _left(folder, name, 0), _left(folder, name, 1)
    where, gap = largest_difference(state, other)
    assert gap == 0, where
    expected, told = parallel.learned(name)
    where, gap = largest_difference(state, expected)
    if name in BY_SHARD:
        assert gap > 1e-9  # or it needs no exception
    else:
        bound = 1e-6 if parallel.VARIANTS.get(name.partition("/")[2], {}).get("dtype") == "float32" else 1e-9
        assert gap < bound, where
        assert metrics == pytest.approx(told, rel=10 * bound, abs=bound, nan_ok=True)


def _left(folder: Path, name: str, rank: int) -> Any:
    if (why := _error(folder, name, rank)) is not None:
        pytest.fail(why)
    return torch.load(folder / f"{name.replace('/', '-')}-{rank}.pt")


def _error(folder: Path, name: str, rank: int) -> str | None:
    file = folder / f"{name.replace('/', '-')}-{rank}.txt"
    return file.read_text("utf-8") if file.exists() else None


def test_what_cannot_be_shared_is_refused_in_every_process(together: Together) -> None:
    folder = together([*FIRST, *WRONG])
    for rank in range(2):
        assert _error(folder, "BC/odd", rank) == (
            "ConfigError: A batch of 21 samples cannot be shared evenly by 2 processes: choose a batch_size that is a multiple of "
            "2, as 20."
        )
        said = f"ConfigError: {REFUSED[0]} trains in one process: it makes what it learns from."
        assert _error(folder, REFUSED[0], rank) == said


def test_models_that_drift_apart_are_noticed(together: Together) -> None:
    folder = together([*FIRST, *WRONG])
    for rank in range(2):
        assert "no longer have the same one: rank" in str(_error(folder, "BC/drift", rank))


def test_without_a_group_it_is_refused() -> None:
    make = maker(DQN, data_parallel=True)
    with pytest.raises(ConfigError, match=r"^DQN: data_parallel trains in several processes, and none has joined a group here"):
        make().fit(parallel.testing.data_for(make), 1)
