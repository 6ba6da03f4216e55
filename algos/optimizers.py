"""Optimisers over rows: one network of S seeds, each row with its own learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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
        self.rows, self.epsilon = rows, epsilon
        self.rates = list(rates)
        self._build()

    def _build(self) -> None:
        self.apart = self.rows is not None and len(set(self.rates)) > 1
        if self.apart:
            groups = [{"params": [p[k] for p in self.parameters], "lr": rate} for k, rate in enumerate(self.rates)]
        else:
            groups = [{"params": self.parameters, "lr": self.rates[0]}]
        capturable = bool(self.parameters) and self.parameters[0].is_cuda  # so that an update can be captured as a graph
        self.optimizer = torch.optim.Adam(groups, lr=self.rates[0], eps=self.epsilon, fused=True, capturable=capturable)

    def set_rates(self, rates: Sequence[float]) -> None:
        """New learning rates; moments are kept."""
        if list(rates) == self.rates:
            return
        state = self.state()
        apart, self.rates = self.apart, list(rates)
        if apart or len(set(self.rates)) > 1:
            self._build()
            self.load_state(state)
        else:
            self.optimizer.param_groups[0]["lr"] = self.rates[0]

    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step down the gradients, [S, ...] or [...] each."""
        for k, group in enumerate(self.optimizer.param_groups):
            for parameter, gradient in zip(group["params"], gradients, strict=True):
                parameter.grad = gradient[k] if self.apart else gradient
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Moments by parameter, in the parameters' own shape, and the number of steps; empty before the first step."""
        states = [[self.optimizer.state.get(p, {}) for p in group["params"]] for group in self.optimizer.param_groups]
        if not states or not states[0] or not states[0][0]:
            return {}
        result = {"step": states[0][0]["step"].clone()}
        for i, name in enumerate(self.names):
            for moment in ("exp_avg", "exp_avg_sq"):
                parts = [row[i][moment] for row in states]
                result[f"{name}:{moment}"] = torch.stack(parts) if self.apart else parts[0].clone()
        return result

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on from what `state` gave."""
        if not state:
            self.optimizer.state.clear()
            return
        for k, group in enumerate(self.optimizer.param_groups):
            for name, parameter in zip(self.names, group["params"], strict=True):
                own: dict[str, Any] = {"step": state["step"].detach().clone().to(torch.float32)}
                for moment in ("exp_avg", "exp_avg_sq"):
                    value = state[f"{name}:{moment}"]
                    own[moment] = (value[k] if self.apart else value).detach().clone().to(parameter.device, parameter.dtype)
                self.optimizer.state[parameter] = own
