"""Errors that a person at the keyboard can mend; each message is one sentence for them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .uris import without_secrets

_IN_CONFIGS: ContextVar[bool] = ContextVar("_IN_CONFIGS", default=False)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class D3rayError(Exception):
    """Base of what d3ray raises for bad input. A command prints the message on stderr and exits with 2.

    Terminals, logs and folders keep such sentences, so addresses in them have no user, no password and no option that may be a
    secret.

    Attributes:
        mends: Settings of the algorithm that would mend it, which the message advises with `advised`.
        missing: Whether something was named that is not there, as an experiment: to a browser that is another answer.
    """

    def __init__(self, *args: object, mends: Mapping[str, Any] | None = None, missing: bool = False) -> None:
        super().__init__(*(without_secrets(text) if isinstance(text, str) else text for text in args))
        self.mends, self.missing = dict(mends or {}), missing


class DataError(D3rayError, ValueError):
    """Data that cannot be used: a file, an array, a dataset folder."""


class ConfigError(D3rayError, ValueError):
    """Settings that cannot be used: an unknown key or name, a value out of range."""


class StorageError(D3rayError, OSError):
    """A place that cannot be read or written: a full disk, a folder that holds something else, a server that is away."""


@contextmanager
def speaking_of_configs() -> Generator[None]:
    """Name settings of an algorithm in messages as config files do, below `algorithm`; also as a decorator."""
    before = _IN_CONFIGS.set(True)
    try:
        yield
    finally:
        _IN_CONFIGS.reset(before)


def named(setting: str) -> str:
    """Name a setting of an algorithm as whoever reads the message writes it: `gamma`, or `algorithm.gamma`."""
    return f"algorithm.{setting}" if _IN_CONFIGS.get() else setting


def advised(setting: str, value: str | float) -> str:
    """Write a setting with a value: `alpha='auto'`, or `algorithm.alpha=auto`."""
    return f"{named(setting)}={value if _IN_CONFIGS.get() else repr(value)}"


def reason(error: BaseException, most: int = 150) -> str:
    """Return the first line of another program's error without a stop, of at most so many characters, to be put in brackets."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return text if len(text) <= most else f"{text[:most]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """End a sentence: `"; did you mean 'x'?"`, or the choices when none is near, or `"."` when there are none."""
    names = list(dict.fromkeys(known))
    if alike := [name for name in names if name.casefold() == word.casefold()]:
        return f"; did you mean {alike[0]!r}?"
    if near := difflib.get_close_matches(word, names):
        best = max(near, key=lambda name: (difflib.SequenceMatcher(None, name, word).ratio(), sorted(name) == sorted(word)))
        return f"; did you mean {best!r}?"  # of names that are equally near the one whose letters were only swapped
    return f"; choose from {', '.join(map(repr, names))}." if names else "."


def in_words(n_bytes: float) -> str:
    """Write a size for a sentence: 1.2 GB."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}" if n_bytes < 1000 * size else f"{n_bytes / size:,.0f} {unit}"
    return f"{n_bytes:.0f} bytes"


def size_in(variable: str) -> int | None:
    """Read a size such as `50GB` from a variable of the shell; None where it is not set. Raises ConfigError where it is no size."""
    if not (text := os.environ.get(variable)):
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if not match or match[2] not in _UNITS:
        raise ConfigError(f"{variable} is {text!r}; give bytes, or a size such as '50GB'.")
    return int(float(match[1]) * _UNITS[match[2]])
