"""Normalised advantage functions: the parabola, its best action, and the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.networks.quadratic import QuadraticFunction
from d3ray.algos.values.naf import NAF
from d3ray.data.spec import Box

from ..loss_values import evaluate, mlp, prepared


def parabola(state, kind, seen):
    """V, μ and P at one observation."""
    worth, best, diagonal, rest = (
        mlp({name.replace(f"critic/{layer}.", "critic/head."): t for name, t in state.items()}, f"{kind}/critic/", seen)
        for layer in ("worth", "best", "diagonal", "rest")
    )
    root = np.diag(np.exp(diagonal))
    root[np.tril_indices(len(best), -1)] = rest
    return worth[0], np.tanh(best), root @ root.T


def test_the_loss_is_hubers_of_the_parabola():
    made, learner, batch = prepared(NAF, learning_rate=1e-2, td_steps=2)
    state, expected, values = learner.state(), [], []
    for i, (seen, after) in enumerate(zip(batch.observation.numpy(), batch.next_observation.numpy(), strict=True)):
        worth, best, form = parabola(state, "live", seen)
        apart = batch.action[i].numpy() - best
        goal = batch.reward[i].item() + batch.discount[i].item() * parabola(state, "target", after)[0]
        values.append(worth - apart @ form @ apart / 2)
        error = abs(values[-1] - goal)
        expected.append(0.5 * error**2 if error <= 1 else error - 0.5)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)
    seen, action = batch.observation.numpy(), batch.action.numpy()
    np.testing.assert_allclose(made.predict_value(seen, action), values, rtol=1e-6)
    np.testing.assert_allclose(made.predict(seen)[0], parabola(state, "live", seen[0])[1], rtol=1e-6)


@pytest.mark.parametrize("entries", [1, 3])
def test_no_action_is_better_than_the_one_that_is_read_off(entries):
    torch.manual_seed(0)
    function = QuadraticFunction(VectorEncoder(hidden_units=(8,)), Box(shape=(2,), dtype="float32"), entries)
    seen = torch.randn(50, 2)
    with torch.no_grad():
        best = function(seen, function.action(seen))
        torch.testing.assert_close(best, function.value(seen))
        for _ in range(20):
            assert (function(seen, torch.rand(50, entries) * 2 - 1) <= best + 1e-6).all()
