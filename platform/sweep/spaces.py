"""Spaces of one setting: what may be chosen. A space turns a number in [0, 1) into a value, so whoever has numbers can draw.

{choice: [a, b]}            one of some values
{grid: [a, b]}              each of some values, with all that is searched beside it
{uniform: [1, 5]}           a number between two ends; `step: 0.5` beside it: only low, low + 0.5, … up to the other end
{loguniform: [1e-5, 1e-3]}  its logarithm is uniform
{integers: [2, 10]}         a whole number, both ends included; `step: 2` beside it: every second one
0.98                        that value
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...data.errors import ConfigError, did_you_mean

KINDS = ("choice", "grid", "uniform", "loguniform", "integers")


@dataclass(frozen=True)
class Choice:
    """Some values. `grid`: every one of them is tried with all else that is searched."""

    choices: tuple[Any, ...]
    grid: bool = False

    def at(self, u: float) -> Any:
        """The value of a number in [0, 1)."""
        return self.choices[min(int(u * len(self.choices)), len(self.choices) - 1)]

    def values(self) -> Sequence[Any] | None:
        """Every value, in order."""
        return self.choices

    def index(self, value: Any) -> int | None:
        """Which of `values` a value is; None: none of them."""
        return next((i for i, one in enumerate(self.choices) if key_of(one) == key_of(value)), None)

    def contains(self, value: Any) -> bool:
        """Whether a value is one of it."""
        return self.index(value) is not None


@dataclass(frozen=True)
class Uniform:
    """Numbers from `low` to `high`; with a `step` only low, low + step, … up to `high`. `log`: the logarithm is uniform."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def at(self, u: float) -> float:
        """The value of a number in [0, 1)."""
        if self.step is not None:
            return self._stepped(min(int(u * self._count), self._count - 1))
        if self.log:
            return min(max(self.low * math.exp(u * math.log(self.high / self.low)), self.low), self.high)
        return min(self.low + u * (self.high - self.low), self.high)

    @property
    def _count(self) -> int:
        assert self.step is not None
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def _stepped(self, k: int) -> float:
        assert self.step is not None
        return float(f"{self.low + k * self.step:.12g}")  # 0.1 + 2 * 0.1 is meant to be 0.3

    @property
    def last(self) -> float:
        """The largest value."""
        return self.high if self.step is None else self._stepped(self._count - 1)

    def values(self) -> Sequence[float] | None:
        """Every value, in order; None: too many to name."""
        return None if self.step is None else tuple(map(self._stepped, range(self._count)))

    def contains(self, value: Any) -> bool:
        """Whether a value is one of it."""
        return _is_number(value) and self.low <= value <= self.high and (self.step is None or self.index(value) is not None)

    def index(self, value: Any) -> int | None:
        """Which of `values` a value is; None: none of them."""
        near = round((value - self.low) / self.step) if self.step is not None and _is_number(value) else -1
        return near if near >= 0 and near < self._count and math.isclose(self._stepped(near), value, abs_tol=1e-9) else None


@dataclass(frozen=True)
class Integers:
    """Whole numbers from `low` to `high`, both included, every `step`-th."""

    low: int
    high: int
    step: int = 1

    def at(self, u: float) -> int:
        """The value of a number in [0, 1)."""
        count = len(self._range)
        return self._range[min(int(u * count), count - 1)]

    @property
    def _range(self) -> range:
        return range(self.low, self.high + 1, self.step)

    @property
    def last(self) -> int:
        """The largest value."""
        return self._range[-1]

    def values(self) -> Sequence[int] | None:
        """Every value, in order."""
        return self._range

    def contains(self, value: Any) -> bool:
        """Whether a value is one of it."""
        return self.index(value) is not None

    def index(self, value: Any) -> int | None:
        """Which of `values` a value is; None: none of them."""
        return self._range.index(value) if isinstance(value, int) and not isinstance(value, bool) and value in self._range else None


Space = Choice | Uniform | Integers


def key_of(value: Any) -> str:
    """A value or a configuration as text by which it is compared: 1 and 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def read_space(name: str, written: Any) -> Space:
    """The space that a value of `search` spells. Raises ConfigError."""
    if not isinstance(written, Mapping):
        return Choice((written,))
    where, kinds = f"search: {name}", [kind for kind in written if kind in KINDS]
    if len(kinds) != 1:
        strange = next((str(key) for key in written if key not in KINDS), "")
        if kinds or not written:
            raise ConfigError(f"{where} needs one kind of space, as {{uniform: [0, 1]}}; choose from {', '.join(KINDS)}.")
        raise ConfigError(f"{where}: there is no kind of space {strange!r}{did_you_mean(strange, KINDS)}")
    kind = str(kinds[0])
    allowed = (kind, "step") if kind in ("uniform", "integers") else (kind,)
    if (other := next((str(key) for key in written if key not in allowed), None)) is not None:
        near = did_you_mean(other, allowed[1:]) if allowed[1:] else f": {kind} stands alone."
        raise ConfigError(f"{where}: {kind} has nothing called {other!r}{near}")
    values = written[kind]
    if kind in ("choice", "grid"):
        return _read_choice(where, kind, values)
    if not isinstance(values, list | tuple) or len(values) != 2 or not all(map(_is_number, values)):
        raise ConfigError(f"{where}: {kind} is {_shown(values)}; it must be its two ends, as [1, 10].")
    low, high, step = values[0], values[1], written.get("step")
    if low >= high:
        raise ConfigError(f"{where}: {kind} is {_shown(values)}; the first end must be below the second.")
    if step is not None and not (_is_number(step) and 0 < step <= (high - low) * (1 + 1e-9)):
        raise ConfigError(
            f"{where}: step is {_shown(step)}; it must be above 0 and at most {high - low:g}, what lies between the ends."
        )
    if kind == "integers":
        if not all(isinstance(value, int) for value in (low, high, step or 1)):
            raise ConfigError(f"{where}: integers and their step are whole numbers; for others say uniform.")
        return Integers(low, high, step or 1)
    if kind == "loguniform" and low <= 0:
        raise ConfigError(f"{where}: loguniform is {_shown(values)}; both ends must be above 0.")
    return Uniform(float(low), float(high), step, log=kind == "loguniform")


def _read_choice(where: str, kind: str, values: Any) -> Choice:
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{where}: {kind} is {_shown(values)}; it must be a list of values.")
    if not values:
        raise ConfigError(f"{where}: {kind} is empty: name at least one value.")
    keys = [key_of(value) for value in values]
    if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
        raise ConfigError(f"{where}: {kind} has {twice} twice.")
    return Choice(tuple(values), grid=kind == "grid")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)
