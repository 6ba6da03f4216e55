"""Where a derived dataset comes from: which operation on which datasets. Described only when it is asked for, since to name a
dataset in memory by its fingerprint reads all of it.
"""  # noqa: D205 - one sentence of two

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..dataset import Dataset


@dataclass(frozen=True)
class Derivation:
    """One operation."""

    operation: str
    parameters: Mapping[str, Any]  # JSON-able
    parents: tuple[Dataset, ...]

    def provenance(self) -> dict[str, Any]:
        """`{"derived": {"operation": …, "parameters": {…}, "parents": [{"name": …, "fingerprint": …, "provenance": {…}}, …]}}`.

        A parent that is itself derived and was never written has `derived` of its own instead of a fingerprint, so what is
        named by fingerprint is what exists: a folder, or arrays.
        """
        parents = [self._parent(parent) for parent in self.parents]
        return {"derived": {"operation": self.operation, "parameters": dict(self.parameters), "parents": parents}}

    @staticmethod
    def _parent(parent: Dataset) -> dict[str, Any]:
        if parent.derivation is not None:
            return {"name": parent.name, **parent.derivation.provenance()}
        return {"name": parent.name, "fingerprint": parent.fingerprint, "provenance": parent.provenance}


def say_function(function: Any) -> str:
    """How provenance calls a Python function: it cannot be made again from this."""
    module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__qualname__)
    return f"the function {module}.{name}"
