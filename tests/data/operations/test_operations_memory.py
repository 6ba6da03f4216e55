"""Derived datasets larger than what may be held: writing, measuring and mapping them keeps some blocks in memory, not all."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d3ray import Dataset, MDPDataset
from d3ray.data.operations import relabelled
from d3ray.data.storage import episode_table
from d3ray.data.storage import rows as rows_module

N, WIDTH = 400_000, 20  # 40 MB
WHOLE = N * (WIDTH * 4 + 4 + 4 + 3)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("large") / "set"
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(N, WIDTH)).astype(np.float32)
    ends = np.arange(1, N + 1) % 200 == 0
    Dataset.from_arrays(observations, rng.normal(size=(N, 1)), rng.normal(size=N), ends).write(place, n_shards=16)
    return place


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block and its copies in float64 take 33 MB at 65,536 rows, whatever the dataset; here a dataset is large by comparison."""
    for module in (rows_module, relabelled, episode_table):
        monkeypatch.setattr(module, "BLOCK", 1 << 13)


def peak(work: Callable[[], object]) -> int:
    """Bytes that NumPy had at most."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize(
    "derive",
    [
        lambda d: d.filter("return > -10").relabel("reward - observation[3]"),
        lambda d: Dataset.concat([d, d.relabel(lambda reward, next_observation: reward + next_observation[:, 0])]),
    ],
)
def test_one_shard_is_in_memory_while_it_is_written(large: Path, tmp_path: Path, derive: Callable[[Dataset], Dataset]) -> None:
    data = derive(Dataset.open(large))
    used = peak(lambda: data.write(tmp_path / "new", n_shards=16))
    assert used < WHOLE / 4, f"{used:,} bytes of {WHOLE:,}"  # a shard, the blocks that are read for it, and those measured


@pytest.mark.long
def test_a_map_of_several_and_new_rewards_are_made_block_by_block(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    data = Dataset.open(large)
    both = Dataset.concat([data, data.relabel("reward - observation[3]")])
    used = peak(both.prepare)
    assert used < WHOLE / 4, f"{used:,} bytes of {2 * WHOLE:,}"
    assert len(both.columns["reward"]) == 2 * (N + N // 200)
    del both
    gc.collect()
    relabelled = data.relabel("reward - observation[3]")
    used = peak(lambda: relabelled.columns["reward"])
    assert used < WHOLE / 8
    assert np.isfinite(relabelled.episodes.returns).all()


@pytest.mark.long
def test_appending_keeps_the_parts_and_what_is_together_and_no_step_between() -> None:
    n, width, times = 4000, 25, 30
    arrays = np.zeros((n, width), np.float32), np.zeros((n, 1), np.float32), np.zeros(n), np.arange(1, n + 1) % 200 == 0

    def grow() -> None:
        data = MDPDataset(*arrays)
        for _ in range(times):
            data.append(*arrays)
            _ = data.columns["observation"]

    whole = (times + 1) * (n + n // 200) * (width * 4 + 4 + 4 + 3)
    used = peak(grow)
    assert used < 3.5 * whole, f"{used / whole:.1f} times the data"  # the parts, together before and after the last of them
