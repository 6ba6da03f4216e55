"""What a job's options look like to a person: `--help`, the commented YAML of `--example`, and `--print-config`."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ...data.config import Config
from ...data.uris import without_secrets_in
from ...platform.yaml_text import to_text
from .options import DEFAULT, JobConfig, RestartableConfig, extra, flags, members, nested, operands

_WORDS: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    Path: "path",
    Any: "anything",
    object: "anything",
    type(None): "null",
    types.NoneType: "null",
}
_LIMITS: dict[type, Callable[[Any], str]] = {
    annotated_types.Gt: lambda limit: f"> {limit.gt}",
    annotated_types.Ge: lambda limit: f">= {limit.ge}",
    annotated_types.Lt: lambda limit: f"< {limit.lt}",
    annotated_types.Le: lambda limit: f"<= {limit.le}",
    annotated_types.MinLen: lambda limit: f"at least {limit.min_length}",
    annotated_types.MaxLen: lambda limit: f"at most {limit.max_length}",
}


def type_text(annotation: Any) -> str:
    """An annotation in words: "integer", "list of integer", "'mean' or 'sum'", "text or null"."""
    return " or ".join(dict.fromkeys(_member_text(member) for member in members(annotation)))


def _member_text(member: Any) -> str:
    origin, arguments = get_origin(member), get_args(member)
    if member in _WORDS:
        return _WORDS[member]
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (tuple, list, set, frozenset):
        return "list of " + type_text(arguments[0]) if arguments else "list"
    if isinstance(member, type) and issubclass(member, enum.Enum):
        return " or ".join(str(choice.value) for choice in member)
    if isinstance(origin or member, type) and issubclass(origin or member, Mapping | BaseModel):
        return "mapping"
    return str(getattr(member, "__name__", member)).lower()


def _facts(field: FieldInfo) -> str:
    limits = [text(limit) for limit in field.metadata if (text := _LIMITS.get(type(limit)))]
    return ", ".join([type_text(field.annotation), *limits])


def _json(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else _holder(value)


def _holder(value: Any) -> Any:
    """A default as JSON has it: paths as text, tuples as lists, configs as mappings."""
    if isinstance(value, Mapping):
        return {str(key): _json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(entry) for entry in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def default_of(field: FieldInfo, known: Mapping[str, Any] | None = None) -> Any:
    """A field's default in JSON's kinds; where it has none its example, or its name in capitals is left to the caller.

    Args:
        field: Which.
        known: Values of other fields, for defaults that follow from them.
    """
    if field.is_required():
        return _holder(extra(field, "example"))
    return _json(field.get_default(call_default_factory=True, validated_data=dict(known or {})))


def fields(config_class: type[BaseModel]) -> dict[str, FieldInfo]:
    """A config's fields, those that every restartable job has last."""
    return dict(sorted(config_class.model_fields.items(), key=lambda item: item[0] in RestartableConfig.model_fields))


def rows(config_class: type[BaseModel], above: str = "", inside: tuple[type, ...] = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Every option with its dotted name, those of nested configs after the option that holds them."""
    for name, field in fields(config_class).items():
        yield f"{above}{name}", field
        for inner in nested(field.annotation):
            if inner not in (*inside, config_class):
                yield from rows(inner, f"{above}{name}.", (*inside, config_class))


def usage(job: str, config_class: type[BaseModel]) -> str:
    """The command in one line: `d3ray ingest SOURCE TARGET [key=value ...]`."""
    settings, marks = ["[key=value ...] [--config FILE]"], operands(config_class)
    words = {name: f"{name.upper()} ..." if mark == "several" else name.upper() for name, mark in marks.items()}
    given = [word if config_class.model_fields[name].is_required() else f"[{word}]" for name, word in words.items()]
    # What comes after a "rest" operand is not this job's, so its own settings go before.
    return " ".join([f"d3ray {job}", *([*settings, *given, "..."] if "rest" in marks.values() else [*given, *settings])])


def help_text(job: str, config_class: type[BaseModel], about: str) -> str:
    """The whole of `d3ray JOB --help`: every option with its type, default and description."""
    ways = "key=value or --key value, or as keys of the YAML file"
    lines = [f"Usage: {usage(job, config_class)}", "", about, "", f"Options ({ways}):"]
    switches = {name: flag for flag, name in flags(config_class).items()}
    for name, field in rows(config_class):
        value = "required" if field.is_required() else f"default {to_text(default_of(field))}"
        alone = ", may stand alone" if extra(field, "operand") else f", or --{switches[name]}" if name in switches else ""
        alone += f", also --{other.replace('_', '-')}" if (other := extra(field, "also")) else ""
        lines += [f"  {name}  ({_facts(field)}; {value}{alone})", f"      {field.description or 'no description'}"]
    lines += [
        "",
        "Flags:",
        "  --config FILE    read options from a YAML file; the command line overrides it",
        "  --example        print a commented config with every option",
        "  --print-config   print the resolved config with where each value comes from, and stop",
        "  --help           print this",
    ]
    return "\n".join(lines)


def algorithm_text(name: str) -> list[str]:
    """An algorithm of d3ray's own: what it does, its presets, and each setting with type, default, meaning and source.

    Raises ConfigError: there is none of that name.
    """
    from ...algos.registry import algorithm_class
    from ...platform import api

    about, config_class = api.algorithm(name), algorithm_class(name).Config
    lines = [about.about, "", f"For {about.actions} actions."]
    if about.preset_sources:
        lines += ["", "Presets (algorithm.preset=NAME):", *(f"  {one}: {source}" for one, source in about.preset_sources.items())]
    lines += ["", "Settings (algorithm.NAME=value):"]
    for setting, field in config_class.model_fields.items():
        source = f" ({source})" if (source := extra(field, "source")) else ""
        lines += [f"  {setting}  ({_facts(field)}; default {to_text(default_of(field))})", f"      {field.description}{source}"]
    return [*lines, ""]


def example(job: str, config_class: type[BaseModel]) -> str:
    """A commented YAML config with every option at its default; reading it gives the config that it shows."""
    lines = [f"# d3ray {job} --config FILE", "# What is left out keeps the value that is shown here."]
    needed = {name: default_of(field) for name, field in config_class.model_fields.items() if field.is_required()}
    below = config_class.below(needed)[0] if issubclass(config_class, JobConfig) else {}
    for name, field in fields(config_class).items():
        value = below.get(name, default_of(field, below))
        if field.is_required() and value is None:
            value = name.upper()
        required = "; required" if field.is_required() else ""
        lines += ["", f"# {field.description or name} ({_facts(field)}{required})", *_block(name, value)]
        lines += _choices(field, skip=set(value) if isinstance(value, dict) else set())
    return "\n".join(lines) + "\n"


def _choices(field: FieldInfo, skip: set[str]) -> Iterator[str]:
    """The entries of a nested config as comments, where the value shown does not have them."""
    for inner in nested(field.annotation):
        for name, entry in rows(inner):
            if name not in skip:
                value = "required" if entry.is_required() else f"default {to_text(default_of(entry))}"
                yield f"#   {name}: {entry.description or 'no description'} ({_facts(entry)}; {value})"


def _block(name: str, value: Any, indent: str = "", place: Callable[[str], str] = lambda _: "", above: str = "") -> Iterator[str]:
    dotted, key = f"{above}{name}", to_text(name)
    if isinstance(value, Mapping) and value:
        yield f"{indent}{key}:"
        for inner, entry in value.items():
            yield from _block(str(inner), entry, indent + "  ", place, f"{dotted}.")
    else:
        yield f"{indent}{key}: {to_text(value)}{place(dotted)}"


def print_config(config: Config, provenance: Mapping[str, str]) -> str:
    """The resolved config as YAML, each value with where it comes from in a comment; values that it implies are comments."""
    lines: list[str] = []
    values = config.model_dump(mode="json")
    for name, value in without_secrets_in(values).items():
        lines += _block(name, value, place=lambda dotted: f"  # {provenance.get(dotted, DEFAULT)}")
    shown = {line.strip() for line in lines}
    if isinstance(config, JobConfig) and (implied := config.implied()):
        lines += ["", "# and so:"]
        for name, (value, place) in implied.items():
            text = f"# {name}: {to_text(without_secrets_in(_holder(value)))}  # {provenance.get(name, place)}"
            lines += [text] if text.removeprefix("# ") not in shown else []
    if without_secrets_in(values) != values:
        lines.insert(0, "# Addresses are shown without their credentials.")
    return "\n".join(lines) + "\n"
