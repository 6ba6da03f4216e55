"""How far what is seen lies from what was seen before."""

from __future__ import annotations

import numpy as np

_AT_ONCE = 1 << 22  # distances that are held at once


class Nearest:
    """Distances to the nearest of some observations, √(mean over entries of (Δ/σ)²).

    Args:
        seen: [N, D], N at least 1.
        spread: σ, [D]; None: the standard deviations of `seen`. Entries where it is 0 count in their own units.
    """

    def __init__(self, seen: np.ndarray, spread: np.ndarray | None = None) -> None:
        scale = seen.std(0) if spread is None else spread
        self.mean, self.scale = seen.mean(0), np.where(scale > 0, scale, 1.0)
        self.points = ((seen - self.mean) / self.scale).astype(np.float32)
        self._squares = (self.points**2).sum(1)

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        """Return the distance of each row to the nearest point, [B, D] to [B] float64."""
        rows = ((seen - self.mean) / self.scale).astype(np.float32)
        found, step = np.empty(len(rows)), max(1, _AT_ONCE // len(self.points))
        for begin in range(0, len(rows), step):
            some = rows[begin : begin + step]
            nearest = (self._squares - 2 * (some @ self.points.T)).argmin(1)
            found[begin : begin + step] = np.linalg.norm(some - self.points[nearest], axis=1)
        return found / np.sqrt(max(1, rows.shape[1]))
