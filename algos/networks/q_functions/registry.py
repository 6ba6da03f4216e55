"""The Q-functions by name, as a setting of algorithms."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ....data.errors import did_you_mean
from .fqf import FQF
from .iqn import IQN
from .mean import Mean
from .qr import QR

_NAMES = tuple(str(kind.model_fields["name"].default) for kind in (Mean, QR, IQN, FQF))


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _NAMES:
        raise ValueError(f"there is no such Q-function{did_you_mean(value, _NAMES)}")
    return {"name": value}


QFunction = Annotated[Annotated[Mean | QR | IQN | FQF, Field(discriminator="name")], BeforeValidator(_read)]
