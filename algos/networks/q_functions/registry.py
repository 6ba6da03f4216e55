"""The Q-functions by name, as a setting of algorithms."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from ....data.errors import did_you_mean
from .mean import Mean

_KINDS = {"mean": Mean}


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _KINDS:
        raise ValueError(f"there is no such Q-function{did_you_mean(value, _KINDS)}")
    return _KINDS[value]()


QFunction = Annotated[Mean, BeforeValidator(_read)]
