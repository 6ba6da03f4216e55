"""ACER beside loops over single steps, its ratios beside expectations, and what it remembers of who acted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from d3ray import ACER, ReplayBuffer
from d3ray.algos.environments.make import make
from d3ray.algos.networks.distributions import Categorical
from d3ray.algos.on_policy.acer import within
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError

SMALL = {"hidden_units": [8], "activation": "tanh"}
FAST: dict[str, Any] = {"policy_encoder": SMALL, "value_encoder": SMALL, "learning_rate": 0.01, "replay_start_size": 30}
WORLDS = {"CartPole-v1": {}, "Pendulum-v1": {"action_scaler": "min_max", "truncation": 1.5}}


def acer(**settings: Any) -> ACER:
    return ACER(**{**FAST, "update_interval": 12, "n_times_replay": 3, "seed": 1, "device": "cpu", **settings})


def without_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A(s, u) has mean 0 over the likeliest action alone, so that a loop can tell it."""

    def dueling(self: ACER, nets: Any, observation: Any, action: Tensor, name: str) -> Tensor:
        middle = nets.policy(observation).mode().detach()
        return nets.advantage(observation, action)[0] - nets.advantage(observation, middle)[0]

    monkeypatch.setattr(ACER, "dueling", dueling)


def looped(algorithm: ACER, batch: Any, t_max: int, n: int) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Both losses, and their gradients, one step after the other from the end of each environment's segment."""
    nets, config = algorithm.fit_.learner._nets(torch.tensor(0), algorithm.fit_.learner._h), algorithm.config_
    discrete, policies, critics = algorithm.spec_.discrete, [], []
    for i in range(n):
        q_ret = q_opc = torch.zeros(())
        for t in reversed(range(t_max)):
            at = t * n + i
            s, a = batch.observation[at : at + 1], batch.action[at : at + 1]
            after, mu = batch.next_observation[at : at + 1], batch.extra["behaviour"][at]
            pi, average = nets.policy(s), nets.target.policy(s)

            def valued(s: Tensor, a: Tensor | None) -> tuple[Tensor, Tensor]:
                if discrete:
                    each = nets.critic(s)[0, 0]
                    return (nets.policy(s).probs[0] * each).sum(), each if a is None else each[a[0]]
                v = nets.value(s)[0]
                middle = nets.policy(s).mode().detach()
                return v, v if a is None else v + nets.advantage(s, a)[0, 0] - nets.advantage(s, middle)[0, 0]

            v, q = valued(s, a)
            behaviour = type(pi).of(mu[None])
            rho = (pi.log_prob(a) - behaviour.log_prob(a)).exp()[0].detach()
            last = t == t_max - 1 or bool((batch.extra["ended"][at]).item())
            follows = valued(after, None)[0].detach()
            q_ret = batch.reward[at] + batch.discount[at] * (follows if last else q_ret)
            q_opc = batch.reward[at] + batch.discount[at] * (follows if last else q_opc)
            phi = pi.parameters().detach().requires_grad_()
            free = type(pi).of(phi)
            aim = q_opc if config.use_q_opc else q_ret
            gain = min(config.truncation, float(rho)) * free.log_prob(a)[0] * (aim - v).detach()
            if discrete:
                for b in range(algorithm.spec_.n_actions):
                    ratio = float((pi.log_probs[0, b] - behaviour.log_probs[0, b]).exp())
                    lost = max(0.0, 1 - config.truncation / ratio) * float(pi.probs[0, b])
                    gain = gain + lost * free.log_probs[0, b] * (nets.critic(s)[0, 0, b] - v).detach()
            else:
                b = batch.extra["other"][at : at + 1]
                ratio = float((pi.log_prob(b) - behaviour.log_prob(b)).exp())
                gain = gain + max(0.0, 1 - config.truncation / ratio) * free.log_prob(b)[0] * (valued(s, b)[1] - v).detach()
            (g,) = torch.autograd.grad(gain, phi)
            (k,) = torch.autograd.grad(type(pi).of(phi).divergence_from(average.parameters().detach())[0], phi)
            if config.use_trust_region and float(k.square().sum()) > 0:
                g = g - max(0.0, float(((k * g).sum() - config.max_divergence) / k.square().sum())) * k
            policies.append(-(g * pi.parameters()).sum() - config.entropy_weight * pi.entropy()[0])
            critics.append(0.5 * (q_ret.detach() - q).square())
            if not discrete:
                goal = (min(1.0, float(rho)) * (q_ret - q) + v).detach()
                critics[-1] = critics[-1] + 0.5 * (goal - v).square()
            trace = min(1.0, float(rho if discrete else rho ** (1 / a.shape[-1])))
            q_ret = (trace * (q_ret - q) + v).detach()
            q_opc = (q_opc - q + v).detach()
    policy, critic = torch.stack(policies).mean(), config.value_weight * torch.stack(critics).mean()
    live = algorithm.fit_.learner.live
    of_policy = torch.autograd.grad(policy, list(live["policy"].values()), retain_graph=True)
    of_critic = torch.autograd.grad(critic, [p for name in live if name != "policy" for p in live[name].values()])
    return policy, critic, list(of_policy), list(of_critic)


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("settings", [{}, {"use_trust_region": False, "use_q_opc": True}, {"max_divergence": 1e-3, "tau": 1e-3}])
@pytest.mark.parametrize("world", WORLDS)
def test_losses_and_gradients_are_those_of_a_loop(
    world: str, settings: dict[str, Any], replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_draws(monkeypatch)
    complete = ACER.complete
    monkeypatch.setattr(ACER, "complete", lambda self, nets, seen, h: {**complete(self, nets, seen, h), "ended": seen["ends"]})
    algorithm = acer(dtype="float64", **WORLDS[world], **settings)
    with OnlineRun(algorithm, world, n_envs=3, capacity=300) as run:
        list(run.epochs(100, 100))
        while run._due != (2 if replayed else 4):
            if run._due:
                run._due -= 1
                algorithm.fit_.update(run._training)
            else:
                run.act()
        learner = algorithm.fit_.learner
        batch = run._training.sample(learner.step)
        assert bool((batch.extra["ratio"] == 1).all()) != replayed
        policy, critic, of_policy, of_critic = looped(algorithm, batch, 4, 3)
        names = tuple(name for name in learner.live if name != "policy")
        key = torch.tensor(0)
        found, value, *_ = learner.gradients(algorithm.policy_loss, ("policy",), batch, key)
        others, cost, *_ = learner.gradients(algorithm.critic_loss, names, batch, key)
    assert float(value) == pytest.approx(float(policy), abs=1e-10)
    assert float(cost) == pytest.approx(float(critic), abs=1e-10)
    for mine, theirs in zip([*found, *others], [*of_policy, *of_critic], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-8)
    assert max(float(x.abs().max()) for x in found) > 1e-6


def test_a_step_leads_as_far_from_the_average_as_it_may() -> None:
    ascent, away = torch.tensor([[3.0, 1.0], [0.1, 0.2]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    found = within(ascent, away, 0.5)
    assert found.tolist() == [[0.25, 1.0], ascent[1].tolist()]  # kᵀg = 6 is brought to 0.5; 0.3 is within
    assert within(ascent, torch.zeros(2, 2), 0.5).tolist() == ascent.tolist()


def test_what_is_cut_off_of_ratios_is_given_back() -> None:
    """In expectation over what acted the gradient is the policy gradient, whatever c is."""
    generator = torch.Generator().manual_seed(0)
    pi, mu = (Categorical(torch.randn(1, 5, generator=generator).double().mul(2).log_softmax(-1)) for _ in range(2))
    advantage, c = torch.randn(5, generator=generator).double(), 1.3
    ratio = (pi.log_probs - mu.log_probs).exp()[0]
    assert float(ratio.max()) > c
    first = mu.probs[0] * ratio.clamp(max=c) * advantage
    second = (1 - c / ratio).clamp(min=0) * pi.probs[0] * advantage
    torch.testing.assert_close(first + second, pi.probs[0] * advantage)


@pytest.mark.parametrize("world", WORLDS)
def test_who_acted_is_remembered_with_each_step(world: str) -> None:
    algorithm, acted = acer(**WORLDS[world]), dict[bytes, Tensor]()
    replayed = 0
    with OnlineRun(algorithm, world, n_envs=3, capacity=90) as run:
        for _ in range(80):
            run.act()
            nets = algorithm.fit_.nets()
            while run._due:
                source, learner = run._training, algorithm.fit_.learner
                new, batch = source.begins(learner.step), source.sample(learner.step)
                now = nets.policy(batch.observation).parameters().detach()
                for seen, mu, pi in zip(batch.observation, batch.extra["behaviour"], now, strict=True):
                    if new:
                        acted[seen.numpy().tobytes()] = pi
                    else:
                        torch.testing.assert_close(mu, acted[seen.numpy().tobytes()])
                        replayed += 1
                run._due -= 1
                learner.update(batch)
    assert replayed > 500


@pytest.mark.parametrize("done", [9, 10, 11])
@pytest.mark.parametrize("settings", [{}, {"observation_scaler": "running", "reward_scaler": "running"}, {"n_times_replay": 0}])
def test_it_goes_on_bit_for_bit(done: int, settings: dict[str, Any], tmp_path: Path) -> None:
    with OnlineRun(acer(**settings), "CartPole-v1", n_envs=2, capacity=200) as whole:
        list(whole.epochs(30, 30))
    with OnlineRun(acer(**settings), "CartPole-v1", n_envs=2, capacity=200) as first:
        list(first.epochs(done, done))
        first.save(tmp_path / "run")
    with OnlineRun.load(tmp_path / "run", "CartPole-v1") as second:
        list(second.epochs(30 - done, 30))
    mine, theirs = whole.algorithm.state()[0], second.algorithm.state()[0]
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_older_segments_follow_once_there_are_enough() -> None:
    asked: list[int] = []
    with OnlineRun(acer(), "CartPole-v1", n_envs=3, capacity=200) as run:
        for _ in range(20):
            run.act()
            asked.append(run._due)
            run.learn()
    assert asked == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4]  # thirty transitions are there after ten steps


def test_segments_are_steps_that_follow_each_other_and_begin_anywhere_alike() -> None:
    with OnlineRun(acer(), "CartPole-v1", n_envs=2, capacity=160) as run:
        for _ in range(150):
            run.act()
        buffer, rng, begun = run.buffer, np.random.default_rng(0), np.zeros(160, int)
        for _ in range(3_000):
            slots = buffer.segments(5, rng.random((2, 32)))
            assert not buffer.columns["closing"][slots].any()
            for e in range(2):
                order = ((slots[:, e] - buffer._rings.tail[e]) % 80).tolist()
                between = [slot for slot in range(order[0], order[-1]) if slot not in order]
                rows = [e * 80 + (int(buffer._rings.tail[e]) + slot) % 80 for slot in between]
                assert order == sorted(order)
                assert buffer.columns["closing"][rows].all()
            begun[slots[0]] += 1
    steps = ~buffer.columns["closing"]
    assert not begun[~steps].any()
    share = begun[steps] / 3_000
    likely = share > 0.2 / 80  # all but the last four of each ring
    assert likely.sum() == steps.sum() - 8
    assert share[likely].min() > 0.4 / 70
    assert share[likely].max() < 2 / 70


def test_steps_of_which_nobody_knows_who_made_them_are_refused() -> None:
    vector = make("CartPole-v1")
    buffer = ReplayBuffer(200, vector.spec)
    buffer.append(vector.reset(), [0], [1.0], [False], [False])
    with pytest.raises(ConfigError, match="nobody knows that of the 1 in the replay buffer: give an empty one"):
        acer().fit_online("CartPole-v1", buffer, n_steps=1)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_cartpole_is_learned() -> None:
    algorithm = ACER.from_preset("small", seed=1, device="cpu")
    how: dict[str, Any] = {"n_envs": 2, "capacity": 20_000, "n_steps": 6_000, "n_steps_per_epoch": 1_500}
    epochs = algorithm.fitter_online("CartPole-v1", eval_env="CartPole-v1", show_progress=False, **how)
    assert max(metrics["evaluation/return"] for _, metrics in epochs) > 100


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"truncation": 0.5}, "truncation is 0.5"), ({"tau": 0.0}, "tau is 0.0")],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        acer(**settings).fit_online("CartPole-v1", n_steps=1)
