"""A dataset larger than the memory that a process may take is drawn from, trained on and scored: mapped pages count as nobody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset

MIB = 1 << 20
GROWTH = 48 * MIB  # anonymous memory that sampling and training may add

CHILD = """
import resource, sys
import torch
torch.set_num_threads(1)
from d3ray import DQN, Dataset
from d3ray.algos import testing
from d3ray.metrics import td_error_scorer
from d3ray.data.sampling import EpisodeSampler, EpochSampler, PrioritizedSampler, SequenceSampler, TransitionSampler

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024

warm = Dataset.open(sys.argv[2])
algorithm = DQN(batch_size=8, encoder=testing.SMALL, device="cpu", observation_scaler="pixel").fit(warm, n_steps=4)
PrioritizedSampler(warm, 8).sample()  # its loops are compiled: numba is 43 MiB of anonymous memory, as torch is some
limit = anonymous() + int(sys.argv[3])
# what is not backed by a file: the limit that the kernel has for it
used = sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[3]),) * 2)
data = Dataset.open(sys.argv[1])
most = 0
samplers = [
    TransitionSampler(data, 8, frames=4), TransitionSampler(data, 16, td_steps=5), EpochSampler(data, 16),
    PrioritizedSampler(data, 16), SequenceSampler(data, 4, 8, return_to_go=True), EpisodeSampler(data, 4, max_length=8),
]
for step in range(int(sys.argv[4])):
    for sampler in samplers:
        sampler.sample(step)
    most = max(most, anonymous())
del samplers
td_error_scorer(algorithm, data, 64)
most = max(most, anonymous())
for epoch in DQN(batch_size=8, encoder=testing.SMALL, device="cpu", observation_scaler="pixel").fitter(data, 20, 10):
    most = max(most, anonymous())
assert most <= limit, (most, limit)
print(data.columns["observation"].nbytes, most - limit + int(sys.argv[3]))
"""


def write(folder: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (n, 1, 84, 84), dtype=np.uint8)
    Dataset.from_arrays(frames, np.arange(n) % 4, np.zeros(n), np.arange(n) % 500 == 499).write(folder)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="RssAnon is Linux's")
@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_dataset_of_four_times_the_allowed_memory_is_drawn_from_trained_on_and_scored(tmp_path: Path, shards: int) -> None:
    n = 4 * GROWTH // (84 * 84) + 500
    write(tmp_path / "all", n)
    if shards > 1:  # these are trained on through a node map
        Dataset.open(tmp_path / "all").write(tmp_path / "cut", n_shards=shards)
    write(tmp_path / "small", 600)
    places = (tmp_path / ("cut" if shards > 1 else "all"), tmp_path / "small")
    command = [sys.executable, "-c", CHILD, *map(str, places), str(GROWTH), "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    size, grown = (int(part) for part in done.stdout.split())
    assert size > 4 * GROWTH
    assert 0 < grown <= GROWTH


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "D3RAY_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
