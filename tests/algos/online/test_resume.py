"""Online runs that are interrupted go on as if they had not been: networks, buffer and later metrics, bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import d3ray
from d3ray import DQN, TD3, Dataset, ReplayBuffer
from d3ray.algos.environments.evaluate import EnvironmentEvaluator
from d3ray.algos.environments.make import make
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.online.settings import Share
from d3ray.algos.registry import algorithm_class
from d3ray.algos.saving.checkpoint import checkpoints
from d3ray.data.errors import ConfigError, StorageError
from d3ray.data.sampling import Mixture

SMALL = {"hidden_units": (16, 16)}
ACTOR_CRITIC = {"action_scaler": "min_max", "actor_encoder": SMALL, "critic_encoder": SMALL, "batch_size": 16}


def dqn(**settings):
    return DQN(**{"encoder": SMALL, "batch_size": 16, "learning_rate": 1e-3, "target_update_interval": 20, "seed": 3, **settings})


def td3(**settings):
    return TD3(**{**ACTOR_CRITIC, "seed": 3, **settings})


def told(metrics):
    """Metrics without the times that they took."""
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def assert_same_run(one, two):
    """Networks, optimisers, buffers and environments of two runs."""
    for a, b in ((one.algorithm.state()[0], two.algorithm.state()[0]), (one.buffer.state(), two.buffer.state())):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    (arrays, counts), (others, other_counts) = one.rollout.state(), two.rollout.state()
    assert counts == other_counts
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], others[name], err_msg=name)


class Dot(gymnasium.Env):
    """A dot that moves over a picture of 8 × 8; episodes of 5 to 14 steps."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 255, (8, 8), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.at = int(self.np_random.integers(5, 15)), self.np_random.integers(0, 8, 2)
        return self.picture(), {}

    def step(self, action):
        self.left -= 1
        self.at = (self.at + np.array([action - 1, self.np_random.integers(-1, 2)])) % 8
        return self.picture(), float(action == 1), self.left == 0 and self.at[0] > 3, self.left == 0, {}

    def picture(self):
        shown = np.zeros((8, 8), np.uint8)
        shown[tuple(self.at)] = 255
        return shown


FRAMES = {"name": "uniform", "frames": 3, "frame_padding": "repeat"}
RUNS = {
    "bursts that epochs cut, two environments, a ring that is full": (
        td3,
        "Pendulum-v1",
        {"n_envs": 2, "n_updates": 3, "update_interval": 8, "capacity": 430, "random_steps": 20, "explorer": "ornstein_uhlenbeck"},
    ),
    "priorities and n-step returns": (
        lambda: dqn(sampler="prioritized", td_steps=3),
        "CartPole-v1",
        {"n_envs": 2, "capacity": 200, "explorer": {"name": "epsilon_greedy", "duration": 100}},
    ),
    "own draws, in float64": (
        lambda: algorithm_class("SAC")(**ACTOR_CRITIC, seed=3, dtype="float64"),
        "Pendulum-v1",
        {"random_steps": 20},
    ),
    "frames": (lambda: dqn(sampler=FRAMES, observation_scaler="pixel"), Dot, {"n_envs": 2, "capacity": 200}),
    "a dataset beside it": (
        lambda: dqn(sampler="prioritized"),
        "CartPole-v1",
        {"dataset": "d3ray/cartpole-replay", "mixture": {"end": 0.2, "duration": 200}},
    ),
    "augmentation": (lambda: dqn(augmentation=["single_amplitude_scaling"]), "CartPole-v1", {"explorer": "boltzmann"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(name, tmp_path):
    made, environment, arguments = RUNS[name]
    if "dataset" in arguments:
        arguments = arguments | {"dataset": Dataset.open(arguments["dataset"])}
    with warnings.catch_warnings(), OnlineRun(made(), environment, **arguments) as whole:
        warnings.simplefilter("error")
        expected = [told(metrics) for _, metrics in whole.epochs(140, 35)]
        with OnlineRun(made(), environment, **arguments) as first:
            before = [told(metrics) for _, metrics in first.epochs(70, 35)]
            first.save(tmp_path / "run")
        with OnlineRun.load(tmp_path / "run", environment, dataset=arguments.get("dataset")) as second:
            assert_same_run(first, second)
            assert [told(metrics) for _, metrics in second.epochs(70, 35)] == expected[2:]
            assert_same_run(whole, second)
        if "capacity" in arguments:
            assert whole.buffer._rings.full(slice(0, 1))
    assert before == expected[:2]
    again = d3ray.load(tmp_path / "run")  # a run's folder is a saved algorithm's too
    assert again.step == 70


# ---- killed


def killed_runs(folder):
    """Two runs side by side, with a checkpoint after every epoch."""
    for made, environment, more in (
        (td3, "Pendulum-v1", {"n_envs": 2, "capacity": 600, "random_steps": 30, "explorer": "ornstein_uhlenbeck"}),
        (lambda: dqn(sampler="prioritized"), "CartPole-v1", {"n_updates": 3, "update_interval": 2}),
    ):
        buffer = ReplayBuffer(more.pop("capacity", 400), make(environment).spec, more.get("n_envs", 1))
        algorithm = made()
        keep = {} if folder is None else {"checkpoint": Path(folder) / algorithm.name, "resume": True}
        epochs = algorithm.fitter_online(environment, buffer, n_steps=240, n_steps_per_epoch=24, **more, **keep)
        yield algorithm, buffer, epochs


@pytest.mark.long
def test_a_run_killed_at_a_random_point_ends_as_an_undisturbed_one(tmp_path):
    whole = [(algorithm, buffer, {e: told(m) for e, m in epochs}) for algorithm, buffer, epochs in killed_runs(None)]
    process = subprocess.Popen([sys.executable, __file__, str(tmp_path)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        while not all(checkpoints(tmp_path / name) for name in ("TD3", "DQN")):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(wait := random.uniform(0, 0.8))
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for (algorithm, buffer, metrics), (other, found, epochs) in zip(whole, killed_runs(tmp_path), strict=True):
        resumed = {e: told(m) for e, m in epochs}
        print(f"{other.name} was killed {wait:.3f} s after the first checkpoint and went on from epoch {min(resumed, default=11)}")
        assert resumed == {e: m for e, m in metrics.items() if e in resumed}
        assert resumed.keys() <= set(range(2, 11))
        mine, theirs = algorithm.state()[0] | buffer.state(), other.state()[0] | found.state()
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def main(folder):
    """What the killed process does: the epochs of both runs in turn, slowly enough to be killed."""
    torch.set_num_threads(1)
    for _ in itertools.zip_longest(*(epochs for _, _, epochs in killed_runs(folder))):
        time.sleep(0.1)


# ---- what cannot be restored


class Drifting(gymnasium.Env):
    """Numbers that follow from nothing."""

    def __init__(self):
        self.observation_space, self.action_space = gymnasium.spaces.Box(-9.0, 9.0, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.float32([random.random(), 1]), 1.0, False, False, {}


def test_an_environment_that_does_not_come_back_begins_a_new_episode(tmp_path):
    with OnlineRun(dqn(), Drifting) as run:
        list(run.epochs(10, 10))
        shown = run.rollout.observation.copy()
        run.save(tmp_path / "run")
    with pytest.warns(UserWarning, match="episodes of environments 0 could not be taken up again, so new ones begin") as told_of:
        second = OnlineRun.load(tmp_path / "run", Drifting)
    assert len(told_of) == 1
    buffer, steps = second.buffer, run.rollout.steps
    assert buffer.columns["truncated"][steps - 1]
    assert not buffer.columns["terminated"][: steps + 1].any()
    assert buffer.columns["closing"][steps]
    np.testing.assert_array_equal(buffer.columns["observation"][steps], shown[0])
    assert buffer.to_dataset().episodes.final_recorded.all()  # what it showed is known, so the cut is bootstrapped from
    assert second.rollout.observation.tolist() == [[0, 0]]
    list(second.epochs(10, 10))
    assert second.algorithm.step == 20
    assert buffer.to_dataset().episodes.steps.tolist() == [steps, second.rollout.steps - steps]
    assert second.rollout._length.tolist() == [second.rollout.steps - steps]


def test_priorities_follow_the_cut_of_a_lost_episode(tmp_path):
    """In a full ring the closing row takes the place of a row that could be drawn, and the last step can be drawn from then on."""
    with OnlineRun(dqn(sampler="prioritized"), Drifting, capacity=40) as run:
        list(run.epochs(60, 60))
        assert run.buffer._rings.full(slice(0, 1))
        kept = run._drawn.state()["priorities"][0]
        run.save(tmp_path / "run")
    with pytest.warns(UserWarning, match="could not be taken up again"):
        second = OnlineRun.load(tmp_path / "run", Drifting)
    (closing,) = np.flatnonzero(second.buffer.columns["closing"])
    now, last = second._drawn.state()["priorities"][0], (closing - 1) % 40
    assert kept[closing] > 0 == kept[last]
    assert now[closing] == 0
    assert now[last] == second._drawn.priorities.maximum[0]
    others = np.delete(np.arange(40), [closing, last])
    np.testing.assert_array_equal(now[others], kept[others])
    assert np.flatnonzero(now).tolist() == sorted(second._drawn.windows.all())


def test_a_run_that_a_callback_saves_amid_a_burst_goes_on_as_if_it_had_not_stopped(tmp_path):
    def saves(algorithm, epoch, step):
        if step == 13:
            run.save(tmp_path / "run")

    with OnlineRun(dqn(), "CartPole-v1", n_updates=4, update_interval=3) as run:
        list(run.epochs(40, 40, callback=saves))
    with OnlineRun.load(tmp_path / "run", "CartPole-v1") as second:
        list(second.epochs(27, 40))
        assert_same_run(run, second)


def test_an_episode_whose_beginning_was_overwritten_is_played_again(tmp_path):
    with OnlineRun(td3(), "Pendulum-v1", capacity=50) as run:  # episodes have 200 steps
        list(run.epochs(100, 100))
        run.save(tmp_path / "run")
        assert sorted(run.buffer.current_episode()) == list(range(50))
        with OnlineRun.load(tmp_path / "run", "Pendulum-v1") as again:
            for one in (run, again):
                list(one.epochs(150, 100))  # over the episode's end
            assert_same_run(run, again)


def test_an_episode_of_more_steps_than_are_kept_cannot_be_played_again(tmp_path, monkeypatch):
    monkeypatch.setattr("d3ray.algos.environments.rollout._LONGEST", 99)
    with OnlineRun(td3(), "Pendulum-v1") as run:
        list(run.epochs(100, 100))
        run.save(tmp_path / "run")
    with pytest.warns(UserWarning, match="could not be taken up again"):
        again = OnlineRun.load(tmp_path / "run", "Pendulum-v1")
    assert again.vector.resets == [run.vector.resets[0] + 1]  # its new episode is not the first one over again


class Paid(Drifting):
    """Observations follow from the actions, rewards from nothing."""

    def step(self, action):
        return np.zeros(2, np.float32), random.random(), False, False, {}


@pytest.mark.parametrize("environment", [Paid, Drifting])
def test_rewards_are_compared_too_and_all_is_up_to_what_is_shown_now(environment, tmp_path):
    with OnlineRun(dqn(), environment) as run:
        run.act()
        run.save(tmp_path / "run")
    with pytest.warns(UserWarning, match="could not be taken up again"):
        OnlineRun.load(tmp_path / "run", environment)


def test_a_vector_without_a_seed_begins_anew_and_one_with_its_own_goes_on(tmp_path):
    for seed in (None, 9):
        vector = make("CartPole-v1", n=2, seed=seed)
        run = OnlineRun(dqn(), vector)
        list(run.epochs(30, 30))
        run.save(tmp_path / str(seed))
        shown = run.rollout.observation
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = OnlineRun.load(tmp_path / str(seed), make("CartPole-v1", n=2, seed=seed))
        assert np.array_equal(again.rollout.observation, shown) == (seed == 9)
        assert bool(caught) == (seed is None)


# ---- folders of checkpoints


def test_a_folder_of_checkpoints_is_kept_small_and_is_gone_on_from(tmp_path):
    folder, arguments = tmp_path / "run", {"n_steps_per_epoch": 10, "save_interval": 2}
    algorithm = dqn().fit_online("CartPole-v1", n_steps=50, checkpoint=folder, **arguments)
    assert [path.name for path in checkpoints(folder)] == ["step-000000040", "step-000000050"]
    with pytest.raises(ConfigError, match="holds a run already: say resume=True to go on with it"):
        dqn().fit_online("CartPole-v1", n_steps=50, checkpoint=folder, **arguments)
    (folder / ".tmp-step-000000060-ab12").mkdir()  # what a killed process was writing
    done = dqn()
    assert list(done.fitter_online("CartPole-v1", n_steps=50, checkpoint=folder, resume=True, **arguments)) == []
    assert done.step == 50
    for name, tensor in done.state()[0].items():
        assert torch.equal(tensor, algorithm.state()[0][name])
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000040", "step-000000050"]
    longer = list(dqn().fitter_online("CartPole-v1", n_steps=60, checkpoint=folder, resume=True, **arguments))
    assert [metrics["step"] for _, metrics in longer] == [60.0]
    for other, more, message in (
        (dqn(learning_rate=0.5), {}, "was begun with learning_rate 0.001, not 0.5: give the same, or another folder"),
        (dqn(seed=4), {}, "was begun with seed 3, not 4"),
        (dqn(), {"n_updates": 2}, "was begun with n_updates 1, not 2"),
        (dqn(), {"n_envs": 2}, "was begun with n_envs 1, not 2"),
        (dqn(), {"capacity": 500}, "was begun with capacity 1000000, not 500"),
    ):
        with pytest.raises(ConfigError, match=message):
            other.fit_online("CartPole-v1", n_steps=70, checkpoint=folder, resume=True, **arguments, **more)
        assert more or not hasattr(other, "fit_")  # other settings are refused before anything is taken over
    damaged = checkpoints(folder)[-1] / "tensors.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    whole = dqn()
    list(itertools.islice(whole.fitter_online("CartPole-v1", n_steps=60, checkpoint=folder, resume=True, **arguments), 1))
    assert whole.step == 60  # from step 50, the newest that is whole
    algorithm.save(tmp_path / "plain")
    with pytest.raises(ConfigError, match=r"holds a saved algorithm and no online run: d3ray\.load opens it"):
        OnlineRun.load(tmp_path / "plain", "CartPole-v1")


def test_checkpoints_that_are_not_whole_are_no_reason_to_begin_anew_and_stay(tmp_path):
    def damage(step):
        part = tmp_path / f"step-{step:09d}" / "tensors.safetensors"
        part.write_bytes(part.read_bytes()[:-1])

    arguments = {"n_steps_per_epoch": 10, "checkpoint": tmp_path, "resume": True}
    dqn().fit_online("CartPole-v1", n_steps=80, save_interval=2, **arguments)  # which keeps 60 and 80
    dqn().fit_online("CartPole-v1", n_steps=90, **arguments)
    dqn().fit_online("CartPole-v1", n_steps=60, **{**arguments, "checkpoint": tmp_path / "other"})
    (tmp_path / "other" / "step-000000050").rename(tmp_path / "step-000000050")
    for step in (80, 90):
        damage(step)
    epochs = dqn().fitter_online("CartPole-v1", n_steps=90, **arguments)
    assert [next(epochs).metrics["step"] for _ in range(2)] == [60, 70]  # from step 50
    epochs.close()
    assert [path.name[-2:] for path in checkpoints(tmp_path)] == ["60", "70", "80", "90"]
    for step in (60, 70):
        damage(step)
    with pytest.raises(StorageError, match=r"No checkpoint in .* can be read, of 4: remove them to begin anew"):
        dqn().fit_online("CartPole-v1", n_steps=90, **arguments)
    assert len(checkpoints(tmp_path)) == 4


def test_a_run_begun_after_training_offline_resumes_with_its_share_of_the_dataset(tmp_path):
    dataset = Dataset.open("d3ray/cartpole-replay")
    offline = dqn().fit(dataset, 20)
    with OnlineRun(offline, "CartPole-v1", dataset=dataset, mixture=Share(end=0.0, duration=40)) as run:
        list(run.epochs(20, 20))
        run.save(tmp_path / "run")
        meta = json.loads((tmp_path / "run" / "meta.json").read_text())
        assert meta["online"]["begin"] == 20
    with OnlineRun.load(tmp_path / "run", "CartPole-v1", dataset=dataset) as again:
        assert isinstance(again._source, Mixture)
        assert again._source.counts(40) == run._source.counts(40) != again._source.counts(20)
    with pytest.raises(ConfigError, match="was begun with dataset"):
        OnlineRun.load(tmp_path / "run", "CartPole-v1", dataset=dataset.split(0.5, seed=0)[0])


# ---- frames


@pytest.mark.parametrize("padding", ["zero", "repeat"])
def test_frames_are_stacked_alike_for_acting_and_for_learning(padding):
    """What the policy sees at a step is the observation that the sampler later draws for it."""
    algorithm = dqn(sampler={**FRAMES, "frame_padding": padding}, observation_scaler="pixel")
    with OnlineRun(algorithm, Dot, update_start_step=1000) as run:
        stacks, remember = {}, run.policy._remember

        def spy(memory, observation):
            memory, stacked = remember(memory, observation)
            stacks[int(run.buffer._rings.head[0])] = stacked[0]
            return memory, stacked

        run.policy._remember = spy
        for _ in range(120):
            run.act()
        batches = [algorithm.fit_.sources.over(run.buffer).sample(step) for step in range(40)]
    index = torch.cat([batch.index for batch in batches]).tolist()
    drawn = torch.cat([batch.observation for batch in batches]).numpy()
    assert len(set(index)) > 90
    for slot, seen in zip(index, drawn, strict=True):
        np.testing.assert_allclose(seen, stacks[slot] / 255, atol=1e-6)
    first = stacks[0]
    assert first.shape == (3, 8, 8)
    assert (first[0] == (0 if padding == "zero" else first[2])).all()
    played = EnvironmentEvaluator(Dot, episodes=3)(algorithm, 1)
    assert 5 <= played["length"] <= 14
    recorded = algorithm.collect(Dot, n_steps=20)
    assert recorded.columns["observation"].shape[1:] == (8, 8)
    again = algorithm.fit(recorded, 2)  # and learns from frames that were collected singly
    assert again.step == 2


if __name__ == "__main__":
    main(sys.argv[1])
