"""Optimisers over rows: one network of S seeds, each row with its own learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...data.tracing import host_may_look, tracing
from .config import Optimizer
from .rules import Rule, Tensors, rules

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
        compiled, rates = tracing() == "compiled", self._rates_at(step)
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
        """What a step changes."""
        return [self._count, *self.parameters, *(tensor for _, tensor in self._named())]

    def _clipped(self, gradients: Sequence[Tensor], most: float) -> Sequence[Tensor]:
        """Gradients of each row scaled to an L2 norm of at most `most` over all parameters, as torch.nn.utils.clip_grad_norm_."""
        lead = 0 if self.rows is None else 1
        flat = [g.reshape(*g.shape[:lead], -1) for g in gradients]
        norms = torch.stack([torch.linalg.vector_norm(g, dim=-1) for g in flat])  # [parameters, (S)]
        scale = (most / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        return [g * scale.reshape(-1, *[1] * (g.ndim - 1)) if lead else g * scale for g in gradients]

    def _named(self) -> list[tuple[str, Tensor]]:
        """What is remembered, by its name in a checkpoint: `PARAMETER:SLOT`."""
        return [
            (f"{self.names[i]}:{name}", tensor)
            for rule, slots in zip(self._rules, self._slots, strict=True)
            for name, slot in zip(rule.slots, slots, strict=True)
            for i, tensor in zip(rule.which, slot, strict=True)
        ]

    def state(self) -> dict[str, Tensor]:
        """What is remembered of each parameter, in its own shape, and the number of steps; empty before the first step.

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
