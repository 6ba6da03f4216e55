"""Errors that a person at the keyboard can mend; each message is one sentence for them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .uris import without_secrets


class D3rayError(Exception):
    """Base of what d3ray raises for bad input. A command prints the message on stderr and exits with 2.

    Terminals, logs and folders keep such sentences, so addresses in them have no user, no password and no option that may be a
    secret.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(text) if isinstance(text, str) else text for text in args))


class DataError(D3rayError, ValueError):
    """Data that cannot be used: a file, an array, a dataset folder."""


class ConfigError(D3rayError, ValueError):
    """Settings that cannot be used: an unknown key or name, a value out of range."""


class StorageError(D3rayError, OSError):
    """A place that cannot be read or written: a full disk, a folder that holds something else, a server that is away."""


def reason(error: BaseException, most: int = 150) -> str:
    """What another program's error says, to be put in brackets: its first line without a stop, of at most so many characters."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return text if len(text) <= most else f"{text[:most]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence: `"; did you mean 'x'?"`, or the choices when none is near, or `"."` when there are none."""
    names = list(dict.fromkeys(known))
    if near := difflib.get_close_matches(word, names):
        best = max(near, key=lambda name: (difflib.SequenceMatcher(None, name, word).ratio(), sorted(name) == sorted(word)))
        return f"; did you mean {best!r}?"  # of names that are equally near the one whose letters were only swapped
    return f"; choose from {', '.join(map(repr, names))}." if names else "."
