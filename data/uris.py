"""Addresses as they may be shown and kept: in tags, logs, pages and the files of the results, where many read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_URI = re.compile(r'(?i)\b([a-z][a-z0-9+.-]*://)([^\s"<>]+)')
_USER = re.compile(r"[^/?#]*@|[^/:@]*:(?!\d*(?:[/?#]|$)).*@")  # the second: some take a password with a slash or a mark in it
_CONTAINERS = ("abfs://", "abfss://")  # what stands before the @ of these is a container or an account
_HARMLESS = {  # options of pyarrow's file systems, and of MLflow's pages; another one may be a key or a signature
    *("region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"),
    *("workflowType", "viewStateShareKey", "compareRunsMode"),
    *("blob_storage_authority", "dfs_storage_authority", "enable_tls", "default_bucket_location", "project_id"),
}


def without_password(uri: str) -> str:
    """An address without user, password and query; what is none, as git's `user@host:path`, without the user.

    A container of Azure, which stands where others have the user, stays.
    """
    if "://" not in uri:
        return uri.rpartition("@")[2] if "@" in uri.partition("/")[0] else uri
    return re.split("[?#]", without_secrets(uri), maxsplit=1)[0]


def without_secrets(text: str) -> str:
    """Remove users, passwords and options that could be secrets from the addresses in a text; `?region=…` stays."""
    return _URI.sub(_harmless, text) if "://" in text else text


def without_secrets_in(value: Any) -> Any:
    """Apply `without_secrets` to all texts of a JSON value."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {name: without_secrets_in(entry) for name, entry in value.items()}
    return [without_secrets_in(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _harmless(found: re.Match[str]) -> str:
    user = _USER.match(found[2])
    place, mark, options = found[2][user.end() if user else 0 :].partition("?")
    container = user[0].rstrip("@").partition(":")[0] if user and found[1].lower() in _CONTAINERS else ""
    kept = [one for one in re.split("[&;]", options) if _is_harmless(*one.partition("=")[::2])]
    return f"{found[1]}{container and f'{container}@'}{place}{mark if kept or not options else ''}{'&'.join(kept)}"


def _is_harmless(name: str, value: str) -> bool:
    return name in _HARMLESS and unquote(value) == without_secrets(unquote(value))


def label(place: str | Path) -> str:
    """Return the last part of a path, or of a URI without its options."""
    text = str(place)
    return (text.partition("?")[0] if is_remote(text) else text).rstrip("/").rpartition("/")[2]


def is_remote(place: str | Path) -> bool:
    """Tell whether a place is reached through a store."""
    return "://" in str(place) and not str(place).startswith("file://")
