"""Saved buffers of PFRL's names: what is loaded is of the same kind and draws what the buffer that was saved draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import (
    EpisodicReplayBuffer,
    PersistentEpisodicReplayBuffer,
    PersistentReplayBuffer,
    PrioritizedEpisodicReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)

from ..sampling.slow_experience import SPEC

KINDS = [ReplayBuffer, EpisodicReplayBuffer, PrioritizedReplayBuffer, PrioritizedEpisodicReplayBuffer]


def fill(buffer: ReplayBuffer, first: int = 0, count: int = 24) -> None:
    for k in range(first, first + count):
        buffer.add([float(k)], [0.0], float(k), k % 4 == 3, False, [k + 0.5])


def drawn(buffer: ReplayBuffer) -> list[Any]:
    """Draws of several sizes, between which errors are told and steps appended."""
    got: list[Any] = []
    for step in range(6):
        batch = buffer.sample(3 + step % 2, step)
        got += [batch.index, batch.weight]
        if isinstance(buffer, PrioritizedReplayBuffer):
            buffer.update_errors(batch.index / 30)
        fill(buffer, 100 + 4 * step, 4)
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_buffer_goes_on_as_the_one_that_was_saved(kind: type[ReplayBuffer], tmp_path: Path) -> None:
    options = {"alpha": 0.9, "error_max": 5.0} if issubclass(kind, PrioritizedReplayBuffer) else {}
    buffer = kind(50, SPEC, **options)
    fill(buffer)
    drawn(buffer)
    buffer.save(tmp_path / "buffer")
    again, by_state = kind.load(tmp_path / "buffer"), kind(50, SPEC, **options)
    fill(by_state, 7)
    drawn(by_state)  # what it had learned before is forgotten
    by_state.load_state(buffer.state())
    assert type(ReplayBuffer.load(tmp_path / "buffer")) is type(again) is kind
    assert len(again) == len(buffer)
    expected = drawn(buffer)
    for other in (again, by_state):
        for a, b in zip(drawn(other), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_priorities_are_those_that_were_learned(tmp_path: Path) -> None:
    buffer = PrioritizedReplayBuffer(40, SPEC, alpha=1.0, eps=0.0, error_max=None)
    fill(buffer)
    batch = buffer.sample(24, 0)
    buffer.update_errors(torch.where(batch.observation[:, 0] == 5, 2.0, 0.0))
    buffer.save(tmp_path / "buffer")
    again = PrioritizedReplayBuffer.load(tmp_path / "buffer")
    assert set(again.sample(12, 1).observation.flatten().tolist()) == {5.0}
    fill(again, 24, 2)  # 24 can be drawn now, with the largest priority so far, 2 as well
    assert set(again.sample(2, 1).observation.flatten().tolist()) == {5.0, 24.0}
    fresh = PrioritizedReplayBuffer(40, SPEC)
    fill(fresh)
    again.load_state(fresh.state())  # of which nothing was drawn yet
    assert sorted(again.sample(24, 1).observation.flatten().tolist()) == list(range(24))


def test_buffers_in_folders_are_saved_as_what_they_are_in_memory(tmp_path: Path) -> None:
    for folder, kind in (
        (PersistentReplayBuffer(tmp_path / "a", 40, SPEC), ReplayBuffer),
        (PersistentEpisodicReplayBuffer(tmp_path / "b", 40, SPEC), EpisodicReplayBuffer),
    ):
        fill(folder, count=8)
        folder.save(tmp_path / "saved")
        again = kind.load(tmp_path / "saved")
        assert type(again) is kind
        assert torch.equal(again.sample(9, 0).reward, folder.sample(9, 0).reward)
        with pytest.raises(DataError, match=f"holds a {kind.__name__} and no Persistent.*: {kind.__name__}.load opens it"):
            type(folder).load(tmp_path / "saved")
        folder.close()


def test_what_a_file_cannot_hold_is_given_again(tmp_path: Path) -> None:
    buffer = PrioritizedEpisodicReplayBuffer(40, SPEC, default_priority_func=len, max_length=2)
    fill(buffer)
    buffer.save(path := tmp_path / "buffer")
    again = PrioritizedEpisodicReplayBuffer.load(path, default_priority_func=len)
    assert torch.equal(again.sample(5, 0).reward, buffer.sample(5, 0).reward)
    with pytest.raises(ConfigError, match=r"option 'default_priority_func' of the .* cannot be kept in a file: give it to load"):
        ReplayBuffer.load(path)
    with pytest.raises(ConfigError, match=r"option 'alpha' of the PrioritizedEpisodic.* is none that the file lacks"):
        ReplayBuffer.load(path, default_priority_func=len, alpha=0.5)
    with pytest.raises(DataError, match=r"holds a PrioritizedEpisodicReplayBuffer and no EpisodicReplayBuffer"):
        EpisodicReplayBuffer.load(path, default_priority_func=len)


def test_a_file_that_says_no_kind_is_of_a_plain_buffer(tmp_path: Path) -> None:
    buffer = ReplayBuffer(40, SPEC)
    fill(buffer)
    buffer.save(tmp_path / "buffer.npz")
    with np.load(tmp_path / "buffer.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    told = arrays["description"].tobytes()
    arrays["description"] = np.frombuffer(told[: told.index(b', "kind"')] + b"}", np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    assert type(ReplayBuffer.load(tmp_path / "old.npz")) is ReplayBuffer
