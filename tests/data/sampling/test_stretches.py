"""Sequences and episodes against loops over lists, for datasets, splits and replay buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling import EpisodeSampler, SequenceSampler, returns_to_go
from d3ray.data.scalers import StandardScaler

from .slow_experience import Story, as_buffer, as_dataset, stories

GAMMA = 0.9
quick = settings(max_examples=40, deadline=None)


def check_stretch(got: Any, i: int, s: Story, first: int, stop: int, length: int, pad: str) -> None:
    """Row i of what was drawn is steps first … stop - 1 of an episode, padded to `length`."""
    n = stop - first
    places = range(n) if pad == "right" else range(length - n, length)
    expected = {
        name: np.zeros(length) for name in ("observation", "action", "reward", "discount", "mask", "timestep", "rtg", "next")
    }
    for place, t in zip(places, range(first, stop), strict=True):
        expected["observation"][place], expected["action"][place] = s.observation(t), s.action(t)
        expected["reward"][place], expected["discount"][place] = s.reward(t), s.discount(t, GAMMA)
        expected["mask"][place], expected["timestep"][place] = 1, t
        expected["rtg"][place] = sum(s.reward(k) for k in range(t, s.steps))
        expected["next"][place] = s.observation(t + 1)
    got_columns = {
        "observation": got.observation[i, :, 0],
        "action": got.action[i, :, 0],
        "reward": got.reward[i],
        "discount": got.discount[i],
        "mask": got.mask[i].double(),
        "timestep": got.timestep[i].double(),
    }
    if got.return_to_go is not None:
        got_columns["rtg"] = got.return_to_go[i]
    if got.next_observation is not None:
        got_columns["next"] = got.next_observation[i, :, 0]
    for name, column in got_columns.items():
        np.testing.assert_allclose(column.numpy(), expected[name], rtol=1e-6, err_msg=name)


@quick
@given(stories(), st.integers(1, 6), st.sampled_from(["first", "last"]), st.sampled_from(["left", "right"]), st.booleans())
def test_sequences_of_a_dataset(told: list[Story], length: int, anchor: Any, pad: Any, bootstrap: bool) -> None:
    data = as_dataset(told)
    anchors = [(s, t) for s in told for t in s.drawable(1, bootstrap)]
    options: Any = {"gamma": GAMMA, "pad": pad, "bootstrap": bootstrap, "dtype": torch.float64, "next_observation": True}
    if not anchors:
        with pytest.raises(DataError, match="no transition"):
            SequenceSampler(data, 4, length, anchor=anchor, **options)
        return
    sampler = SequenceSampler(data, 3 * len(anchors), length, 5, anchor=anchor, return_to_go=True, **options)
    assert sampler.n_windows == len(anchors)
    got = sampler.sample(3)
    for i, number in enumerate(got.index.tolist()):
        s, t = anchors[number]
        ends = len(s.drawable(1, bootstrap))
        first, stop = (max(0, t + 1 - length), t + 1) if anchor == "last" else (t, min(ends, t + length))
        check_stretch(got, i, s, first, stop, length, pad)


@quick
@given(stories(), st.integers(2, 25), st.integers(0, 3), st.integers(1, 5), st.sampled_from(["first", "last"]))
def test_sequences_of_a_buffer(told: list[Story], rows: int, unfinished: int, length: int, anchor: Any) -> None:
    played = as_buffer(told, rows, unfinished=unfinished)
    kept = played.kept()
    sampler = SequenceSampler(played.buffer, 60, length, 5, anchor=anchor, gamma=GAMMA, pad="right", next_observation=True)
    anchors = set()
    for at, (s, t) in enumerate(kept):
        followed = [step for other, step in kept[at:] if other is s]  # this and the later rows of the episode
        whole = s.steps in followed
        if t == s.steps or len(followed) < 2 or (s.end == "blind" and t == s.steps - 1):
            continue
        complete = len(followed) > length or (whole and s.end != "blind")
        if anchor == "last" or complete:
            anchors.add((len(played.rows) - len(kept) + at) % rows)
    assert sampler.n_windows == len(anchors)
    if not anchors:
        with pytest.raises(DataError, match="no window"):
            sampler.sample(0)
        return
    got = sampler.sample(0)
    assert set(got.index.tolist()) <= anchors
    by_slot = {(len(played.rows) - len(kept) + at) % rows: (s, t) for at, (s, t) in enumerate(kept)}
    for i, slot in enumerate(got.index.tolist()):
        s, t = by_slot[slot]
        oldest = min(step for other, step in kept if other is s)
        first, stop = (max(oldest, t + 1 - length), t + 1) if anchor == "last" else (t, min(s.steps, t + length))
        check_stretch(got, i, s, first, stop, length, "right")


@quick
@given(stories(), st.sampled_from([None, 1, 2, 4]), st.booleans())
def test_episodes_of_a_dataset(told: list[Story], max_length: int | None, bootstrap: bool) -> None:
    data = as_dataset(told)
    usable = [s for s in told if s.drawable(1, bootstrap)]
    if not usable:
        with pytest.raises(DataError, match="no episode"):
            EpisodeSampler(data, 4, bootstrap=bootstrap)
        return
    options: Any = {"gamma": GAMMA, "bootstrap": bootstrap, "return_to_go": True, "next_observation": True}
    got = EpisodeSampler(data, 40, 2, max_length=max_length, **options).sample(1)
    lengths = [len(told[e].drawable(1, bootstrap)) for e in got.index.tolist()]
    T = max_length or min(1 << (max(lengths) - 1).bit_length(), max(len(s.drawable(1, bootstrap)) for s in told))
    assert got.mask.shape == (40, T)
    assert set(got.index.tolist()) <= {s.number for s in usable}
    for i, e in enumerate(got.index.tolist()):
        first = int(got.timestep[i, 0])
        n = min(lengths[i], T)
        assert 0 <= first <= lengths[i] - n
        check_stretch(got, i, told[e], first, first + n, T, "right")


@quick
@given(stories(), st.integers(2, 25), st.integers(0, 3), st.booleans(), st.booleans())
def test_episodes_of_a_buffer_are_those_that_are_all_there(
    told: list[Story], rows: int, unfinished: int, bootstrap: bool, early: bool
) -> None:
    played = as_buffer(told, rows, unfinished=unfinished, drawn=(1, 1) if early else None)
    buffer = played.buffer
    kept = played.kept()
    whole = [s for s, t in kept if t == s.steps and (s, 0) in kept and s.drawable(1, bootstrap)]
    sampler = EpisodeSampler(buffer, 30, 3, bootstrap=bootstrap, gamma=GAMMA)
    assert sampler.n_windows == len(whole)
    assert buffer.n_episodes == len([s for s, t in kept if t == s.steps and (s, 0) in kept])
    if not whole:
        return
    got = sampler.sample(0)
    by_slot = {(len(played.rows) - len(kept) + at) % rows: s for at, (s, t) in enumerate(kept) if t == 0}
    for i, slot in enumerate(got.index.tolist()):
        s = by_slot[slot]
        assert s in whole
        check_stretch(got, i, s, 0, len(s.drawable(1, bootstrap)), got.mask.shape[1], "right")
        episode = buffer.episode(slot)
        assert episode.observations[:, 0].tolist() == [s.observation(t) for t in range(s.steps + 1)]
        assert (episode.terminated, episode.final_recorded) == (s.end == "terminated", s.end != "blind")


def test_splits_scalers_and_stacks_of_seeds() -> None:
    told = [Story(e, 1 + e % 4, ("terminated", "truncated", "blind")[e % 3]) for e in range(12)]
    data = as_dataset(told)
    train, _ = data.split(test_size=0.5, seed=1)
    of_train = {int(e.observations[0, 0]) // 16 for e in train.episodes}
    scaler = StandardScaler().fit(data)
    options: Any = {"observation_scaler": scaler, "return_to_go": True, "dtype": torch.float64}
    makers = (
        lambda seed, **more: SequenceSampler(train, 50, 3, seed, **more),
        lambda seed, **more: EpisodeSampler(train, 50, seed, **more),
    )
    for make in makers:
        together, raw = make((4, 5), **options).sample(9), make((4, 5), dtype=torch.float64).sample(9)
        assert {int(v) // 16 for v in (raw.observation[raw.mask] - 1).flatten().tolist()} <= of_train
        moments = data.statistics.observation
        scaled = (raw.observation - moments.mean[0]) / (moments.std[0] + 1e-3)
        torch.testing.assert_close(together.observation[together.mask], scaled[raw.mask])
        assert not together.observation[~together.mask].any()
        for k, seed in enumerate((4, 5)):
            alone = make(seed, **options).sample(9)
            assert torch.equal(together.index[k], alone.index)
            for name in ("observation", "action", "reward", "discount", "timestep", "return_to_go"):  # but for padding
                ours, theirs = getattr(together, name)[k][together.mask[k]], getattr(alone, name)[alone.mask]
                assert torch.equal(ours, theirs), name


def test_subsequences_start_anywhere_alike() -> None:
    data = as_dataset([Story(0, 9, "terminated")])
    sampler = EpisodeSampler(data, 500, 1, max_length=4)
    starts = torch.cat([sampler.sample(step).timestep[:, 0] for step in range(20)])
    assert scipy.stats.chisquare(np.bincount(starts, minlength=6)).pvalue > 1e-3


@quick
@given(stories(6, 14), st.floats(0.1, 1))
def test_returns_to_go_are_sums_to_the_end(told: list[Story], gamma: float) -> None:
    data = as_dataset(told)
    found = returns_to_go(data.columns["reward"], data.episodes.first_row, data.episodes.steps, gamma)
    row = 0
    for s in told:
        for t in range(s.steps):
            assert found[row + t] == pytest.approx(sum(gamma ** (k - t) * s.reward(k) for k in range(t, s.steps)), rel=1e-5)
        row += s.steps + 1
        assert found[row - 1] == 0


def test_what_cannot_be_drawn_is_one_sentence() -> None:
    data, played = as_dataset([Story(0, 3, "terminated")]), as_buffer([Story(0, 3, "terminated")], 9)
    with pytest.raises(DataError, match="has no returns to go"):
        SequenceSampler(played.buffer, 4, 2, return_to_go=True)
    with pytest.raises(ConfigError, match="pad is 'middle'"):
        SequenceSampler(data, 4, 2, pad="middle")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="length is 0"):
        SequenceSampler(data, 4, 0)
    with pytest.raises(ConfigError, match="max_length is 0"):
        EpisodeSampler(data, 4, max_length=0)
