"""Layers against torch's own and against loops."""

import torch

from d3ray.algos.networks.layers import Dropout, Linear
from d3ray.algos.networks.normalization import BatchNorm
from d3ray.algos.networks.training import Pass, under_way
from d3ray.data.random import root_key


def test_an_ensemble_is_its_members_side_by_side():
    torch.manual_seed(0)
    layer, x = Linear(4, 3, members=5), torch.randn(7, 4)
    each = torch.randn(5, 7, 4)
    for m in range(5):
        torch.testing.assert_close(layer(x)[m], x @ layer.weight[m] + layer.bias[m, 0])
        torch.testing.assert_close(layer(each)[m], each[m] @ layer.weight[m] + layer.bias[m, 0])


def test_layers_start_as_torchs_do():
    """Uniform on ±1/√in: standard deviation 1/√(3 in), largest near the bound."""
    torch.manual_seed(0)
    layer = Linear(100, 400)
    for tensor in (layer.weight, layer.bias):
        assert abs(float(tensor.detach().std()) - (3 * 100) ** -0.5) < 0.05 * (3 * 100) ** -0.5 * (4 if tensor is layer.bias else 1)
        assert 0.09 < float(tensor.detach().abs().max()) <= 0.1


def test_dropout_drops_its_share_scales_the_rest_and_rests():
    layer, x = Dropout(0.3), torch.ones(200, 500)
    assert torch.equal(layer(x), x)
    with under_way(Pass(root_key(1), torch.float32, True, None)):
        first, second = layer(x), layer(x)
    assert abs(float((first == 0).float().mean()) - 0.3) < 0.01
    torch.testing.assert_close(first[first != 0], torch.full_like(first[first != 0], 1 / 0.7))
    assert not torch.equal(first, second)  # another position, another mask
    with under_way(Pass(root_key(1), torch.float32, True, None)):
        assert torch.equal(layer(x), first)  # the same address, the same mask


def test_batch_norm_is_torchs():
    torch.manual_seed(0)
    ours, theirs = BatchNorm(6), torch.nn.BatchNorm1d(6)
    for _ in range(4):
        x = torch.randn(32, 6) * 3 + 1
        kept: dict[str, torch.Tensor] = {}
        with under_way(Pass(root_key(0), torch.float32, True, kept)):
            out = ours(x)
        torch.testing.assert_close(out, theirs(x), rtol=1e-5, atol=1e-5)
        for name, tensor in kept.items():
            getattr(ours, name.removeprefix(".")).copy_(tensor)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours(x), theirs.eval()(x), rtol=1e-5, atol=1e-5)
