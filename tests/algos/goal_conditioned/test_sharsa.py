"""SHARSA: losses against loops in NumPy, one step of all networks at once, and acting towards the best subgoal."""

import numpy as np
import pytest
import torch

from d3ray import Dataset
from d3ray.algos.goal_conditioned.sharsa import SHARSA
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

from ..loss_values import evaluate, networks, prepared


def beside(*parts):
    """What networks see: the goal first, for keys come by name."""
    return np.concatenate(parts)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def entropy(logit, target):
    return -(target * np.log(sigmoid(logit)) + (1 - target) * np.log(sigmoid(-logit)))


def parts(batch):
    seen, goal = (batch.observation[key].numpy() for key in ("observation", "goal"))
    return seen, goal, batch.next_observation["observation"].numpy(), batch.extra["value_subgoal"].numpy()


def test_critics_learn_how_likely_a_goal_is_from_subgoal_to_subgoal():
    made, learner, batch = prepared(SHARSA, subgoal_steps=3)
    run, (seen, goal, after, subgoal) = networks(learner), parts(batch)
    wanted = []
    for i in range(len(seen)):
        target = batch.reward[i].item() + batch.discount[i].item() * sigmoid(run("live", "value", beside(goal[i], after[i]), 0)[0])
        logits = [run("live", "critic", beside(goal[i], seen[i], subgoal[i]), k)[0] for k in range(2)]
        wanted.append(sum(entropy(logit, target) for logit in logits))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], wanted, rtol=1e-9)


def test_the_value_is_that_of_the_datas_subgoals():
    made, learner, batch = prepared(SHARSA, subgoal_steps=3)
    run, (seen, goal, _, subgoal) = networks(learner), parts(batch)
    wanted = []
    for i in range(len(seen)):
        least = min(sigmoid(run("target", "critic", beside(goal[i], seen[i], subgoal[i]), k)[0]) for k in range(2))
        wanted.append(entropy(run("live", "value", beside(goal[i], seen[i]), 0)[0], least))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], wanted, rtol=1e-9)


@pytest.mark.parametrize(("loss", "network"), [("high_loss", "high"), ("low_loss", "policy")])
def test_flows_lead_to_subgoals_and_to_actions_on_the_way_there(loss, network):
    made, learner, batch = prepared(SHARSA, subgoal_steps=3)
    run, seen = networks(learner), batch.observation["observation"].numpy()
    told, target = (
        (batch.extra["high_goal"], batch.extra["high_target"]) if network == "high" else (batch.extra["low_goal"], batch.action)
    )
    found, _, nets = evaluate(made, learner, batch, getattr(made, loss))
    noise, t = nets.noise("noise", target.shape).numpy(), nets.uniform("time", (len(target), 1)).numpy()
    told, target, wanted = told.numpy(), target.numpy(), []
    for i in range(len(seen)):
        x = (1 - t[i]) * noise[i] + t[i] * target[i]
        velocity = run("live", network, beside(told[i], seen[i], x, t[i]))
        wanted.append(((velocity - (target[i] - noise[i])) ** 2).mean())
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_it_acts_towards_the_best_of_the_subgoals_that_noise_leads_to():
    made, learner, batch = prepared(SHARSA, subgoal_steps=3, n_subgoal_samples=3, flow_steps=2)
    run, seen, goal = networks(learner), batch.observation["observation"].numpy()[:4], batch.observation["goal"].numpy()[:4]
    rng = np.random.default_rng(0)
    subgoals, actions = rng.normal(size=(4, 3, 5)), rng.normal(size=(4, 3))

    def followed(network, told, here, x):
        for k in range(2):
            x = x + run("live", network, beside(told, here, x, [k / 2])) / 2
        return x

    noise = {"subgoals": torch.from_numpy(subgoals), "action": torch.from_numpy(actions)}
    shown = {key: part[:4] for key, part in batch.observation.items()}
    found, _ = made.act(made.fit_.nets(), shown, {}, noise)
    for i in range(4):
        ends = [followed("high", goal[i], seen[i], z) for z in subgoals[i]]
        best = max(ends, key=lambda w, i=i: min(run("live", "critic", beside(goal[i], seen[i], w), k)[0] for k in range(2)))
        np.testing.assert_allclose(found[i].detach(), np.clip(followed("policy", best, seen[i], actions[i]), -1, 1), rtol=1e-8)


def test_goals_that_are_no_vectors_are_refused():
    images = np.zeros((8, 6, 6, 3), np.uint8)
    data = Dataset.from_arrays(images, np.zeros((8, 2)), np.zeros(8), np.arange(8) == 7)
    with pytest.raises(ConfigError, match="SHARSA draws subgoals, which have to be vectors"):
        maker(SHARSA)().fit(data, 1)


def test_it_resumes_and_draws_again_what_it_drew():
    made = maker(SHARSA)(seed=3).fit(tiny_dataset(discrete=False), 4, 4)
    seen = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    shown = {"observation": seen, "goal": seen[::-1].copy()}
    np.testing.assert_array_equal(made.predict(shown), made.predict(shown))
    assert np.abs(made.sample_action(shown) - made.sample_action(shown)).max() > 0
