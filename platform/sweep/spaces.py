"""Spaces of one setting: what may be chosen. A space turns a number in [0, 1) into a value, so whoever has numbers can draw.

{choice: [a, b]}            one of some values
{grid: [a, b]}              each of some values, with all that is searched beside it
{uniform: [1, 5]}           a number between two ends; `step: 0.5` beside it: only low, low + 0.5, … up to the other end
{loguniform: [1e-5, 1e-3]}  its logarithm is uniform
{integers: [2, 10]}         a whole number, both ends included; `step: 2` beside it: every second one
0.98                        that value
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...data.errors import ConfigError, did_you_mean

KINDS = ("choice", "grid", "uniform", "loguniform", "integers")
_MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Space:
    """Values of a setting: one of several in order, or, where `values` is None, any number from `low` to `high`."""

    kind: str
    values: Sequence[Any] | None = None
    low: float = math.nan
    high: float = math.nan

    @property
    def is_choice(self) -> bool:
        """True if its values have no order."""
        return self.kind in ("choice", "grid")

    def at(self, u: float) -> Any:
        """The value of a number in [0, 1)."""
        if self.values is not None:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.kind == "loguniform":
            return min(max(self.low * math.exp(u * math.log(self.high / self.low)), self.low), self.high)
        return min(self.low + u * (self.high - self.low), self.high)

    def encoded(self, value: Any) -> int | float | None:
        """A value as libraries know it: its index where values can be counted; None: it lies outside."""
        if (values := self.values) is None:
            return value if _is_number(value) and self.low <= value <= self.high else None
        if isinstance(values, range):
            return values.index(value) if type(value) is int and value in values else None
        if self.is_choice:
            return next((i for i, one in enumerate(values) if key_of(one) == key_of(value)), None)
        if not _is_number(value):
            return None
        after = min(bisect.bisect_left(values, value), len(values) - 1)
        near = min((max(after - 1, 0), after), key=lambda i: abs(values[i] - value))
        return near if math.isclose(values[near], value, abs_tol=1e-9) else None

    def decoded(self, code: Any) -> Any:
        """The value that is meant by a library's answer."""
        return float(code) if self.values is None else self.values[int(code)]


def key_of(value: Any) -> str:
    """A value or a configuration as text by which it is compared: 1 and 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def read_space(name: str, written: Any) -> Space:
    """The space that a value of `search` spells. Raises ConfigError."""
    if not isinstance(written, Mapping):
        return Space("choice", (written,))
    where, kinds = f"search: {name}", [kind for kind in written if kind in KINDS]
    if len(kinds) != 1:
        strange = next((str(key) for key in written if key not in KINDS), "")
        if kinds or not written:
            raise ConfigError(f"{where} needs one kind of space, as {{uniform: [0, 1]}}; choose from {', '.join(KINDS)}.")
        raise ConfigError(f"{where}: there is no kind of space {strange!r}{did_you_mean(strange, KINDS)}")
    kind = str(kinds[0])
    beside = ("step",) if kind in ("uniform", "integers") else ()
    if (other := next((str(key) for key in written if key not in (kind, *beside)), None)) is not None:
        near = did_you_mean(other, beside) if beside else f": {kind} stands alone."
        raise ConfigError(f"{where}: {kind} has nothing called {other!r}{near}")
    if kind in ("choice", "grid"):
        return _read_choice(where, kind, written[kind])
    return _read_range(where, kind, written[kind], written.get("step"))


def _read_choice(where: str, kind: str, said: Any) -> Space:
    if not isinstance(said, list | tuple):
        raise ConfigError(f"{where}: {kind} is {said!r}; it must be a list of values.")
    if not said:
        raise ConfigError(f"{where}: {kind} is empty: name at least one value.")
    keys = [key_of(value) for value in said]
    if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
        raise ConfigError(f"{where}: {kind} has {twice} twice.")
    return Space(kind, tuple(said))


def _read_range(where: str, kind: str, said: Any, step: Any) -> Space:
    shown = f"{where}: {kind} is {list(said) if isinstance(said, tuple) else said!r}"
    if not isinstance(said, list | tuple) or len(said) != 2 or not all(map(_is_number, said)):
        raise ConfigError(f"{shown}; it must be its two ends, as [1, 10].")
    low, high = said
    if low >= high:
        raise ConfigError(f"{shown}; the first end must be below the second.")
    if kind == "loguniform" and low <= 0:
        raise ConfigError(f"{shown}; both ends must be above 0.")
    if step is not None and not (_is_number(step) and 0 < step <= (high - low) * (1 + 1e-9)):
        raise ConfigError(f"{where}: step is {step!r}; it must be above 0 and at most {high - low:g}, what lies between the ends.")
    if kind == "integers":
        if not all(isinstance(value, int) for value in (low, high, step or 1)):
            raise ConfigError(f"{where}: integers and their step are whole numbers; for others say uniform.")
        return Space(kind, range(low, high + 1, step or 1))
    if step is None:
        return Space(kind, None, float(low), float(high))
    n = math.floor((high - low) / step + 1e-9) + 1
    if n > _MOST_STEPS:
        raise ConfigError(f"{where}: a step of {step:g} makes {n:,} values, at most {_MOST_STEPS:,}: make it larger.")
    return Space(kind, tuple(float(f"{low + k * step:.12g}") for k in range(n)))  # 0.1 + 2 * 0.1 is meant to be 0.3


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
