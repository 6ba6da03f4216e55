import subprocess
import sys

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.data import random, seeds
from d3ray.data.augmentation import RandomShift
from d3ray.data.sampling import EpisodeSampler, EpochSampler, PrioritizedSampler, TransitionSampler


@pytest.mark.parametrize("seed", [0, 1, -3, 12345, 2**62])
def test_seeds_are_the_tensors_numbers(seed: int) -> None:
    slow = random.fold(random.fold(random.root_key(seed), "evaluation episode"), 7)
    quick = seeds.fold(seeds.fold(seeds.root_key(seed), "evaluation episode"), 7)
    assert int(slow) % 2**64 == quick
    assert random.integers(slow, 9, 2**31 - 1).tolist() == seeds.integers(quick, 9, 2**31 - 1)


@pytest.mark.filterwarnings("error")
def test_numpys_integers_are_seeds() -> None:
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(rng.normal(size=(60, 2)), rng.normal(size=(60, 1)), rng.normal(size=60), np.arange(60) % 6 == 5)
    for kind in (TransitionSampler, EpisodeSampler, EpochSampler, PrioritizedSampler):
        one, other = (kind(data, 4, seed).sample(0).reward for seed in (np.int64(3), 3))
        assert torch.equal(one, other)
    pair = TransitionSampler(data, 4, np.arange(2)).sample(0).reward
    assert torch.equal(pair, TransitionSampler(data, 4, (0, 1)).sample(0).reward)
    assert data.shuffle(np.uint8(200)).fingerprint == data.shuffle(200).fingerprint
    assert seeds.root_key(np.int64(2**62)) == seeds.root_key(2**62)  # type: ignore[arg-type]
    images = torch.zeros(3, 1, 9, 9)
    images[..., 4, 4] = 1
    shift = RandomShift()
    assert torch.equal(shift.transform(images, np.int64(5)), shift.transform(images, 5))  # type: ignore[arg-type]


def test_evaluation_imports_no_torch() -> None:
    code = "import sys, d3ray.algos.environments.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
