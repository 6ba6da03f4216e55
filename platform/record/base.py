"""Plain data with a JSON Schema. Moments are in seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Plain data: `model_dump(mode="json")` is JSON, which `model_validate` reads again; `model_json_schema()` is its schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def model_json_schema(
        cls, *of: Any, mode: Literal["validation", "serialization"] = "serialization", **options: Any
    ) -> dict[str, Any]:
        """The schema of what `model_dump` gives."""
        return super().model_json_schema(*of, mode=mode, **options)


class Computed(Record):
    """A record some of whose entries follow from others: they are written, and worked out again where it is read."""

    model_config = ConfigDict(extra="ignore")

    def __eq__(self, other: object) -> bool:
        """Equal where what they were made of is: what was worked out or is read later does not count."""
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in type(self).model_fields)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in type(self).model_fields))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with updated fields, and drop cached values so that they are recomputed."""
        made = super().model_copy(update=update, deep=deep)
        for cached in vars(made).keys() - type(self).model_fields.keys():
            object.__delattr__(made, cached)
        return made
