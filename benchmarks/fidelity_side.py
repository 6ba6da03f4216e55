"""What the peers' sides of the fidelity table share: weights in, recorded numbers in place of draws, one update, everything out.

Needs NumPy and torch only, so that it runs in the peers' environment. Arrays go back and forth in .npz files. A tensor is called
`live/NETWORK/MEMBER/LAYER/weight`, and likewise `target/…` and `gradient/…`; weights of affine layers are [out, in], as
torch.nn.Linear has them. What is no part of an affine layer is called `live/NETWORK/0/NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

Named = dict[str, nn.Parameter]


def layers(module: nn.Module, names: Mapping[str, str]) -> Named:
    """Parameters of a network by the names that our side gives them.

    Args:
        module: The peer's network.
        names: What our side calls each affine layer or lone parameter of theirs; other affine layers are the encoder's, in order.
    """
    found: Named = {}
    encoder = 0
    for path, layer in module.named_modules():
        if isinstance(layer, nn.Embedding) and path in names:
            found[f"{names[path]}.weight"] = layer.weight
        if isinstance(layer, nn.Linear):
            name = names.get(path)
            if name is None:
                name, encoder = f"encoder.{encoder}", encoder + 1
            if layer.bias is None:  # a lone parameter on our side
                found[f"{name}.weight"] = layer.weight
            else:
                found[f"{name}/weight"], found[f"{name}/bias"] = layer.weight, layer.bias
    for path, parameter in module.named_parameters():
        if path in names:
            found[names[path]] = parameter
    return found


@contextmanager
def replaying(tape: list[np.ndarray]) -> Iterator[None]:
    """Within it the next draw from a standard normal or a uniform distribution is the next array of the tape."""
    left = list(tape)

    def following(shape: Any) -> torch.Tensor:
        if not left:
            raise RuntimeError(f"the peer draws {tuple(shape)} more than was recorded")
        array = left.pop(0)
        if tuple(array.shape) != tuple(shape):
            raise RuntimeError(f"the peer draws {tuple(shape)}, and {array.shape} was recorded")
        return torch.from_numpy(array)

    def sized(*shape: Any, **_: Any) -> torch.Tensor:
        return following(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)

    def from_normal(normal: Any, sample_shape: Any = ()) -> torch.Tensor:
        shape = normal._extended_shape(torch.Size(sample_shape))
        return normal.loc + normal.scale * following(shape)

    def within(x: torch.Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> torch.Tensor:
        return x.copy_(low + (high - low) * following(x.shape))

    normal = torch.distributions.Normal
    with (
        mock.patch.object(torch.Tensor, "uniform_", within),
        mock.patch.object(torch, "randn", sized),
        mock.patch.object(torch, "rand", sized),
        mock.patch.object(torch, "randn_like", lambda x, **_: following(x.shape)),
        mock.patch.object(normal, "rsample", from_normal),
        mock.patch.object(normal, "sample", lambda self, shape=(): from_normal(self, shape).detach()),
    ):
        yield
    if left:
        raise RuntimeError(f"{len(left)} of {len(tape)} recorded draws were not asked for")


def compare(
    arrays: str, answer: str, live: Mapping[str, Named], target: Mapping[str, Named], step: Callable[[], Mapping[str, Any]]
) -> None:
    """Loads weights, does one update, and writes losses, gradients and new weights.

    Args:
        arrays: What our side wrote.
        answer: Where the answer goes.
        live: Parameters by `NETWORK/MEMBER`.
        target: The same of target networks.
        step: Does the update; gives losses by name.
    """
    written: dict[str, np.ndarray] = {}
    tensors = {
        f"{kind}/{network}/{name}": parameter
        for kind, networks in (("live", live), ("target", target))
        for network, named in networks.items()
        for name, parameter in named.items()
    }
    with np.load(arrays) as given:
        only = {name for name in given if name.startswith(("live/", "target/"))} ^ set(tensors)
        if only - {"live/temperature/0/log", "live/alpha/0/log"}:  # where they are fixed, our side has no network for them
            raise RuntimeError(f"only one side has {', '.join(sorted(only))}")
        with torch.no_grad():
            for name, parameter in tensors.items():
                if name in given:
                    parameter.copy_(torch.from_numpy(given[name]).reshape(parameter.shape))
        tape = [given[f"draw/{k}"] for k in range(sum(name.startswith("draw/") for name in given))]
    stepped = {id(parameter): name for name, parameter in tensors.items() if name.startswith("live/")}

    def record(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in stepped and parameter.grad is not None:
                    written["gradient/" + stepped[id(parameter)].removeprefix("live/")] = parameter.grad.numpy().copy()

    hook = register_optimizer_step_pre_hook(record)
    with replaying(tape):
        losses = step()
    hook.remove()
    written |= {f"loss/{name}": np.asarray(float(value)) for name, value in losses.items()}
    written |= {name: parameter.detach().numpy() for name, parameter in tensors.items()}
    np.savez(answer, **written)
