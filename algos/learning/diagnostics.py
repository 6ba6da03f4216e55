"""Signs of trouble in an epoch's last update, beside the means of losses and metrics.

    train/NETWORK_gradient_norm   L2 norm of a network's gradient, before any clipping
    train/NETWORK_dead_units      share of its ReLU units that were zero for every sample of the batch

They cost one update an epoch some tenths of its time, and the others nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...data.batch import Batch
from ..definition import Loss, LossValue
from ..nets import Hyper, Nets, asked
from ..networks.training import whole_batch


def with_dead_units(loss: Loss, modules: Mapping[str, nn.Module], names: Iterable[str]) -> Loss:
    """A loss that also tells the dead units of the networks that it trains, as metrics `NETWORK_dead_units`."""

    @functools.wraps(loss)
    def seen(nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with _dead_units({name: modules[name] for name in names}) as shares:
            values, metrics, _ = asked(loss, nets, batch, h)
        return values, metrics | {f"{name}_dead_units": torch.stack(found).mean() for name, found in shares.items() if found}

    return seen


def gradient_norm(gradients: Sequence[Tensor], *, stacked: bool) -> Tensor:
    """L2 norm over all gradients: () or, of a stack, one a row [S]."""
    dims = [tuple(range(1, g.ndim)) if stacked else None for g in gradients]
    return (
        torch.stack([g.square().sum(dim) if dim != () else g.square() for g, dim in zip(gradients, dims, strict=True)])
        .sum(0)
        .sqrt()
    )


@contextmanager
def _dead_units(modules: Mapping[str, nn.Module]) -> Generator[dict[str, list[Tensor]]]:
    """Shares of dead units, one for each layer and call, of calls that get a gradient (which a target's do not)."""
    shares: dict[str, list[Tensor]] = {name: [] for name in modules}
    hooks: list[Any] = []

    def note(name: str, *, image: bool) -> Any:
        def hook(layer: nn.Module, inputs: Any, output: Tensor) -> None:
            if torch.is_grad_enabled():
                shares[name].append(_dead(output.detach(), image=image))

        return hook

    for name, module in modules.items():
        for path, layer in module.named_modules():
            if isinstance(layer, nn.ReLU):
                hooks.append(layer.register_forward_hook(note(name, image="convolutions" in path.split("."))))
    try:
        yield shares
    finally:
        for hook in hooks:
            hook.remove()


def _dead(output: Tensor, *, image: bool) -> Tensor:
    """Share of units, or of an image's channels, that are zero for every sample: [..., B, F] or [B, C, H, W] to ()."""
    silent = output <= 0
    if image:
        silent = silent.flatten(-2).all(-1)
    return whole_batch(silent.all(-2).to(output.dtype)[..., None]).amin(-1).mean()
