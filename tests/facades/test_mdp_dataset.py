"""d3rlpy's surface: a list of episodes that grows, transitions that are views, mini-batches with stacked frames."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from d3ray import Dataset, MDPDataset
from d3ray.d3rlpy.transitions import TransitionMiniBatch
from d3ray.data.episodes import Transition
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling import TransitionSampler

RNG = np.random.default_rng(0)
N = 60
OBSERVATIONS = RNG.normal(size=(N, 3)).astype(np.float32)
ACTIONS = RNG.uniform(-1, 1, (N, 2)).astype(np.float32)
REWARDS = RNG.normal(size=N).astype(np.float32)
TERMINALS = (np.arange(1, N + 1) % 10 == 0).astype(np.float32)


def six() -> MDPDataset:
    """Six episodes of ten steps."""
    return MDPDataset(OBSERVATIONS, ACTIONS, REWARDS, TERMINALS)


def test_it_is_a_list_of_episodes_and_arrays_of_steps() -> None:
    data = six()
    assert (len(data), data.size(), data.transition_count, len(list(data))) == (6, 6, 60, 6)
    np.testing.assert_array_equal(data[2].rewards, REWARDS[20:30])
    np.testing.assert_array_equal(data[-1].actions, ACTIONS[50:])
    assert [len(e) for e in data[1:3]] == [10, 10]
    with pytest.raises(IndexError):
        data[6]
    for found, given in ((data.observations, OBSERVATIONS), (data.actions, ACTIONS), (data.rewards, REWARDS)):
        np.testing.assert_array_equal(found, given)
    np.testing.assert_array_equal(data.terminals, TERMINALS)
    assert data.terminals.dtype == np.float32
    assert (data.get_action_size(), data.get_observation_shape(), data.is_action_discrete()) == (2, (3,), False)
    named = MDPDataset({"a": OBSERVATIONS, "b": OBSERVATIONS[:, :1]}, np.arange(N) % 4, REWARDS, TERMINALS)
    assert named.get_observation_shape() == {"a": (3,), "b": (1,)}
    assert set(named.observations) == {"a", "b"}
    assert (named.get_action_size(), named.is_action_discrete(), named[0].get_action_size()) == (4, True, 4)


def test_steps_after_the_last_end_are_an_episode_that_was_cut() -> None:
    data = MDPDataset(OBSERVATIONS[:15], ACTIONS[:15], REWARDS[:15], TERMINALS[:15])
    assert [len(e) for e in data] == [10, 5]
    assert [e.terminated for e in data] == [True, False]
    assert data.timeouts.nonzero()[0].tolist() == [14]
    timeouts = np.zeros(15)
    timeouts[4] = 1
    assert [len(e) for e in MDPDataset(OBSERVATIONS[:15], ACTIONS[:15], REWARDS[:15], TERMINALS[:15], timeouts)] == [5, 5, 5]


def test_transitions_are_a_doubly_linked_list_of_views() -> None:
    data = six()
    episode = data[1]
    assert episode.size() == len(episode.transitions) == episode.transition_count == 10
    assert episode.compute_return() == pytest.approx(REWARDS[10:20].sum(dtype=np.float64))
    assert (episode.get_action_size(), episode.get_observation_shape()) == (2, (3,))
    assert episode.terminals.tolist() == [0] * 9 + [1]
    for t, transition in enumerate(episode):
        k = 10 + t
        np.testing.assert_array_equal(transition.observation, OBSERVATIONS[k])
        np.testing.assert_array_equal(transition.action, ACTIONS[k])
        assert transition.reward == REWARDS[k]
        assert transition.terminal == TERMINALS[k]
        last = t == 9
        np.testing.assert_array_equal(transition.next_observation, OBSERVATIONS[k if last else k + 1])  # not recorded: the same
        np.testing.assert_array_equal(transition.next_action, [0, 0] if last else ACTIONS[k + 1])
        assert transition.next_reward == (0 if last else REWARDS[k + 1])
        assert transition.prev_transition == (None if t == 0 else episode[t - 1])
        assert transition.next_transition == (None if last else episode[t + 1])
    walked, at = [], data[1][0]
    while at:
        walked.append(at.reward)
        at = at.next_transition
    np.testing.assert_array_equal(walked, REWARDS[10:20])
    assert episode[0] == data[1][0] != data[2][0]
    assert len({episode[0], data[1][0], data[2][0]}) == 2
    assert episode[-1] == episode[9]
    assert episode[2:4] == [episode[2], episode[3]]
    assert (episode[0].get_action_size(), episode[0].get_observation_shape()) == (2, (3,))
    with pytest.raises(IndexError, match="The episode has 10 transitions; there is no number 10"):
        episode[10]
    np.testing.assert_array_equal(episode[3].observation, data.columns["observation"][11 + 3])
    assert np.shares_memory(episode[3].observation, data.columns["observation"])


def test_no_object_is_stored_for_a_transition() -> None:
    n = 100_000
    data = MDPDataset(np.zeros((n, 1), np.float32), np.zeros((n, 1), np.float32), np.zeros(n), np.arange(n) % 100 == 99)
    gc.collect()
    tracemalloc.start()
    total = sum(1 for episode in data for _ in episode.transitions)
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == n
    assert kept < 100_000
    assert peak < 200_000
    assert not [thing for thing in gc.get_objects() if type(thing) is Transition]


def test_a_mini_batch_is_stacked_from_transitions() -> None:
    data = six()
    chosen = [data[0][3], data[5][9], data[2][0]]
    batch = TransitionMiniBatch(chosen)
    assert (batch.size(), len(batch), batch.transitions) == (3, 3, chosen)
    rows = [3, 59, 20]
    np.testing.assert_array_equal(batch.observations, OBSERVATIONS[rows])
    np.testing.assert_array_equal(batch.next_observations, OBSERVATIONS[[4, 59, 21]])
    np.testing.assert_array_equal(batch.actions, ACTIONS[rows])
    np.testing.assert_array_equal(batch.next_actions, [ACTIONS[4], [0, 0], ACTIONS[21]])
    np.testing.assert_array_equal(batch.rewards, REWARDS[rows])
    np.testing.assert_array_equal(batch.next_rewards, [REWARDS[4], 0, REWARDS[21]])
    np.testing.assert_array_equal(batch.terminals, [0, 1, 0])
    assert TransitionMiniBatch(chosen, n_frames=4).observations.shape == (3, 3)  # no images
    with pytest.raises(ConfigError, match="n_frames is 0"):
        TransitionMiniBatch(chosen, n_frames=0)
    with pytest.raises(DataError, match="needs one transition"):
        TransitionMiniBatch([])


@pytest.mark.parametrize("last", [False, True])
def test_frames_are_stacked_along_channels_and_never_over_episodes(last: bool) -> None:
    images = np.arange(12 * 3 * 8 * 6, dtype=np.int64).reshape(12, 3, 8, 6).astype(np.uint8)
    images[:, 0, 0, 0] = np.arange(1, 13)
    given = np.moveaxis(images, 1, -1) if last else images
    data = MDPDataset(given, np.zeros((12, 1), np.float32), np.zeros(12), np.arange(12) % 6 == 5)
    chosen = [data[0][0], data[0][5], data[1][1], data[1][4]]
    batch = TransitionMiniBatch(chosen, n_frames=4)

    def by_pointers(transition: Transition, ahead: bool) -> np.ndarray:
        frames = [transition.next_observation, transition.observation] if ahead else [transition.observation]
        while len(frames) < 4 and (transition := transition.prev_transition):
            frames.append(transition.observation)
        frames = [np.moveaxis(f, -1, 0) if last else f for f in frames]
        return np.concatenate([*[np.zeros_like(frames[0])] * (4 - len(frames)), *reversed(frames)])

    for found, ahead in ((batch.observations, False), (batch.next_observations, True)):
        assert found.shape == ((4, 8, 6, 12) if last else (4, 12, 8, 6))
        for k, transition in enumerate(chosen):
            stacked = np.moveaxis(found[k], -1, 0) if last else found[k]
            np.testing.assert_array_equal(stacked, by_pointers(transition, ahead))
    first = np.moveaxis(batch.observations[2], -1, 0) if last else batch.observations[2]
    assert first[::3, 0, 0].tolist() == [0, 0, 7, 8]


def test_append_and_extend_grow_it_and_nothing_that_was_taken_before() -> None:
    data = six()
    view, sampler, before = data.take(2), TransitionSampler(data, 8), data.fingerprint
    assert data.provenance == {}
    data.append(OBSERVATIONS[:20], ACTIONS[:20], REWARDS[:20], TERMINALS[:20])
    assert (len(data), data.transition_count) == (8, 80)
    np.testing.assert_array_equal(data.rewards, np.concatenate([REWARDS, REWARDS[:20]]))
    assert data.fingerprint != before
    assert (view.n_episodes, sampler.n_windows) == (2, 60)
    assert view.provenance["derived"]["parents"][0]["fingerprint"] == before
    assert data.statistics.return_ == Dataset.concat([six(), six().take(2)]).statistics.return_
    data.extend(six())
    data.extend(data)
    assert len(data) == 28
    assert [e.rewards[0] for e in data] == [e.rewards[0] for part in [[*six(), *six()[:2], *six()]] * 2 for e in part]
    assert len(TransitionSampler(data, 8).sample().reward) == 8
    with pytest.raises(DataError, match="Column 'action' is float32"):
        data.append(OBSERVATIONS, np.zeros(N, np.int64), REWARDS, TERMINALS)
    assert len(data) == 28
    discrete = MDPDataset(OBSERVATIONS, np.arange(N) % 2, REWARDS, TERMINALS)
    discrete.append(OBSERVATIONS, np.arange(N) % 5 * 1.0, REWARDS, TERMINALS)
    assert discrete.get_action_size() == 5


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.3), (0, 0.5), (None, 0), (0.25, None), (None, None)])
def test_clip_reward(low: float | None, high: float | None) -> None:
    data = six()
    before, episode = data.rewards, data[0]
    data.clip_reward(low, high)
    expected = before if low is high is None else np.clip(before, low, high)
    np.testing.assert_array_equal(data.rewards, expected)
    np.testing.assert_array_equal(data[3].rewards, expected[30:40])
    assert data[3].compute_return() == pytest.approx(expected[30:40].sum(dtype=np.float64))
    np.testing.assert_array_equal(episode.rewards, before[:10])  # as it was
    assert isinstance(data, MDPDataset)
    assert data.name == "dataset"
    with pytest.raises(ConfigError, match="the first is above the second"):
        data.clip_reward(1, 0)


def test_compute_stats() -> None:
    stats = six().compute_stats()
    returns = REWARDS.reshape(6, 10).astype(np.float64).sum(1)
    for name, values in (("return", returns), ("reward", REWARDS), ("action", ACTIONS), ("observation", OBSERVATIONS)):
        for key in ("mean", "std", "min", "max"):
            np.testing.assert_allclose(stats[name][key], getattr(values.astype(np.float64), key)(0), rtol=1e-12)
    discrete = MDPDataset({"a": OBSERVATIONS}, np.arange(N) % 2, REWARDS, TERMINALS).compute_stats()
    assert sorted(discrete) == ["observation/a", "return", "reward"]


def test_scikit_learn_splits_it() -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    data = six()
    train, test = selection.train_test_split(data, test_size=0.34, random_state=1)
    assert (len(train), len(test)) == (3, 3)
    both = MDPDataset.from_episodes(train), MDPDataset.from_episodes(test)
    assert sorted(e.rewards[0] for part in both for e in part) == sorted(REWARDS[::10])
    assert [e.rewards[0] for e in both[0]] == [e.rewards[0] for e in train]
    assert both[0].terminals.sum() == 3
    for train_index, test_index in selection.KFold(3).split(data):
        part = data.take(test_index)
        assert [e.rewards[0] for e in part.episodes] == [data[k].rewards[0] for k in test_index]
        assert data.take(train_index).n_episodes == 4
    with pytest.raises(DataError, match="needs one episode"):
        MDPDataset.from_episodes([])
    other = MDPDataset(OBSERVATIONS[:, :2], ACTIONS, REWARDS, TERMINALS)
    with pytest.raises(DataError, match="Episode 1 has other columns than the first"):
        MDPDataset.from_episodes([data[0], other[0]])


@pytest.mark.parametrize("name", ["folder", "data.h5"])
def test_dump_and_load(tmp_path: Path, name: str) -> None:
    data = six()
    data.dump(tmp_path / name)
    if name != "data.h5":
        opened = MDPDataset.open(tmp_path / name)
        assert (type(opened), type(opened.take(2)), type(Dataset.of(opened))) == (MDPDataset, Dataset, Dataset)
    again = MDPDataset.load(tmp_path / name)
    assert isinstance(again, MDPDataset)
    assert again.fingerprint == data.fingerprint
    assert len(again) == 6
    assert (tmp_path / name).is_file() == (name == "data.h5")
    with pytest.raises(DataError):
        MDPDataset.load(tmp_path / "nothing")


def test_algorithms_take_it() -> None:
    from d3ray import BC

    algorithm = BC(batch_size=8, seed=0)
    algorithm.fit(six(), n_steps=2, n_steps_per_epoch=2)
    assert torch.isfinite(torch.as_tensor(algorithm.predict(OBSERVATIONS[:3]))).all()
