"""What an ensemble of Q-functions says together."""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
from torch import Tensor

from .values import Values

Reduction = Literal["min", "max", "mean", "mix", "none"]
Said = TypeVar("Said", Values, Tensor)


def reduced(x: Said, how: Reduction, mix: Tensor | float | None = None) -> Said:
    """One value, or one distribution, of an ensemble.

    Args:
        x: Of each member: expected values [members, ...], or `Values` [members, ..., N, B].
        how: "min" and "max" take, for each sample, the member with the least or largest expectation, its distribution whole;
            "mean" is the mean over members and "mix" λ min + (1 - λ) max, of distributions atom by atom, as of quantiles, but where
            atoms have weights the mixture, whose expectation is the same; "none" every member.
        mix: λ of "mix".

    Returns:
        The same without members; with "none" `x`.
    """
    match how:
        case "none":
            return x
        case "mean":
            return x.mean(0) if isinstance(x, Tensor) else _mean(x)
        case "mix":
            assert mix is not None, "mix needs its λ"
            if isinstance(x, Tensor):
                return mix * x.amin(0) + (1 - mix) * x.amax(0)
            return _mixed(_extreme(x, "min"), _extreme(x, "max"), mix)
        case "min" | "max":
            if isinstance(x, Tensor):
                return x.amin(0) if how == "min" else x.amax(0)
            return _extreme(x, how)


def _extreme(values: Values, how: Literal["min", "max"]) -> Values:
    if values.weights is None and values.atoms.shape[-2] == 1:
        return Values(values.atoms.amin(0) if how == "min" else values.atoms.amax(0))
    if values.atoms.shape[0] == 1:
        return values.map(lambda x: x[0])
    expected = values.mean
    chosen = (expected.argmin(0) if how == "min" else expected.argmax(0)).unsqueeze(-2)
    return values.map(lambda x: x.gather(0, chosen.expand(1, *x.shape[1:]))[0])


def _mean(values: Values) -> Values:
    if values.weights is None:
        return Values(values.atoms.mean(0))
    atoms, weights = (x.movedim(0, -3).flatten(-3, -2) for x in (values.atoms, values.weights))
    return Values(atoms, weights / values.atoms.shape[0])


def _mixed(least: Values, largest: Values, share: Tensor | float) -> Values:
    if least.weights is None or largest.weights is None:
        return Values(share * least.atoms + (1 - share) * largest.atoms)
    weights = torch.cat((share * least.weights, (1 - share) * largest.weights), -2)
    return Values(torch.cat((least.atoms, largest.atoms), -2), weights)
