"""A command's options: from defaults, a YAML file and the command line to one checked config that knows where values are from."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ...data.config import Config, explain, foremost
from ...data.errors import ConfigError, D3rayError, did_you_mean
from ...platform.yaml_text import Key, parse_value, read_yaml
from .base import JobConfig

C = TypeVar("C", bound=Config)

COMMAND_LINE, DEFAULT = "command line", "default"
ACTIONS = {"--help": "help", "-h": "help", "--example": "example", "--print-config": "print-config"}
_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")


@dataclass(frozen=True)
class Line:
    """A command line, read but not checked: what to do, the config file, and values by key."""

    action: str
    config: str | None
    values: dict[Key, Any]


def extra(field: FieldInfo | None, name: str) -> Any:
    """Return an `option` note or None: `operand`, `example`, `source`, `also`; `dotted`: a mapping's names have dots."""
    return field.json_schema_extra.get(name) if field and isinstance(field.json_schema_extra, dict) else None


def operands(config_class: type[BaseModel]) -> dict[str, Any]:
    """The fields whose values may stand alone, in order."""
    return {name: mark for name, field in config_class.model_fields.items() if (mark := extra(field, "operand"))}


def _members(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: those of a union, without Annotated's extras."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for argument in get_args(annotation) for member in _members(argument))
    return (annotation,)


def _nested(field: FieldInfo | None) -> list[type[BaseModel]]:
    """The config classes that a field may hold."""
    return [one for one in _members(field.annotation if field else None) if isinstance(one, type) and issubclass(one, BaseModel)]


def _field_at(config_class: type[BaseModel], key: Key) -> FieldInfo | None:
    field = config_class.model_fields.get(key[0])
    if field is None or len(key) == 1:
        return field
    return next((found for inner in _nested(field) if (found := _field_at(inner, key[1:]))), None)


def read_line(config_class: type[BaseModel], arguments: Iterable[str], title: str = "d3ray") -> Line:
    """Reads operands, `key=value` or `--key value`, `--flag` or `--no-flag`, and `--config FILE`.

    A value is YAML 1.2, unless its field holds text: then it is taken as typed.

    Raises:
        ConfigError: an unknown flag, a key given twice, a word too many.
    """
    action, config = "run", None
    values, alone, order = dict[Key, Any](), list[Any](), operands(config_class)
    n_alone = sum(mark != "rest" for mark in order.values())
    rest = next((name for name, mark in order.items() if mark == "rest"), None)

    def put(key: Key, value: Any) -> None:
        if key in values:
            raise ConfigError(f"{title}: {'.'.join(key)} is given twice on the command line.")
        values[key] = value

    waiting = iter(arguments)
    for word in waiting:
        name, equals, typed = word.partition("=")
        key = _key(config_class, name)
        if word in ACTIONS:
            action = ACTIONS[word]
        elif name == "--config":
            config = typed or next(waiting, None)
            if not config:
                raise ConfigError(f"{title}: --config needs the name of a YAML file.")
        elif name.startswith("-") and len(word) > 1:
            put(*_dashed(config_class, word, waiting, title))
        elif equals and (_NAME.fullmatch(name) or _holds_any(config_class.model_fields.get(key[0]))):
            put(key, _value(config_class, key, typed, title))
        else:
            alone.append(word)
            if rest and len(alone) == n_alone:
                put((rest,), list(waiting))
    free = [name for name, mark in order.items() if mark != "rest" and (name,) not in values]
    more = len(alone) - len(free)
    if more > 0 and (several := next((k for k, name in enumerate(free) if order[name] == "several"), None)) is not None:
        alone[several : several + more + 1] = [alone[several : several + more + 1]]
    if len(alone) > len(free):
        word = alone[len(free)]
        if (name := word.replace("-", "_")) in config_class.model_fields:
            raise ConfigError(f"{title}: {word!r} is a setting; write {name}=VALUE.")
        beside = f"beside {' '.join(order).upper()} " if order else ""
        raise ConfigError(f"{title}: {word!r} stands alone, but {beside}settings are written key=VALUE.")
    return Line(action, config, values | {(name,): value for name, value in zip(free, alone, strict=False)})


def _dashed(config_class: type[BaseModel], word: str, waiting: Iterator[str], title: str) -> tuple[Key, Any]:
    """Parse `--key VALUE`, `--key=VALUE`, `--flag` or `--no-flag`; the value may be the next word."""
    name, equals, typed = word.partition("=")
    for key, value in ((_key(config_class, name[2:]), True), (_key(config_class, name.removeprefix("--no-")), False)):
        field = config_class.model_fields.get(key[0]) if len(key) == 1 else None
        if not equals and name.startswith("--") and field and field.annotation is bool:
            return key, value
    key = _key(config_class, name[2:])
    if not name.startswith("--") or key[0] not in config_class.model_fields:
        known = [f"--{name.replace('_', '-')}" for name in config_class.model_fields]
        raise ConfigError(f"{title} has no flag {word!r}{did_you_mean(name, [*known, '--config', *ACTIONS])}")
    typed = typed if equals else next(waiting, "--")
    if not equals and typed.startswith("--"):
        raise ConfigError(f"{title}: {word} needs a value.")
    return key, _value(config_class, key, typed, title)


def _key(config_class: type[BaseModel], name: str) -> Key:
    """The key that a dotted name means. Below a mapping of names any may stand, dots and all: `rename.action:0=u`."""
    first, dot, below = name.partition(".")
    first = first.replace("-", "_")
    first = next((name for name, field in config_class.model_fields.items() if extra(field, "also") == first), first)
    if not dot:
        return (first,)
    return (first, below) if _holds_any(config_class.model_fields.get(first)) else (first, *below.split("."))


def _holds_any(field: FieldInfo | None) -> bool:
    return field is not None and (field.annotation == dict[str, str] or bool(extra(field, "dotted")))


def _value(config_class: type[BaseModel], key: Key, typed: str, title: str) -> Any:
    """Parse what was typed: verbatim if the field holds text, unless it is quoted or a `null` that the field allows; else YAML."""
    field = _field_at(config_class, key)
    kinds = set(_members(field.annotation)) if field else {Any}
    is_null = typed in ("null", "~", "") and type(None) in kinds
    if kinds <= {str, Path, type(None)} and not typed.startswith(("'", '"')) and not is_null:
        return typed
    return parse_value(typed, f"{title}: {'.'.join(key)}")


def resolve(
    config_class: type[C], path: str | Path | None = None, arguments: Iterable[str] = (), *, title: str | None = None
) -> tuple[C, dict[str, str]]:
    """The config that a file and a command line describe, and where each value of it comes from.

    Later wins: defaults, presets, what `JobConfig.below` says, the file, the command line. A mapping in the file stands for the
    whole field; a dotted key on the command line changes one entry of what the file or the default says.

    Args:
        config_class: the command's config class.
        path: a YAML file, or None; a `--config FILE` among the arguments is used where it is None.
        arguments: operands, `key=value` pairs and flags.
        title: what messages call the thing that is configured.

    Returns:
        The config, and for each dotted name of `config.model_dump(mode="json")`, and of `config.implied()`, one of "default",
        "preset …", "FILE:LINE", "command line" and what `below` says.

    Raises:
        ConfigError: with FILE:LINE in front where the fault is in a file.
    """
    title = title or config_class.title or config_class.__name__.removesuffix("Config")
    line = read_line(config_class, arguments, title)
    path = path if path is not None else line.config
    document, lines = read_yaml(path) if path is not None else ({}, {})
    given = {**document, **{key[0]: value for key, value in line.values.items() if len(key) == 1}}
    below, above = config_class.below(given) if issubclass(config_class, JobConfig) else ({}, {})
    places = {key: place for key, place in above.items() if key[0] not in document}
    places |= {key: f"{path}:{number}" for key, number in lines.items()}
    document = deepcopy({**below, **document})  # an anchor's mapping is one object in several places
    try:
        for key in sorted(line.values, key=len):  # algorithm=CQL before algorithm.alpha=1, however they were typed
            _put(config_class, document, places, key, line.values[key])
        folder = Path(path).parent if path is not None else None
        config = config_class.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        first = foremost(error)
        cause: Any = first.get("ctx", {}).get("error")
        said = f"{title}: {cause}" if isinstance(cause, D3rayError) else explain(config_class, error, title, document)
        key = tuple(map(str, first["loc"]))
        while key and key not in places:
            key = key[:-1]
        place = places.get(key, COMMAND_LINE)
        raise ConfigError(said if place == COMMAND_LINE else f"{place}: {said}") from None
    except D3rayError as error:
        raise ConfigError(f"{title}: {error}") from None
    provenance = {".".join(key): _place(key, value, places, document) for key, value in _leaves(config.model_dump(mode="json"))}
    if isinstance(config, JobConfig):
        for name, (_, place) in config.implied().items():
            provenance[name] = place if provenance.get(name, DEFAULT) == DEFAULT else provenance[name]
    return config, provenance


def _put(config_class: type[BaseModel], document: dict[str, Any], places: dict[Key, str], key: Key, value: Any) -> None:
    """Sets `key` in `document` to a value of the command line, making the mappings above it from what is there or from defaults.

    A field that may be written short, as `algorithm: CQL` for `{name: CQL}`, has a config class that names the entry: `shorthand`.
    """
    here = document
    for depth in range(1, len(key)):
        field, name = _field_at(config_class, key[:depth]), key[depth - 1]
        if name not in here and field is not None and not field.is_required():
            default = field.get_default(call_default_factory=True, validated_data={})
            here[name] = default.model_dump() if isinstance(default, BaseModel) else default
        child = here.get(name)
        if child is not None and not isinstance(child, dict):
            short = next((inner.shorthand for inner in _nested(field) if issubclass(inner, Config) and inner.shorthand), None)
            if not short:
                raise ConfigError(f"{'.'.join(key)} cannot be set, because {'.'.join(key[:depth])} is {child!r}, not a mapping.")
            child = {short: child}
            places[(*key[:depth], short)] = places.get(key[:depth], DEFAULT)
        here[name] = child or {}
        here = here[name]
    here[key[-1]] = value
    for other in [other for other in places if other[: len(key)] == key]:
        del places[other]
    places[key] = COMMAND_LINE


def _leaves(document: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """The values of a nested mapping with their keys; lists and empty mappings are values."""
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, str(name)))
        else:
            yield (*above, str(name)), value


def _place(key: Key, value: Any, places: Mapping[Key, str], document: Any) -> str:
    """Where a value comes from: its own place, or that of a mapping above it that holds it."""
    for depth in range(len(key), 0, -1):
        if key[:depth] in places:
            whole = _at(document, key[:depth])  # a field may have been written short: `environment: Hopper-v4` for its id
            given = whole if whole == value else _at(document, key)
            held = depth == len(key) or (given is not None and given == value)
            return places[key[:depth]] if held else DEFAULT
    return DEFAULT


def _at(document: Any, key: Key) -> Any:
    """Return a nested mapping's value at a key, None without."""
    for name in key:
        document = document.get(name) if isinstance(document, dict) else None
    return document
