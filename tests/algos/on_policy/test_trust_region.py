"""TRPO's step beside one whose curvature is written out, and what it may never do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Normal, kl_divergence

from d3ray import TRPO
from d3ray.algos.learning.trust_region import Limits, conjugate_gradients, trust_region_step
from d3ray.algos.networks.distributions import Categorical, ClippedGaussian
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError

TINY = {"hidden_units": [8], "activation": "tanh"}


class Problem:
    """A softmax over three actions, linear in three features, with advantages of what was done."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.features, self.advantage = torch.randn(60, 3).double(), torch.randn(60).double()
        self.weight = torch.randn(3, 3).double().requires_grad_()
        self.action = torch.randint(0, 3, (60,))
        self.old = self.log_probs().detach()

    def log_probs(self) -> Tensor:
        return (self.features @ self.weight).log_softmax(-1)

    def loss(self) -> Tensor:
        ratio = (self.log_probs() - self.old)[torch.arange(60), self.action].exp()
        return -(ratio * self.advantage).mean()

    def divergence(self) -> Tensor:
        return (self.old.exp() * (self.old - self.log_probs())).sum(-1).mean()


def test_the_step_is_the_natural_gradients() -> None:
    """With H from torch.autograd.functional.hessian and a solved system of equations."""
    problem, limits = Problem(), Limits(0.01, 0.1, 30, 10)
    before = problem.weight.detach().clone()

    def as_function(flat: Tensor) -> Tensor:
        log_probs = (problem.features @ flat.view(3, 3)).log_softmax(-1)
        return (problem.old.exp() * (problem.old - log_probs)).sum(-1).mean()

    curvature = torch.autograd.functional.hessian(as_function, before.reshape(-1)) + 0.1 * torch.eye(9).double()  # pyright: ignore
    gradient = torch.autograd.grad(problem.loss(), problem.weight)[0].reshape(-1)
    direction = torch.linalg.solve(curvature, -gradient)
    full = (2 * 0.01 / (direction @ curvature @ direction)).sqrt() * direction
    found = trust_region_step([problem.weight], problem.loss, problem.divergence, limits)
    assert float(found.share) > 0
    torch.testing.assert_close(problem.weight.detach() - before, (found.share * full).view(3, 3), rtol=1e-6, atol=1e-9)
    assert float(problem.divergence()) == pytest.approx(float(found.divergence))
    assert float(problem.loss()) < float(found.loss)


@pytest.mark.parametrize("limit", [1e-6, 1e-3, 0.05, 1.0, 10.0])
def test_no_step_goes_further_than_it_may(limit: float) -> None:
    problem = Problem()
    for _ in range(5):
        problem.old = problem.log_probs().detach()
        trust_region_step([problem.weight], problem.loss, problem.divergence, Limits(limit, 0.0, 10, 10))
        assert float(problem.divergence()) <= limit


def test_where_nothing_helps_nothing_is_changed() -> None:
    problem = Problem()
    before = problem.weight.detach().clone()
    calls = iter(range(1_000))
    stays = trust_region_step([problem.weight], lambda: problem.loss() + next(calls), problem.divergence, Limits(0.01, 0.1, 10, 3))
    assert float(stays.share) == 0
    assert torch.equal(problem.weight.detach(), before)
    problem.advantage = torch.zeros(60).double()
    assert float(trust_region_step([problem.weight], problem.loss, problem.divergence, Limits(0.01, 0.1, 10, 3)).share) == 0
    assert torch.equal(problem.weight.detach(), before)


def test_conjugate_gradients_solve_in_as_many_steps_as_there_are_unknowns() -> None:
    torch.manual_seed(1)
    root = torch.randn(6, 6).double()
    matrix, goal = root @ root.T + torch.eye(6).double(), torch.randn(6).double()
    torch.testing.assert_close(matrix @ conjugate_gradients(lambda x: matrix @ x, goal, 6), goal, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(matrix @ conjugate_gradients(lambda x: matrix @ x, goal, 2), goal, rtol=1e-3)


def test_divergences_are_torchs() -> None:
    torch.manual_seed(2)
    mean, other = torch.randn(5, 2).double(), torch.randn(5, 2).double()
    log_std, other_log_std = torch.randn(2).double(), torch.randn(2).double()
    old = ClippedGaussian(other, other_log_std)
    wanted = kl_divergence(Normal(other, other_log_std.exp()), Normal(mean, log_std.exp())).sum(-1)
    torch.testing.assert_close(ClippedGaussian(mean, log_std).divergence_from(old.parameters()), wanted)
    logits, others = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    wanted = kl_divergence(TorchCategorical(logits=others), TorchCategorical(logits=logits))
    parameters = Categorical(others.log_softmax(-1)).parameters()
    torch.testing.assert_close(Categorical(logits.log_softmax(-1)).divergence_from(parameters), wanted)


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1"])
def test_the_policy_takes_one_step_a_rollout_and_the_value_function_the_others(environment: str) -> None:
    settings: dict[str, Any] = {"policy_encoder": TINY, "value_encoder": TINY, "action_scaler": "min_max", "device": "cpu"}
    if environment.startswith("Cart"):
        del settings["action_scaler"]
    trpo = TRPO(**settings, update_interval=40, batch_size=16, n_passes=2, max_kl=0.02)
    with OnlineRun(trpo, environment, n_envs=2) as run:
        moved, told = list[bool](), list[float]()
        state = {name: tensor.clone() for name, tensor in trpo.state()[0].items() if name.startswith("live/")}
        for _, metrics in run.epochs(14, 1):  # two rollouts, of 1 + 2 × 3 gradient steps each
            now = {name: tensor.clone() for name, tensor in trpo.state()[0].items() if name.startswith("live/")}
            moved.append(any(not torch.equal(now[name], state[name]) for name in now if name.startswith("live/policy")))
            told += [metrics["train/kl"]] if "train/kl" in metrics else []
            state = now
    assert moved == [True, *[False] * 6] * 2
    assert len(told) == 2
    assert all(0 < kl <= 0.02 for kl in told)


def test_rows_of_a_stack_have_no_step_in_common() -> None:
    with pytest.raises(ConfigError, match="call fit_online"):
        TRPO().fit(None)
