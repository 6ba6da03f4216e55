"""What observations and actions look like: shapes, types and ranges, as they are written into every saved file."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from .config import Config


class Box(Config):
    """Arrays of a fixed shape. `low` and `high` are one number, one for each entry in C order, or None where nothing is known."""

    kind: Literal["box"] = "box"
    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[float, ...] | None = None
    high: float | tuple[float, ...] | None = None

    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Low and high as float64 arrays of `shape`, or None where one of them is unknown."""
        if self.low is None or self.high is None:
            return None
        low, high = (np.broadcast_to(np.asarray(b, np.float64).reshape(-1), (self.size,)) for b in (self.low, self.high))
        return low.reshape(self.shape), high.reshape(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))


class Discrete(Config):
    """Integers 0 … n - 1."""

    kind: Literal["discrete"] = "discrete"
    n: int = Field(gt=0)
    dtype: str = "int64"

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


class Dict(Config):
    """Named boxes; one column each."""

    kind: Literal["dict"] = "dict"
    spaces: dict[str, Box]


Space = Annotated[Box | Discrete | Dict, Field(discriminator="kind")]


class Spec(Config):
    """The two spaces of a problem."""

    observation: Annotated[Box | Dict, Field(discriminator="kind")]
    action: Annotated[Box | Discrete, Field(discriminator="kind")]

    @property
    def discrete(self) -> bool:
        """Whether actions are discrete."""
        return isinstance(self.action, Discrete)

    @property
    def n_actions(self) -> int:
        """How many discrete actions there are. Raises TypeError when actions are continuous."""
        if isinstance(self.action, Discrete):
            return self.action.n
        raise TypeError("actions are continuous")


class Environment(Config):
    """A gymnasium environment by id."""

    id: str
    kwargs: dict[str, object] = Field(default_factory=dict)
