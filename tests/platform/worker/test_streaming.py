"""A trial that streams: nothing is mapped, what is held out neither, and it goes on from its own or another's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.data.sampling import StreamSampler, stream
from d3ray.platform.worker import opened_data
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

N_STEPS, EPOCH = 60, 20


def config(dataset: Path, **changes: Any) -> TrialConfig:
    sampler = {"name": "stream", "memory": 20_000, "slices": 6}
    algorithm = {"name": "DQN", "encoder": {"hidden_units": [8]}, "batch_size": 16, "sampler": sampler}
    told: dict[str, Any] = {"dataset": str(dataset), "algorithm": algorithm, "n_steps": N_STEPS, "n_steps_per_epoch": EPOCH}
    return TrialConfig.checked({**told, "seeds": (0, 1), "evaluation": {"holdout": 0.2}, **changes}, title="trial")


def test_a_trial_streams_without_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stream, "_MB", 1)
    monkeypatch.setattr(opened_data, "_HELD", 4000)  # of 8,700 bytes that are held out
    rng, ends = np.random.default_rng(0), np.arange(1500) % 10 == 9
    arrays = rng.normal(size=(1500, 4)), rng.integers(0, 2, 1500), rng.normal(size=1500), ends
    Dataset.from_arrays(*arrays, name="tiny").write(tmp_path / "tiny", n_shards=3)

    whole = TrialRun(config(tmp_path / "tiny"))
    states = [(whole.epoch(), whole.state())[1] for _ in range(3)]
    rows = list(whole.last.values())
    assert all(np.isfinite(row["holdout/td_error"]) for row in rows)
    source = whole.subject.fit_.sources.of(whole.subject.fit_.sources.given)
    assert isinstance(source, StreamSampler)
    assert source.position(N_STEPS).block > 1
    assert not list((tmp_path / "cache").rglob("*.raw"))

    again = TrialRun(config(tmp_path / "tiny"))
    again.load(*states[0], own=True)
    again.epoch()
    again.epoch()
    for name, tensor in states[2][0].items():
        assert torch.equal(tensor, again.state()[0][name]), name

    other = TrialRun(config(tmp_path / "tiny", seeds=(7, 8)))  # as in population based training: others' weights, its own draws
    other.epoch()
    other.load(*states[1], own=False, reached=EPOCH)
    other.epoch()
    taken, own = (run.subject.fit_.sources for run in (whole, other))
    assert not torch.equal(taken.of(taken.given).sample(45).index, own.of(own.given).sample(45).index)


def test_what_is_held_out_is_looked_at_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_data, "_HELD", 2000)
    observations = np.repeat(np.arange(100.0), 5)[:, None]
    ends = np.arange(500) % 5 == 4
    data = Dataset.from_arrays(observations, np.zeros((500, 1)), observations[:, 0], ends).write(tmp_path / "data", n_shards=4)
    part = opened_data.in_memory(data)
    assert part.source.in_memory
    seen = np.unique(part.columns["observation"])
    assert 10 < len(seen) <= 100 * 2000 / (600 * 15)
    assert (np.diff(seen) == np.diff(seen)[0]).all()
    assert seen[-1] > 90
