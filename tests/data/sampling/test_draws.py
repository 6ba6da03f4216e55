"""Frame stacks, epochs, weights, different transitions and mixtures against loops over lists and weights worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.random import fold, permute, root_key
from d3ray.data.sampling import (
    EpochSampler,
    Mixture,
    PrioritizedSampler,
    TransitionSampler,
    WeightedSampler,
    exponential_weights,
    linear,
    stacked_spec,
    top_weights,
)
from d3ray.data.spec import Box, Dict, Discrete, Spec

from .slow_experience import IMAGE, Story, as_buffer, as_dataset, image, stories

quick = settings(max_examples=40, deadline=None)


# ---- frame stacks


def slow_stack(s: Story, t: int, frames: int, padding: str, channels_last: bool = False) -> np.ndarray:
    """The frames that end with what is seen before step t, oldest first, put together along their channels."""
    parts = []
    for k in range(t - frames + 1, t + 1):
        value = s.observation(k) if k >= 0 else s.observation(0)
        parts.append(image(value, channels_last) if k >= 0 or padding == "repeat" else np.zeros_like(image(0, channels_last)))
    return np.concatenate(parts, axis=2 if channels_last else 0)


@quick
@given(stories(), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["zero", "repeat"]), st.booleans())
def test_frame_stacks_of_a_dataset(told: list[Story], frames: int, td_steps: int, padding: Any, channels_last: bool) -> None:
    data = as_dataset(told, images=True, channels_last=channels_last)
    windows = [(s, t) for s in told for t in s.drawable(td_steps)]
    if not windows:
        return
    sampler = TransitionSampler(data, 30, (1, 2), td_steps=td_steps, frames=frames, frame_padding=padding)
    batch = sampler.sample(2)
    space = stacked_spec(data.spec, frames).observation
    assert isinstance(space, Box)
    assert batch.observation.shape == (2, 30, *space.shape)
    for k in range(2):
        for i, number in enumerate(batch.index[k].tolist()):
            s, t = windows[number]
            reach = min(t + td_steps, s.steps)
            assert (batch.observation[k, i].numpy() == slow_stack(s, t, frames, padding, channels_last)).all()
            assert (batch.next_observation[k, i].numpy() == slow_stack(s, reach, frames, padding, channels_last)).all()


@quick
@given(stories(), st.integers(2, 25), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_frame_stacks_of_a_buffer(told: list[Story], rows: int, unfinished: int, frames: int, td_steps: int, early: bool) -> None:
    played = as_buffer(told, rows, images=True, unfinished=unfinished, drawn=(td_steps, frames) if early else None)
    kept = played.kept()
    windows = {}
    for at, (s, t) in enumerate(kept):
        there = {step for other, step in kept if other is s}
        last = min(t + td_steps, s.steps)
        blind = s.end == "blind" and last == s.steps
        if t < s.steps and last in there and not blind and all(k in there for k in range(max(0, t - frames + 1), t)):
            windows[(len(played.rows) - len(kept) + at) % rows] = (s, t)
    sampler = played.buffer.sampler(40, 3, td_steps=td_steps, frames=frames)
    assert sampler.n_windows == len(windows)
    if not windows:
        return
    batch = sampler.sample(7)
    for i, slot in enumerate(batch.index.tolist()):
        s, t = windows[slot]
        assert (batch.observation[i].numpy() == slow_stack(s, t, frames, "zero")).all()
        assert (batch.next_observation[i].numpy() == slow_stack(s, min(t + td_steps, s.steps), frames, "zero")).all()


@quick
@given(stories(6), st.integers(2, 4), st.integers(1, 3), st.sampled_from(["zero", "repeat"]), st.booleans(), st.booleans())
def test_frame_stacks_of_what_lies_ahead(
    told: list[Story], frames: int, td_steps: int, padding: Any, channels_last: bool, grows: bool
) -> None:
    told, ahead = [*told, Story(len(told), 9, "terminated")], 3
    by_observation = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    source: Any = as_dataset(told, images=True, channels_last=channels_last)
    if grows:
        source, channels_last = as_buffer(told, 40, images=True).buffer, False
    seeds = 3 if grows else (1, 2)
    batch = TransitionSampler(source, 30, seeds, td_steps=td_steps, frames=frames, frame_padding=padding, ahead=ahead).sample(2)
    newest = batch.observation[..., -1, -1, -1].flatten() - 128  # of the last frame's second channel
    stacks = batch.extra["ahead/observation"].flatten(0, -5)
    masks = batch.extra["ahead/mask"].flatten(0, -2)
    for seen, stack, mask in zip(newest.tolist(), stacks, masks, strict=True):
        s, t = by_observation[seen]
        for k in np.flatnonzero(mask):
            reached = min(t + td_steps, s.steps) + int(k) + 1
            assert (stack[k].numpy() == slow_stack(s, reached, frames, padding, channels_last)).all()
    assert masks.any()


def test_stacked_spaces_and_what_cannot_be_stacked() -> None:
    def stacked(*shape: int) -> Any:
        box = Box(shape=shape, dtype="uint8", low=0, high=255)
        return stacked_spec(Spec(observation=box, action=Discrete(n=2)), 4).observation

    assert (stacked(3, 84, 84).shape, stacked(84, 84, 1).shape, stacked(84, 84).shape) == ((12, 84, 84), (84, 84, 4), (4, 84, 84))
    assert (stacked(3, 84, 84).low, stacked(3, 84, 84).high) == (0, 255)
    both = Spec(observation=Dict(spaces={"camera": IMAGE.observation, "speed": Box(shape=(2,))}), action=Discrete(n=2))
    space = stacked_spec(both, 2).observation
    assert isinstance(space, Dict)
    assert [getattr(leaf, "shape", None) for leaf in space.spaces.values()] == [(4, 3, 3), (2,)]
    with pytest.raises(ConfigError, match="no image among the observations"):
        TransitionSampler(as_dataset([Story(0, 2, "terminated")]), 4, frames=2)
    with pytest.raises(ConfigError, match="frames is 0"):
        TransitionSampler(as_dataset([Story(0, 2, "terminated")], images=True), 4, frames=0)


# ---- without replacement


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 99, 100, 101, 1000, 4097])
def test_a_permutation_has_every_number_once(n: int) -> None:
    for seed in range(3):
        assert sorted(permute(root_key(seed), torch.arange(n), n).tolist()) == list(range(n))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 37])
def test_permutations_put_every_number_in_every_place_alike(n: int) -> None:
    keys = fold(root_key(1), torch.arange(4000))
    orders = permute(keys[:, None], torch.arange(n), n)
    for place in {0, n // 2, n - 1}:
        assert scipy.stats.chisquare(np.bincount(orders[:, place], minlength=n)).pvalue > 1e-3
    pairs = orders[:, 0] * n + orders[:, 1]  # and neighbours are as if drawn from all that are left
    counts = np.bincount(pairs, minlength=n * n).reshape(n, n)
    assert not np.diag(counts).any()
    if n <= 10:
        assert scipy.stats.chisquare(counts[~np.eye(n, dtype=bool)]).pvalue > 1e-3


@pytest.mark.parametrize("batch_size", [1, 3, 7, 20, 64])
def test_an_epoch_has_every_transition_once_whatever_the_batch(batch_size: int) -> None:
    told = [Story(e, 1 + e % 5, ("terminated", "truncated", "blind")[e % 3]) for e in range(11)]
    sampler = EpochSampler(as_dataset(told), batch_size, (3, 4))
    n = sampler.n_windows
    assert n == sum(len(s.drawable()) for s in told)
    stream = torch.cat([sampler.sample(step).index for step in range(-(-4 * n // batch_size))], 1)
    for row in stream:
        epochs = [row[k * n : (k + 1) * n].tolist() for k in range(4)]
        assert all(sorted(epoch) == list(range(n)) for epoch in epochs)
        assert epochs[0] != epochs[1]
    assert not torch.equal(stream[0], stream[1])
    alone = EpochSampler(as_dataset(told), batch_size, 4)
    assert torch.equal(alone.sample(130).index, sampler.sample(130).index[1])  # and any step is reached at once
    with pytest.raises(ConfigError, match="a replay buffer changes"):
        EpochSampler(as_buffer(told, 30).buffer, 4)  # pyright: ignore[reportArgumentType]


def test_unique_batches_hold_no_transition_twice_and_all_alike() -> None:
    told = [Story(e, 3, "terminated") for e in range(4)]
    played = as_buffer(told, 40)
    for source in (as_dataset(told), played.buffer):
        sampler = TransitionSampler(source, 5, 1, unique=True)
        drawn = torch.stack([sampler.sample(step).index for step in range(600)])
        assert all(len(set(row)) == 5 for row in drawn.tolist())
        counts = np.unique_counts(drawn).counts
        assert len(counts) == 12
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
    growing = TransitionSampler(played.buffer, 12, 1, unique=True)
    assert len(set(growing.sample(0).index.tolist())) == 12
    played.buffer.add(np.zeros(1), np.zeros(1), 0.0, True, False, np.zeros(1))
    assert len(set(growing.sample(0).index.tolist())) == 12  # of 13 now: the order of before would be wrong
    with pytest.raises(ConfigError, match="14 different transitions needs as many; 13 can be drawn"):
        TransitionSampler(played.buffer, 14, 1, unique=True).sample(0)


# ---- weights of episodes


@pytest.mark.parametrize("by_episode", [False, True])
def test_weighted_draws_are_in_proportion(by_episode: bool) -> None:
    told = [
        Story(0, 2, "terminated"),
        Story(1, 1, "blind"),
        Story(2, 5, "truncated"),
        Story(3, 3, "blind"),
        Story(4, 4, "terminated"),
    ]
    weights = [3.0, 9.0, 1.0, 2.0, 0.0]
    sampler = WeightedSampler(as_dataset(told), 2000, (1, 2), weights=weights, by_episode=by_episode)
    drawn = torch.cat([sampler.sample(step).index for step in range(10)], 1)
    expected = []
    for s, weight in zip(told, weights, strict=True):
        t = s.drawable()
        expected += [weight / len(t) if by_episode else weight for _ in t]
    shares = np.array(expected) / sum(expected)
    for row in drawn:
        counts = np.bincount(row, minlength=len(shares))
        assert not counts[shares == 0].any()
        assert scipy.stats.chisquare(counts[shares > 0], shares[shares > 0] * counts.sum()).pvalue > 1e-3
    alone = WeightedSampler(as_dataset(told), 2000, 2, weights=weights, by_episode=by_episode)
    assert torch.equal(alone.sample(9).index, drawn[1, 18000:])


def test_weights_by_return() -> None:
    np.testing.assert_allclose(exponential_weights([1.0, 3.0, 2.0], 0.5), np.exp([-4.0, 0.0, -2.0]))
    assert top_weights([5, 1, 7, 7, 2, 7, 3, 0, 6, 4], 0.2).tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert top_weights([5, 1, 7], 0.1).tolist() == [0, 0, 1]  # one at least
    assert top_weights([5, 1, 7], 0.67).tolist() == [1, 0, 1]
    assert top_weights([5, 1, 7, 2], 0.3, steps=[10, 50, 20, 20]).tolist() == [1, 0, 1, 0]  # 20 of 100 steps, and 10
    for share in (0.29, 0.2, 0.1):  # another is more than the share, or the best one is: it stays
        assert top_weights([5, 1, 7, 2], share, steps=[10, 50, 20, 20]).tolist() == [0, 0, 1, 0]
    with pytest.raises(ConfigError, match="temperature is 0"):
        exponential_weights([1.0], 0)
    with pytest.raises(ConfigError, match="best episodes is 0"):
        top_weights([1.0], 0)


def test_weights_that_cannot_be_are_refused() -> None:
    data = as_dataset([Story(0, 2, "terminated"), Story(1, 1, "blind")])
    with pytest.raises(DataError, match="There are 2 episodes, and weights of shape"):
        WeightedSampler(data, 4, weights=[1.0])
    with pytest.raises(DataError, match="weight of episode 1 is -1"):
        WeightedSampler(data, 4, weights=[1.0, -1.0])
    with pytest.raises(DataError, match="that has a weight has a transition"):
        WeightedSampler(data, 4, weights=[0.0, 1.0])
    assert WeightedSampler(data, 4, weights=[1e-300, 0]).sample(0).index.max() < 2
    assert WeightedSampler(data, 4, weights=[1e308, 1e308]).sample(0).index.max() < 2  # their sum is infinite


# ---- mixtures


def test_a_mixture_takes_its_shares() -> None:
    old, new = as_dataset([Story(0, 5, "terminated")]), as_buffer([Story(1, 3, "terminated")], 20)
    pair = [TransitionSampler(old, 7, (1, 2)), new.buffer.sampler(7, (1, 2))]
    mixture = Mixture(pair, [1, 2])
    counts = np.array([mixture.counts(step) for step in range(3000)])
    assert (counts.sum(1) == 7).all()
    assert set(counts[:, 0]) == {2, 3}  # 7 / 3 = 2.33
    assert counts[:, 0].mean() == pytest.approx(7 / 3, abs=2e-3)
    for step in range(20):
        batch = mixture.sample(step)
        source = batch.extra["source"]
        assert source.tolist() == [[0] * counts[step, 0] + [1] * counts[step, 1]] * 2
        assert ((batch.observation[..., 0] > 16) == source.bool()).all()
        parts = [sampler.sample(step, int(n)) for sampler, n in zip(pair, counts[step], strict=True)]
        assert torch.equal(batch.reward, torch.cat([part.reward for part in parts], 1))
        assert torch.equal(batch.index, torch.cat([parts[0].index, parts[1].index + 5], 1))
        alone = Mixture([TransitionSampler(old, 7, 2), new.buffer.sampler(7, 2)], [1, 2]).sample(step)
        assert torch.equal(alone.next_observation, batch.next_observation[1])


def test_a_schedule_goes_from_offline_to_online_once_there_is_something() -> None:
    old, new = as_dataset([Story(0, 5, "terminated")]), as_buffer([], 20)
    mixture = Mixture([TransitionSampler(old, 10), new.buffer.sampler(10)], linear([1, 0], [0.2, 0.8], 100))
    assert mixture.counts(0) == [10, 0]
    assert mixture.counts(1000) == [10, 0]  # the buffer is empty yet
    new.buffer.add(np.zeros(1), np.zeros(1), 0.0, True, False, np.zeros(1))
    assert [mixture.counts(0), mixture.counts(50)] == [[10, 0], [6, 4]]
    assert mixture.counts(100) == mixture.counts(1000) == [2, 8]
    with pytest.raises(ConfigError, match="A mixture of 2 needs as many weights"):
        Mixture(mixture.samplers, [1.0])
    with pytest.raises(ConfigError, match="one batch size"):
        Mixture([TransitionSampler(old, 10), TransitionSampler(old, 9)], [1, 1])


def test_a_mixture_hands_errors_back() -> None:
    old = as_dataset([Story(0, 5, "terminated")])
    other = as_dataset([Story(1, 4, "terminated")])
    first, second = TransitionSampler(old, 6, (1, 2)), PrioritizedSampler(other, 6, (1, 2), eps=0.0, alpha=1.0)
    mixture = Mixture([first, second], [1, 1])
    batch = mixture.sample(0)
    assert batch.weight is not None
    assert (batch.weight[batch.extra["source"] == 0] == 1).all()
    assert Mixture([first, first], [1, 1]).update is None
    assert mixture.update is not None
    mixture.update(batch.index, batch.index / 100)
    priorities = second.state()["priorities"]
    for k in range(2):
        drawn = {i - 5 for i in batch.index[k].tolist() if i >= 5}
        assert priorities[k].tolist() == pytest.approx([(5 + i) / 100 if i in drawn else 1.0 for i in range(4)])
