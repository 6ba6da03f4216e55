"""Drawn transitions against a slow list of windows, over every kind of episode end."""

import numpy as np
import pytest
import torch
from scipy import stats

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.sampling import TransitionSampler, Windows
from d3ray.data.scalers import MinMaxActionScaler, StandardScaler

GAMMA = 0.9
# steps and how each episode ends; "blind" is a truncation whose final observation was not recorded
EPISODES = [
    (1, "terminated"),
    (2, "truncated"),
    (1, "truncated"),
    (4, "blind"),
    (2, "terminated"),
    (1, "blind"),
    (5, "truncated"),
    (3, "terminated"),
]


def dataset(episodes=EPISODES, discrete=False):
    """Observations count 0, 1, 2, … so that a value names its row; the final observation of an episode is its last plus 1000."""
    kinds = {end for _, end in episodes}
    parts = []
    at = 0
    for steps, end in episodes:
        now = np.arange(at, at + steps)
        action = now % 3 if discrete else (now[:, None] / 100.0).astype("f4")
        final = None if end == "blind" else np.array([[now[-1] + 1000.0]], "f4")
        last = np.arange(steps) == steps - 1
        parts.append(
            Dataset.from_arrays(
                now[:, None].astype("f4"),
                action,
                (now * 10.0).astype("f4"),
                last & (end == "terminated"),
                last & (end != "terminated"),
                final_observations=final,
            )
        )
        at += steps
    assert kinds
    return Dataset.concat(parts)


def windows(episodes, td_steps, bootstrap=True):
    """Every transition that may be drawn, written out: observation, n-step reward, discount, next observation."""
    found, at = [], 0
    for steps, end in episodes:
        for t in range(steps):
            m = min(td_steps, steps - t)
            reaches_end = t + m == steps
            if end == "blind" and t + td_steps >= steps and bootstrap:
                continue
            reward = sum(GAMMA**k * (at + t + k) * 10 for k in range(m))
            discount = 0.0 if reaches_end and end == "terminated" else GAMMA**m
            following = at + t + m if not reaches_end else at + steps - 1 + (0 if end == "blind" else 1000)
            found.append((at + t, reward, discount, following))
        at += steps
    return found


@pytest.mark.parametrize("td_steps", [1, 3])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_what_is_followed_by_an_action_or_a_terminal_is_drawn_alone(td_steps, bootstrap):
    """No closing row of an episode that was cut stands for a next action; n-step windows that reach one are left out too."""
    data, first, wanted = dataset(), 0, set()
    for steps, end in EPISODES:
        wanted |= {first + t for t in range(steps) if end == "terminated" or t + td_steps < steps}
        first += steps
    sampler = TransitionSampler(data, 512, seed=1, td_steps=td_steps, bootstrap=bootstrap, until="action")
    batch = sampler.sample()
    assert sampler.n_windows == len(wanted)
    assert set(batch.observation[:, 0].int().tolist()) <= wanted
    there = batch.discount > 0
    torch.testing.assert_close(batch.next_action[there] * 100, batch.next_observation[there])
    with pytest.raises(DataError, match="an action, or a terminal, follows"):
        Windows(dataset([(4, "truncated"), (2, "blind")]), td_steps=4, until="action")


@pytest.mark.parametrize("td_steps", [1, 2, 3, 7])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_every_window_is_what_the_slow_list_says(td_steps, bootstrap):
    data, expected = dataset(), windows(EPISODES, td_steps, bootstrap)
    sampler = TransitionSampler(data, 512, seed=1, gamma=GAMMA, td_steps=td_steps, bootstrap=bootstrap, dtype=torch.float64)
    assert sampler.n_windows == len(expected)
    seen = set()
    for _ in range(4):
        batch = sampler.sample()
        for i, index in enumerate(batch.index.tolist()):
            seen.add(index)
            row = (float(batch.observation[i]), float(batch.reward[i]), float(batch.discount[i]), float(batch.next_observation[i]))
            np.testing.assert_allclose(row, expected[index], rtol=1e-6)
            assert float(batch.action[i]) == pytest.approx(expected[index][0] / 100)
    assert seen == set(range(len(expected)))


def test_next_action_is_zero_where_the_episode_ended():
    sampler = TransitionSampler(dataset(), 256, gamma=GAMMA)
    batch = sampler.sample()
    for i in range(256):
        following = float(batch.next_observation[i])
        assert float(batch.next_action[i]) == pytest.approx(0.0 if following >= 1000 else following / 100)


def test_a_bag_of_single_transitions():
    n = 50
    bag = Dataset.from_arrays(
        np.arange(n, dtype="f4")[:, None],
        np.zeros((n, 1), "f4"),
        np.ones(n, "f4"),
        np.arange(n) % 2 == 0,
        np.arange(n) % 2 == 1,
        final_observations=np.arange(n, dtype="f4")[:, None] + 0.5,
    )
    batch = TransitionSampler(bag, 400, gamma=GAMMA, td_steps=3).sample()
    torch.testing.assert_close(batch.next_observation, batch.observation + 0.5)
    torch.testing.assert_close(batch.discount, torch.where(batch.observation[:, 0] % 2 == 0, 0.0, GAMMA))


def test_draws_are_uniform():
    sampler = TransitionSampler(dataset(), 1000, seed=4)
    counts = np.bincount(torch.cat([sampler.sample().index for _ in range(100)]).numpy(), minlength=sampler.n_windows)
    assert stats.chisquare(counts).pvalue > 0.001


def test_a_step_names_its_batch_whatever_was_drawn_before():
    ahead, back = (TransitionSampler(dataset(), 8, seed=3) for _ in range(2))
    forward = [ahead.sample(step).index for step in range(130)]
    backward = [back.sample(step).index for step in reversed(range(130))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))
    assert not torch.equal(forward[0], forward[64])


def test_a_stack_draws_what_each_seed_draws_alone():
    seeds = (5, 9, 2)
    data = dataset(discrete=True)
    gamma = torch.tensor([0.9, 0.5, 0.0], dtype=torch.float64)
    together = TransitionSampler(data, 16, seeds, gamma=gamma, td_steps=3, dtype=torch.float64).sample(70)
    for k, seed in enumerate(seeds):
        alone = TransitionSampler(data, 16, seed, gamma=float(gamma[k]), td_steps=3, dtype=torch.float64).sample(70)
        for name in ("observation", "action", "reward", "next_observation", "discount", "index", "next_action"):
            assert torch.equal(getattr(together, name)[k], getattr(alone, name)), name
    assert together.action.dtype == torch.int64


def test_a_split_draws_from_its_own_episodes_only():
    data = dataset()
    train, test = data.split(test_size=0.4, seed=1)
    drawn = [set(TransitionSampler(part, 300).sample().observation.flatten().tolist()) for part in (train, test)]
    assert drawn[0]
    assert drawn[1]
    assert not drawn[0] & drawn[1]


def test_scalers_act_on_what_is_drawn():
    data = dataset()
    observation, action = StandardScaler().fit(data), MinMaxActionScaler().fit(data)
    raw = TransitionSampler(data, 64, seed=2, dtype=torch.float64).sample(0)
    scaled = TransitionSampler(data, 64, seed=2, observation_scaler=observation, action_scaler=action, dtype=torch.float64).sample(
        0
    )
    n = sum(steps for steps, _ in EPISODES)
    values = np.arange(n)  # closing rows count in no statistic
    torch.testing.assert_close(scaled.observation, (raw.observation - values.mean()) / (values.std() + 1e-3))
    torch.testing.assert_close(scaled.next_observation, (raw.next_observation - values.mean()) / (values.std() + 1e-3))
    torch.testing.assert_close(scaled.action, raw.action / ((n - 1) / 100) * 2 - 1, rtol=1e-6, atol=1e-6)
    assert torch.equal(scaled.reward, raw.reward)


def test_nothing_to_draw_is_one_sentence():
    with pytest.raises(DataError, match="has no transition that can be drawn with td_steps=5"):
        Windows(dataset([(4, "blind"), (2, "blind")]), td_steps=5)
    with pytest.raises(DataError, match="needs the column 'log_prob'"):
        TransitionSampler(dataset(), 4, extra=("log_prob",))


@pytest.mark.parametrize("width", [8, 64])  # rows that are looked up with those after them, and wider ones, in small blocks
def test_batches_of_several_blocks_have_the_rows_that_they_name(width: int) -> None:
    ends = np.cumsum([1, 40, 300, 9, 77])
    n = int(ends[-1])
    number = np.arange(n, dtype=np.float32)
    last = np.isin(np.arange(n), ends - 1)
    made = Dataset.from_arrays(number[:, None] + np.arange(width) / 128, np.stack([number, -number], 1), number, last)
    sampler = TransitionSampler(made, 256, 3, gamma=0.5)
    for step in (0, 1, 9, 63, 64, 127, 128, 500):
        batch = sampler.sample(step)
        at = batch.index.numpy()
        goes_on = ~last[at]
        assert len(np.unique(at)) > 100
        assert (batch.observation.numpy() == (at[:, None] + np.arange(width) / 128).astype(np.float32)).all()
        assert (batch.next_observation[:, 0].numpy() == at + 1)[goes_on].all()
        assert (batch.next_action.numpy() == np.stack([at + 1, -at - 1], 1))[goes_on].all()
        assert (batch.action.numpy() == np.stack([at, -at], 1)).all()
        assert (batch.reward.numpy() == at).all()
        assert (batch.discount.numpy() == 0.5 * goes_on).all()
