"""Discounted returns to go beside transitions, of datasets and of replay buffers, against sums over lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import RETURNS, TransitionSampler
from d3ray.data.scalers import ClipRewardScaler, StandardRewardScaler

from .slow_experience import Story, as_buffer, as_dataset, stories

GAMMAS = (0.9, 0.5, 0.9)
SCALER = ClipRewardScaler(low=-1.0, high=8.0, multiplier=0.5)
quick = settings(max_examples=25, deadline=None)


def slow_return(s: Story, t: int, gamma: float) -> float:
    """From step t to the episode's end, of scaled rewards."""
    return sum(gamma ** (k - t) * 0.5 * min(max(s.reward(k), -1.0), 8.0) for k in range(t, s.steps))


def check(batch: Any, told: dict[float, tuple[Story, int]], gamma: float) -> None:
    """`told`: by observation, the step."""
    for seen, found in zip(batch.observation[:, 0].tolist(), batch.extra[RETURNS].tolist(), strict=True):
        assert found == pytest.approx(slow_return(*told[seen], gamma), rel=1e-12, abs=1e-12)


@quick
@given(stories(), st.integers(1, 3))
def test_returns_to_go_of_a_dataset_are_exact_for_every_seeds_gamma(told: list[Story], td_steps: int) -> None:
    told = [*told, Story(len(told), 3, "terminated")]  # at least something can be drawn
    by_observation = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    gamma = torch.tensor(GAMMAS, dtype=torch.float64)
    options: dict[str, Any] = {"td_steps": td_steps, "reward_scaler": SCALER, "extra": (RETURNS,), "dtype": torch.float64}
    stack = TransitionSampler(as_dataset(told), 16, seed=(1, 2, 3), gamma=gamma, **options)
    for k, part in enumerate(stack.sample(0).observation):
        alone = TransitionSampler(as_dataset(told), 16, seed=k + 1, gamma=gamma[k].clone(), **options).sample(0)
        assert torch.equal(alone.observation, part)
        assert torch.equal(alone.extra[RETURNS], stack.sample(0).extra[RETURNS][k])
        check(alone, by_observation, GAMMAS[k])
    gamma.fill_(0.3)  # as a search over γ writes it
    again = stack.sample(0)
    for seen, found in zip(again.observation[..., 0].flatten().tolist(), again.extra[RETURNS].flatten().tolist(), strict=True):
        assert found == pytest.approx(slow_return(*by_observation[seen], 0.3), rel=1e-12, abs=1e-12)


@quick
@given(stories(), st.integers(4, 40), st.integers(1, 3))
def test_a_buffer_gives_finished_episodes_with_their_returns(told: list[Story], rows: int, td_steps: int) -> None:
    """Rows of an episode are drawn once it has ended, those that are left of one that is being overwritten too."""
    told = [*told, Story(len(told), 3, "terminated")]
    by_observation = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    unfinished = 1
    played = as_buffer(told, rows, unfinished=unfinished)
    options: dict[str, Any] = {"td_steps": td_steps, "reward_scaler": SCALER, "extra": (RETURNS,), "dtype": torch.float64}
    gamma = torch.tensor(0.9, dtype=torch.float64)
    sampler = TransitionSampler(played.buffer, 16, gamma=gamma, **options)
    s = told[-1]
    for grown in (False, True):
        if grown:  # the last step of the last episode
            last = s.steps - 1
            final = np.array([s.observation(s.steps)], np.float32)
            seen = np.array([s.observation(last)], np.float32)
            played.buffer.add(seen, np.array([s.action(last)], np.float32), s.reward(last), True, False, final)
            assert sampler.n_windows
        if sampler.n_windows:
            batch = sampler.sample(0)
            check(batch, by_observation, 0.9)
            unfinished_now = {float(s.observation(t)) for t in range(s.steps)} if not grown else set[float]()
            assert not unfinished_now & set(batch.observation[:, 0].tolist())
    gamma.fill_(0.4)
    check(sampler.sample(0), by_observation, 0.4)
    state, other = played.buffer.state(), as_buffer(told[:1], rows)
    moved = TransitionSampler(other.buffer, 16, gamma=0.4, **options)
    if moved.n_windows:
        moved.sample(0)
    other.buffer.load_state(state)
    check(moved.sample(1), by_observation, 0.4)


def test_an_endless_failure_counts_as_going_on() -> None:
    """Only an episode that was cut, and cost the same all along; what was earned counts once, in a fragment of one step too."""
    rewards = {
        "failure": [-1, -1, -1],
        "success": [-1, -1, 0],
        "ended": [-1, -1, -1],
        "one": [-2],
        "cut": [-1, -3],
        "earned": [1, 1, 1],
        "one earned": [2],
        "nothing": [0, 0],
    }
    parts = []
    for name, earned in rewards.items():
        n, ended = len(earned), name in ("success", "ended")
        flags = np.arange(n) == n - 1
        observations = np.full((n, 1), len(parts), np.float32)
        actions, final = np.zeros((n, 1), np.float32), np.zeros((1, 1), np.float32)
        parts.append(
            Dataset.from_arrays(
                observations, actions, np.array(earned, np.float32), flags & ended, flags & (not ended), final_observations=final
            )
        )
    data = Dataset.concat(parts)
    options: dict[str, Any] = {"extra": (RETURNS,), "dtype": torch.float64}
    batch = TransitionSampler(data, 256, gamma=0.9, endless=True, **options).sample(0)
    found = {name: sorted(set(batch.extra[RETURNS][batch.observation[:, 0] == k].tolist())) for k, name in enumerate(rewards)}
    assert found["failure"] == pytest.approx([-10])
    assert found["one"] == pytest.approx([-20])
    assert found["cut"] == pytest.approx([-3.7, -3])
    assert found["ended"] == pytest.approx([-2.71, -1.9, -1])
    assert found["success"] == pytest.approx([-1.9, -1, 0])
    assert found["earned"] == pytest.approx([1, 1.9, 2.71])
    assert found["one earned"] == pytest.approx([2])
    assert found["nothing"] == [0]
    with pytest.raises(ConfigError, match="gamma is 1"):
        TransitionSampler(data, 8, gamma=1.0, endless=True, **options).sample(0)


@quick
@given(stories(), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_what_lies_ahead_is_the_rest_of_the_episode(told: list[Story], td_steps: int, ahead: int, grows: bool) -> None:
    """The steps after an n-step window, as far as they go; with an unknown end, to the last observation that is known."""
    told = [*told, Story(len(told), 9, "terminated")]
    by_observation = {float(s.observation(t)): (s, t) for s in told for t in range(s.steps)}
    source = as_buffer(told, 40, drawn=(td_steps, 1, "end", ahead)).buffer if grows else as_dataset(told)
    sampler = TransitionSampler(source, 64, gamma=0.5, td_steps=td_steps, ahead=ahead, dtype=torch.float64)
    assert sampler.n_windows == TransitionSampler(source, 1, td_steps=td_steps, until="end").n_windows
    if isinstance(source, ReplayBuffer):
        found = ReplayBuffer(source.rows, source.spec)
        found.load_state(source.state())  # its windows are looked for at once
        again = TransitionSampler(found, 64, gamma=0.5, td_steps=td_steps, ahead=ahead, dtype=torch.float64).sample(0)
        assert torch.equal(again.extra["ahead/mask"], sampler.sample(0).extra["ahead/mask"])
    batch = sampler.sample(0)
    parts = {name.removeprefix("ahead/"): part for name, part in batch.extra.items()}
    for i, seen in enumerate(batch.observation[:, 0].tolist()):
        s, t = by_observation[seen]
        known = s.steps - (s.end == "blind")
        for k in range(ahead):
            j = min(t + td_steps, s.steps) + k
            inside = j < known
            assert bool(parts["mask"][i, k]) == inside
            assert parts["reward"][i, k] == (s.reward(j) if inside else 0)
            assert parts["discount"][i, k] == (s.discount(j, 0.5) if inside else 0)
            if inside:
                assert parts["observation"][i, k, 0] == s.observation(j + 1)


def test_a_buffer_gives_as_much_of_a_cut_episode_as_its_dataset() -> None:
    """Ten steps, then a cut without a final observation: the last step alone is left out, however far one looks ahead."""
    buffer = as_buffer([Story(0, 10, "blind")], 40).buffer
    parts: list[dict[float, list[float]]] = []
    for source in (buffer, buffer.to_dataset()):
        sampler = TransitionSampler(source, 64, gamma=0.5, ahead=65, extra=(RETURNS,))
        assert sampler.n_windows == 9
        batch = sampler.sample(0)
        rows = torch.cat((batch.extra["ahead/mask"], batch.extra["ahead/reward"], batch.extra["ahead/observation"][..., 0]), 1)
        parts.append(dict(zip(batch.observation[:, 0].tolist(), rows.tolist(), strict=True)))
    assert parts[0] == parts[1]
    assert [sum(parts[0][float(Story(0, 10, "blind").observation(t))][:65]) for t in range(9)] == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(ConfigError, match="whose episode has ended"):
        TransitionSampler(buffer, 4, ahead=2, until="action")


def test_what_is_negative_is_said_of_scaled_rewards() -> None:
    """CalQL's rewards of AntMaze, 10 r - 5: five steps at the goal before a cut earn 5 each, and as many elsewhere cost 5."""
    observations, flags = np.repeat(np.arange(2, dtype=np.float32), 5)[:, None], np.arange(10) % 5 == 4
    rewards, final = np.repeat(np.float32([1, 0]), 5), np.zeros((2, 1), np.float32)
    data = Dataset.from_arrays(observations, np.zeros((10, 1), np.float32), rewards, flags & False, flags, final_observations=final)
    scaler = StandardRewardScaler(mean=0.5, std=1.0, epsilon=0.0, multiplier=10.0)
    options: dict[str, Any] = {"extra": (RETURNS,), "dtype": torch.float64, "reward_scaler": scaler}
    batch = TransitionSampler(data, 64, gamma=0.99, endless=True, **options).sample(0)
    earned = batch.observation[:, 0] == 0
    returns = batch.extra[RETURNS]
    assert sorted(set(returns[earned].tolist())) == pytest.approx([5 * sum(0.99**k for k in range(n)) for n in range(1, 6)])
    assert float(returns[earned].max()) == pytest.approx(24.5, abs=0.01)
    np.testing.assert_allclose(returns[~earned], -500)
