"""Optimisers over rows: one network of S seeds, each row with its own learning rate.

Equations are those of the configs' papers, the order of operations is torch.optim's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...data.tracing import host_may_look, tracing
from .config import SGD, Adam, AdamW, Muon, Optimizer, RMSprop

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


_Group = tuple[int | None, Rule, Tensors, list[Tensors], Tensors]


class RowOptimizer:
    """Steps parameters that may carry a leading axis of S seeds; each row is what torch.optim's class does with it alone.

    While all rows have one learning rate the stacked tensors are stepped whole; rows that differ are stepped one by one, through
    views of the same storage. Both are the same arithmetic, entry by entry.

    Args:
        config: Which optimiser, how gradients are clipped, how the learning rate changes.
        parameters: By name; [S, ...] each when `rows` is not None.
        rates: Learning rate of each row (one entry without rows).
        rows: S, or None.
        holds: Whether rows may be held, and so have done unlike numbers of steps: then each counts its own, and is stepped alone.

    Attributes:
        arrangements: How often it was settled which rows are stepped together: a program is good for one.
    """

    def __init__(
        self, config: Optimizer, parameters: dict[str, Tensor], rates: Sequence[float], rows: int | None, *, holds: bool = False
    ) -> None:
        self.names = list(parameters)
        self.parameters = [p.detach() for p in parameters.values()]
        self.rows, self.rates = rows, list(rates)
        self._norm, self._schedule = config.max_grad_norm, config.schedule
        lead = 0 if rows is None else 1
        self._rules = rules(config, {name: tuple(p.shape[lead:]) for name, p in parameters.items()})
        self._slots = [
            [[torch.zeros_like(self.parameters[i], memory_format=torch.preserve_format) for i in rule.which] for _ in rule.slots]
            for rule in self._rules
        ]
        device = self.parameters[0].device if self.parameters else torch.device("cpu")  # where the kernels want counts and rates
        counted = () if rows is None or not holds else (rows,)
        self._count = torch.zeros(counted, dtype=torch.float32, device=device)  # steps done
        # In the precision of the parameters, which the kernels of a GPU want; those of a CPU take rates as numbers.
        double = device.type == "cpu" or any(p.dtype == torch.float64 for p in self.parameters)
        self._rates = torch.tensor(self.rates, dtype=torch.float64 if double else torch.float32, device=device)
        self.arrangements = 0
        self._arrange()

    def _arrange(self) -> None:
        """`_groups`: what one call of a rule steps: row (None: all), rule, parameters, slots and counts."""
        self.arrangements += 1
        self._whole = self.rows is None or (len(set(self.rates)) == 1 and not self._count.ndim)
        everything: list[_Group] = [
            (None, rule, [self.parameters[i] for i in rule.which], slots, [self._count] * len(rule.which))
            for rule, slots in zip(self._rules, self._slots, strict=True)
        ]
        self._all, self._groups = everything, everything if self._whole else list[_Group]()
        for _, rule, parameters, slots, counts in [] if self._whole else everything:
            for k in range(len(self.rates)):
                of_row = [[tensor[k] for tensor in slot] for slot in slots]
                own = [self._count[k]] * len(counts) if self._count.ndim else counts
                self._groups.append((k, rule, [p[k] for p in parameters], of_row, own))

    def set_rates(self, rates: Sequence[float]) -> None:
        """New learning rates; what the optimiser remembers is kept."""
        if list(rates) != self.rates:
            was, self.rates = self._whole, list(rates)
            self._rates.copy_(torch.tensor(self.rates, dtype=torch.float64))
            if was != (len(set(self.rates)) == 1 and not self._count.ndim):
                self._arrange()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], step: int | Tensor, held: Tensor | None = None) -> None:
        """One step down the gradients, [S, ...] or [...] each, at the gradient step `step` from 0, which the schedule goes by.

        The step is a number, or a tensor () where it is one of a program that is run again for others: rates are tensors then.
        Where `held` is true, bool [S] or (), everything stays as it is.
        """
        if held is not None and not held.ndim and host_may_look(held):
            if held:
                return
            held = None
        before = [] if held is None else [tensor.clone() for tensor in self._moved()]
        self._count += 1
        if self._norm is not None:
            gradients = self._clipped(gradients, self._norm)
        compiled, rates = isinstance(step, Tensor) and tracing() == "compiled", self._rates_at(step)
        gradients = list(gradients) if compiled else [_laid_out(g, p) for g, p in zip(gradients, self.parameters, strict=True)]
        for k, rule, parameters, slots, counts in self._all if compiled else self._groups:
            parts = [gradients[i] if k is None else gradients[i][k] for i in rule.which]
            rule.step(rates if compiled and not self._whole else rates[k or 0], parameters, parts, slots, counts)
        if held is not None:
            for tensor, old in zip(self._moved(), before, strict=True):
                tensor.copy_(where_held(held, old, tensor))

    def _rates_at(self, step: int | Tensor) -> Any:
        """The learning rate of each row at a gradient step, as numbers or as a tensor."""
        if isinstance(step, Tensor):
            return self._rates if self._schedule is None else (self._rates * self._schedule.shares(step)).to(self._rates.dtype)
        share = 1.0 if self._schedule is None else self._schedule.share(step)
        return [rate * share for rate in self.rates]

    def _moved(self) -> list[Tensor]:
        return [self._count, *self.parameters, *(tensor for _, tensor in self._named())]

    def _clipped(self, gradients: Sequence[Tensor], most: float) -> Sequence[Tensor]:
        """Gradients of each row scaled to an L2 norm of at most `most` over all parameters, as torch.nn.utils.clip_grad_norm_."""
        lead = 0 if self.rows is None else 1
        flat = [g.reshape(*g.shape[:lead], -1) for g in gradients]
        norms = torch.stack([torch.linalg.vector_norm(g, dim=-1) for g in flat])  # [parameters, (S)]
        scale = (most / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        return [g * scale.reshape(-1, *[1] * (g.ndim - 1)) if lead else g * scale for g in gradients]

    def _named(self) -> list[tuple[str, Tensor]]:
        """Lists the state by its name in a checkpoint: `PARAMETER:SLOT`."""
        return [
            (f"{self.names[i]}:{name}", tensor)
            for rule, slots in zip(self._rules, self._slots, strict=True)
            for name, slot in zip(rule.slots, slots, strict=True)
            for i, tensor in zip(rule.which, slot, strict=True)
        ]

    def state(self) -> dict[str, Tensor]:
        """Gives the state of each parameter, in its own shape, and the number of steps; empty before the first step.

        These are the tensors themselves, which the next step changes.
        """
        return {"step": self._count, **dict(self._named())} if self._count.any() else {}

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` gave. Raises KeyError where a tensor is missing."""
        self._count.copy_(state["step"]) if state else self._count.zero_()
        for name, tensor in self._named():
            tensor.copy_(state[name]) if state else tensor.zero_()


def where_held(held: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The old rows where they are held, bool [S] or (), and elsewhere the new ones, [S, ...] or [...]."""
    return torch.where(held.reshape((*held.shape, *[1] * (new.ndim - held.ndim))), old, new)


def _laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout: fused kernels pair entries by where they lie, not by their indices."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


# ---- rules


def rules(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[Rule]:
    """Makes the rules of an optimiser for parameters of these shapes, by name; the shapes are those of one row."""
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
    """Tells whether it is an affine layer's weight: [in, out] or [members, in, out]. A normalisation's is [members, 1, size]."""
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
        in_parts = isinstance(rate, Tensor) and (
            tracing() == "compiled" or (rate.is_cuda and rate.dtype == torch.float64)  # the kernel reads rates in float32
        )
        if in_parts:
            _adam_in_parts(config, rate, parameters, gradients, slots, counts)
        else:
            kernel(parameters, gradients, slots[0], slots[1], slots[2] if config.amsgrad else [], counts, lr=rate)

    return Rule(which, ("exp_avg", "exp_avg_sq", *["max_exp_avg_sq"] * config.amsgrad), step)


def _adam_in_parts(
    config: Adam, rate: Rate, parameters: Tensors, gradients: Tensors, slots: Sequence[Tensors], counts: Tensors
) -> None:
    """Steps by operations that a compiler joins with those before and after. Corrections are worked out in float64."""
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
    if not isinstance(factor, Tensor):
        return factor
    factor = factor.to(like.dtype)
    return factor.reshape(-1, *[1] * (like.ndim - 1)) if factor.ndim else factor


def _times(tensors: Tensors, factor: Rate) -> Tensors:
    if isinstance(factor, Tensor):
        return (
            [tensor * _along(factor, tensor) for tensor in tensors]
            if factor.ndim
            else _each._foreach_mul(tensors, _along(factor, tensors[0]))
        )
    return _each._foreach_mul(tensors, factor)


def _decayed(decay: float, parameters: Tensors, gradients: Tensors) -> Tensors:
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
