"""What looks like a secret, so that it can be kept out of what others read: a job's text, logs, tags, the list of processes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...data.errors import ConfigError

_NAME = re.compile(
    r"(?i)(^|[_.-])(secret|password|passwd|token|api_?key|access_key|private_key|credentials?)($|[_-])(?!path|file|dir)"
)
_TEXT = {
    "a URI with a password": re.compile(r"(?i)\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an access key of AWS": re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a token of a code host": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{30,}|glpat-[\w-]{20,})"),
    "a key of a storage account": re.compile(r"(?i)\b(accountkey|sig)=[A-Za-z0-9+/%]{20,}"),
}
_LONG_ENOUGH = 8  # characters; a shorter value of a variable may stand in any text by chance


def secret_name(name: str) -> bool:
    """Return True if this name suggests a secret, as AWS_SECRET_ACCESS_KEY does, but not …_PATH."""
    return _NAME.search(name) is not None


def secret_in(text: str) -> str | None:
    """Describe a secret found in `text` without repeating it; None: no secret found."""
    for what, pattern in _TEXT.items():
        if pattern.search(text):
            return what
    for name, value in os.environ.items():
        if len(value) >= _LONG_ENOUGH and secret_name(name) and value in text:
            return f"the value of your {name}"
    return None


def refuse_secrets(values: Any, title: str, way: str) -> None:
    """Refuses text that looks like a secret.

    Args:
        values: JSON values, such as a config's.
        title: of the values, to begin the sentence with.
        way: how to do it without, to end the sentence with.

    Raises:
        ConfigError: there is one; the sentence names the setting and does not repeat the value.
    """
    for place, text in _strings(values, ""):
        if what := secret_in(text):
            raise ConfigError(f"{title}{f' {place}' if place else ''} holds {what}, which logs and lists would show; {way}.")


def _strings(values: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(values, str):
        yield place, values
    elif isinstance(values, Mapping):
        for name, value in values.items():
            yield from _strings(value, f"{place}.{name}" if place else str(name))
    elif isinstance(values, Sequence):
        for value in values:
            yield from _strings(value, place)
