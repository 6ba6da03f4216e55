"""What a command's options look like to a person: `--help`, the commented YAML of `--example`, and `--print-config`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python

from ...data.config import Config
from ...data.uris import without_secrets_in
from ...platform.yaml_text import to_text
from .base import JobConfig, RestartableConfig
from .commands import COMMANDS
from .options import DEFAULT, extra, operands

Schema = dict[str, Any]  # JSON Schema of one setting
_KINDS = {"string": "text", "boolean": "true or false", "object": "mapping", "array": "list"}
_LIMITS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="} | {
    **dict.fromkeys(("minItems", "minLength"), "at least"),
    **dict.fromkeys(("maxItems", "maxLength"), "at most"),
}
_FLAGS = """
Flags:
  --config FILE    read options from a YAML file; the command line overrides it
  --example        print a commented config with every option
  --print-config   print the resolved config with where each value comes from, and stop
  --help           print this"""


def settings(config_class: type[BaseModel], given: Mapping[str, Any] | None = None) -> list[tuple[str, Schema]]:
    """Every option by dotted name, those of nested configs after the option that holds them, those of a resume last.

    Each as its JSON Schema, with `required` and the `values` that it may have. Defaults that follow from other settings follow
    from those that are `given`.
    """

    class WithDefaults(GenerateJsonSchema):
        def get_default_value(self, schema: Any) -> Any:
            if "default_factory" not in schema:
                return super().get_default_value(schema)
            make = schema["default_factory"]
            return make(dict(given or {})) if schema.get("default_factory_takes_data") else make()

        def sort(self, value: Any, parent_key: str | None = None) -> Any:
            return value  # as they are written

    whole = config_class.model_json_schema(schema_generator=WithDefaults)

    def below(config: Schema, above: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Schema]]:
        for name, schema in config.get("properties", {}).items():
            required = name in config.get("required", [])
            yield f"{above}{name}", {**schema, "required": required, "values": list(_values(schema, whole.get("$defs", {})))}
            for inner in (one["$ref"].rpartition("/")[2] for one in _any_of(schema) if "$ref" in one):
                if inner not in inside:
                    yield from below(whole["$defs"][inner], f"{above}{name}.", (*inside, inner))

    return sorted(below(whole, "", (config_class.__name__,)), key=lambda one: one[0] in RestartableConfig.model_fields)


def _any_of(schema: Schema) -> list[Schema]:
    """List a schema's alternatives."""
    several = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    return [one for member in several for one in _any_of(member)] if several else [schema]


def _values(schema: Schema, known: Mapping[str, Schema]) -> Iterator[str]:
    """The words that a value may be, where they are few: choices, and names of configs."""
    for one in _any_of(schema):
        found = known.get(one.get("$ref", "").rpartition("/")[2], one)
        for choice in (found, found.get("properties", {}).get("name", {})):
            yield from map(str, choice.get("enum", [choice["const"]] if "const" in choice else []))
        yield from ["true", "false"] if one.get("type") == "boolean" else []


def _kind(schema: Schema) -> str:
    """A type in words: "integer", "list of integer", "mean or sum", "text or null"."""
    words: list[str] = []
    for one in _any_of(schema):
        items = one.get("items") or (one.get("prefixItems") or [{}])[0]
        if "enum" in one or "const" in one:
            words += map(str, one.get("enum", [one.get("const")]))
        elif one.get("type") == "array" and items:
            words.append(f"list of {_kind(items)}")
        elif "$ref" in one:
            words.append("mapping")
        elif one.get("format") == "path":
            words.append("path")
        else:
            kind: str = one.get("type", "anything")
            words.append(_KINDS.get(kind, kind))
    return " or ".join(dict.fromkeys(words))


def _facts(schema: Schema) -> str:
    several = (one for one in _any_of(schema) if "prefixItems" not in one)  # as many as those, which goes without saying
    limits = {f"{word} {one[key]}": None for one in several for key, word in _LIMITS.items() if key in one}
    return ", ".join([_kind(schema), *limits])


def _default(schema: Schema) -> str:
    return "required" if schema["required"] else f"default {to_text(schema.get('default'))}"


def usage(command: str, config_class: type[BaseModel]) -> str:
    """The command in one line: `d3ray ingest SOURCE TARGET [key=value ...]`."""
    options, marks = ["[key=value ...] [--config FILE]"], operands(config_class)
    words = {name: f"{name.upper()} ..." if mark == "several" else name.upper() for name, mark in marks.items()}
    given = [word if config_class.model_fields[name].is_required() else f"[{word}]" for name, word in words.items()]
    # What comes after a "rest" operand is not this command's, so its own settings go before.
    return " ".join([f"d3ray {command}", *([*options, *given, "..."] if "rest" in marks.values() else [*given, *options])])


def help_text(command: str, config_class: type[BaseModel], about: str | None = None) -> str:
    """The whole of `d3ray COMMAND --help`: every option with its type, default and description."""
    about = COMMANDS[command][1] if about is None else about
    lines = [f"Usage: {usage(command, config_class)}", "", about, ""]
    lines += ["Options (key=value or --key value, or as keys of the YAML file):"]
    for name, schema in settings(config_class):
        switch = schema.get("type") == "boolean" and "." not in name
        ways = ", may stand alone" if "operand" in schema else f", or --{name.replace('_', '-')}" if switch else ""
        ways += f", also --{schema['also'].replace('_', '-')}" if "also" in schema else ""
        lines += [f"  {name}  ({_facts(schema)}; {_default(schema)}{ways})", f"      {schema.get('description', 'no description')}"]
    return "\n".join([*lines, _FLAGS])


def algorithm_text(name: str) -> list[str]:
    """An algorithm of d3ray's own: what it does, its presets, and each setting with type, default, meaning and source.

    Raises ConfigError: there is none of that name.
    """
    from ...algos.registry import algorithm_class
    from ...platform import api

    about = api.algorithm(name)
    lines = [about.about, "", f"For {about.actions} actions."]
    if about.preset_sources:
        lines += ["", "Presets (algorithm.preset=NAME):", *(f"  {one}: {source}" for one, source in about.preset_sources.items())]
    lines += ["", "Settings (algorithm.NAME=value):"]
    fields = algorithm_class(name).Config.model_fields
    for setting, schema in settings(algorithm_class(name).Config):
        if setting in fields:
            source = f" ({source})" if (source := extra(fields[setting], "source")) else ""
            lines += [f"  {setting}  ({_facts(schema)}; {_default(schema)})", f"      {schema.get('description')}{source}"]
    return [*lines, ""]


def example(command: str, config_class: type[BaseModel]) -> str:
    """A commented YAML config with every option at its default; reading it gives the config that it shows."""
    lines = [f"# d3ray {command} --config FILE", "# What is left out keeps the value that is shown here."]
    needed = {name: extra(field, "example") for name, field in config_class.model_fields.items() if field.is_required()}
    below = to_jsonable_python(config_class.below(needed)[0]) if issubclass(config_class, JobConfig) else {}
    shown = set[str]()
    for name, schema in settings(config_class, below):
        top, dot, entry = name.partition(".")
        if not dot:
            value = below.get(name, needed.get(name) or name.upper() if schema["required"] else schema.get("default"))
            shown = set(value) if isinstance(value, dict) else set[str]()
            required = "; required" if schema["required"] else ""
            lines += ["", f"# {schema.get('description', name)} ({_facts(schema)}{required})", *_block({top: value})]
        elif entry not in shown:
            lines.append(f"#   {entry}: {schema.get('description', 'no description')} ({_facts(schema)}; {_default(schema)})")
    return "\n".join(lines) + "\n"


def _block(values: Mapping[str, Any], places: Mapping[str, str] | None = None, above: str = "", indent: str = "") -> Iterator[str]:
    """A mapping as lines of YAML, each value with its place in a comment."""
    for name, value in values.items():
        dotted = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield f"{indent}{to_text(name)}:"
            yield from _block(value, places, f"{dotted}.", f"{indent}  ")
        else:
            yield f"{indent}{to_text(name)}: {to_text(value)}{'' if places is None else f'  # {places.get(dotted, DEFAULT)}'}"


def print_config(config: Config, provenance: Mapping[str, str]) -> str:
    """The resolved config as YAML, each value with where it comes from in a comment; values that it implies are comments."""
    values = config.model_dump(mode="json")
    shown = without_secrets_in(values)
    lines = list(_block(shown, provenance))
    there = {line.strip() for line in lines}
    if isinstance(config, JobConfig) and (implied := config.implied()):
        lines += ["", "# and so:"]
        for name, (value, place) in implied.items():
            text = f"{name}: {to_text(without_secrets_in(to_jsonable_python(value)))}  # {provenance.get(name, place)}"
            lines += [f"# {text}"] if text not in there else []
    if shown != values:
        lines.insert(0, "# Addresses are shown without their credentials.")
    return "\n".join(lines) + "\n"
