"""The arithmetic of one step, for lists of tensors: equations as in the configs' papers, order of operations as in torch.optim."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...data.tracing import tracing
from .config import SGD, Adam, AdamW, Muon, RMSprop

# Kernels of torch.optim, which have no public names. On small networks its classes cost more than the arithmetic.
_adam: Callable[..., None] = torch._fused_adam_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage, reportAttributeAccessIssue, reportUnknownVariableType]
_adamw: Callable[..., None] = torch._fused_adamw_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage, reportAttributeAccessIssue, reportUnknownVariableType]
_each: Any = torch  # the foreach operations

Tensors = list[Tensor]


Rate = float | Tensor
"""A learning rate: a number, or a tensor (), which a program can be run again with, or [S] of a stack's rows, where compiled."""


@dataclass(frozen=True)
class Rule:
    """How some parameters are stepped.

    Attributes:
        which: Places of these parameters among all of the network's.
        slots: Names of the tensors that each keeps, zeros at first, of the parameter's shape.
        step: (rate, parameters, gradients, one list of tensors a slot, count of steps for each) changes all of them in place.
    """

    which: tuple[int, ...]
    slots: tuple[str, ...]
    step: Callable[[Rate, Tensors, Tensors, Sequence[Tensors], Tensors], None]


def rules(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[Rule]:
    """What the optimiser does with parameters of these shapes, by name; the shapes are those of one row."""
    everything = tuple(range(len(shapes)))
    match config:
        case Adam():
            return [_adam_rule(config, everything)]
        case RMSprop():
            slots = ("square_avg", *["grad_avg"] * config.centered, *["momentum_buffer"] * (config.momentum > 0))
            return [Rule(everything, slots, partial(_rmsprop, config))]
        case SGD():
            return [Rule(everything, ("momentum_buffer",) if config.momentum else (), partial(_sgd, config))]
        case Muon():
            matrices = tuple(k for k, (name, shape) in enumerate(shapes.items()) if _is_matrix(name, shape))
            others = tuple(k for k in everything if k not in matrices)
            found = [Rule(matrices, ("momentum_buffer",), partial(_muon, config))] if matrices else []
            return [*found, _adam_rule(AdamW(weight_decay=config.weight_decay), others)] if others else found
        case _:
            raise TypeError(f"no optimiser: {config!r}")


def remembered(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """How many tensors of a parameter's shape the optimiser keeps of each, by name; arguments as `rules`'s."""
    names = list(shapes)
    return {names[place]: len(rule.slots) for rule in rules(config, shapes) for place in rule.which}


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether it is the weight of an affine layer: [in, out] or [members, in, out]. A normalisation's is [members, 1, size]."""
    return name.endswith("weight") and (len(shape) == 2 or (len(shape) == 3 and shape[1] > 1))


def _adam_rule(config: Adam, which: tuple[int, ...]) -> Rule:
    kernel = partial(
        _adamw if isinstance(config, AdamW) else _adam,
        beta1=config.betas[0],
        beta2=config.betas[1],
        weight_decay=config.weight_decay,
        eps=config.epsilon,
        amsgrad=config.amsgrad,
        maximize=False,
    )

    def step(rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors) -> None:
        exact = isinstance(rate, Tensor) and rate.is_cuda and rate.dtype == torch.float64  # the kernel reads rates in float32
        if exact or tracing() == "compiled":
            _adam_in_parts(config, rate, parameters, gradients, slots, counts)
        else:
            kernel(parameters, gradients, slots[0], slots[1], slots[2] if config.amsgrad else [], counts, lr=rate)

    return Rule(which, ("exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * config.amsgrad), step)


def _adam_in_parts(
    config: Adam, rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors
) -> None:
    """The same in operations that a compiler joins with those before and after. Corrections are worked out in float64."""
    beta1, beta2 = config.betas
    for k, (parameter, gradient, count) in enumerate(zip(parameters, gradients, counts, strict=True)):
        mean, square, steps = slots[0][k], slots[1][k], count.double()
        if isinstance(config, AdamW):
            parameter.mul_(_along(1 - rate * config.weight_decay, parameter))
        slope = gradient
        if config.weight_decay and not isinstance(config, AdamW):
            slope = gradient + config.weight_decay * parameter
        mean.lerp_(slope, 1 - beta1)
        square.mul_(beta2).add_((1 - beta2) * slope * slope)
        size = rate / -torch.expm1(steps * math.log(beta1))
        root = (-torch.expm1(steps * math.log(beta2))).sqrt()
        most = slots[2][k].copy_(torch.maximum(slots[2][k], square)) if config.amsgrad else square
        parameter.sub_(_along(size, parameter) * mean / (most.sqrt() / _along(root, parameter) + config.epsilon))


def _along(factor: Any, like: Tensor) -> Any:
    """A factor for each row of a tensor, or one for all of it, in its type."""
    if not isinstance(factor, Tensor):
        return factor
    factor = factor.to(like.dtype)
    return factor.reshape(-1, *[1] * (like.ndim - 1)) if factor.ndim else factor


def _times(tensors: Tensors, factor: Rate) -> Tensors:
    """Each tensor times a factor, or times its row's."""
    if isinstance(factor, Tensor):
        return (
            [tensor * _along(factor, tensor) for tensor in tensors]
            if factor.ndim
            else _each._foreach_mul(tensors, _along(factor, tensors[0]))
        )
    return _each._foreach_mul(tensors, factor)


def _decayed(decay: float, parameters: Tensors, gradients: Tensors) -> Tensors:
    """Gradients of the loss with its L2 penalty."""
    return _each._foreach_add(gradients, parameters, alpha=decay) if decay else gradients


def _rmsprop(
    config: RMSprop, rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors
) -> None:
    gradients = _decayed(config.weight_decay, parameters, gradients)
    square = slots[0]
    _each._foreach_mul_(square, config.alpha)
    _each._foreach_addcmul_(square, gradients, gradients, 1 - config.alpha)
    if config.centered:
        _each._foreach_lerp_(slots[1], gradients, 1 - config.alpha)
        divisor = _each._foreach_addcmul(square, slots[1], slots[1], -1.0)
    else:
        divisor = _each._foreach_add(square, 0.0)
    if config.epsilon_inside:
        _each._foreach_add_(divisor, config.epsilon)
    _each._foreach_sqrt_(divisor)
    if not config.epsilon_inside:
        _each._foreach_add_(divisor, config.epsilon)
    if config.momentum:
        _each._foreach_mul_(slots[-1], config.momentum)
        _each._foreach_addcdiv_(slots[-1], gradients, divisor)
        gradients = slots[-1]
    else:
        gradients = _each._foreach_div(gradients, divisor)
    _each._foreach_sub_(parameters, _times(gradients, rate))


def _sgd(config: SGD, rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors) -> None:
    gradients = _decayed(config.weight_decay, parameters, gradients)
    if config.momentum:
        _each._foreach_mul_(slots[0], config.momentum)
        _each._foreach_add_(slots[0], gradients)
        gradients = _each._foreach_add(gradients, slots[0], alpha=config.momentum) if config.nesterov else slots[0]
    _each._foreach_sub_(parameters, _times(gradients, rate))


def _muon(config: Muon, rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors) -> None:
    _each._foreach_lerp_(slots[0], gradients, 1 - config.momentum)
    directions = _each._foreach_lerp(gradients, slots[0], config.momentum) if config.nesterov else slots[0]
    _each._foreach_copy_(parameters, _times(parameters, 1 - rate * config.weight_decay))
    for parameter, direction in zip(parameters, directions, strict=True):
        size_in, size_out = parameter.shape[-2:]
        original = config.adjust == "original"
        scale = max(1.0, size_out / size_in) ** 0.5 if original else 0.2 * max(size_in, size_out) ** 0.5
        parameter.sub_(_orthogonal(direction) * _along(rate * scale, parameter))


def _orthogonal(x: Tensor) -> Tensor:
    """Matrices [..., n, m] with singular values brought near 1: five quintic Newton-Schulz iterates with Jordan's coefficients."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
