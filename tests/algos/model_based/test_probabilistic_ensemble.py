"""The probabilistic ensemble: its loss beside a loop, what is held out, who counts, and what it says in raw units."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray import BC, Dataset, ProbabilisticEnsemble, load
from d3ray.algos.judging.scorers import (
    dynamics_observation_prediction_error_scorer,
    dynamics_prediction_variance_scorer,
    dynamics_reward_prediction_error_scorer,
)
from d3ray.algos.judging.seen import followed
from d3ray.algos.model_based.shared import by_member
from d3ray.algos.stack import Stack
from d3ray.algos.testing import tiny_arrays, tiny_dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling.windows import Windows
from d3ray.data.spec import Environment

from ..loss_values import evaluate

SMALL: dict[str, Any] = {
    "encoder": {"name": "vector", "hidden_units": [8, 6]},
    "n_members": 3,
    "n_elites": 2,
    "batch_size": 5,
    "device": "cpu",
}
PLAIN: dict[str, Any] = {**SMALL, "observation_scaler": None, "reward_scaler": None}


def perceptron(state: dict[str, torch.Tensor], member: int, x: np.ndarray) -> np.ndarray:
    """What the head of one member says, by loops over its layers."""
    for name in ("layers.0", "layers.2", "head"):
        weight, bias = (state[f"live/dynamics/{name}.{part}"].numpy()[member] for part in ("weight", "bias"))
        x = x @ weight + bias[0]
        x = x if name == "head" else np.maximum(x, 0)
    return x


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("termination", ["never", "learned"])
def test_the_loss_is_that_of_a_loop(discrete: bool, termination: Any) -> None:
    data = tiny_dataset(discrete=discrete)
    made = ProbabilisticEnsemble(**PLAIN, dtype="float64", seed=2, termination=termination, bound_weight=0.3).fit(data, 9, 9)
    learner, batch = made.fit_.learner, made.fit_.sampler(data).sample(100)
    state = {name: tensor.double() for name, tensor in learner.state().items()}
    found, metrics, _ = evaluate(made, learner, batch, made.dynamics_loss)
    highest, lowest = (state[f"live/dynamics/{name}"].numpy() for name in ("highest", "lowest"))
    each, errors = [], []
    for i in range(len(batch.reward)):
        member, seen, action = i // 5, batch.observation[i].numpy(), batch.action[i].numpy()
        taken = np.eye(3)[action] if discrete else action
        said = perceptron(state, member, np.concatenate((seen, taken)))
        mean, raw, end = said[:6], said[6:12], said[12]
        log_variance = lowest + softplus(highest - softplus(highest - raw) - lowest)
        goal = np.append(batch.next_observation[i].numpy() - seen, batch.reward[i].numpy())
        value = np.mean((goal - mean) ** 2 * np.exp(-log_variance) + log_variance) + 0.3 * (highest - lowest).sum() / 3
        if termination == "learned":
            chance = 1 / (1 + math.exp(-end))
            value -= math.log(chance if batch.discount[i] == 0 else 1 - chance)
        each.append(value)
        errors.append(np.mean((goal - mean) ** 2))
    np.testing.assert_allclose(found, each, rtol=1e-10)
    learned = batch.extra["held_out"].numpy() == 0
    assert metrics["error"] == pytest.approx(np.array(errors)[learned].mean(), rel=1e-10)


def test_nothing_is_learned_from_what_is_held_out() -> None:
    """With other rewards in the episodes that are held out all parameters become the same, and the errors others."""
    data = tiny_dataset(discrete=False)
    first = ProbabilisticEnsemble(**PLAIN, holdout=0.3).fit(data, 30, 30)
    held_out = first.fit_.sampler(data)._held_out.bool().numpy()
    assert 0.2 < held_out.mean() < 0.4
    columns = {name: np.array(column) for name, column in data.columns.items()}
    steps = np.flatnonzero(~columns["closing"].astype(bool))
    columns["reward"][steps[: len(held_out)][held_out[: len(steps)]]] += 5
    ends = np.cumsum(np.asarray(data.episodes.steps))
    shown = columns["observation"]
    other = Dataset.from_arrays(
        shown[steps],
        columns["action"][steps],
        columns["reward"][steps],
        columns["terminated"][steps],
        columns["truncated"][steps],
        final_observations=shown[np.flatnonzero(columns["closing"])],
    )
    assert len(ends) == len(other.episodes)
    second = ProbabilisticEnsemble(**PLAIN, holdout=0.3).fit(other, 30, 30)
    states = [one.fit_.learner.state() for one in (first, second)]
    for name, tensor in states[0].items():
        if "held_out" not in name:
            assert torch.equal(tensor, states[1][name]), name
    errors = [one["live/dynamics/held_out.error"] for one in states]
    assert (errors[1] > errors[0] + 1).all()


def test_every_seed_holds_out_whole_episodes_of_its_own() -> None:
    data = tiny_dataset(discrete=False)
    masks = [ProbabilisticEnsemble(**PLAIN, seed=seed).fit(data, 1, 1).fit_.sampler(data)._held_out.numpy() for seed in (0, 1)]
    assert (masks[0] != masks[1]).any()
    for mask in masks:
        for episode in np.split(mask, np.cumsum(Windows(data).drawable)[:-1]):
            assert len(set(episode)) <= 1
    one = Dataset.from_arrays(np.zeros((20, 2), np.float32), np.zeros((20, 1), np.float32), np.zeros(20), np.arange(20) == 19)
    alone = ProbabilisticEnsemble(**PLAIN, holdout=0.25).fit(one, 1, 1).fit_.sampler(one)._held_out
    assert alone.sum() == 5


def test_errors_run_along_and_the_best_members_count() -> None:
    data = tiny_dataset(discrete=False)
    made = ProbabilisticEnsemble(**PLAIN, dtype="float64", holdout=0.5, patience=None)
    made.build_with_dataset(data)
    source, running, center, naive = made.fit_.sampler(data), np.zeros(3), np.zeros(6), 0.0
    for step in range(6):
        batch, held = source.sample(step), source.sample(step).extra["held_out"].numpy().reshape(3, 5)
        found = made.fit_.learner.look(lambda nets, b, h: nets.dynamics(*(by_member(x, 3) for x in made._told(b)[:2])).mean, batch)
        goal = by_member(made._told(batch)[2], 3).numpy()
        squared = ((goal - found.numpy()) ** 2).mean(-1)
        apart = ((goal - center) ** 2).mean(-1)
        made.fit_.update(source)
        if held.sum() and center.any():
            shown = (apart * held).sum() / held.sum()
            naive = shown if naive == 0 else naive + 0.01 * (shown - naive)
        if held.sum():
            shown = (goal * held[..., None]).sum((0, 1)) / held.sum()
            center = np.where(center == 0, shown, center + 0.01 * (shown - center))
        for member in range(3):
            if count := held[member].sum():
                shown = (squared[member] * held[member]).sum() / count
                running[member] = shown if running[member] == 0 else running[member] + 0.01 * (shown - running[member])
    kept: Any = made.fit_.learner.modules["dynamics"]
    np.testing.assert_allclose(kept.held_out.error.numpy(), running, rtol=1e-10)
    assert float(kept.held_out.naive) == pytest.approx(naive, rel=1e-10)
    best = np.argsort(running)[:2]
    np.testing.assert_array_equal(kept.held_out.best(2).numpy(), best)
    np.testing.assert_array_equal(made.model().network.head.weight.detach().numpy(), kept.head.weight.detach().numpy()[best])


def test_it_stays_as_it_is_once_errors_have_stopped_falling() -> None:
    data = tiny_dataset(discrete=False)
    made = ProbabilisticEnsemble(**PLAIN, patience=5, learning_rate=0.3).fit(data, 60, 60)
    held = made.fit_.learner.modules["dynamics"].held_out
    assert int(held.since) >= 5
    before = {name: tensor.clone() for name, tensor in made.fit_.learner.state().items()}
    made.fit(data, 20, 20)
    assert all(torch.equal(tensor, made.fit_.learner.state()[name]) for name, tensor in before.items() if name != "step")
    going = ProbabilisticEnsemble(**PLAIN, patience=None, learning_rate=0.3).fit(data, 60, 60)
    live = "live/dynamics/head.weight"
    moving = going.fit_.learner.state()[live].clone()
    assert not torch.equal(going.fit(data, 5, 5).fit_.learner.state()[live], moving)


def test_predictions_are_raw_means_of_the_elites_and_the_largest_variance() -> None:
    data = tiny_dataset(discrete=False, reach=2.0)
    made = ProbabilisticEnsemble(**SMALL, dtype="float64", action_scaler="min_max", termination="never").fit(data, 30, 30)
    steps = ~np.asarray(data.columns["closing"], bool)
    seen, action = (np.asarray(data.columns[name])[steps][:4].astype(np.float64) for name in ("observation", "action"))
    following, reward, variance = made.predict(seen, action, with_variance=True)
    state = {name: tensor.double() for name, tensor in made.fit_.learner.state().items()}
    config, best = made.config_, made.fit_.learner.modules["dynamics"].held_out.best(2).tolist()
    shift, spread = (np.asarray(part) for part in (config.observation_scaler.mean, config.observation_scaler.std))
    spread = spread + config.observation_scaler.epsilon
    scale = config.reward_scaler.std + config.reward_scaler.epsilon
    highest, lowest = (state[f"live/dynamics/{name}"].numpy() for name in ("highest", "lowest"))
    for i in range(4):
        means, variances = [], []
        taken = config.action_scaler.transform(action[i : i + 1]).numpy()[0]
        for member in best:
            said = perceptron(state, member, np.concatenate(((seen[i] - shift) / spread, taken)))
            log_variance = lowest + softplus(highest - softplus(highest - said[6:12]) - lowest)
            means.append(np.append(seen[i] + said[:5] * spread, said[5] * scale + config.reward_scaler.mean))
            variances.append(np.linalg.norm(np.exp(log_variance) * np.append(spread, scale) ** 2))
        np.testing.assert_allclose(np.append(following[i], reward[i]), np.mean(means, 0), rtol=1e-9)
        assert variance[i] == pytest.approx(max(variances), rel=1e-9)
    single = made.predict(seen[0], action[0])
    np.testing.assert_allclose(single[0], following[0])
    assert np.ndim(single[1]) == 0


def linear(n: int = 600) -> Dataset:
    """S' = A s + b a, r = s_0 - a², twenty steps an episode."""
    rng, rows = np.random.default_rng(0), []
    turn = np.array([[0.9, 0.2], [-0.2, 0.9]])
    for _ in range(n // 20):
        state = rng.normal(size=2)
        for _ in range(20):
            action = rng.uniform(-1, 1, 1)
            after = turn @ state + np.array([0.0, 0.5]) * action
            rows.append((state, action, state[0] - action[0] ** 2, after))
            state = after
    seen, action, reward, after = map(np.array, zip(*rows, strict=True))
    ends = np.arange(n) % 20 == 19
    return Dataset.from_arrays(seen, action, reward, ends & False, ends, next_observations=after, name="linear")


@pytest.mark.long
def test_it_learns_a_linear_system() -> None:
    data, held_out = linear(), linear(1200).split(0.5, seed=1)[1]
    made = ProbabilisticEnsemble(
        encoder={"name": "vector", "hidden_units": [32, 32], "activation": "silu"}, learning_rate=3e-3, device="cpu"
    ).fit(data, 1500, 500)
    steps = np.flatnonzero(~np.asarray(held_out.columns["closing"], bool))
    seen = held_out.columns["observation"]
    following, reward = made.predict(seen[steps], held_out.columns["action"][steps])
    moved = np.square(seen[steps + 1] - seen[steps]).mean()
    assert np.square(following - seen[steps + 1]).mean() < 0.01 * moved
    assert np.square(reward - held_out.columns["reward"][steps]).mean() < 0.02 * np.var(held_out.columns["reward"][steps])
    held: Any = made.fit_.learner.modules["dynamics"]
    assert float(held.held_out.error.mean()) < 0.05 * float(held.held_out.naive)


def test_it_is_saved_stacked_and_loaded(tmp_path: Path) -> None:
    data = tiny_dataset(discrete=True)
    made = ProbabilisticEnsemble(**SMALL, seed=3).fit(data, 20, 10)
    made.save(tmp_path / "model")
    again = load(tmp_path / "model")
    steps = ~np.asarray(data.columns["closing"], bool)
    seen, action = (np.asarray(data.columns[name])[steps][:9] for name in ("observation", "action"))
    for one in (again, Stack(ProbabilisticEnsemble(**SMALL), (1, 3)).fit(data, 20, 10).seed(1)):
        for found, wanted in zip(one.predict(seen, action, True), made.predict(seen, action, True), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [("Hopper-v5", "hopper"), ("Pendulum-v1", "never"), ("ALE/CartPole-v1", "cart_pole"), ("Nowhere-v0", "learned")],
)
def test_the_end_is_that_of_the_environment(environment: str, wanted: str) -> None:
    data = Dataset.from_arrays(**tiny_arrays(discrete=False), environment=Environment(id=environment))
    assert ProbabilisticEnsemble(**PLAIN).fit(data, 1, 1).config_.termination == wanted


def test_generate_goes_on_from_the_data_and_stops_at_ends() -> None:
    data = tiny_dataset(discrete=False)
    made = ProbabilisticEnsemble(**PLAIN, termination="learned").fit(data, 30, 30)
    policy = BC(device="cpu").fit(data, 5, 5)
    found = made.generate(policy, data.episodes[:2], horizon=4, n_transitions=12, lam=0.0, seed=1)
    again = made.generate(policy, data.episodes[:2], horizon=4, n_transitions=12, lam=2.0, penalty="aleatoric", seed=1)
    starts = np.concatenate([episode.observations[:-1] for episode in data.episodes[:2]])
    begun = [t for t in found if t.index == 0]
    assert len(begun) == 12
    assert len(found) < 48
    for transition, dearer in zip(found, again, strict=True):
        if transition.index == 0:
            assert (np.abs(starts - transition.observation).max(1) < 1e-6).any()
        else:
            before = transition.episode[transition.index - 1]
            np.testing.assert_array_equal(before.next_observation, transition.observation)
        np.testing.assert_array_equal(dearer.observation, transition.observation)
        found_here = made.model()(torch.tensor(transition.observation[None]), torch.tensor(transition.action[None]))
        assert transition.reward - dearer.reward == pytest.approx(2 * float(found_here.uncertainty("aleatoric")), rel=1e-3)
    with pytest.raises(DataError, match="no transition for rollouts to begin at"):
        made.generate(policy, [])


def test_what_it_cannot_be_is_one_sentence() -> None:
    images = Dataset.from_arrays(np.zeros((9, 1, 8, 8), np.uint8), np.zeros((9, 1)), np.zeros(9), np.arange(9) == 8)
    cases = [
        ({}, images, "Models of the dynamics predict vectors"),
        ({"encoder": {"name": "gru"}}, tiny_dataset(discrete=False), "gru"),
        ({"n_elites": 4}, tiny_dataset(discrete=False), "n_elites is 4, and there are 3 members"),
        ({"termination": "hoper"}, tiny_dataset(discrete=False), "hoper"),
    ]
    for settings, data, message in cases:
        with pytest.raises((ConfigError, DataError), match=message) as caught:
            ProbabilisticEnsemble(**{**PLAIN, **settings}).fit(data, 1, 1)
        assert "\n" not in str(caught.value)


def test_scorers_are_means_over_transitions_whose_next_observation_is_known() -> None:
    data = tiny_dataset(discrete=False)
    made = ProbabilisticEnsemble(**SMALL).fit(data, 20, 20)
    squares, rewards, variances = [], [], []
    for episode in data.episodes:
        for transition in episode:
            following, reward, variance = made.predict(transition.observation, transition.action, with_variance=True)
            squares.append(np.square(following - transition.next_observation).sum())
            rewards.append(float(reward - transition.reward) ** 2)
            variances.append(float(variance))
    for scorer, wanted in (
        (dynamics_observation_prediction_error_scorer, squares),
        (dynamics_reward_prediction_error_scorer, rewards),
        (dynamics_prediction_variance_scorer, variances),
    ):
        for given in (data, data.episodes[:]):
            assert scorer(made, given, 7) == pytest.approx(-np.mean(wanted), rel=1e-4)
    with pytest.raises(DataError, match="tiny"):
        dynamics_reward_prediction_error_scorer(made, tiny_dataset(discrete=True))


def test_what_followed_an_end_is_not_learned_where_it_was_not_recorded() -> None:
    arrays = tiny_arrays(discrete=False)
    del arrays["final_observations"]
    data = Dataset.from_arrays(**arrays)
    made = ProbabilisticEnsemble(**PLAIN, dtype="float64", termination="learned").fit(data, 9, 9)
    learner, batch = made.fit_.learner, made.fit_.sampler(data).sample(3)
    ended = batch.discount == 0
    assert 0 < int(ended.sum()) < len(ended)
    assert torch.equal(batch.extra["followed"] == 0, ended)  # steps that were cut blindly are not drawn at all
    other = replace(batch, next_observation=batch.next_observation + 7.0 * ended[:, None])
    losses = [evaluate(made, learner, one, made.dynamics_loss)[0] for one in (batch, other)]
    np.testing.assert_array_equal(*losses)
    turned = replace(batch, discount=torch.where(ended, 0.99, batch.discount))
    assert (evaluate(made, learner, turned, made.dynamics_loss)[0][ended.numpy()] != losses[0][ended.numpy()]).all()
    whole = ProbabilisticEnsemble(**PLAIN).fit(tiny_dataset(discrete=False), 1, 1)
    assert (whole.fit_.sampler(whole.fit_.sources.given).sample(0).extra["followed"] == 1).all()
    n = sum(len(episode) - 1 for episode in data.episodes)
    found = [len(step.reward) for step in followed(made, data, 64)]
    assert sum(found) == n
