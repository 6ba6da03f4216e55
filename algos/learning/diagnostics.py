"""How a losing run shows itself: what is looked at in the last update of an epoch, beside the means of losses and metrics.

    train/NETWORK_gradient_norm   L2 norm of a network's gradient, before any clipping
    train/NETWORK_dead_units      share of its ReLU units that were zero for every sample of the batch
    train/action_saturation       share of the policy's action entries at the end of their range, |a| ≥ 0.99 of [-1, 1]
    train/q_value_max             largest Q(s, a) of the batch

They cost one update an epoch some tenths of its time, and the others nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..nets import Hyper, Nets, Parameters

if TYPE_CHECKING:
    from ...data.batch import Batch
    from .learner import Learner, Loss, LossValue

SATURATED = 0.99
_BEYOND = 10.0  # how far beyond every possible return the mean Q-value must lie before it is called divergence


class DivergenceWarning(UserWarning):
    """Q-values are larger than any return can be."""


def watched(loss: Loss, modules: Mapping[str, nn.Module], names: Iterable[str]) -> Loss:
    """A loss that also tells the dead units of the networks that it trains, as metrics `NETWORK_dead_units`."""

    def watched_loss(nets: Nets, batch: Batch, h: Hyper) -> LossValue:
        with _dead_units({name: modules[name] for name in names}) as shares:
            values, metrics = loss(nets, batch, h)
        return values, metrics | {f"{name}_dead_units": torch.stack(found).mean() for name, found in shares.items() if found}

    watched_loss.__name__ = loss.__name__
    return watched_loss


def gradient_norm(gradients: Sequence[Tensor], *, stacked: bool) -> Tensor:
    """L2 norm over all gradients: () or, of a stack, one a row [S]."""
    dims = [tuple(range(1, g.ndim)) if stacked else None for g in gradients]
    return (
        torch.stack([g.square().sum(dim) if dim != () else g.square() for g, dim in zip(gradients, dims, strict=True)])
        .sum(0)
        .sqrt()
    )


@torch.no_grad()
def snapshot(learner: Learner, batch: Batch, k: int) -> dict[str, float]:
    """What the present policy and critics of the k-th seed make of its batch. Waits for the device."""
    algorithm, tensors, observation, action = learner.algorithm, dict[str, Parameters](), batch.seen, batch.action
    if learner.stacked:
        live = {name: {**parameters, **learner.buffers[name]} for name, parameters in learner.live.items()}
        tensors, observation, action = pytree.tree_map(lambda part: part[k], (live, observation, action))
    nets, found = Nets(learner.modules, tensors, None, None, learner.dtype), dict[str, float]()
    if algorithm.actions == "continuous":
        found["action_saturation"] = float((algorithm.act(nets, observation).abs() >= SATURATED).double().mean())
    if type(algorithm).learns_values():
        found["q_value_max"] = float(algorithm.value(nets, observation, action).max())
    return found


def divergence(metrics: Mapping[str, float], largest_reward: float, gamma: float) -> str | None:
    """What is wrong with the Q-values of an epoch, in one sentence; None: nothing that shows.

    No policy's value exceeds max |r| / (1 - γ), where the temperature's share of the entropy counts as reward too. A mean beyond
    ten times that is called divergence.

    Args:
        metrics: `q_value`, `step`, and where there are such `temperature` and `entropy`.
        largest_reward: max |r|, after the reward scaler.
        gamma: γ.
    """
    value = metrics.get("q_value")
    if value is None or not math.isfinite(value) or gamma >= 1:
        return None
    limit = (largest_reward + abs(metrics.get("temperature", 0.0) * metrics.get("entropy", 0.0))) / (1 - gamma)
    if limit == 0 or abs(value) <= _BEYOND * limit:
        return None
    return f"values diverge: the mean Q-value is {value:.3g}, and with these rewards no return can exceed {limit:.3g}"


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
    return silent.all(-2).to(output.dtype).mean()
