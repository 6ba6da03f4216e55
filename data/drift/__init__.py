"""Whether new episodes come from the same world as recorded ones: `drift`."""

from __future__ import annotations

from .compare import ColumnDrift, Drift, drift

__all__ = ["ColumnDrift", "Drift", "drift"]
