"""Q-chunking: actions of a window, losses of chunks against loops in NumPy, chunks that are played without looking."""

import numpy as np
import pytest
import torch

from d3ray.algos.generative.qc import QC
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler

from ..loss_values import evaluate, networks, prepared

H = 3


def beside(*parts):
    return np.concatenate(parts)


def chunked(made, batch):
    return batch.__class__(**{**vars(batch), "action": batch.extra["window_action"].flatten(-2)})


def flowed(run, seen, x, n):
    for k in range(n):
        x = x + run("live", "flow", beside(seen, x, [k / n])) / n
    return np.clip(x, -1, 1)


def test_a_window_has_its_actions_and_says_where_the_episode_ended():
    data = tiny_dataset(discrete=False)
    sampler = TransitionSampler(data, 50, 3, td_steps=H, extra=("window_action",), dtype=torch.float64, next_action=False)
    batch = sampler.sample(0)
    first, steps = np.asarray(data.episodes.first_row), np.asarray(data.episodes.steps)
    for row, chunk, mask in zip(
        sampler.windows.locate(batch.index).rows.tolist(), batch.extra["window_action"], batch.extra["window_mask"], strict=True
    ):
        episode = np.flatnonzero(first <= row)[-1]
        last = first[episode] + steps[episode] - 1
        assert mask.tolist() == [float(row + k <= last) for k in range(H)]
        wanted = [data.columns["action"][min(row + k, last)] for k in range(H)]
        np.testing.assert_array_equal(chunk, np.asarray(wanted, np.float64))


def test_a_ring_buffers_windows_have_their_actions_too():
    buffer = ReplayBuffer(12, tiny_dataset(discrete=False, n=2).spec)
    for k in range(20):  # the ring has been around once; episodes of seven steps
        ended = np.array([k % 7 == 6])
        buffer.append(np.full((1, 5), k), np.full((1, 3), k / 20), np.zeros(1), ended, ~ended & False, np.full((1, 5), k + 0.5))
    sampler = TransitionSampler(buffer, 40, 1, td_steps=H, extra=("window_action",), next_action=False)
    batch = sampler.sample(0)
    for seen, actions, mask in zip(batch.observation, batch.extra["window_action"], batch.extra["window_mask"], strict=True):
        k = int(seen[0])
        there = [float(k + i <= k + 6 - k % 7) for i in range(H)]
        assert mask.tolist() == there
        np.testing.assert_allclose(actions[:, 0], [min(k + i, k + 6 - k % 7) / 20 for i in range(H)])


def test_losses_of_chunks_are_those_of_loops():
    made, learner, batch = prepared(QC, td_steps=H, n_action_samples=2, flow_steps=2)
    run, seen = networks(learner), chunked(made, batch)
    loss, _, nets = evaluate(made, learner, seen, made.flow_loss)
    noise, t = nets.noise("noise", seen.action.shape).numpy(), nets.uniform("time", (len(seen.action), 1)).numpy()
    wanted = []
    for i, s in enumerate(seen.observation.numpy()):
        a, z = seen.action[i].numpy(), noise[i]
        error = (run("live", "flow", beside(s, (1 - t[i]) * z + t[i] * a, t[i])) - (a - z)) ** 2
        wanted.append((error.reshape(H, -1) * seen.extra["window_mask"][i].numpy()[:, None]).mean())
    np.testing.assert_allclose(loss, wanted, rtol=1e-9)

    loss, _, nets = evaluate(made, learner, seen, made.critic_loss)
    noise, wanted = nets.noise("next action", (len(seen.reward), 2, H * 3)).numpy(), []
    for i, after in enumerate(seen.next_observation.numpy()):
        chunks = [flowed(run, after, z, 2) for z in noise[i]]
        best = max(chunks, key=lambda c: np.mean([run("live", "critic", beside(after, c), m)[0] for m in range(2)]))
        following = np.mean([run("target", "critic", beside(after, best), m)[0] for m in range(2)])
        goal = seen.reward[i].item() + seen.discount[i].item() * following
        mine = beside(seen.observation[i].numpy(), seen.action[i].numpy())
        counts = seen.extra["window_mask"][i, -1].item() or float(seen.discount[i] == 0)
        wanted.append(counts * sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(2)))
    np.testing.assert_allclose(loss, wanted, rtol=1e-9)
    assert 0 in wanted  # a window that was cut short counts in no critic


@pytest.mark.parametrize("actor", ["best_of_n", "distilled"])
def test_a_chunk_is_played_to_its_end_before_another_is_drawn(actor):
    made = maker(QC, td_steps=H, actor=actor)(seed=1).fit(tiny_dataset(discrete=False), 6, 6)
    policy, rng = made.policy(), np.random.default_rng(0)
    memory, actions, chunks = policy.start(2), [], []
    for _ in range(2 * H):
        memory, action = policy.step(memory, rng.normal(size=(2, 5)).astype(np.float32))
        actions.append(action)
        chunks.append(np.asarray(memory["state/chunk"]))
    for k in (0, H):
        for step in range(1, H):
            np.testing.assert_allclose(actions[k + step], chunks[k][:, step - 1], atol=1e-6)
    assert np.abs(actions[H] - chunks[0][:, H - 1]).max() > 1e-3
    with pytest.raises(ConfigError):
        made.predict(np.zeros((1, 5), np.float32))
    with pytest.raises(ConfigError, match="learns no values"):
        made.predict_value(np.zeros((1, 5), np.float32), np.zeros((1, 3), np.float32))


def test_chunks_longer_than_every_episode_are_refused():
    arrays = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.zeros(4)}
    data = Dataset.from_arrays(**arrays, terminated=np.array([0, 1, 0, 1], bool), name="short")
    with pytest.raises(DataError, match="names 5 actions at once, and the longest episode of 'short' has 2 steps: lower td_steps"):
        maker(QC)().fit(data, 1)
