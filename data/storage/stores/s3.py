"""Buckets of Amazon S3, and of servers that speak its protocol, through obstore: one request to read a file and one to write it.

A URI is `s3://[KEY:SECRET@]BUCKET/PATH[?OPTION=VALUE&…]`, with the options of pyarrow's S3 file system:
    region             where the bucket is; else as the environment says it, else the bucket is asked
    endpoint_override  HOST:PORT or URL of another server than Amazon's
    scheme             http or https, the default

Without KEY and SECRET they come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), from a
profile of `~/.aws` (`AWS_PROFILE`), or from the machine's role. Everything else that obstore reads from `AWS_…` holds too.

`create` is a PUT with `If-None-Match: *`, `replace` one with `If-Match` (S3 User Guide, "How to prevent object overwrites with
conditional writes"). A server that does not know these conditions, as some small ones for tests, lets two writers in.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...errors import StorageError, did_you_mean
from .base import Found, side_by_side

if TYPE_CHECKING:
    from obstore.store import S3Store

_OPTIONS = ("region", "endpoint_override", "scheme")
_IGNORED = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open")  # of pyarrow: here they change nothing
_RETRIES = 5  # with pauses of 0.1, 0.2, 0.4 … seconds at most, so a server that is away is given up after some three seconds
_RETRY_SECONDS = 60
_PIECE = 8 << 20  # bytes that one request asks for of a large object
_PIECES = 8  # of them at once, so that they take 64 MiB


class S3:
    """A bucket."""

    def __init__(self, bucket: str, store: S3Store) -> None:
        import obstore

        self._bucket, self._store, self._api = bucket, store, obstore

    def read(self, key: str) -> bytes:
        return self.read_versioned(key)[0]

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        with self._errors():
            found = self._api.get(self._store, key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

    def write(self, key: str, content: bytes) -> None:
        with self._errors():
            self._api.put(self._store, key, content)

    def create(self, key: str, content: bytes) -> str | None:
        with self._errors():
            try:
                return self._api.put(self._store, key, content, mode="create")["e_tag"]
            except self._api.exceptions.AlreadyExistsError:
                return None

    def replace(self, key: str, content: bytes, version: str) -> str | None:
        with self._errors():
            try:
                return self._api.put(self._store, key, content, mode={"e_tag": version})["e_tag"]
            except self._api.exceptions.PreconditionError:
                return None

    def upload(self, file: Path, key: str) -> None:
        with self._errors():
            self._api.put(self._store, key, file)

    def copy(self, key: str, to: str) -> None:
        with self._errors():
            self._api.copy(self._store, key, to)

    def download(self, key: str, target: Path) -> None:
        with self._errors():
            whole = self._api.get(self._store, key)
            if (size := whole.meta["size"]) <= _PIECE:
                target.write_bytes(whole.bytes())
                return
            del whole  # its content has not been asked for yet

            def piece(start: int) -> None:
                content = self._api.get_range(self._store, key, start=start, end=min(start + _PIECE, size))
                os.pwrite(file.fileno(), content, start)

            with target.open("wb") as file:
                side_by_side(piece, range(0, size, _PIECE), _PIECES)

    def open(self, key: str) -> _Object:
        return _Object(self, key)

    def read_at(self, key: str, size: int, offset: int) -> bytes:
        with self._errors():
            return bytes(self._api.get_range(self._store, key, start=offset, length=size)) if size else b""

    def look(self, keys: Sequence[str]) -> list[Found | None]:
        return side_by_side(self._look, keys)

    def _look(self, key: str) -> Found | None:
        with self._errors():
            try:
                return _found(self._api.head(self._store, key))
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> tuple[list[str], list[Found]]:
        with self._errors():
            found = self._api.list_with_delimiter(self._store, folder)
        folders = [prefix.rpartition("/")[2] for prefix in found["common_prefixes"]]
        return folders, [_found(one) for one in found["objects"] if one["path"] != folder]  # some leave an empty object as a folder

    def walk(self, folder: str) -> list[Found]:
        with self._errors():
            found = [_found(one) for some in self._api.list(self._store, folder) for one in some]
        folders = {folder} | {above for one in found for above in _above(one.key)}
        return [one for one in found if one.size or one.key not in folders]

    def make(self, folder: str) -> None:
        """Do nothing: a folder is what keys begin with."""

    def delete(self, keys: Iterable[str]) -> None:
        if keys := list(keys):
            with self._errors():
                self._api.delete(self._store, keys)

    def delete_folder(self, folder: str) -> None:
        with self._errors():
            keys = [one["path"] for some in self._api.list(self._store, folder) for one in some]
        self.delete(keys)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Turn what obstore raises into an OSError that says it in a few words."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise OSError(f"there is no bucket {self._bucket!r}") from None
            raise
        except BaseError as error:
            raise OSError(self._reason(error)) from None  # its own text is of many lines, some with addresses

    def _reason(self, error: Exception) -> str:
        text = str(error)
        for sign, words in _REASONS.items():
            if sign in text:
                return words.format(bucket=repr(self._bucket))
        return text.partition("\n")[0].rstrip(".")


_REASONS = {
    "NoSuchBucket": "there is no bucket {bucket}",
    "InvalidAccessKeyId": "the store does not know its access key",
    "SignatureDoesNotMatch": "the store refuses its secret key",
    "ExpiredToken": "its credentials have expired",
    "AccessDenied": "the store denies access to the bucket {bucket}",
    "403 Forbidden": "the store denies access to the bucket {bucket}",
    "error sending request": "the store does not answer",
    "operation timed out": "the store does not answer",
    "instance metadata": "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "169.254.169.254": "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
}


class _Object:
    """An object of a bucket, read in pieces."""

    def __init__(self, store: S3, key: str) -> None:
        self._store, self._key = store, key

    def read_at(self, size: int, offset: int) -> bytes:
        return self._store.read_at(self._key, size, offset)


def _found(one: Any) -> Found:
    return Found(one["path"], one["size"], one["last_modified"].timestamp(), one["e_tag"] or "")


def _above(key: str) -> list[str]:
    parts = key.split("/")
    return ["/".join(parts[:k]) for k in range(1, len(parts))]


def open_s3(uri: str) -> tuple[S3, str]:
    """Open the bucket of a URI, and return the key that it names. Raises StorageError."""
    place, _, query = uri.removeprefix("s3://").partition("?")
    authority, _, key = place.partition("/")
    user, _, bucket = authority.rpartition("@")
    options: dict[str, str] = {}
    for one in filter(None, query.split("&")):
        name, _, value = one.partition("=")
        if name not in (*_OPTIONS, *_IGNORED):
            raise StorageError(f"s3://{bucket}/{key} has an option {name!r}, which there is not{did_you_mean(name, _OPTIONS)}")
        options[name] = unquote(value)
    if not bucket or ":" in bucket:
        raise StorageError("An address of S3 is s3://BUCKET/PATH or s3://KEY:SECRET@BUCKET/PATH, where a slash in SECRET is %2F.")
    surroundings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return S3(bucket, _store(bucket, user, tuple(sorted(options.items())), surroundings)), unquote(key).strip("/")


@lru_cache(maxsize=16)  # one for all folders, for it holds the connections
def _store(bucket: str, user: str, options: tuple[tuple[str, str], ...], surroundings: tuple[tuple[str, str], ...]) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise StorageError(f"s3://{bucket} needs obstore: pip install 'd3ray[s3]'.") from None
    given, around = dict(options), dict(surroundings)
    endpoint = given.get("endpoint_override") or around.get("AWS_ENDPOINT_URL_S3") or around.get("AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        endpoint = f"{given.get('scheme', 'https')}://{endpoint}"
    config: dict[str, Any] = {
        "region": given.get("region") or around.get("AWS_REGION") or around.get("AWS_DEFAULT_REGION"),
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
    }
    if endpoint:
        config |= {"endpoint": endpoint, "region": config["region"] or "us-east-1"}
    key, _, secret = user.partition(":")
    if user:
        config |= {"access_key_id": unquote(key), "secret_access_key": unquote(secret)}
    elif "AWS_ACCESS_KEY_ID" not in around and _has_profiles(around):
        from obstore.auth.boto3 import Boto3CredentialProvider

        config["credential_provider"] = Boto3CredentialProvider()
    config["region"] = config["region"] or _region_of(bucket)
    return S3Store(bucket, **config)


def _has_profiles(around: dict[str, str]) -> bool:
    named = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    return any(Path(around.get(name, usual)).expanduser().exists() for name, usual in named.items())


def _region_of(bucket: str) -> str:
    """Ask Amazon where a bucket is; it needs no credentials."""
    from pyarrow import fs

    try:
        return fs.resolve_s3_region(bucket)
    except OSError as error:
        if "NoSuchBucket" in str(error) or "not found" in str(error):
            raise StorageError(f"s3://{bucket} cannot be reached: there is no bucket {bucket!r}.") from None
        raise StorageError(f"s3://{bucket} cannot be reached: {str(error).splitlines()[0].rstrip('.')}.") from None
