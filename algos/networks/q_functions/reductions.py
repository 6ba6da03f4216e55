"""What an ensemble of Q-functions says together."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Reduction = Literal["min", "max", "mean", "mix", "none"]


def reduced(x: Tensor, how: Reduction, mix: Tensor | float | None = None) -> Tensor:
    """One value, or one distribution, of an ensemble.

    Args:
        x: Values [members, B], or atoms of equal weight [members, N, B].
        how: "min" and "max" take, for each sample, the member with the least or largest expectation, its distribution whole;
            "mean" the mean over members, atom by atom; "mix" λ min + (1 - λ) max; "none" every member.
        mix: λ of "mix".

    Returns:
        [B] or [N, B]; with "none" as `x`.
    """
    match how:
        case "none":
            return x
        case "mean":
            return x.mean(0)
        case "mix":
            assert mix is not None, "mix needs its λ"
            return mix * reduced(x, "min") + (1 - mix) * reduced(x, "max")
        case "min" | "max":
            if x.ndim == 2 or x.shape[1] == 1:
                return x.amin(0) if how == "min" else x.amax(0)
            expected = x.mean(1)
            chosen = expected.argmin(0) if how == "min" else expected.argmax(0)
            return x.gather(0, chosen.expand(1, *x.shape[1:]))[0] if x.shape[0] > 1 else x[0]
