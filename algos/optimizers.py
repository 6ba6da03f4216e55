"""Optimisers over rows: one network of S seeds, each row with its own learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# The kernel of torch.optim.Adam(fused=True). Called as it is, for on small networks that class costs more than the arithmetic.
_adam: Callable[..., None] = torch._fused_adam_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage, reportAttributeAccessIssue, reportUnknownVariableType]

_BETAS = (0.9, 0.999)
_MOMENTS = ("exp_avg", "exp_avg_sq")  # their names in a checkpoint


class RowAdam:
    """Adam (Kingma and Ba 2015) over parameters that may carry a leading axis of S seeds.

    While all rows have one learning rate the stacked tensors are stepped whole; rows that differ are stepped one by one, through
    views of the same storage. Both are the same arithmetic, entry by entry.

    Args:
        parameters: By name; [S, ...] each when `rows` is not None.
        rates: Learning rate of each row (one entry without rows).
        rows: S, or None.
        epsilon: Added to the root of the second moment.
    """

    def __init__(self, parameters: dict[str, Tensor], rates: Sequence[float], rows: int | None, epsilon: float) -> None:
        self.names = list(parameters)
        self.parameters = [p.detach() for p in parameters.values()]
        self.rows, self.epsilon, self.rates = rows, epsilon, list(rates)
        self._moments = [[torch.zeros_like(p, memory_format=torch.preserve_format) for p in self.parameters] for _ in range(2)]
        device = self.parameters[0].device if self.parameters and self.parameters[0].is_cuda else "cpu"  # where the kernel wants it
        self._count = torch.zeros((), dtype=torch.float32, device=device)  # steps done
        self._arrange()

    def _arrange(self) -> None:
        """`_groups`: row (None: all), learning rate, parameters and both moments of what one call of the kernel steps."""
        if self.rows is None or len(set(self.rates)) == 1:
            self._groups = [(None, self.rates[0], self.parameters, *self._moments)]
        else:
            parts = (self.parameters, *self._moments)
            self._groups = [(k, rate, *([t[k] for t in part] for part in parts)) for k, rate in enumerate(self.rates)]
        self._counts = [self._count] * len(self.parameters)

    def set_rates(self, rates: Sequence[float]) -> None:
        """New learning rates; moments are kept."""
        if list(rates) != self.rates:
            self.rates = list(rates)
            self._arrange()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step down the gradients, [S, ...] or [...] each."""
        self._count += 1
        for k, rate, parameters, first, second in self._groups:
            _adam(
                parameters,
                [g if k is None else g[k] for g in gradients],
                first,
                second,
                [],
                self._counts,
                lr=rate,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                weight_decay=0.0,
                eps=self.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """Moments by parameter, in the parameters' own shape, and the number of steps; empty before the first step."""
        if not self._count:
            return {}
        result = {"step": self._count.clone()}
        for i, name in enumerate(self.names):
            for moment, values in zip(_MOMENTS, self._moments, strict=True):
                result[f"{name}:{moment}"] = values[i].clone()
        return result

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on from what `state` gave."""
        self._count.copy_(state["step"]) if state else self._count.zero_()
        for i, name in enumerate(self.names):
            for moment, values in zip(_MOMENTS, self._moments, strict=True):
                values[i].copy_(state[f"{name}:{moment}"]) if state else values[i].zero_()
