"""Settings that are chosen by name, ours and users': kinds of encoders, kinds of Q-functions."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from pydantic import GetJsonSchemaHandler, ValidationError
from pydantic_core import InitErrorDetails

from ...data.config import Config
from ...data.errors import ConfigError, did_you_mean

Kind = TypeVar("Kind", bound=type[Config])


def name_of(kind: type[Config]) -> str | None:
    """The name that a config gives itself by a field `name: Literal["mine"] = "mine"`; None: it has none."""
    name = kind.model_fields["name"].default if "name" in kind.model_fields else None
    return name if isinstance(name, str) else None


class Named:
    """Kinds of something by name.

    Args:
        what: What all are, for sentences: "encoder".
        base: The class of all.
        ours: The kinds that are here from the start, whose names stay theirs.
        unnamed: The kind that settings without a name are of; None: there is none.
    """

    def __init__(self, what: str, base: type[Config], ours: tuple[type[Config], ...], unnamed: str | None = None) -> None:
        self.what, self.base, self.unnamed = what, base, unnamed
        self.known = {name: kind for kind in ours if (name := name_of(kind))}
        self._ours = tuple(self.known)
        self._inside = ContextVar(f"{what} inside another", default=False)

    def register(self, kind: Kind) -> Kind:
        """Makes a user's own known. Raises ConfigError: it has no name, or the name is taken."""
        name = name_of(kind)
        if name is None:
            raise ConfigError(f'The {self.what} {kind.__name__} needs a name: a field `name: Literal["mine"] = "mine"`.')
        if name in self._ours or self.known.get(name, kind).__qualname__ != kind.__qualname__:
            raise ConfigError(f"There is {_a(self.what)} {name!r} already: give yours another name.")
        self.known[name] = kind
        return kind

    def read(self, value: Any) -> Any:
        """A config of a name, or of a mapping with a name and settings; for a `BeforeValidator`."""
        if isinstance(value, self.base):
            return value
        if not isinstance(value, str | Mapping):
            raise ValueError(f"it must be a name or settings with a name, of {', '.join(self.known)}")
        settings = {"name": value} if isinstance(value, str) else {"name": self.unnamed, **cast("Mapping[str, Any]", value)}
        name = settings["name"]
        if name is None:
            raise ValueError(f"it needs a name, of {', '.join(self.known)}")
        if name not in self.known:
            raise ValueError(f"there is no such {self.what}{did_you_mean(str(name), self.known)}")
        try:
            return self.known[name].model_validate(settings)
        except ValidationError as error:  # again with the name in the path, as a union's would have it
            details = [
                InitErrorDetails(type=one["type"], loc=(name, *one["loc"]), input=one["input"], ctx=one.get("ctx", {}))  # pyright: ignore[reportArgumentType]
                for one in error.errors(include_url=False)
            ]
            raise ValidationError.from_exception_data(self.what, details) from None

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The JSON Schema of a field of this annotation: one of the known kinds. Of one inside another it says the names alone."""
        if self._inside.get():
            return {"type": "object", "properties": {"name": {"enum": list(self.known)}}, "required": ["name"]}
        token = self._inside.set(True)
        try:
            kinds = {name: handler(kind.__pydantic_core_schema__) for name, kind in self.known.items()}
        finally:
            self._inside.reset(token)
        mapping = {name: kind["$ref"] for name, kind in kinds.items() if "$ref" in kind}
        return {"oneOf": list(kinds.values()), "discriminator": {"propertyName": "name", "mapping": mapping}}


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
