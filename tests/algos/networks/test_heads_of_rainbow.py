"""Noisy layers and dueling heads against their equations."""

import numpy as np
import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from d3ray.algos.networks.dueling import Dueling
from d3ray.algos.networks.noisy import NoisyLinear
from d3ray.algos.networks.perceptrons import Linear
from d3ray.algos.networks.training import Pass, drawing_by, under_way
from d3ray.data.random import fold, normal, root_key


def a_pass(seed=3, target=False):
    return under_way(Pass(root_key(seed), torch.float64, not target, None, target=target))


@pytest.mark.parametrize("members", [None, 2])
def test_noise_is_factorised_and_rests(members):
    torch.manual_seed(0)
    layer, x = NoisyLinear(4, 3, members, sigma=0.7).double(), torch.randn(5, 4, dtype=torch.float64)
    assert layer.weight_sigma.unique().tolist() == layer.bias_sigma.unique().tolist() == pytest.approx([0.35])
    plain = Linear(4, 3, members).double()
    plain.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    assert torch.equal(layer(x), plain(x))  # at rest its means
    with a_pass():
        first, second = layer(x), layer(x)
    assert torch.equal(first, second)  # in one pass it has the same weights wherever it is asked
    with a_pass(target=True):
        assert torch.equal(layer(x), first)  # the address says it all; a target draws too
    with a_pass(seed=4):
        assert not torch.equal(layer(x), first)
    with torch.no_grad():
        layer.weight_sigma.normal_()
        layer.bias_sigma.normal_()
    with a_pass():
        found = layer(x)
    lead = () if members is None else (members,)
    e_in, e_out = (normal(fold(root_key(3), k), (*lead, n), torch.float64).numpy() for k, n in ((1, 4), (2, 3)))
    f_in, f_out = (np.sign(e) * np.sqrt(np.abs(e)) for e in (e_in, e_out))
    for m in range(members or 1):
        of = (lambda a: a) if members is None else (lambda a, m=m: a[m])
        mu, sigma = (of(t.detach().numpy()) for t in (layer.weight, layer.weight_sigma))
        bias, bias_sigma = (of(t.detach().numpy()).reshape(-1) for t in (layer.bias, layer.bias_sigma))
        for b in range(5):
            for j in range(3):
                weights = [mu[i, j] + sigma[i, j] * of(f_in)[i] * of(f_out)[j] for i in range(4)]
                expected = sum(w * x[b, i].item() for i, w in enumerate(weights)) + bias[j] + bias_sigma[j] * of(f_out)[j]
                assert of(found)[b, j].item() == pytest.approx(expected, rel=1e-12)
        assert of(found).shape == (5, 3)


@pytest.mark.parametrize("members", [None, 2])
def test_a_policy_that_is_handed_numbers_has_weights_of_its_own_for_each_sample(members):
    """As if each sample were passed alone, through weights that were made of its numbers."""
    torch.manual_seed(0)
    layers = [NoisyLinear(4, 3, members, sigma=0.7).double(), NoisyLinear(3, 2, members, sigma=0.4).double()]
    x, numbers = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, (members or 1) * (7 + 5), dtype=torch.float64)
    with drawing_by(numbers):
        found = layers[1](layers[0](x))
    at = 0
    seen = [[row.numpy() for row in x] for _ in range(members or 1)]
    for layer in layers:
        size_in = layer.weight.shape[-2]
        for m in range(members or 1):
            of = (lambda t: t) if members is None else (lambda t, m=m: t[m])
            mu, sigma, bias, bias_sigma = (
                of(t.detach()).numpy() for t in (layer.weight, layer.weight_sigma, layer.bias, layer.bias_sigma)
            )
            for b in range(5):
                own = numbers[b, at : at + layer.n_numbers].numpy().reshape(members or 1, -1)[m]
                f_in, f_out = (np.sign(e) * np.sqrt(np.abs(e)) for e in (own[:size_in], own[size_in:]))
                weight = mu + sigma * np.outer(f_in, f_out)
                seen[m][b] = seen[m][b] @ weight + bias.reshape(-1) + bias_sigma.reshape(-1) * f_out
        at += layer.n_numbers
    expected = np.array(seen if members else seen[0])
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-10)


def test_noise_has_the_papers_moments():
    """f(ε) has the variance E|ε| = √(2/π); so a weight's is σ² 2/π, the bias's σ² √(2/π)."""
    layer = NoisyLinear(300, 400, sigma=300**0.5).double()  # every σ is 1
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    with a_pass():
        bias = layer(torch.zeros(1, 300, dtype=torch.float64))
    with a_pass():
        weights = layer(torch.eye(300, dtype=torch.float64)) - bias
    assert weights.mean().item() == pytest.approx(0, abs=0.02)
    assert weights.var().item() == pytest.approx(2 / np.pi, rel=0.1)
    assert bias.var().item() == pytest.approx((2 / np.pi) ** 0.5, rel=0.15)
    assert torch.linalg.matrix_rank(weights) == 1
    with a_pass(seed=4):
        other = layer(torch.eye(300, dtype=torch.float64))
    assert abs(torch.corrcoef(torch.stack((other.flatten(), weights.flatten())))[0, 1].item()) < 0.1


@pytest.mark.parametrize("make", [lambda: NoisyLinear(4, 6), lambda: Dueling(4, 3, 2, 2, hidden=5, layer=NoisyLinear)])
def test_rows_are_single_layers(make):
    torch.manual_seed(0)
    layers, x = [make().double() for _ in range(3)], torch.randn(3, 5, 4, dtype=torch.float64)
    keys = torch.stack([root_key(seed) for seed in (3, 4, 5)])
    parameters, buffers = stack_module_state(layers)

    def one(parameters, key, x):
        with under_way(Pass(key, torch.float64, True, None)):
            return functional_call(layers[0], (parameters, buffers), (x,))

    rows = vmap(one)(parameters, keys, x)
    for k, layer in enumerate(layers):
        with under_way(Pass(keys[k], torch.float64, True, None)):
            torch.testing.assert_close(rows[k], layer(x[k]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("hidden", [None, 5])
@pytest.mark.parametrize("members", [None, 2])
def test_streams_are_joined_as_in_the_paper(members, hidden):
    torch.manual_seed(0)
    head, x = Dueling(4, 3, 2, members, hidden=hidden).double(), torch.randn(6, 4, dtype=torch.float64)
    found, value, advantage = head(x), head.value(x), head.advantage(x)
    lead = () if members is None else (members,)
    assert found.shape == (*lead, 6, 6)
    for at in np.ndindex(*lead, 6):
        for a in range(3):
            for k in range(2):
                mean = sum(advantage[at][2 * other + k].item() for other in range(3)) / 3
                expected = value[at][k].item() + advantage[at][2 * a + k].item() - mean
                assert found[at][2 * a + k].item() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    alone = head.value if hidden is None else head.value[0]
    assert alone.weight.shape == (*lead, 4, 2 if hidden is None else 5)
