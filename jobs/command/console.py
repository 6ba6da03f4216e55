"""What jobs say while they work, without credentials of addresses: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.text import Text

from ...data.progress import progress
from ...data.uris import without_secrets

__all__ = ["busy", "note", "progress", "say"]


def say(text: str | Text) -> None:
    """One line of a result on stdout, unwrapped, so that it can be searched and piped."""
    Console(soft_wrap=True, highlight=False).print(without_secrets(text) if isinstance(text, str) else text, markup=False)


def note(text: str) -> None:
    """One remark on stderr: what is happening, or what a user may want to know."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(without_secrets(text), markup=False)


def busy(text: str) -> AbstractContextManager[Any]:
    """Says on a terminal what goes on; nothing of it stays."""
    return Console(stderr=True, highlight=False).status(without_secrets(text))
