"""The online loop: when it acts and when it learns, what it draws from, whom it lets in; against loops written out."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import DQN, TD3, Dataset, ReplayBuffer
from d3ray.algos.environments.explorers import GaussianNoise, LinearDecayEpsilonGreedy, random_actions
from d3ray.algos.environments.make import make
from d3ray.algos.learning.callbacks import StopTraining
from d3ray.algos.online.run import OnlineRun
from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError, DataError

SMALL = {"hidden_units": (16, 16)}
ACTING = {"action_scaler": "min_max", "actor_encoder": SMALL, "critic_encoder": SMALL, "batch_size": 16}


def dqn(**settings):
    return DQN(**{"encoder": SMALL, "batch_size": 16, "learning_rate": 1e-3, "seed": 3, **settings})


def td3(**settings):
    return TD3(**{**ACTING, "seed": 3, **settings})


def updates_of(run, n_steps, n_steps_per_epoch):
    """(gradient step, steps of each environment) of every update, and at which gradient steps epochs ended."""
    seen, ends = [], []
    original = run.algorithm.fit_.update

    def update(source, **named):
        seen.append((run.algorithm.step, run.rollout.steps))
        original(source, **named)

    run.algorithm.fit_.update = update
    for epoch in run.epochs(n_steps, n_steps_per_epoch):
        ends.append((epoch.epoch, run.algorithm.step))
    return seen, ends


@pytest.mark.parametrize(
    ("settings", "n_envs"),
    [
        ({}, 1),
        ({"update_interval": 3, "n_updates": 2, "update_start_step": 40}, 1),
        ({"update_interval": 2, "n_updates": 5, "random_steps": 3}, 3),
    ],
)
def test_updates_come_when_they_are_due(settings, n_envs):
    """After so many steps, in bursts that epochs may cut; the first once the buffer holds a batch of complete transitions."""
    with OnlineRun(td3(), "Pendulum-v1", n_envs=n_envs, **settings) as run:  # no episode ends within the first 200 steps
        seen, ends = updates_of(run, 23, 7)
    interval, burst, start = (settings.get(k, d) for k, d in (("update_interval", 1), ("n_updates", 1), ("update_start_step", 0)))
    expected, steps = [], 0
    while len(expected) < 23:
        steps += 1
        complete = n_envs * (steps - 1)  # the latest of each environment lacks its next observation
        if steps >= start and steps % interval == 0 and complete >= 16:
            expected += [(len(expected) + k, steps) for k in range(burst)]
    assert seen == expected[:23]
    assert ends == [(1, 7), (2, 14), (3, 21), (4, 23)]


def test_a_source_hears_of_every_epoch_before_its_first_step(monkeypatch):
    """As offline; an epoch that another call goes on with is not begun twice."""
    with OnlineRun(td3(), "Pendulum-v1") as run:
        heard = []
        monkeypatch.setattr(run._drawn, "between_epochs", lambda epoch: heard.append((epoch, run.algorithm.step)))
        for n in (10, 11):
            list(run.epochs(n, n_steps_per_epoch=7))
    assert heard == [(1, 0), (2, 7), (3, 14)]


def test_what_is_done_is_what_a_loop_written_out_does():
    """Two Pendulums by hand: seeds, random actions, noise on the greedy action, clipping, what is remembered, and the returns."""
    algorithm = td3()
    vector = make("Pendulum-v1", n=2, seed=77)
    explorer = GaussianNoise(std=0.6)
    with OnlineRun(algorithm, vector, explorer=explorer, random_steps=5, update_start_step=10_000, capacity=1000) as run:
        for _ in range(230):
            run.act()
        buffer, seed, metrics = run.buffer, run.rollout.seed, run.rollout.metrics()
    space = vector.spec.action
    environments = [gymnasium.make("Pendulum-v1") for _ in range(2)]
    seeds = make("Pendulum-v1", n=2, seed=77)
    observation = np.stack([e.reset(seed=seeds._reset_seed(i))[0] for i, e in enumerate(environments)])
    rows, returns, sums = [[], []], [], np.zeros(2)
    for step in range(230):
        action = random_actions(space, 2, step=step, seed=seed)
        if step >= 5:
            action = explorer.explore(algorithm.predict(observation), space, step=step, seed=seed)
        for i, e in enumerate(environments):
            after, reward, _, cut, _ = e.step(np.clip(action[i], -2, 2))
            rows[i].append((observation[i].copy(), action[i], reward, cut))
            sums[i] += reward
            observation[i] = after
            if cut:
                rows[i].append((after, np.zeros(1), 0.0, False))
                returns.append(sums[i])
                seeds.resets[i], sums[i] = 1, 0
                observation[i] = e.reset(seed=seeds._reset_seed(i))[0]
    for i in range(2):
        slots = slice(i * buffer.rows, i * buffer.rows + 231)
        for name, column in zip(("observation", "action", "reward", "truncated"), zip(*rows[i], strict=True), strict=True):
            np.testing.assert_array_equal(buffer.columns[name][slots], np.stack(column).astype(buffer.columns[name].dtype))
        assert not buffer.columns["terminated"][slots].any()
        assert np.flatnonzero(buffer.columns["closing"][slots]).tolist() == [200]
    assert metrics == {"return": pytest.approx(np.mean(returns), rel=1e-12), "length": 200.0, "episodes": 2.0}


def test_terminated_and_truncated_are_told_apart():
    """CartPole ends itself or is cut after so many steps: only the latter is bootstrapped from."""
    algorithm = dqn()
    environment = gymnasium.make("CartPole-v1", max_episode_steps=15)
    algorithm.fit_online(environment, buffer := ReplayBuffer(2000, make(environment).spec), n_steps=300, n_steps_per_epoch=300)
    data = buffer.to_dataset()
    whole = data.episodes.steps[:-1]  # the last is unfinished
    assert (data.episodes.terminated[:-1] | (whole == 15)).all()  # who falls in the 15th step has fallen
    assert data.episodes.final_recorded[:-1].all()
    fallen = np.abs(data.columns["observation"][data.columns["closing"]][:-1][:, 2]) > 0.2095
    assert fallen.tolist() == data.episodes.terminated[:-1].tolist()
    batch = algorithm.fit_.sources.over(buffer).sample(0, 16)
    assert set(batch.discount.tolist()) <= {0.0, float(np.float32(0.99))}


def test_d3rlpys_call_is_understood(capfd):
    spec = make("CartPole-v1").spec
    algorithm, buffer, called = dqn(), ReplayBuffer(500, spec), []
    epochs = list(
        algorithm.fitter_online(
            gymnasium.make("CartPole-v1"),
            buffer,
            LinearDecayEpsilonGreedy(start_epsilon=1.0, end_epsilon=0.1, duration=50),
            n_steps=20,
            n_steps_per_epoch=10,
            update_interval=2,
            n_updates=1,
            update_start_step=30,
            random_steps=10,
            eval_env=gymnasium.make("CartPole-v1"),
            eval_epsilon=0.5,
            eval_n_trials=2,
            save_interval=1,
            callback=lambda algo, epoch, total_step: called.append((epoch, total_step)),
            show_progress=False,
        )
    )
    assert [epoch for epoch, _ in epochs] == [1, 2]
    metrics = epochs[-1].metrics
    assert {"evaluation/return", "evaluation/length", "train/critic_loss", "rollout/return", "rollout/episodes"} <= metrics.keys()
    assert metrics["train/environment_steps"] == 30 + 2 * 19
    assert len(buffer) == 68
    assert called == [(-(-k // 10), k) for k in range(1, 21)]


def test_random_actions_in_an_evaluation_are_the_share_that_was_asked_for():
    from d3ray.algos.environments.evaluate import EnvironmentEvaluator

    class Pushes:
        def start(self, n):
            return None

        def step(self, state, observation):
            return None, np.zeros(len(observation), np.int64)

    class Algorithm:
        def policy(self):
            return Pushes()

    length = {e: EnvironmentEvaluator("CartPole-v1", episodes=20, epsilon=e)(Algorithm(), 1)["length"] for e in (0.0, 0.5, 1.0)}
    assert length[0.0] < 11 < length[0.5] < length[1.0]
    with pytest.raises(ConfigError, match="evaluate: epsilon is 2"):
        EnvironmentEvaluator("CartPole-v1", epsilon=2.0)(Algorithm(), 1)


def test_a_callback_may_end_it():
    def enough(algorithm, epoch, step):
        if step == 13:
            raise StopTraining

    algorithm = dqn()
    epochs = list(algorithm.fitter_online("CartPole-v1", n_steps=100, n_steps_per_epoch=10, callback=enough))
    assert [(e, m["step"]) for e, m in epochs] == [(1, 10.0), (2, 13.0)]


# ---- how it explores


def test_a_stochastic_policy_explores_by_its_own_draws():
    algorithm = algorithm_class("SAC")(**ACTING, seed=3)
    with OnlineRun(algorithm, "Pendulum-v1", n_envs=2, update_start_step=10_000) as run:
        assert run.rollout.explorer.name == "policy"
        for _ in range(5):
            run.act()
        seen, done = (
            run.buffer.columns[name][np.r_[0:5, run.buffer.rows : run.buffer.rows + 5]] for name in ("observation", "action")
        )
        at = run.rollout.seed
    for step in range(5):
        rows = [step, 5 + step]
        np.testing.assert_array_equal(done[rows], algorithm.policy().draw(seen[rows], step=step, seed=at))
    greedy = algorithm.predict(seen)
    assert abs(done - greedy).min() > 1e-6
    first, second = algorithm.sample_action(seen), algorithm.sample_action(seen)
    assert abs(first - second).min() > 1e-7
    again = algorithm.collect("Pendulum-v1", n_steps=20, deterministic=True)
    np.testing.assert_allclose(again.columns["action"][:-1], algorithm.predict(again.columns["observation"][:-1]), atol=1e-6)
    drawn = algorithm.collect("Pendulum-v1", n_steps=20)
    assert abs(drawn.columns["action"][:-1] - algorithm.predict(drawn.columns["observation"][:-1])).min() > 1e-6


def test_a_draw_is_from_the_policys_distribution():
    """10,000 draws of SAC's tanh normal against its mean and deviation before the tanh."""
    algorithm = algorithm_class("SAC")(**{**ACTING, "action_scaler": None}, seed=3)
    algorithm.fit_online(Unit, n_steps=2, n_steps_per_epoch=2)
    x = np.tile(np.float32([0.3, -0.2]), (10_000, 1))
    drawn = np.arctanh(algorithm.policy().draw(x, step=0, seed=5).astype(np.float64).clip(-0.999999, 0.999999))[:, 0]
    with torch.no_grad():
        law = algorithm.fit_.nets().policy(torch.from_numpy(x[:1]))
    assert drawn.mean() == pytest.approx(float(law.mean), abs=0.05)
    assert drawn.std() == pytest.approx(float(law.log_std.exp()), rel=0.05)


def test_boltzmann_departs_from_the_critics_values():
    algorithm = dqn()
    with OnlineRun(algorithm, "CartPole-v1", n_envs=3, explorer={"name": "boltzmann", "T": 0.05}, update_start_step=10_000) as run:
        run.act()
        seen = run.buffer.columns["observation"][:: run.buffer.rows][:3]
        _, values = run.policy.propose("values", None, seen, step=0, seed=0)
        by_hand = np.stack([algorithm.predict_value(seen, np.full(3, a)) for a in range(2)], 1)
        np.testing.assert_allclose(values, by_hand, atol=1e-6)
    with pytest.raises(ConfigError, match="TD3 has no values of single actions, for its actions are continuous"):
        td3().fit_online("Pendulum-v1", explorer="boltzmann", n_steps=1)
    with pytest.raises(ConfigError, match="The policy of TD3 is deterministic, so there is nothing to draw"):
        td3().fit_online("Pendulum-v1", explorer="policy", n_steps=1)


def test_another_run_of_the_same_algorithm_draws_other_numbers():
    algorithm, firsts = dqn(), []
    for _ in range(2):
        buffer = ReplayBuffer(100, make("CartPole-v1").spec)
        algorithm.fit_online("CartPole-v1", buffer, n_steps=1, random_steps=20)
        firsts.append(buffer.columns["observation"][0].tolist())
    assert firsts[0] != firsts[1]


# ---- from recorded data to acting


def test_offline_to_online_draws_from_both_by_a_schedule():
    dataset = Dataset.open("d3ray/cartpole-replay")
    algorithm = dqn().fit(dataset, n_steps=30)
    share = {"start": 1.0, "end": 0.25, "duration": 40}
    shares = []
    with OnlineRun(algorithm, "CartPole-v1", dataset=dataset, mixture=share) as run:
        original = run._training.sample

        def sample(step):
            batch = original(step)
            shares.append(float((batch.extra["source"] == 0).float().mean()) if batch.index.numel() else None)
            return batch

        run._training.sample = sample
        for _ in run.epochs(80, 80):
            pass
        assert run.rollout.steps > 80
    expected = [1 - 0.75 * min(k / 40, 1) for k in range(80)]
    assert algorithm.step == 110
    np.testing.assert_allclose(shares, expected, atol=1 / 16 + 1e-9)  # a batch has 16 transitions
    assert np.mean(shares) == pytest.approx(np.mean(expected), abs=0.01)
    half = dqn().fitter_online(
        "CartPole-v1", n_steps=5, n_steps_per_epoch=5, dataset=dataset
    )  # never fitted: scalers see the dataset
    assert next(half).metrics["step"] == 5
    with pytest.raises(ConfigError, match="a mixture is one of a dataset and the replay buffer"):
        dqn().fit_online("CartPole-v1", mixture=0.5)
    with pytest.raises(ConfigError, match="fit_online: mixture"):
        dqn().fit_online("CartPole-v1", dataset=dataset, mixture=1.5)


def test_an_algorithm_without_errors_learns_online_beside_a_dataset():
    algorithm = algorithm_class("DiscreteBC")(batch_size=16, seed=3)
    algorithm.fit_online("CartPole-v1", dataset=Dataset.open("d3ray/cartpole-replay"), n_steps=2)
    assert algorithm.step == 2


# ---- who is let in


class Unit(gymnasium.Env):
    """Two numbers, a continuous action in [-1, 1], and as many steps as one likes."""

    def __init__(self, shape=(2,), actions=1, high=1.0):
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, shape)
        self.action_space = gymnasium.spaces.Box(-high, high, (actions,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low * 0, {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, self.observation_space.shape).astype("f4"), 0.0, False, False, {}


def test_an_environment_of_other_spaces_is_refused():
    fitted = td3(action_scaler=None).fit_online(Unit, n_steps=1)
    fresh = td3(action_scaler=None)
    for algorithm, environment, message in (
        (
            fitted,
            lambda: Unit(shape=(3,)),
            r"has observations of shape \[3\], and this TD3 was fitted on observations of shape \[2\]",
        ),
        (fitted, lambda: Unit(actions=2), r"has actions of shape \[2\], and this TD3 was fitted on actions of shape \[1\]"),
        (fitted, "CartPole-v1", "TD3 needs continuous actions, and 'CartPole-v1' has discrete ones"),
        (fresh, "CartPole-v1", "TD3 needs continuous actions, and 'CartPole-v1' has discrete ones"),
        (dqn(), "Pendulum-v1", "DQN needs discrete actions, and 'Pendulum-v1' has continuous ones"),
    ):
        with pytest.raises(DataError, match=message):
            algorithm.fit_online(environment, n_steps=1)
    assert not hasattr(fresh, "fit_")
    offline = dqn().fit(Dataset.open("d3ray/cartpole-replay"), 1)
    with pytest.raises(DataError, match="'Acrobot-v1' has actions of 3 kinds, and this DQN was fitted on actions of 2 kinds"):
        offline.fit_online("Acrobot-v1", n_steps=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"update_interval": 0}, "fit_online: update_interval is 0"),
        ({"n_updates": -1}, "fit_online: n_updates is -1"),
        ({"random_steps": -1}, "fit_online: random_steps is -1"),
        ({"n_step": 5}, "fit_online has no setting 'n_step'"),
        ({"updates": 5}, "fit_online has no setting 'updates'; did you mean 'n_updates'"),
        ({"explorer": "gausian"}, "There is no explorer 'gausian'|there is no explorer 'gausian'; did you mean 'gaussian'"),
        ({"n_steps": 0}, "n_steps is 0; it counts gradient steps and must be at least 1"),
        ({"save_interval": 0}, "save_interval is 0"),
        ({"explorer": "gaussian"}, "The explorer 'gaussian' needs continuous actions"),
        ({"capacity": 1}, "A replay buffer of capacity 1"),
        ({"resume": True}, "resume needs a folder of checkpoints to go on from"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        dqn().fit_online("CartPole-v1", **{"n_steps": 1, **arguments})


class Brief(gymnasium.Env):
    """Episodes of one step."""

    def __init__(self):
        self.observation_space, self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_a_buffer_that_never_holds_a_batch_is_refused_when_that_is_known():
    with pytest.raises(ConfigError, match=r"of capacity 32 .* than the batch_size 32, .*: give a larger capacity\."):
        OnlineRun(dqn(batch_size=32), "CartPole-v1", capacity=33, n_envs=2)  # 16 rows each, of which one can never be drawn
    with OnlineRun(dqn(), Brief, capacity=31) as run:
        for _ in range(15):  # each is two rows, a closing one among them
            run.act()
        with pytest.raises(ConfigError, match=r"of capacity 31 .* the batch_size 16"):
            run.act()
    dqn(batch_size=15).fit_online(Brief, capacity=31, n_steps=3)


def test_evaluation_in_the_very_environment_that_is_trained_in_is_refused():
    environment = gymnasium.make("CartPole-v1")
    with pytest.raises(ConfigError, match="eval_env is the very environment that is trained in"):
        dqn().fit_online(environment, n_steps=1, eval_env=environment)


def test_a_buffer_of_other_spaces_is_refused():
    with pytest.raises(ConfigError, match="The replay buffer is of other observations or actions"):
        dqn().fit_online("CartPole-v1", ReplayBuffer(100, make("Acrobot-v1").spec), n_steps=1)
