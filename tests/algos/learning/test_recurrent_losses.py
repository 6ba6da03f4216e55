"""Losses over sub-sequences against loops: a stretch, a step at a time, with the memory handed on and its burn-in let go."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from d3ray import BC, DQN, IQL, DiscreteBC, DiscreteCQL, DiscreteIQL, DoubleDQN, Stack
from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.networks.encoders import GRUEncoder, LSTMEncoder, VectorEncoder
from d3ray.algos.networks.recurrent import recalling
from d3ray.data.histories import Histories
from d3ray.data.masks import bare, mask_of, masked

SAMPLER = {"name": "recurrent", "length": 6, "burn_in": 2}
LEARNED = 4


def maker(algorithm: type[Algorithm], kind: str = "gru", **settings: Any) -> testing.Make:
    config = {"gru": GRUEncoder, "lstm": LSTMEncoder}[kind]
    encoder = config(units=5, encoder=VectorEncoder(hidden_units=(4,)))
    encoders = {name: encoder for name in algorithm.Config.model_fields if name.endswith("encoder") and name != "share_encoder"}
    return testing.maker(algorithm, **{**encoders, "sampler": SAMPLER, "batch_size": 7, "dtype": "float64", **settings})


def fitted(algorithm: type[Algorithm], **settings: Any) -> tuple[Any, Any]:
    """After some updates, so that targets differ; and the batch of the next step."""
    make = maker(algorithm, seed=3, **settings)
    data = testing.tiny_dataset(discrete="discrete" in algorithm.action_kinds(), masked=None)
    made = make().fit(data, 9, 9)
    return made, made.fit_.sampler(data).sample(9)


class Walk:
    """What a network says at each step of each stretch that is learned from and is there, one step and one stretch at a time."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        here: Histories = bare(batch.observation)
        self.there = [(b, t) for b, row in enumerate(here.mask.tolist()) for t in range(here.before, len(row)) if row[t]]

    def n(self, b: int, t: int) -> int:
        return b * LEARNED + t - 2

    def of(self, module: Any, *, following: bool = False, action: bool = False, ask: Any = None) -> list[Any]:
        """At the steps, or at those that they lead to."""
        histories: Histories = bare(self.batch.next_observation if following else self.batch.observation)
        said: dict[tuple[int, int], Any] = {}
        for b in range(len(histories.mask)):
            memory: Any = None
            for t in range(histories.mask.shape[1]):
                if not histories.mask[b, t]:
                    continue
                own = t >= histories.before
                inputs = (self.batch.action[self.n(b, t - following)][None] if own else torch.zeros_like(self.batch.action[:1]),)
                with recalling({} if memory is None else {module.encoder: memory}) as recall, torch.set_grad_enabled(own):
                    found = (ask or module)(histories.observation[b, t][None], *(inputs if action else ()))
                memory = recall.left[module.encoder]
                if own:
                    said[b, t - following] = found
        return [said[place] for place in self.there]


def check(made: Any, batch: Any, loss: Any, names: tuple[str, ...], expected: Tensor) -> None:
    """The loss and its gradients are those of a sum over steps."""
    learner = made.fit_.learner
    gradients, value, *_ = learner.gradients(loss, names, batch, learner.address(loss))
    assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
    parameters = [p for name in names for p in learner.live[name].values()]
    by_hand = torch.autograd.grad(expected, parameters)
    assert max(float(g.abs().max()) for g in by_hand) > 1e-4
    for a, b in zip(gradients, by_hand, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def huber(error: Tensor) -> Tensor:
    size = error.abs()
    return torch.where(size < 1, error.square() / 2, size - 0.5)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("algorithm", [DQN, DoubleDQN, DiscreteCQL])
def test_critics_of_discrete_actions(algorithm: type[Algorithm], kind: str) -> None:
    made, batch = fitted(algorithm, kind=kind)
    walk, critic, target = Walk(batch), made.fit_.learner.modules["critic"], made.fit_.learner._targets["critic"]
    live, valued = walk.of(critic), walk.of(target, following=True)
    chosen = valued if algorithm is DQN else walk.of(critic, following=True)
    total = torch.zeros((), dtype=torch.float64)
    for k, (b, t) in enumerate(walk.there):
        n = walk.n(b, t)
        best = chosen[k][0, 0].argmax()
        goal = (batch.reward[n] + batch.discount[n] * valued[k][0, 0, best]).detach()
        value = live[k][0, 0]
        total = total + huber(goal - value[batch.action[n]])
        if algorithm is DiscreteCQL:
            total = total + value.logsumexp(0) - value[batch.action[n]]
    assert not bare(batch.observation).there.all()
    assert (batch.discount == 0).any()
    check(made, batch, made.critic_loss, ("critic",), total / len(walk.there))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_ensemble_of_critics_has_memories_of_its_own(kind: str) -> None:
    made, batch = fitted(DQN, kind=kind, n_critics=2)
    walk, critic, target = Walk(batch), made.fit_.learner.modules["critic"], made.fit_.learner._targets["critic"]
    live, valued = walk.of(critic), walk.of(target, following=True)
    total = torch.zeros((), dtype=torch.float64)
    for k, (b, t) in enumerate(walk.there):
        n = walk.n(b, t)
        best = valued[k][:, 0].mean(0).argmax()
        goal = (batch.reward[n] + batch.discount[n] * valued[k][:, 0, best].min()).detach()
        total = total + sum(huber(goal - live[k][i, 0, batch.action[n]]) for i in range(2))
    check(made, batch, made.critic_loss, ("critic",), total / len(walk.there))


@pytest.mark.parametrize("algorithm", [BC, DiscreteBC])
def test_cloning(algorithm: type[Algorithm]) -> None:
    made, batch = fitted(algorithm)
    walk, total = Walk(batch), torch.zeros((), dtype=torch.float64)
    said = walk.of(made.fit_.learner.modules["policy"])
    for k, (b, t) in enumerate(walk.there):
        action = batch.action[walk.n(b, t)]
        if algorithm is BC:
            total = total + (said[k].mode()[0] - action).square().mean()
        else:
            log_probs = said[k][0].log_softmax(0)
            total = total - log_probs[action] + 0.5 / 3 * log_probs.square().sum()
    check(made, batch, made.imitation_loss, ("policy",), total / len(walk.there))


@pytest.mark.parametrize("algorithm", [IQL, DiscreteIQL])
def test_implicit_q_learning(algorithm: type[Algorithm]) -> None:
    made, batch = fitted(algorithm)
    walk, modules, targets = Walk(batch), made.fit_.learner.modules, made.fit_.learner._targets
    discrete = algorithm is DiscreteIQL
    value, later = walk.of(modules["value"]), walk.of(modules["value"], following=True)
    policy = walk.of(modules["policy"])
    judged = walk.of(targets["critic"], action=not discrete)
    live = walk.of(modules["critic"], action=not discrete)
    losses = {name: torch.zeros((), dtype=torch.float64) for name in ("value", "actor", "critic")}
    for k, (b, t) in enumerate(walk.there):
        n = walk.n(b, t)
        action = batch.action[n]
        q, target = ((said[k][:, 0, action] if discrete else said[k][:, 0]) for said in (live, judged))
        u = target.min().detach() - value[k][0]
        losses["value"] = losses["value"] + (0.7 if u >= 0 else 0.3) * u.square()
        weight = (3 * u.detach()).exp().clamp(max=100)
        losses["actor"] = losses["actor"] - weight * policy[k].log_prob(action[None])[0]
        error = (batch.reward[n] + batch.discount[n] * later[k][0]).detach() - q
        losses["critic"] = losses["critic"] + error.square().sum()
    names = {"value": "value", "actor": "policy", "critic": "critic"}
    for name, total in losses.items():
        check(made, batch, getattr(made, f"{name}_loss"), (names[name],), total / len(walk.there))


def test_metrics_leave_padding_out() -> None:
    made, batch = fitted(DQN)
    learner, walk = made.fit_.learner, Walk(batch)
    _, _, metrics, _ = learner.gradients(made.critic_loss, ("critic",), batch, learner.address(made.critic_loss))
    said = walk.of(learner.modules["critic"])
    expected = sum(float(said[k][0, 0, batch.action[walk.n(b, t)]].detach()) for k, (b, t) in enumerate(walk.there))
    assert float(metrics["q_value"]) == pytest.approx(expected / len(walk.there), rel=1e-10)


@pytest.mark.parametrize("algorithm", [DQN, IQL])
def test_rows_of_a_stack_equal_single_runs_and_runs_resume(algorithm: type[Algorithm]) -> None:
    make = maker(algorithm)
    testing.check_row_equals_single_run(make, n_steps=30)
    testing.check_resumes_bit_for_bit(make)


def test_other_encoders_beside_recurrent_ones_see_single_steps() -> None:
    made, batch = fitted(IQL, critic_encoder=VectorEncoder(hidden_units=(4,)), value_encoder=VectorEncoder(hidden_units=(4,)))
    nets = made.fit_.nets()
    torch.testing.assert_close(nets.value(batch.observation), nets.value(bare(batch.observation).steps()))
    assert set(made.ports_) == {"action", "policy"}


def test_illegal_actions_are_none_of_sub_sequences() -> None:
    made = maker(DoubleDQN, seed=3)()
    data = testing.tiny_dataset(discrete=True, masked="some")
    batch = made.fit(data, 2, 2).fit_.sampler(data).sample(2)
    nets, legal = made.fit_.nets(), mask_of(batch.next_observation)
    values = nets.critic(batch.next_observation)[0]
    assert (values[~legal] < -1e19).all()
    assert (values[legal].abs() < 1e3).all()
    plain = nets.critic(masked(bare(batch.next_observation), None))[0]
    torch.testing.assert_close(values[legal], plain[legal])


def test_a_stack_trains_on_all_its_rows() -> None:
    data = testing.tiny_dataset(discrete=True)
    stack = Stack(maker(DQN)(), (1, 2)).fit(data, 6, 3)
    (first, second) = (stack.seed(k).history_ for k in range(2))
    assert first != second
