"""Layers against torch's own and against loops."""

import pytest
import torch

from d3ray.algos.networks.layers import Convolution, Dropout
from d3ray.algos.networks.normalization import BatchNorm, LayerNorm
from d3ray.algos.networks.perceptrons import Linear
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


def test_batch_norm_of_images_is_torchs_for_each_member():
    torch.manual_seed(0)
    ours, theirs = BatchNorm(3, members=2, images=True), torch.nn.BatchNorm2d(6)
    for _ in range(3):
        x = torch.randn(8, 6, 5, 4) * 3 + 1
        kept: dict[str, torch.Tensor] = {}
        with under_way(Pass(root_key(0), torch.float32, training=True, statistics=kept)):
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
        for name, tensor in kept.items():
            getattr(ours, name.removeprefix(".")).copy_(tensor)
    torch.testing.assert_close(ours.running_var.flatten(), theirs.running_var)
    torch.testing.assert_close(ours(x), theirs.eval()(x), rtol=1e-5, atol=1e-5)


def test_layer_norm_is_torchs_on_vectors_and_one_group_of_images():
    torch.manual_seed(0)
    vectors, theirs = LayerNorm(6, members=2), [torch.nn.LayerNorm(6) for _ in range(2)]
    images, groups = LayerNorm(3, members=2, images=True), [torch.nn.GroupNorm(1, 3) for _ in range(2)]
    with torch.no_grad():
        for ours, peers in ((vectors, theirs), (images, groups)):
            for name in ("weight", "bias"):
                getattr(ours, name).normal_()
                for m, peer in enumerate(peers):
                    size = peer.weight.numel()
                    getattr(peer, name).copy_(getattr(ours, name).flatten()[m * size : (m + 1) * size])
    x, pictures = torch.randn(2, 7, 6), torch.randn(4, 6, 5, 4)
    torch.testing.assert_close(vectors(x), torch.stack([peer(part) for peer, part in zip(theirs, x, strict=True)]))
    torch.testing.assert_close(
        images(pictures), torch.cat([peer(part) for peer, part in zip(groups, pictures.split(3, 1), strict=True)], 1)
    )


def loss_pass(layer, x):
    """A pass of a loss that minimises the layer, after which its statistics are what the pass left."""
    kept: dict[str, torch.Tensor] = {}
    with under_way(Pass(root_key(0), torch.float64, training=True, statistics=kept)):
        out = layer(x)
        assert torch.equal(layer(x), out)  # a second pass of the same loss iterates no further
    layer.spectral.left.copy_(kept[".left"])
    layer.spectral.right.copy_(kept[".right"])
    return out


def test_spectral_norm_is_torchs_pass_by_pass():
    """From equal vectors; torch's weight is [out, in], ours [in, out], so its v is our left one."""
    torch.manual_seed(0)
    ours, peer = Linear(5, 4, spectral_norm=True).double(), torch.nn.Linear(5, 4).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    with torch.no_grad():
        peer.weight.copy_(ours.weight.T)
        peer.bias.copy_(ours.bias)
    theirs = torch.nn.utils.parametrizations.spectral_norm(peer, n_power_iterations=1)
    held = theirs.parametrizations.weight[0]
    held._v.normal_().div_(held._v.norm())  # far from where both would begin
    ours.spectral.left.copy_(held._v)
    for _ in range(3):
        out, expected = loss_pass(ours, x), theirs(x)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
        (mine,) = torch.autograd.grad(out.square().sum(), ours.weight)
        (other,) = torch.autograd.grad(expected.square().sum(), theirs.parametrizations.weight.original)
        torch.testing.assert_close(mine.T, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("kind", "sizes"), [(Linear, (5, 4)), (Convolution, (2, 4, 3, 1))])
def test_spectral_norm_comes_to_the_largest_singular_value(kind, sizes):
    torch.manual_seed(0)  # power iteration is slow where the two largest singular values are close
    layer = kind(*sizes, spectral_norm=True).double()
    x = torch.randn(6, 5, dtype=torch.float64) if isinstance(layer, Linear) else torch.randn(6, 2, 5, 5, dtype=torch.float64)
    for _ in range(300):
        loss_pass(layer, x)
    resting = layer(x)
    with torch.no_grad():
        layer.weight /= torch.linalg.matrix_norm(layer.weight if isinstance(layer, Linear) else layer.weight.flatten(1), 2)
    layer.spectral = None
    torch.testing.assert_close(resting, layer(x), rtol=0, atol=1e-9)


def test_dropout_of_images_drops_whole_channels():
    x = torch.ones(50, 8, 3, 3)
    with under_way(Pass(root_key(1), torch.float32, training=True, statistics=None)):
        out = Dropout(0.5, images=True)(x)
    assert torch.equal(out, out[..., :1, :1].expand_as(out))
    assert abs(float((out == 0).float().mean()) - 0.5) < 0.1
