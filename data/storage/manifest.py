"""`dataset.json`: what a dataset folder holds. It is written last, so a folder without it is no dataset."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from ..config import Config
from ..errors import DataError, reason
from ..spec import Environment, Spec
from .files import Place
from .json_text import TooDeepError, parse_json
from .schema import Kinds
from .statistics import Statistics

MANIFEST = "dataset.json"
FILE = r"(data-\d{5}-of-\d{5}|episodes)(-[0-9a-f]{8})?\.arrow"  # what is replaced and what replaces it lie side by side
VERSION = 1
_SHA256 = r"^[0-9a-f]{64}$"


class File(Config):
    """A file as it was written."""

    file: str = Field(pattern=f"^{FILE}$")
    bytes: int
    sha256: str = Field(pattern=_SHA256)


class Shard(File):
    """One Arrow IPC file with one record batch of whole episodes. Its first row is the sum of `rows` before it."""

    rows: int = Field(gt=0)
    episodes: int = Field(gt=0)


class Column(Config):
    """A column of logical rows."""

    name: str
    dtype: str = Field(pattern=r"^(bool|u?int(8|16|32|64)|float(16|32|64))$")
    shape: tuple[int, ...] = Field(description="of one row's entry; empty for a number")
    digest: str = Field(
        pattern=_SHA256, description="SHA-256 of the SHA-256s of its blocks of 65,536 rows; see data/storage/fingerprint.py"
    )


class Manifest(Config):
    """Everything but the numbers."""

    format: Literal["d3ray dataset"] = "d3ray dataset"
    version: Literal[1] = VERSION
    name: str
    environment: Environment | None
    spec: Spec
    n_transitions: int
    n_episodes: int
    n_rows: int = Field(description="transitions and one closing row an episode")
    cuts: int = Field(description="episodes cut where a source's next observations were not the next row")
    columns: tuple[Column, ...]
    shards: tuple[Shard, ...]
    episodes: File
    compression: Literal["zstd"] | None
    statistics: Statistics
    provenance: dict[str, Any]
    fingerprint: str = Field(pattern=_SHA256)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        rows, episodes = sum(shard.rows for shard in self.shards), sum(shard.episodes for shard in self.shards)
        if (rows, episodes) != (self.n_rows, self.n_episodes) or rows != self.n_transitions + episodes:
            raise ValueError(f"its shards have {rows} rows of {episodes} episodes, it says {self.n_rows} of {self.n_episodes}")
        return self

    @property
    def kinds(self) -> Kinds:
        return {column.name: (column.dtype, column.shape) for column in self.columns}


def read_manifest(place: Place) -> Manifest:
    """Read the manifest of a folder. Raises DataError where there is none, it is damaged, or a later d3ray wrote it."""
    content = place.read(MANIFEST)
    if content is None:
        if place.local is not None and place.local.is_file():
            raise DataError(f"{place} is a file, not a dataset folder: d3ray ingest makes one of it.")
        raise DataError(f"There is no dataset at {place}: it has no {MANIFEST}.")
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise DataError(_damage(place, content, error)) from None


def _damage(place: Place, content: bytes, error: ValidationError) -> str:
    try:
        raw: Any = parse_json(content)
    except TooDeepError as deep:
        return f"{place.address(MANIFEST)} is damaged: {deep}."
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        return f"{place.address(MANIFEST)} is damaged: it is not JSON."
    if raw.get("format") != "d3ray dataset":
        return f"{place.address(MANIFEST)} does not describe a d3ray dataset."
    if raw.get("version") != VERSION:
        return f"{place} has format version {raw.get('version')}; this d3ray reads version {VERSION}."
    first = error.errors()[0]
    field = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
    message = first["msg"].removeprefix("Value error, ")
    return f"{place.address(MANIFEST)} is damaged: {field}{message[:1].lower()}{message[1:]}."


def write_manifest(place: Place, manifest: Manifest) -> None:
    """Write atomically, once it is known that it can be read back. Raises DataError of a provenance that cannot."""
    try:
        content = manifest.model_dump_json(indent=1).encode()
        Manifest.model_validate_json(content)
    except ValueError as error:
        raise DataError(f"The provenance of {manifest.name} cannot be written as JSON and read back: {reason(error)}.") from None
    place.write(MANIFEST, content)
