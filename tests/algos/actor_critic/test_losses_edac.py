"""EDAC's diversity against slopes that are measured by differences, and SAC-N's least critic against a loop."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.edac import EDAC
from d3ray.algos.actor_critic.sac_n import SACN

from .. import slow_losses as slow
from ..loss_values import as_tensors, evaluate, networks, prepared

SMALL = {"hidden_units": [16, 16], "activation": "tanh"}  # smooth, or differences would see kinks


def slopes(learner, batch, members):
    """∇_a Q_i(s, a) of each member and sample by central differences, [members, B, A]."""
    critic, step = learner.modules["critic"], 1e-5
    found = np.zeros((members, *batch.action.shape))
    with torch.no_grad():
        for k in range(batch.action.shape[1]):
            moved = torch.zeros_like(batch.action)
            moved[:, k] = step
            up, down = (critic(batch.observation, batch.action + sign * moved).numpy() for sign in (1, -1))
            found[:, :, k] = (up - down) / (2 * step)
    return found


@pytest.mark.parametrize("q_function", ["mean", "qr"])
def test_the_diversity_is_the_mean_cosine_of_pairs(q_function):
    settings = {"n_critics": 4, "critic_encoder": SMALL, "q_function": q_function}
    made, learner, batch = prepared(EDAC, eta=0.7, **settings)
    found = slopes(learner, batch, 4)
    unit = found / np.linalg.norm(found, axis=-1, keepdims=True)
    expected = [sum(unit[i, b] @ unit[j, b] for i in range(4) for j in range(4) if i != j) / 3 for b in range(len(batch.reward))]
    loss, metrics, nets = evaluate(made, learner, batch, made.critic_loss)
    np.testing.assert_allclose(metrics["alikeness"], expected, rtol=1e-6, atol=1e-7)
    without = SACN.critic_loss(made, nets, batch, learner._h)[0].sum(0).detach().numpy()
    np.testing.assert_allclose(loss, without + 0.7 * np.array(expected), rtol=1e-6)


def test_the_diversity_lowers_the_cosines():
    """Trained with a large weight slopes turn apart; without one they do not."""
    means = {}
    for eta in (0.0, 30.0):
        made, learner, batch = prepared(EDAC, n_critics=4, eta=eta, critic_learning_rate=3e-3)
        for _ in range(60):
            learner.update(batch)
        means[eta] = evaluate(made, learner, batch, made.critic_loss)[1]["alikeness"].mean()
    assert means[30.0] < means[0.0] - 0.5


def test_sac_n_aims_at_its_least_critic():
    made, learner, batch = prepared(SACN, n_critics=5, learn_temperature=False, initial_temperature=0.3)
    run, (loss, _, nets) = as_tensors(networks(learner)), evaluate(made, learner, batch, made.critic_loss)
    noise = nets.noise("next action", batch.action.shape)
    expected = [slow.soft_critic(run, one, z, 0.3, 5, -5.0) for one, z in zip(slow.samples(batch), noise, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
