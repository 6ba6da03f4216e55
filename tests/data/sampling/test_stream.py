"""Streams against what a sampler that sees everything draws by the same numbers, wherever the data lie."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import Position, SequenceSampler, StreamSampler, TransitionSampler, stream
from d3ray.data.sampling.slices import Slices
from d3ray.data.sampling.windows import drawable_steps

from .slow_experience import SPEC, Story, as_dataset, stories


@pytest.fixture(autouse=True)
def bytes_for_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_MB", 1)


@cache
def many(n: int = 90) -> Dataset:
    random = np.random.default_rng(3)
    ends = random.choice(["terminated", "truncated", "blind"], n)
    return as_dataset(
        [Story(e, int(steps), str(end)) for e, (steps, end) in enumerate(zip(random.integers(1, 9, n), ends, strict=True))]
    )


def same(a: Any, b: Any) -> None:
    for x, y in zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        assert torch.equal(x, y)


@settings(max_examples=25, deadline=None)
@given(stories(), st.integers(1, 7), st.integers(1, 3), st.integers(2, 6), st.integers(0, 3), st.booleans())
def test_each_transition_comes_once_an_epoch_as_if_all_were_in_memory(
    told: list[Story], batch_size: int, td_steps: int, slices: int, order: int, images: bool
) -> None:
    data = as_dataset(told, images=images)
    options: Any = {"td_steps": td_steps, "gamma": 0.9, "extra": ("return_to_go",), "ahead": 2}
    options |= {"frames": 3 if images else 1, "until": "action"}
    drawable, _ = drawable_steps(data.episodes, td_steps, bootstrap=True, until="action")
    row = 9 + (18 if images else 4)
    sizes: Any = {"slices": slices, "order": order, "memory": 2 * row * 24, **options}
    if not drawable.any():
        with pytest.raises(DataError, match="no transition that can be drawn"):
            StreamSampler(data, batch_size, 0, **sizes)
        return
    sampler, everything = StreamSampler(data, batch_size, (4, 5), **sizes), TransitionSampler(data, 1, (4, 5), **options)
    alone = StreamSampler(data, batch_size, 5, **sizes)
    n = sampler.n_windows
    assert n == everything.n_windows == drawable.sum()
    drawn, n_epochs = [], 2
    for step in range(-(-n_epochs * n // batch_size)):
        batch = sampler.sample(step)
        same(batch, everything.at(batch.index))
        same(pytree.tree_map(lambda part: part[1], batch), alone.sample(step))
        drawn.append(batch.index)
    both = torch.cat(drawn, -1)[:, : n_epochs * n].unflatten(-1, (n_epochs, n))
    assert torch.equal(both.sort().values, torch.arange(n).expand(2, n_epochs, n))
    assert max(column.nbytes for room in sampler._reader._rooms for column in room.values()) <= 24 * (row - 9)


@pytest.mark.parametrize("anchor", ["first", "last"])
def test_stretches_come_whole_at_the_borders_of_blocks(anchor: Any) -> None:
    data, options = many(), {"gamma": 0.9, "anchor": anchor, "return_to_go": True, "next_observation": True}
    sampler = StreamSampler(data, 16, (0, 1), length=6, memory=13 * 200, slices=8, **options)
    everything, drawn = SequenceSampler(data, 1, 6, (0, 1), **options), list[Any]()
    for step in range(sampler.n_windows // 16):
        drawn.append(batch := sampler.sample(step))
        same(batch, everything.at(batch.index))
    assert sampler.position(step).block > 3
    assert len(torch.cat([batch.index[0] for batch in drawn]).unique()) == sampler.n_windows // 16 * 16
    assert not torch.equal(drawn[0].index[0], drawn[0].index[1])  # each seed has an order of its own within a block


def test_a_stream_goes_on_where_it_was_and_tells_where_that_is() -> None:
    data, sizes = many(), {"memory": 13 * 250, "slices": 8, "order": 1}
    whole = StreamSampler(data, 10, 0, **sizes)
    batches, positions = [whole.sample(step) for step in range(120)], [whole.position(step) for step in range(120)]
    for step in (0, 1, 37, 38, 119):
        same(StreamSampler(data, 10, 0, **sizes).sample(step), batches[step])
    for step in (70, 3, 69, 71):  # in any order
        same(whole.sample(step), batches[step])
    same(whole.sample(38, size=4).index, batches[38].index[:4])
    assert positions[0] == Position(0, 0, 0)
    assert positions[-1].epoch == 119 * 10 // whole.n_windows == 2
    for before, now in pairwise(positions):
        assert now[:2] > before[:2] or now == before._replace(batch=before.batch + 1)
    assert sum(now[:2] > before[:2] for before, now in pairwise(positions)) > 8
    other = StreamSampler(data, 10, 0, **{**sizes, "order": 2})
    assert not torch.equal(other.sample(0).index, batches[0].index)


@pytest.mark.parametrize(("rows", "slices"), [(40, 2), (40, 5), (100, 30), (333, 2), (333, 30), (10**6, 5)])
def test_blocks_are_slices_from_everywhere_and_fit(rows: int, slices: int) -> None:
    episodes = many(300).episodes
    drawable, _ = drawable_steps(episodes, 1, bootstrap=True, until="observation")
    plan, seen, sizes, starts = Slices(episodes, drawable, rows, slices, 0), list[np.ndarray](), list[int](), list[int]()
    block = plan.at(0)
    while block.epoch == 0:
        assert block.start == sum(sizes)
        sizes.append(int(drawable[block.episodes].sum()))
        assert (episodes.steps + 1)[block.episodes].sum() <= rows
        assert [plan.at(place).number for place in (block.start, block.stop - 1)] == [block.number] * 2
        seen.append(block.episodes)
        starts.append(int((np.diff(block.episodes, prepend=-9) != 1).sum()))
        block = plan.after(block)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.flatnonzero(drawable))
    assert sum(sizes) == plan.n
    if slices > 2 < len(sizes):  # all much alike, the last one too: a block of few slices would be far from uniform
        assert min(sizes) > 0.3 * max(sizes)
        assert np.mean(starts) > 0.4 * min(slices, rows / 6)


WAYS: dict[str, Callable[[Dataset], Any]] = {
    "whole": lambda data: data,
    "split": lambda data: data.split(0.3, seed=1)[0],
    "in another order": lambda data: data.shuffle(2),
    "put together": lambda data: Dataset.concat([data.take(20), data.split(0.5, seed=0)[1]]),
    "relabelled": lambda data: data.relabel("reward - observation[0]"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_drawn_is_the_same_wherever_the_data_lie(
    way: str, place: Callable[[Dataset], Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PIECE", 64)
    data, lies = WAYS[way](many()), WAYS[way](place(many()))
    sizes: Any = {"memory": 13 * 300, "slices": 10}
    if lies.folders and lies.folders[0].manifest.compression:
        with pytest.raises(DataError, match=r"is compressed \(zstd\), .* write it anew without compression"):
            StreamSampler(lies, 8, 0, **sizes)
        return
    ours, theirs = (StreamSampler(one, 8, 0, **sizes) for one in (data, lies))
    for step in range(60):
        same(ours.sample(step), theirs.sample(step))
    assert not list(tmp_path.rglob("cache/node_maps/*/*.raw"))  # nothing was mapped


def test_damage_is_found_where_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "five"
    data = many().write(folder, n_shards=5)
    sampler = StreamSampler(data, 8, 0, memory=13 * 300, slices=10)
    sampler.sample(0)
    for file in folder.glob("data-*"):
        file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(DataError, match=r"data-0000\d-of-00005.arrow is truncated: it ends at"):
        [sampler.sample(step) for step in range(40)]


def test_what_cannot_stream_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="A stream is of a dataset: a replay buffer is in memory"):
        StreamSampler(ReplayBuffer(10, SPEC), 4)
    with pytest.raises(ConfigError, match="An episode has 9 rows, and a block of the stream room for 10: raise its memory"):
        StreamSampler(as_dataset([Story(0, 8, "terminated")] * 3), 4, memory=2 * 13 * 10, slices=2)
    with pytest.raises(DataError, match="needs the column 'log_prob', which the data do not have"):
        StreamSampler(many(), 4, extra=("log_prob",), memory=10**6)
    with pytest.raises(ConfigError, match=r"memory 0 MB and slices 1; they are at least 1, 1 and 2"):
        StreamSampler(many(), 4, memory=0, slices=1)
