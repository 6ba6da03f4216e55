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

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """The same with other entries, from which what was worked out is worked out anew."""
        made = super().model_copy(update=update, deep=deep)
        for cached in vars(made).keys() - type(self).model_fields.keys():
            object.__delattr__(made, cached)
        return made
