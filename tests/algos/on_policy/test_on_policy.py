"""On-policy algorithms: what a rollout has, what losses are, and that they learn, go on after an interruption, and refuse."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import d3ray
from d3ray import A2C, PPO, REINFORCE
from d3ray.algos.networks.distributions import ClippedGaussian
from d3ray.algos.on_policy.estimators import advantages
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError, DataError

TINY = {"hidden_units": [8], "activation": "tanh"}
SMALL: dict[str, Any] = {"policy_encoder": TINY, "value_encoder": TINY, "device": "cpu", "seed": 3}


class Count(gymnasium.Env[Any, Any]):
    """Shows how many steps were made and which environment it is; ends by the MDP after 3 steps, or is cut after 5, in turn."""

    numbers = itertools.count()

    def __init__(self, *, continuous: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float32)
        space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = space if continuous else gymnasium.spaces.Discrete(3)
        self.number, self.finished = next(Count.numbers), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.made = 0
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self.made += 1
        short = self.finished % 2 == 0
        terminated, truncated = short and self.made == 3, not short and self.made == 5
        shown = self._shown()
        self.finished += terminated or truncated
        return shown, float(self.made), terminated, truncated, {}

    def _shown(self) -> np.ndarray:
        return np.array([self.made, 10 * self.finished + self.number % 2], np.float32)


def ppo(**settings: Any) -> PPO:
    return PPO(**{**SMALL, "update_interval": 24, "batch_size": 7, "n_passes": 2, **settings})


def collected(algorithm: Any, **how: Any) -> tuple[OnlineRun, dict[str, torch.Tensor]]:
    """A run at its first rollout, and the rollout's columns, before any gradient step."""
    run = OnlineRun(algorithm, lambda: Count(**how), n_envs=2)
    while not run._due:
        run.act()
    run._training._make()
    return run, run._training._columns


def test_a_rollout_has_every_step_with_what_really_followed() -> None:
    """Twelve steps of two environments, through ends of both kinds; the last one is followed by where the environments stand."""
    run, columns = collected(ppo())
    seen, after = columns["observation"].unflatten(0, (12, 2)), columns["next_observation"].unflatten(0, (12, 2))
    within = [1, 2, 3, 1, 2, 3, 4, 5, 1, 2, 3, 1]  # the steps of episodes of 3, of 5, of 3, and of one that the rollout cuts
    for e in range(2):
        assert seen[:, e, 0].tolist() == [step - 1 for step in within]
        assert after[:, e, 0].tolist() == within
        assert columns["reward"].unflatten(0, (12, 2))[:, e].tolist() == within
    ended = torch.tensor([step == 3 and k in (2, 10) for k, step in enumerate(within)])
    discount = columns["discount"].unflatten(0, (12, 2))
    assert torch.equal(discount[:, 0] == 0, ended)  # the MDP ended after 3 steps; after 5 the episode was cut
    run.close()


def test_what_a_rollout_is_completed_with() -> None:
    run, columns = collected(ppo(standardize_advantages=False, lam=0.8, gamma=0.9))
    nets = run.algorithm.fit_.nets()
    with torch.no_grad():
        value, after = nets.value(columns["observation"]), nets.value(columns["next_observation"])
        log_prob = nets.policy(columns["observation"]).log_prob(columns["action"])
    ends = torch.zeros(12, 2, dtype=torch.bool)
    ends[[2, 7, 10, 11]] = True
    parts = [columns["reward"], value, after, columns["discount"]]
    wanted = advantages(*(part.unflatten(0, (12, 2)) for part in parts), ends, 0.9 * 0.8).flatten()
    torch.testing.assert_close(columns["advantage"], wanted)
    torch.testing.assert_close(columns["goal"], wanted + value)
    torch.testing.assert_close(columns["log_prob"], log_prob)
    run.close()
    standardized = collected(ppo())[1]["advantage"]
    assert float(standardized.mean()) == pytest.approx(0, abs=1e-6)
    assert float(standardized.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_every_pass_goes_through_the_whole_rollout_once() -> None:
    run, columns = collected(ppo())
    source = run._training
    source._begin = 0
    batches = [source.sample(step) for step in range(8)]  # 24 steps as 7, 7, 7 and 3, twice
    assert [len(batch.index) for batch in batches] == [7, 7, 7, 3] * 2
    orders = [torch.cat([batch.index for batch in part]) for part in (batches[:4], batches[4:])]
    assert all(torch.equal(order.sort().values, torch.arange(24)) for order in orders)
    assert not torch.equal(*orders)
    torch.testing.assert_close(batches[2].extra["advantage"], columns["advantage"][batches[2].index])
    run.close()


@pytest.mark.parametrize("continuous", [False, True])
def test_losses_are_those_of_the_page(continuous: bool) -> None:
    """PPO's and A2C's on a batch, with ratios on both sides of the clip, computed by hand."""
    algorithm = ppo(clip=0.1, entropy_weight=0.03, value_weight=0.5, value_clip=0.2)
    run, columns = collected(algorithm, continuous=continuous)
    nets, h = algorithm.fit_.nets(), algorithm.fit_.coefficients()
    rng = np.random.default_rng(0)
    columns["log_prob"] = columns["log_prob"] + torch.from_numpy(rng.normal(0, 0.3, 24).astype("f4"))
    columns["value"] = columns["value"] + torch.from_numpy(rng.normal(0, 0.5, 24).astype("f4"))
    run._training._begin = 0
    batch = run._training.sample(0)
    with torch.no_grad():
        found, value_found = algorithm.policy_loss(nets, batch, h)[0], algorithm.value_loss(nets, batch, h)[0]
        policy, value = nets.policy(batch.observation), nets.value(batch.observation)
        if continuous:
            entropy = np.full(7, float((policy.log_std + 0.5 * np.log(2 * np.pi * np.e)).sum()))
        else:
            p = policy.probs.numpy()
            entropy = -(p * np.log(p)).sum(-1)
        ratio = np.exp((policy.log_prob(batch.action) - batch.extra["log_prob"]).numpy())
    advantage = batch.extra["advantage"].numpy()
    wanted = [-min(r * a, float(np.clip(r, 0.9, 1.1)) * a) - 0.03 * e for r, a, e in zip(ratio, advantage, entropy, strict=True)]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert (ratio > 1.1).any() or (ratio < 0.9).any()
    goal, old, v = batch.extra["goal"].numpy(), batch.extra["value"].numpy(), value.numpy()
    far = 0.5 * np.maximum((goal - v) ** 2, (goal - old - np.clip(v - old, -0.2, 0.2)) ** 2)
    np.testing.assert_allclose(value_found.numpy(), far, rtol=1e-5)
    a2c = A2C(**SMALL, entropy_weight=0.03).build_with_shapes((2,), 3)
    if not continuous:
        with torch.no_grad():
            policy = a2c.fit_.nets().policy(batch.observation)
            mine = a2c.policy_loss(a2c.fit_.nets(), batch, a2c.fit_.coefficients())[0]
            by_hand = -batch.extra["advantage"] * policy.log_prob(batch.action) - 0.03 * policy.entropy()
        torch.testing.assert_close(mine, by_hand)
    run.close()


def test_reinforce_waits_for_whole_episodes_and_sums_over_each() -> None:
    algorithm = REINFORCE(policy_encoder=TINY, device="cpu", n_episodes=2, gamma=0.9)
    run, columns = collected(algorithm)
    assert columns["reward"].tolist() == [1, 2, 3] * 2  # both environments' first episode, which end together
    wanted = [sum(0.9**k * r for k, r in enumerate(range(t, 4))) for t in range(1, 4)]
    np.testing.assert_allclose(columns["return"].numpy(), wanted * 2, rtol=1e-6)
    run._training._begin = 0
    batch = run._training.sample(0)
    with torch.no_grad():
        found = algorithm.policy_loss(algorithm.fit_.nets(), batch, algorithm.fit_.coefficients())[0].mean()
        log_prob = algorithm.fit_.nets().policy(batch.observation).log_prob(batch.action)
    assert float(found) == pytest.approx(float(-(columns["return"] * log_prob).sum() / 2), rel=1e-5)
    run.close()


def test_what_is_cut_off_of_an_action_has_its_own_probability() -> None:
    """Densities between the edges and probabilities at them add up to one."""
    policy = ClippedGaussian(torch.tensor([[0.7]], dtype=torch.float64), torch.tensor([-0.4], dtype=torch.float64))
    inside = torch.linspace(-1, 1, 200_003, dtype=torch.float64)[1:-1, None]
    wide = ClippedGaussian(policy.mean.expand(len(inside), 1), policy.log_std)
    density = wide.log_prob(inside).exp()
    edges = ClippedGaussian(policy.mean.expand(2, 1), policy.log_std).log_prob(torch.tensor([[-1.0], [1.0]]).double()).exp()
    assert float(torch.trapezoid(density, inside[:, 0]) + edges.sum()) == pytest.approx(1, abs=1e-4)
    assert edges[1] > edges[0]
    drawn = policy.mean + policy.log_std.exp() * torch.randn(100_000, 1, generator=torch.Generator().manual_seed(0)).double()
    assert float((drawn >= 1).double().mean()) == pytest.approx(float(edges[1]), abs=0.01)


def test_a_run_goes_on_bit_for_bit_in_the_middle_of_a_rollout_and_of_its_passes(tmp_path: Path) -> None:
    def run_of(folder: Path, steps: list[int]) -> Any:
        algorithm = ppo()
        for k, n_steps in enumerate(steps):
            how: Any = {
                "n_steps": sum(steps),
                "n_steps_per_epoch": 1,
                "show_progress": False,
                "checkpoint": folder,
                "resume": k > 0,
            }
            epochs = algorithm.fitter_online("CartPole-v1", n_envs=2, **how)
            for _ in itertools.islice(epochs, n_steps):
                pass
            epochs.close()
            algorithm = algorithm if k == len(steps) - 1 else ppo()
        return algorithm

    whole, parts = run_of(tmp_path / "whole", [19]), run_of(tmp_path / "parts", [3, 10, 6])
    assert whole.step == parts.step == 19
    tensors, again = whole.state()[0], parts.state()[0]
    assert tensors.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in tensors.items())


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("algorithm", "n_envs", "n_steps", "least"),
    [
        (PPO(learning_rate=1e-3, update_interval=512, device="cpu", seed=1), 8, 80 * 16, 150.0),
        (A2C(device="cpu", seed=1), 8, 600, 80.0),
        (REINFORCE(device="cpu", n_episodes=5, learning_rate=5e-3, seed=1), 1, 24, 60.0),
    ],
    ids=["PPO", "A2C", "REINFORCE"],
)
def test_cartpole_is_learned(algorithm: Any, n_envs: int, n_steps: int, least: float) -> None:
    """A random policy stands for some 20 steps."""
    epochs = algorithm.fitter_online(
        "CartPole-v1", n_envs=n_envs, n_steps=n_steps, n_steps_per_epoch=n_steps // 2, eval_env="CartPole-v1", show_progress=False
    )
    assert max(metrics["evaluation/return"] for _, metrics in epochs) > least


def test_policies_act_are_saved_and_exported(tmp_path: Path) -> None:
    algorithm = ppo(action_scaler="min_max").fit_online("Pendulum-v1", n_envs=2, n_steps=8, n_steps_per_epoch=8)
    seen = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    acted = algorithm.predict(seen)
    assert acted.shape == (5, 1)
    algorithm.save(tmp_path / "saved")
    assert np.array_equal(d3ray.load(tmp_path / "saved", "cpu").predict(seen), acted)
    algorithm.save_policy(tmp_path / "policy.pt")
    exported = torch.jit.load(tmp_path / "policy.pt")(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(exported, acted, atol=1e-5)
    assert not np.array_equal(algorithm.sample_action(seen), acted)


class Broken(Count):
    """Gives a reward that is no number."""

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return (seen, float("nan"), *rest)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: PPO().fit(d3ray.Dataset.open("d3ray/cartpole-replay"), 1), "PPO learns from what its own policy has just done"),
        (
            lambda: ppo().build_with_env("CartPole-v1").fit_.sources.fixed(d3ray.Dataset.open("d3ray/cartpole-replay"), 1),
            "PPO makes what it learns from, so its losses cannot be read on",
        ),
        (lambda: ppo().fit_online("CartPole-v1", n_steps=1, n_updates=3), "n_updates has no place there"),
        (lambda: ppo(clip=0.0).fit_online("CartPole-v1", n_steps=1), "PPO: clip is 0.0"),
        (lambda: ppo().fit_online(Broken, n_steps=1), "Environment 0 paid nan at step 1 of its episode, which is not finite"),
        (lambda: d3ray.DQN(batch_size=8).fit_online(Broken, n_steps=1), "Environment 0 paid nan"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(wrong: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        wrong()


@pytest.mark.parametrize("max_kl", [1e-3, None])
def test_a_policy_that_came_too_far_stays_until_the_next_rollout(max_kl: float | None) -> None:
    """Four minibatches a pass, two passes a rollout: after a step too long the policy moves no more, its value function does."""
    algorithm = ppo(learning_rate=0.05, max_kl=max_kl)
    moved: list[tuple[bool, bool]] = []
    with OnlineRun(algorithm, "CartPole-v1", n_envs=2) as run:
        before = copies(algorithm)
        for _ in range(24):
            while not run._due:
                run.act()
            run._due -= 1
            batch = run._training.sample(algorithm.step)
            algorithm.fit_.update(run._training, closes=False)
            now, policy = copies(algorithm), algorithm.fit_.nets().policy
            with torch.no_grad():
                difference = policy(batch.observation).log_prob(batch.action) - batch.extra["log_prob"]
            far = (difference.exp() - 1 - difference).mean().item() > 1e-3
            moved.append((not torch.equal(before["policy"], now["policy"]), far))
            assert not torch.equal(before["value"], now["value"])
            before = now
    rollouts = [moved[k : k + 8] for k in range(0, 24, 8)]
    if max_kl is None:
        assert all(steps for steps, _ in moved)
        return
    for steps in rollouts:
        first = next(k for k, (_, far) in enumerate(steps) if far)
        assert [step for step, _ in steps] == [k <= first for k in range(8)]
    assert any(not steps[-1][0] for steps in rollouts)


def copies(algorithm: Any) -> dict[str, torch.Tensor]:
    live = algorithm.fit_.learner.live
    return {name: torch.cat([tensor.detach().flatten() for tensor in live[name].values()]) for name in ("policy", "value")}
