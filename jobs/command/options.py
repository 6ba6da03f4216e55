"""A job's options: from defaults, a YAML file and the command line to one checked config that knows where each value comes from."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from ...data.config import Config, explain
from ...data.errors import ConfigError, D3rayError, did_you_mean
from ...platform.yaml_text import Key, parse_value, read_yaml
from .completion import algorithm_settings

C = TypeVar("C", bound=Config)
Operand = bool | Literal["several", "rest"]
Action = Literal["run", "help", "example", "print-config"]

COMMAND_LINE, DEFAULT = "command line", "default"
_PAIR = re.compile(r"([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z_][\w-]*)\.([^=]+)=(.*)", re.DOTALL)
_ACTIONS: dict[str, Action] = {"--help": "help", "-h": "help", "--example": "example", "--print-config": "print-config"}


def option(
    default: Any,
    description: str,
    *,
    operand: Operand = False,
    example: Any = None,
    source: str = "",
    also: str = "",
    **limits: Any,
) -> Any:
    """A field of a job's config.

    Args:
        default: its default, `...` where the user must give a value; a callable is called for each config.
        description: one phrase, shown by `--help` and above the field in `--example`.
        operand: True: the value may stand alone on the command line, in the order of the fields. "several": so may more of them,
            all but those that operands before and after it need. "rest": everything that follows the operands before it, flags
            included, is this field's, a tuple of strings.
        example: what `--example` shows where there is no default.
        source: the paper, table or file that the default comes from.
        also: another name for it on the command line, by which users of another program know it: `--env-id` of d3rlpy.
        limits: pydantic's `gt`, `ge`, `lt`, `le`, `min_length`, ….
    """
    extra = {"operand": operand, "example": example, "source": source, "also": also}
    limits["json_schema_extra"] = {key: value for key, value in extra.items() if value not in (False, None, "")} or None
    if callable(default):
        return Field(default_factory=default, description=description, **limits)
    return Field(default, description=description, **limits)


class JobConfig(Config):
    """Base of every job's config."""

    def implied(self) -> Mapping[str, tuple[Any, str]]:
        """Values that follow from these, by dotted name, with where each comes from: `{"algorithm.alpha": (2.5, "preset paper")}`.

        `--print-config` shows them; what the user has given keeps the place where it was given.
        """
        return {}

    @classmethod
    def below(cls, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[Key, str]]:
        """Values that lie between the defaults and what is `given`, and the place of each key. Raises ConfigError."""
        return {}, {}

    def files(self) -> tuple[str, ...]:
        """Values of options that name files of this machine, which a submitted job needs."""
        return ()

    def after_interrupt(self, command: str) -> str:
        """What to tell a user who pressed Ctrl-C in `command`."""
        return f"Interrupted; nothing half-made was kept. Again from the start: {command}"


class RestartableConfig(JobConfig):
    """The two flags of every job whose work can go on after it was stopped."""

    resume: bool = option(False, "go on with what an earlier run of this name in this storage left unfinished")
    replace: bool = option(False, "delete what an earlier run of this name in this storage left, and start again")

    def model_post_init(self, context: Any, /) -> None:
        if self.resume and self.replace:
            raise ConfigError("resume goes on with the earlier run and replace deletes it; say one of them.")

    def after_interrupt(self, command: str) -> str:
        resume = command if self.resume else f"{command.replace(' --replace', '')} --resume"
        return f"Interrupted; what reached a checkpoint is kept. To go on: {resume}"


@dataclass(frozen=True)
class Line:
    """A command line, read but not checked: what to do, the config file, and values by key; `text` values are as typed."""

    action: Action
    config: str | None
    values: dict[Key, Any]


def extra(field: FieldInfo, name: str) -> Any:
    """What `option` noted beside a field: `operand`, `example`, `source`, `also`; `dotted` of a mapping whose names have dots."""
    return field.json_schema_extra.get(name) if isinstance(field.json_schema_extra, dict) else None


def operands(config_class: type[BaseModel]) -> dict[str, Operand]:
    """The fields whose values may stand alone, in order."""
    marked = {name: extra(field, "operand") for name, field in config_class.model_fields.items()}
    return {name: mark for name, mark in marked.items() if mark}


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: those of a union, without Annotated's extras."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for argument in get_args(annotation) for member in members(argument))
    return (annotation,)


def nested(annotation: Any) -> list[type[BaseModel]]:
    """The config classes among what an annotation allows."""
    return [member for member in members(annotation) if isinstance(member, type) and issubclass(member, BaseModel)]


def flags(config_class: type[BaseModel]) -> dict[str, str]:
    """The fields that `--name` sets to true and `--no-name` to false, by flag without dashes."""
    named = config_class.model_fields.items()
    return {name.replace("_", "-"): name for name, field in named if members(field.annotation) == (bool,)}


def read_line(config_class: type[BaseModel], arguments: Iterable[str], title: str = "d3ray") -> Line:
    """Reads operands, `key=value` or `--key value`, flags and `--config FILE`.

    Raises ConfigError: an unknown flag, a key given twice, ….

    A pair's value is YAML 1.2, unless its field holds text: then it is taken as typed.
    """
    action: Action = "run"
    config: str | None = None
    values: dict[Key, Any] = {}
    alone: list[Any] = []
    order = operands(config_class)
    n_alone = sum(mark != "rest" for mark in order.values())
    rest = next((name for name, mark in order.items() if mark == "rest"), None)

    def put(key: Key, value: Any) -> None:
        if key in values:
            raise ConfigError(f"{title}: {'.'.join(key)} is given twice on the command line.")
        values[key] = value

    waiting = iter(arguments)
    for argument in waiting:
        if argument in _ACTIONS:
            action = _ACTIONS[argument]
        elif argument.partition("=")[0] == "--config":
            config = argument.partition("=")[2] or next(waiting, None)
            if not config:
                raise ConfigError(f"{title}: --config needs the name of a YAML file.")
        elif field := _setting(config_class, argument):
            typed = _value_after(argument, waiting, title)
            put((field,), typed if _is_text(config_class, (field,), typed) else parse_value(typed, f"{title}: {field}"))
        elif argument.startswith("-") and len(argument) > 1:
            put(*_flag(config_class, argument, title))
        elif pair := _pair(config_class, argument):
            key, typed = pair
            put(key, typed if _is_text(config_class, key, typed) else parse_value(typed, f"{title}: {'.'.join(key)}"))
        else:
            alone.append(argument)
            if rest and len(alone) == n_alone:
                put((rest,), list(waiting))
    free = [name for name, mark in order.items() if mark != "rest" and (name,) not in values]
    more = len(alone) - len(free)
    if more > 0 and (several := next((k for k, name in enumerate(free) if order[name] == "several"), None)) is not None:
        alone[several : several + more + 1] = [alone[several : several + more + 1]]
    for i, argument in enumerate(alone):
        if i >= len(free):
            raise ConfigError(_one_too_many(config_class, argument, title))
        put((free[i],), argument)
    return Line(action, config, values)


def _key(config_class: type[BaseModel], name: str) -> Key:
    """The key that a dotted name means. What is below a field marked `dotted` is one name there, dots and all."""
    first, dot, rest = name.partition(".")
    first = _other_names(config_class).get(first.replace("-", "_"), first)
    name = f"{first}{dot}{rest}"
    field = config_class.model_fields.get(first)
    return (first, rest) if rest and field is not None and extra(field, "dotted") else tuple(name.split("."))


def _pair(config_class: type[BaseModel], argument: str) -> tuple[Key, str] | None:
    """The key and the value of `key=value`, or None. Below a mapping of names any may stand: `rename.action:0=u`."""
    if found := _PAIR.fullmatch(argument):
        return _key(config_class, found[1]), found[2]
    found = _ENTRY.fullmatch(argument)
    field = config_class.model_fields.get(found[1]) if found else None
    return ((found[1], found[2]), found[3]) if found and field and field.annotation == dict[str, str] else None


def _setting(config_class: type[BaseModel], argument: str) -> str | None:
    """The field that `--its-name VALUE` or `--its-name=VALUE` sets, or None: a flag, or no field."""
    if not argument.startswith("--"):
        return None
    word = argument[2:].partition("=")[0]
    name = word.replace("-", "_")
    name = _other_names(config_class).get(name, name)
    return name if name in config_class.model_fields and word not in flags(config_class) else None


def _other_names(config_class: type[BaseModel]) -> dict[str, str]:
    """Fields by the other names that they have on the command line."""
    return {other: name for name, field in config_class.model_fields.items() if (other := extra(field, "also"))}


def _value_after(argument: str, waiting: Iterator[str], title: str) -> str:
    """What follows `=` in `--key=VALUE`, or the next argument."""
    _, equals, typed = argument.partition("=")
    typed = typed if equals else next(waiting, None)
    if typed is None or (not equals and typed.startswith("--")):
        raise ConfigError(f"{title}: {argument} needs a value.")
    return typed


def _flag(config_class: type[BaseModel], argument: str, title: str) -> tuple[Key, bool]:
    known, word = flags(config_class), argument.lstrip("-").partition("=")[0]
    if argument in (f"--{word}", f"--no-{word.removeprefix('no-')}"):
        if word in known:
            return (known[word],), True
        if word.startswith("no-") and word[3:] in known:
            return (known[word[3:]],), False
    near = did_you_mean(f"--{word}", [*(f"--{flag}" for flag in known), "--config", *(flag for flag in _ACTIONS if flag[1] == "-")])
    raise ConfigError(f"{title} has no flag {argument!r}{near}")


def _one_too_many(config_class: type[BaseModel], argument: str, title: str) -> str:
    if argument.replace("-", "_") in config_class.model_fields:
        return f"{title}: {argument!r} is a setting; write {argument.replace('-', '_')}=VALUE."
    names = " ".join(name.upper() for name in operands(config_class))
    takes = f"beside {names} " if names else ""
    return f"{title}: {argument!r} stands alone, but {takes}settings are written key=VALUE."


def _field_at(config_class: type[BaseModel], key: Key) -> FieldInfo | None:
    field = config_class.model_fields.get(key[0])
    if field is None or len(key) == 1:
        return field
    return next((found for inner in nested(field.annotation) if (found := _field_at(inner, key[1:]))), None)


def _is_text(config_class: type[BaseModel], key: Key, typed: str) -> bool:
    """Whether `typed` is meant as it stands: its field holds text, and it is neither quoted nor a `null` that the field allows."""
    field = _field_at(config_class, key)
    kinds = set(members(field.annotation)) if field else set[Any]()
    if not kinds or not kinds <= {str, Path, type(None)}:
        return False
    return not typed.startswith(("'", '"')) and not (typed in ("null", "~", "") and type(None) in kinds)


def resolve(
    config_class: type[C], path: str | Path | None = None, arguments: Iterable[str] = (), *, title: str | None = None
) -> tuple[C, dict[str, str]]:
    """The config that a file and a command line describe, and where each value of it comes from.

    Later wins: defaults, presets, what `JobConfig.below` says, the file, the command line. A mapping in the file stands for the
    whole field; a dotted key on the command line changes one entry of what the file or the default says.

    Args:
        config_class: the job's config class.
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
    places: dict[Key, str] = {key: place for key, place in above.items() if key[0] not in document}
    places |= {key: f"{path}:{number}" for key, number in lines.items()}
    document = deepcopy({**below, **document})  # an anchor's mapping is one object in several places
    for key in sorted(line.values, key=len):  # algorithm=CQL before algorithm.alpha=1, however they were typed
        try:
            _put(config_class, document, places, key, line.values[key])
        except ConfigError as error:
            raise ConfigError(f"{title}: {error}") from None
    try:
        folder = Path(path).parent if path is not None else None
        config = config_class.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(_sentence(config_class, error, title, places, document)) from None
    except D3rayError as error:
        raise ConfigError(f"{title}: {error}") from None
    provenance = {".".join(key): _place(key, value, places, document) for key, value in leaves(config.model_dump(mode="json"))}
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
            here[name] = default.model_dump() if isinstance(default, BaseModel) else deepcopy(default)
        child = here.get(name)
        if child is not None and not isinstance(child, dict):
            short = [s for inner in nested(field.annotation if field else None) if (s := getattr(inner, "shorthand", None))]
            if not short:
                raise ConfigError(f"{'.'.join(key)} cannot be set, because {'.'.join(key[:depth])} is {child!r}, not a mapping.")
            child = {short[0]: child}
            places[(*key[:depth], short[0])] = places.get(key[:depth], DEFAULT)
        here[name] = child or {}
        here = here[name]
    here[key[-1]] = value
    for other in [other for other in places if other[: len(key)] == key]:
        del places[other]
    places[key] = COMMAND_LINE


def leaves(document: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """The values of a nested mapping with their keys; lists and empty mappings are values."""
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*above, str(name)))
        else:
            yield (*above, str(name)), value


def _place(key: Key, value: Any, places: Mapping[Key, str], document: Any) -> str:
    if key in places:
        return places[key]
    for depth in range(len(key) - 1, 0, -1):
        if key[:depth] in places:
            whole = _at(document, key[:depth])  # a field may have been written short: `environment: Hopper-v4` for its id
            given = whole if whole == value else _at(document, key)
            return places[key[:depth]] if given == value and given is not None else DEFAULT
    return DEFAULT


def _at(document: Any, key: Key) -> Any:
    """What a nested mapping has at a key, None where it has nothing."""
    for name in key:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _sentence(config_class: type[BaseModel], error: ValidationError, title: str, places: Mapping[Key, str], document: Any) -> str:
    # A key that is not known comes before one that is missing: it may be that one, misspelt.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    cause: Any = first.get("ctx", {}).get("error")
    if first["type"] == "extra_forbidden":
        details = InitErrorDetails(type="extra_forbidden", loc=first["loc"], input=first["input"])
        error = ValidationError.from_exception_data(error.title, [details])
        if len(first["loc"]) == 1 and (meant := _meant(config_class, str(first["loc"][0]), document)):
            cause = f"has no setting {first['loc'][0]!r}; did you mean {meant!r}?"
    sentence = f"{title} {cause}" if isinstance(cause, str) else explain(config_class, error, title)
    if isinstance(cause, D3rayError):
        sentence = f"{title}: {cause}"
    if first["type"] == "missing" and len(first["loc"]) == 1 and extra(config_class.model_fields[str(first["loc"][0])], "operand"):
        sentence = f"{title} needs {str(first['loc'][0]).upper()}: {config_class.model_fields[str(first['loc'][0])].description}."
    key = tuple(map(str, first["loc"]))
    while key and key not in places:
        key = key[:-1]
    place = places.get(key, COMMAND_LINE)
    return sentence if place == COMMAND_LINE else f"{place}: {sentence}"


def _meant(config_class: type[BaseModel], name: str, document: Any) -> str | None:
    """The full name of a setting further down of which somebody wrote the last part alone: `algorithm.gamma` of `gamma`."""
    inner = [(top, one) for top, field in config_class.model_fields.items() for one in nested(field.annotation)]
    below = [f"{top}.{setting}" for top, one in inner for setting in one.model_fields]
    if "algorithm" in config_class.model_fields:
        chosen = document.get("algorithm")
        below += algorithm_settings(chosen.get("name") if isinstance(chosen, dict) else chosen)
    last = {full.rpartition(".")[2]: full for full in reversed(below)}
    near = difflib.get_close_matches(name, [*config_class.model_fields, *last], 1)
    return last.get(name) or (last.get(near[0]) if near and near[0] not in config_class.model_fields else None)
