"""The Q-functions by name, as a setting of algorithms."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from ....data.config import by_name
from .fqf import FQF
from .iqn import IQN
from .mean import Mean
from .qr import QR

_KNOWN = (Mean, QR, IQN, FQF)
QFunction = Annotated[Annotated[Mean | QR | IQN | FQF, Field(discriminator="name")], BeforeValidator(by_name("Q-function", _KNOWN))]
