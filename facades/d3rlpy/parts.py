"""d3rlpy's factories and scalers as what they say: a type and parameters, which `saving.d3_settings` reads as settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np


@dataclass
class Part:
    """Base of all. A subclass has d3rlpy's fields, and its name as `kind`."""

    kind: ClassVar[str]

    @classmethod
    def get_type(cls) -> str:
        """What d3rlpy calls it in files."""
        return cls.kind

    def serialize_to_dict(self) -> dict[str, Any]:
        """Its parameters as plain data."""
        return {field.name: described(getattr(self, field.name)) for field in fields(self)}


def described(value: Any) -> Any:
    """A part as d3rlpy's files have it, `{"type": ..., "params": ...}`; arrays as lists; anything else as it is."""
    if isinstance(value, Part):
        return {"type": value.get_type(), "params": value.serialize_to_dict()}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return (array[0] if array.ndim > 1 and len(array) == 1 else array).tolist()  # statistics may have an axis for the batch
    if isinstance(value, list | tuple):
        return [described(one) for one in value]
    return value
