"""Transitions with histories against loops over lists, for datasets and replay buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.algos.testing import tiny_dataset
from d3ray.data.batch import Batch, joined
from d3ray.data.config import Config, setting
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.histories import Histories
from d3ray.data.masks import Masked
from d3ray.data.sampling import RecurrentSampler
from d3ray.data.sampling_settings import RecurrentSampling, Sampling

from .slow_experience import Story, as_buffer, as_dataset, stories

GAMMA = 0.9
quick = settings(max_examples=40, deadline=None)


def check_stretch(got: Batch, b: int, s: Story, first: int, last: int, length: int, burn_in: int, following: bool) -> None:
    """Stretch b is the steps first … last of an episode at the end of `length`, of which the burn-in teaches nothing."""
    learned, pad = length - burn_in, length - (last - first + 1)
    here, there = got.observation, got.next_observation
    assert (here.before, there.before) == (burn_in, burn_in + following)
    seen = [0.0] * pad + [float(s.observation(t)) for t in range(first, last + 1)]
    assert here.observation[b, :, 0].tolist() == seen
    assert here.mask[b].tolist() == [False] * pad + [True] * (length - pad)
    if following:
        assert there.observation[b, :, 0].tolist() == [*seen, s.observation(last + 1)]
        assert there.mask[b].tolist() == [False] * pad + [True] * (length - pad + 1)
    for place in range(burn_in, length):
        n, t = b * learned + place - burn_in, first + place - pad
        if place < pad:
            parts = (got.weight[n], got.action[n, 0], got.reward[n], got.discount[n])  # pyright: ignore[reportOptionalSubscript]
            assert [float(part) for part in parts] == [0, 0, 0, 0]
            continue
        assert float(got.action[n, 0]) == s.action(t)
        assert float(got.reward[n]) == s.reward(t)
        assert float(got.discount[n]) == pytest.approx(s.discount(t, GAMMA), rel=1e-12)
        assert float(here.steps()[n, 0]) == s.observation(t)
        if following:
            assert float(there.steps()[n, 0]) == s.observation(t + 1)


@quick
@given(stories(), st.integers(1, 6), st.integers(0, 5), st.booleans(), st.data())
def test_stretches_of_a_dataset(told: list[Story], length: int, burn_in: int, following: bool, draw: Any) -> None:
    burn_in = min(burn_in, length - 1)
    drawable = [(s, t) for s in told for t in s.drawable(1, following)]
    options: Any = {"length": length, "burn_in": burn_in, "gamma": GAMMA, "bootstrap": following, "dtype": torch.float64}
    if not drawable:
        with pytest.raises(DataError, match="no transition"):
            RecurrentSampler(as_dataset(told), 4, **options)
        return
    sampler = RecurrentSampler(as_dataset(told), len(drawable), 5, **options)
    ahead = draw.draw(st.lists(st.integers(0, length - burn_in - 1), min_size=len(drawable), max_size=len(drawable)))
    got = sampler.ending(torch.arange(len(drawable)), torch.tensor(ahead))
    for b, (s, t) in enumerate(drawable):
        last = min(t + ahead[b], s.drawable(1, following)[-1])
        check_stretch(got, b, s, max(0, last - length + 1), last, length, burn_in, following)
    assert got.weight is not None
    assert float(got.weight.mean()) == pytest.approx(1)
    assert got.index.tolist() == [b for b in range(len(drawable)) for _ in range(length - burn_in)]


@quick
@given(stories(), st.integers(4, 25), st.integers(0, 3), st.integers(1, 5), st.integers(0, 4))
def test_stretches_of_a_buffer(told: list[Story], rows: int, unfinished: int, length: int, burn_in: int) -> None:
    burn_in = min(burn_in, length - 1)
    played = as_buffer(told, rows, unfinished=unfinished)
    kept = played.kept()
    sampler = RecurrentSampler(played.buffer, 60, 5, length=length, burn_in=burn_in, gamma=GAMMA, dtype=torch.float64)
    if not sampler.n_windows:
        return
    drawn = sampler.numbers(2)
    got = sampler.sample(2)
    by_slot = {(len(played.rows) - len(kept) + at) % rows: (s, t) for at, (s, t) in enumerate(kept)}
    slots = got.index.reshape(60, -1)[:, 0].tolist()
    assert slots == sampler.windows.locate(drawn).index.tolist()
    for b, slot in enumerate(slots):
        s, t = by_slot[slot]
        oldest = min(step for other, step in kept if other is s)
        (last,) = {u for u in range(t, s.steps) if float(got.observation.observation[b, -1, 0]) == s.observation(u)}
        assert last - t < length - burn_in
        check_stretch(got, b, s, max(oldest, last - length + 1), last, length, burn_in, following=True)


def test_every_step_is_learned_from_about_as_often() -> None:
    told = [Story(0, 9, "terminated"), Story(1, 3, "truncated"), Story(2, 1, "terminated")]
    sampler = RecurrentSampler(as_dataset(told), 64, 5, length=6, burn_in=2, dtype=torch.float64)
    seen = np.zeros(48)
    for step in range(400):
        batch = sampler.sample(step)
        np.add.at(seen, batch.observation.steps()[:, 0].long().numpy(), batch.observation.there.double().numpy())
    expected = np.zeros(48)  # by hand: every transition, every end
    for s in told:
        for t in range(s.steps):
            for ahead in range(4):
                last = min(t + ahead, s.steps - 1)
                for u in range(max(0, last - 3), last + 1):
                    expected[s.observation(u)] += 64 * 400 / 13 / 4
    np.testing.assert_allclose(seen, expected, rtol=0.05)
    long = expected[1:10] / (64 * 400 / 13)
    assert long.min() > 2
    assert long.max() < 6.5  # of 4 in the middle


def test_rows_of_a_stack_draw_as_their_seeds_and_batches_are_functions_of_the_step() -> None:
    data = tiny_dataset(discrete=True, masked="some")
    rows = RecurrentSampler(data, 8, (3, 4), length=5, burn_in=2).sample(7)
    for k, seed in enumerate((3, 4)):
        alone = RecurrentSampler(data, 8, seed, length=5, burn_in=2).sample(7)
        for a, b in zip(*map(torch.utils._pytree.tree_leaves, (rows, alone)), strict=True):  # pyright: ignore[reportPrivateUsage]
            assert torch.equal(a[k], b)


def test_masks_of_legal_actions_go_with_steps_and_padding_has_all() -> None:
    data = tiny_dataset(discrete=True, masked="some")
    batch = RecurrentSampler(data, 50, 1, length=5, burn_in=2).sample(0)
    assert isinstance(batch.observation, Masked)
    assert isinstance(batch.observation.observation, Histories)
    legal, there = batch.observation.action_mask, batch.observation.observation.there
    assert legal.shape == (150, 3)
    assert legal[~there].all()
    assert not there.all()
    assert not legal[there].all()
    assert legal.gather(1, batch.action[:, None]).all()


def test_batches_of_several_samplers_are_joined() -> None:
    data = tiny_dataset(discrete=True)
    parts = [RecurrentSampler(data, 4, seed, length=5, burn_in=2).sample(0) for seed in (1, 2)]
    both = joined(parts)
    assert torch.equal(both.observation.steps()[12:], parts[1].observation.steps())
    assert both.next_observation.before == 3


class _Settings(Config):
    sampler: Sampling | None = setting(None, "how")


def test_settings_that_leave_nothing_are_refused() -> None:
    assert _Settings.checked({"sampler": "recurrent"}, title="X").sampler == RecurrentSampling(length=30, burn_in=10)
    with pytest.raises(
        ConfigError, match=r"burn_in is 30; nothing is left to learn from of a length of 20: choose a shorter burn_in"
    ):
        _Settings.checked({"sampler": {"name": "recurrent", "length": 20, "burn_in": 30}}, title="X")
    with pytest.raises(ConfigError, match=r"frames is 4; a recurrent encoder remembers earlier frames itself: leave frames out"):
        _Settings.checked({"sampler": {"name": "recurrent", "frames": 4}}, title="X")
    with pytest.raises(ConfigError, match=r"burn_in is 5 of 5 steps"):
        RecurrentSampler(tiny_dataset(discrete=True), 4, length=5, burn_in=5)
