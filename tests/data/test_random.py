"""Addressed random numbers: moments, correlations, collisions, and the same numbers for ever, of whatever says the seed."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from d3ray import Dataset
from d3ray.data import random, seeds
from d3ray.data.augmentation import RandomShift
from d3ray.data.random import bits, fold, integers, normal, root_key, shift_right, uniform
from d3ray.data.sampling import EpisodeSampler, EpochSampler, PrioritizedSampler, TransitionSampler

GOLDEN_INTEGERS = [909, 1, 456, 991]
GOLDEN_NORMALS = [-1.6557231658177871, 0.28101796344093644, -0.9348012216989143]


def test_the_numbers_stay_what_they_are():
    """Golden values: datasets that were shipped, seeds that were published and checkpoints depend on them."""
    key = fold(fold(root_key(7), "sample"), 3)
    assert integers(key, 4, 1000).tolist() == GOLDEN_INTEGERS
    np.testing.assert_allclose(normal(key, (3,), torch.float64).numpy(), GOLDEN_NORMALS, rtol=1e-14)


def test_shift_is_logical():
    x = torch.tensor([-1, -(2**63), 5])
    assert shift_right(x, 11).tolist() == [(2**64 - 1) >> 11, 2**63 >> 11, 0]


def test_uniform_and_normal_have_their_distributions():
    key = fold(root_key(0), "moments")
    u = uniform(key, (200_000,), torch.float64).numpy()
    assert 0 < u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 0.01
    z = normal(key, (200_000,), torch.float64).numpy()
    assert stats.kstest(z, "norm").pvalue > 0.01
    assert abs((z**4).mean() - 3) < 0.1
    assert float(uniform(key, (1 << 20,)).max()) < 1  # rounding to float32 does not reach 1


def test_draws_of_neighbouring_addresses_are_uncorrelated():
    """Steps, seeds, names and positions next to one another: no correlation beyond chance (5 standard errors)."""
    n = 4096
    rows = [
        uniform(fold(fold(root_key(seed), purpose), step), (n,), torch.float64)
        for seed in (0, 1)
        for purpose in ("a", "b")
        for step in range(4)
    ]
    matrix = np.corrcoef(torch.stack(rows).numpy())
    assert np.abs(matrix[~np.eye(len(rows), dtype=bool)]).max() < 5 / n**0.5
    steps = torch.stack(
        [uniform(fold(fold(root_key(3), "s"), torch.arange(n)), (3,), torch.float64)[:, k] for k in range(3)]
    ).numpy()
    for a, b in itertools.product(range(3), repeat=2):
        assert abs(np.corrcoef(steps[a][1:], steps[b][:-1])[0, 1]) < 5 / n**0.5


def test_no_key_collides_with_another_or_with_a_draw():
    """Keys of seeds × purposes × steps and what is drawn from them: 200,000 distinct numbers of 64 bits."""
    keys = [root_key(seed) for seed in range(50)]
    children = torch.cat([fold(fold(k, p), torch.arange(500)) for k in keys for p in ("sample", "loss", "target smoothing")])
    drawn = bits(children, 1)[:, 0]
    grandchildren = fold(children, "critic_loss")
    together = torch.cat([torch.stack(keys), children, drawn, grandchildren])
    assert together.unique().numel() == together.numel()


def test_drawing_together_is_drawing_one_by_one():
    keys = fold(root_key(1), torch.arange(6))
    together = normal(keys, (2, 5), torch.float64)
    for k in range(6):
        assert torch.equal(together[k], normal(keys[k], (2, 5), torch.float64))
    mapped = torch.func.vmap(lambda key: normal(key, (2, 5), torch.float64))(keys)
    assert torch.equal(together, mapped)


def test_integers_are_uniform():
    counts = np.bincount(integers(root_key(5), 70_000, 7).numpy(), minlength=7)
    assert stats.chisquare(counts).pvalue > 0.001


def test_many_integers_are_those_drawn_with_torch_and_one_by_one():
    key = seeds.fold(seeds.root_key(3), "name")
    assert key == int(fold(root_key(3), "name")) % 2**64
    many = seeds.many_integers(key, 10_000, 7)
    assert many.tolist() == seeds.integers(key, 10_000, 7) == integers(fold(root_key(3), "name"), 10_000, 7).tolist()


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
