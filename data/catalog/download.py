"""One file from a URL: resumed where an earlier attempt stopped, compared with what is known of it, and there only when whole.

What has arrived lies in `NAME.part`, and `NAME.part.json` says of which version of the file it is the beginning: the rest is asked
for with `Range` and `If-Range`, so that a file that has changed since comes whole (RFC 9110, sections 13.1.5 and 14). Proxies come
from the environment, as `requests` reads it (`https_proxy`, `no_proxy`, …).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from ..errors import DataError, StorageError
from ..storage.files import Place, sha256_of, storage_errors, sync_folder, write_atomically
from ..storage.json_text import parse_json
from ..version import __version__
from .entries import RemoteFile

Show = Callable[[int, int | None], None]  # bytes that are there, and of how many where that is known
_PIECE = 1 << 16
_HEADWAY = 1 << 20  # an attempt that brings so many bytes more than any before counts as none that failed
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server. Seconds, and attempts in a row that may fail."""

    connect: float = 15.0
    stall: float = 60.0  # without a byte
    attempts: int = 6
    first_wait: float = 1.0  # doubled with each failure
    longest_wait: float = 30.0


class _FailedError(Exception):
    """An attempt that another may follow; the message says what happened. `wait`: what the server asked for, in seconds."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class _UnlikeError(DataError):
    """The whole file is not what was published."""


class _StaleError(Exception):
    """The partial download is not a prefix of what the server has now."""


def download(remote: RemoteFile, target: Path, show: Show = lambda done, total: None, patience: Patience | None = None) -> None:
    """Make sure that the file is there, whole and as it was published. One process at a time may be at work on `target`.

    Raises DataError where the server has no such file or another one than was published, and StorageError where it cannot be
    reached, stops again and again, or the disk is full.
    """
    if target.exists():
        _check(remote, target, f"{target} is not the file that was published")
        return
    with storage_errors("made", target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    if urlsplit(remote.url).scheme in ("http", "https"):
        _over_http(remote, part, target, show, patience or Patience())
    else:
        _copied(remote, part, show)
    with storage_errors("written", target):
        part.replace(target)
        sync_folder(target.parent)
        _notes(part).unlink(missing_ok=True)


def _over_http(remote: RemoteFile, part: Path, target: Path, show: Show, patience: Patience) -> None:
    """Download and check the whole file at `part`."""
    failures, stale, most = 0, 0, _size(part)
    resumed, again = most > 0, False
    with requests.Session() as session:
        session.headers.update({"User-Agent": f"d3ray/{__version__}", "Accept-Encoding": "identity"})
        while True:
            try:
                _receive(session, remote, part, show, patience)
                _check(remote, part, f"{remote.url} sent other bytes than were published")
            except _StaleError:
                _discard(part)
                stale += 1
                if stale > patience.attempts:
                    raise StorageError(f"{remote.url} cannot be downloaded: its server does not send what it announces.") from None
            except _FailedError as failed:
                arrived = _size(part)
                resumed |= arrived > 0
                failures = 1 if arrived >= most + _HEADWAY else failures + 1
                most = max(most, arrived)
                if failures >= patience.attempts:
                    raise StorageError(_gave_up(remote, failed, arrived, target)) from None
                time.sleep(failed.wait or min(patience.first_wait * 2 ** (failures - 1), patience.longest_wait))
            except _UnlikeError as unlike:
                _discard(part)
                if again or not resumed:
                    raise DataError(f"{str(unlike).rstrip('.')}; they were deleted.") from None
                again = True  # what was there before may have been the beginning of another file
            else:
                return


def _receive(session: requests.Session, remote: RemoteFile, part: Path, show: Show, patience: Patience) -> None:
    """Make one request for what is missing; return when the file is whole, else raise an error or what to do next."""
    kept = _kept(remote, part)
    have = kept["bytes"] if kept else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and kept and kept["validator"]:
        headers["If-Range"] = kept["validator"]
    try:
        response = session.get(remote.url, headers=headers, stream=True, timeout=(patience.connect, patience.stall))
    except (requests.exceptions.SSLError, requests.exceptions.TooManyRedirects) as error:
        raise StorageError(f"{remote.url} cannot be reached: {_reason(error)}.") from None
    except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
        raise _FailedError(_reason(error)) from None
    except requests.RequestException as error:  # a redirect to another protocol, an address that is none
        raise StorageError(f"{remote.url} cannot be downloaded: {_reason(error)}.") from None
    with response:
        start, total = _beginning(response, remote, kept, have)
        validator = _validator(response)
        needed = (total or 0) - start
        if needed > (free := shutil.disk_usage(part.parent).free):
            raise StorageError(
                f"{remote.url} needs {needed:,} bytes more and the disk of {part.parent} has {free:,}: "
                "make room, or name another folder in D3RAY_CACHE."
            )
        with storage_errors("written", part):
            if start == 0:
                part.unlink(missing_ok=True)
            write_atomically(_notes(part), json.dumps({"url": remote.url, "validator": validator}).encode())
        _write(response, part, start, total, show)


def _write(response: requests.Response, part: Path, start: int, total: int | None, show: Show) -> None:
    done, problem = start, ""
    with storage_errors("written", part), part.open("ab") as file:
        show(done, total)
        while True:
            try:
                piece = response.raw.read(_PIECE, decode_content=False)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                problem = _reason(error)
                break
            if not piece:
                break
            file.write(piece)
            done += len(piece)
            show(done, total)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done > total:
        raise _StaleError
    if problem or (total is not None and done < total):
        raise _FailedError(f"{problem or 'the connection was cut'} after {done:,} bytes" + (f" of {total:,}" if total else ""))


def _beginning(response: requests.Response, remote: RemoteFile, kept: dict[str, Any] | None, have: int) -> tuple[int, int | None]:
    """Return at which byte the answer begins, and the whole file's size where the server says it."""
    status = response.status_code
    if status in _TRY_AGAIN:
        asked = response.headers.get("Retry-After", "")
        raise _FailedError(f"the server answers {status}", min(float(asked), 60.0) if asked.isdigit() else None)
    if status == 416 and have:
        if response.headers.get("Content-Range") == f"bytes */{have}":  # all of it had come when its process was killed
            return have, have
        raise _StaleError
    if status in (404, 410):
        raise DataError(f"There is no file {response.url}: the server answers {status}.")
    if status not in (200, 206):
        raise DataError(f"{response.url} is not given: the server answers {status}.")
    if "html" in response.headers.get("Content-Type", "") and not remote.place.endswith((".html", ".htm")):
        raise DataError(f"{response.url} is a web page, not the file {remote.place}; its publisher may have moved it.")
    length = response.headers.get("Content-Length", "")
    start, total = 0, int(length) if length.isdigit() else None
    if status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != have or (kept and kept["validator"] not in ("", _validator(response))):
            raise _StaleError
        start, total = have, None if match[2] == "*" else int(match[2])
    if None not in (total, remote.bytes) and total != remote.bytes:
        raise DataError(
            f"{response.url} has {total:,} bytes and {remote.bytes:,} were published: it is another file, and was not read."
        )
    return start, total if total is not None else remote.bytes


def _kept(remote: RemoteFile, part: Path) -> dict[str, Any] | None:
    """Read the notes on what arrived before; None where it cannot be told from the bytes of another file."""
    try:
        said = parse_json(_notes(part).read_bytes())
        found = {"bytes": part.stat().st_size, "validator": str(said["validator"])}
        usable = said["url"] == remote.url and (found["validator"] or remote.sha256)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if usable else None


def _validator(response: requests.Response) -> str:
    """Return what `If-Range` takes: a strong ETag, else the date of the last change, else nothing."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _check(remote: RemoteFile, path: Path, what: str) -> None:
    size = path.stat().st_size
    if remote.bytes is not None and size != remote.bytes:
        raise _UnlikeError(f"{what}: it has {size:,} bytes, not {remote.bytes:,}.")
    if remote.sha256 is not None and (found := sha256_of(path)) != remote.sha256:
        raise _UnlikeError(f"{what}: its SHA-256 is {found[:16]}…, not {remote.sha256[:16]}….")


def _copied(remote: RemoteFile, part: Path, show: Show) -> None:
    """Copy from a folder or a URI of pyarrow.fs; such copies begin anew."""
    place, name = Place.of_file(remote.url)
    with storage_errors("copied", remote.url):
        if place.local is not None:
            shutil.copyfile(place.local / name, part)
        else:
            place.fetch(name, part)
    show(_size(part), _size(part))
    try:
        _check(remote, part, f"{remote.url} has other bytes than were published")
    except DataError:
        _discard(part)
        raise


def _gave_up(remote: RemoteFile, failed: _FailedError, arrived: int, target: Path) -> str:
    kept = f" The {arrived:,} bytes that arrived are kept, and the next attempt goes on from there." if arrived else ""
    return (
        f"{remote.url} cannot be downloaded ({failed}): look at the network and its proxy, or put a copy at {target} "
        f"(or make a dataset of one: d3ray ingest FILE TARGET).{kept}"
    )


def _reason(error: BaseException) -> str:
    """Say the cause in a few words; libraries wrap it in several layers."""
    text = " ".join(str(error).split())
    for sign, words in (
        ("NameResolution", "its name cannot be resolved"),
        ("Name or service not known", "its name cannot be resolved"),
        ("Connection refused", "the connection is refused"),
        ("timed out", "nothing comes"),
        ("IncompleteRead", "the connection was cut"),
        ("Connection reset", "the connection was cut"),
        ("RemoteDisconnected", "the connection was cut"),
        ("proxy", "the proxy does not answer"),
        ("certificate", "its certificate is not valid"),
    ):
        if sign.lower() in text.lower():
            return words
    return text.rstrip(".")[:200] or type(error).__name__


def _notes(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _discard(part: Path) -> None:
    with storage_errors("deleted", part):
        part.unlink(missing_ok=True)
        _notes(part).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
