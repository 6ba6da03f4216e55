"""Maximum mean discrepancy: how far two sets of samples are from being drawn from the same distribution."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Kernel = Literal["laplacian", "gaussian"]
_LEAST = 1e-6  # under the root, whose slope at 0 is infinite


def mmd(x: Tensor, y: Tensor, kernel: Kernel, sigma: Tensor) -> Tensor:
    """√(E k(x, x') + E k(y, y') - 2 E k(x, y) + 1e-6) over all pairs of samples, [B].

    Samples' pairs with themselves count, as in Kumar et al. 2019 and Gretton et al. 2012's biased estimate.

    Args:
        x: Samples [n, B, A].
        y: Other samples [m, B, A].
        kernel: "laplacian", exp(-‖x - y‖₁ / 2σ), or "gaussian", exp(-‖x - y‖₂² / 2σ): σ is not squared.
        sigma: σ, ().
    """
    within = similarity(x, x, kernel, sigma) + similarity(y, y, kernel, sigma)
    return (within - 2 * similarity(x, y, kernel, sigma) + _LEAST).sqrt()


def similarity(x: Tensor, y: Tensor, kernel: Kernel, sigma: Tensor) -> Tensor:
    """The mean of k over all pairs, [B]."""
    apart = x[:, None] - y[None]  # [n, m, B, A]
    distance = apart.abs().sum(-1) if kernel == "laplacian" else apart.square().sum(-1)
    return (-0.5 * distance / sigma).exp().mean((0, 1))
