"""Addresses as they may be shown: in tags, logs and pages, where many read them."""

from __future__ import annotations

from urllib.parse import urlsplit


def without_password(uri: str) -> str:
    """An address without user, password and query; what is none, as git's `user@host:path`, without the user."""
    if "://" not in uri:
        return uri.rpartition("@")[2] if "@" in uri.partition("/")[0] else uri
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # urlunsplit would take a slash from sqlite:////path
