"""The base of every config: frozen, checked, and explained in one sentence when something is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import ConfigError, did_you_mean


def setting(default: Any, description: str, *, source: str = "", **limits: Any) -> Any:
    """A field of a config: its default, its meaning, and `source`, the paper, table or file that the default comes from."""
    return Field(default, description=description, json_schema_extra={"source": source} if source else None, **limits)


class Config(BaseModel):
    """Settings that do not change once made. Unknown keys are refused; `model_dump_json` and back is the saved format."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
    title: ClassVar[str] = ""

    @classmethod
    def check(cls, settings: Mapping[str, Any], *, title: str | None = None) -> Self:
        """The config that `settings` describe.

        Raises:
            ConfigError: a key is unknown (the nearest known one is named) or a value is out of range.
        """
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise ConfigError(explain(cls, error, title or cls.title or cls.__name__.removesuffix("Config"))) from None


_INTEGER, _NUMBER, _LIST, _MAPPING = "it must be a whole number", "it must be a number", "it must be a list", "it must be a mapping"
_EXPECTED = {  # by pydantic's name of what went wrong, where its own words are a programmer's
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _INTEGER),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _MAPPING),
    "string_type": "it must be text",
}


def explain(config: type[BaseModel], error: ValidationError, title: str) -> str:
    """One sentence for the first thing wrong: whose setting, which value, what was expected or meant."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"{title} has no setting {key!r}{did_you_mean(path[-1], _siblings(config, path[:-1]))}"
    if first["type"] == "missing":
        return f"{title} needs {key!r}: {_describe(config, path)}."
    message = _EXPECTED.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if first["type"] in ("tuple_type", "list_type") and isinstance(first["input"], str | int | float):
        message += f", as [{first['input']}]"
    message = f"{message[:1].lower()}{message[1:]}{'' if message.endswith(('?', '.')) else '.'}"
    return f"{title}: {key} is {first['input']!r}; {message}" if key else f"{title}: {message}"


def _siblings(config: type[BaseModel], path: list[str]) -> list[str]:
    """The names that are valid below `path`."""
    model: Any = config
    for name in path:
        field = model.model_fields.get(name)
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if model is None:
            return []
    return list(model.model_fields)


def _describe(config: type[BaseModel], path: list[str]) -> str:
    field = config.model_fields.get(path[0])
    return (field.description if field and field.description else "it has no default").rstrip(".")
