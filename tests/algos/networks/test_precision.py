"""What products are computed in: encoders in bfloat16 and everything else in float32, alone and in a stack; or in TF32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.stack import Stack
from d3ray.data.errors import ConfigError

DATA = testing.tiny_dataset(discrete=False)
MIXED = "TD3: matmul_precision is 'bfloat16', beside which all else is float32, and dtype is 'float64': choose one"
PRODUCTS = ("addmm", "mm", "bmm", "baddbmm")


class Products(TorchDispatchMode):
    """Types of what products give, with the width of the result."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[torch.dtype, int]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in PRODUCTS:
            self.seen.add((out.dtype, out.shape[-1]))
        return out


def made(*, stacked: bool, **settings: Any) -> Any:
    """TD3 before its first step; its hidden layers are 24 and 20 wide."""
    encoder = VectorEncoder(hidden_units=(24, 20), activation="silu", normalization="layer", spectral_norm=True)
    make = testing.maker(TD3, actor_encoder=encoder, critic_encoder=encoder, **settings)
    return Stack(make(), (3, 4)).fit(DATA, 0) if stacked else make(seed=3).fit(DATA, 0)


def gradients(algorithm: Any) -> list[torch.Tensor]:
    """Of both losses at the state that the algorithm is in, and the losses' values."""
    learner, batch = algorithm.fit_.learner, algorithm.fit_.sampler(DATA).sample(0)
    found: list[torch.Tensor] = []
    for loss, network in ((learner.algorithm.critic_loss, "critic"), (learner.algorithm.actor_loss, "policy")):
        mine, value, *_ = learner.gradients(loss, (network,), batch, learner.address(loss))
        found += [*mine, value.detach()]
    return found


@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stack"])
def test_hidden_layers_run_in_bfloat16_and_gradients_are_close(stacked: bool) -> None:
    exact = gradients(made(stacked=stacked))
    with Products() as products:
        near = gradients(made(stacked=stacked, matmul_precision="bfloat16"))
    types = {width: {dtype for dtype, w in products.seen if w == width} for width in (24, 20, 3)}
    assert torch.bfloat16 in types[24]
    assert torch.bfloat16 in types[20]
    assert types[3] == {torch.float32}  # the policy's head
    for mine, other in zip(near, exact, strict=True):
        assert mine.dtype == torch.float32
        gap = float((mine - other).norm() / other.norm().clamp(min=1e-3))
        assert 0 < gap < 0.05  # eight bits are 0.4 % of a number; relu would add the steps of units that change sides


def test_parameters_and_optimisers_stay_float32_and_policies_act_in_it() -> None:
    mixed, full = made(stacked=False, matmul_precision="bfloat16").fit(DATA, 20), made(stacked=False).fit(DATA, 20)
    assert {tensor.dtype for name, tensor in mixed.state()[0].items() if not name.startswith("hyper/")} == {torch.float32}
    name, gap = testing.largest_difference(mixed.state()[0], full.state()[0])
    assert 0 < gap < 0.05, name
    with Products() as products:
        mixed.predict(DATA.columns["observation"][:5])
    assert {dtype for dtype, _ in products.seen} == {torch.float32}


def test_bfloat16_keeps_the_contract() -> None:
    make = testing.maker(TD3, matmul_precision="bfloat16")
    testing.check_resumes_bit_for_bit(make)
    testing.check_update_reads_no_value(make)


def test_float64_and_bfloat16_do_not_mix() -> None:
    with pytest.raises(ConfigError, match=MIXED):
        TD3(matmul_precision="bfloat16", dtype="float64").fit(DATA, 1)


class Sums(TorchDispatchMode):
    """Types of what is added in place to a tensor in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ == "add_" and args[0].dtype == torch.bfloat16:
            self.added.append(args[1].dtype)
        return function(*args, **(kwargs or {}))


def test_no_product_is_converted_to_have_its_bias() -> None:
    algorithm = made(stacked=True, matmul_precision="bfloat16")
    with Sums() as sums:
        gradients(algorithm)
    assert set(sums.added) == {torch.bfloat16}
