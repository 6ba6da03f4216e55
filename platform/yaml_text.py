"""YAML 1.2 as d3ray reads and writes it: `1e-4` is a number, `on` is a word, and every value of a file knows its line."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from ..data.errors import ConfigError, D3rayError, did_you_mean

Key = tuple[str, ...]
_MOST_LEVELS, _MOST_VALUES = 30, 100_000
_DEEPEST = 100  # brackets that are open at once, in words and remarks too
_PACKAGE = Path(__file__).parent.parent
_PLAIN = re.compile(r"[\w./~-][\w./:@+~-]*", re.ASCII)
_HEADER = re.compile(r"^%YAML\s+(\S+)", re.MULTILINE)


class _Constructor(SafeConstructor):
    """YAML's core schema has no dates: `2026-01-31` is a word."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)  # a new one for each text: it keeps the version of a header that it has seen
    yaml.Constructor = _Constructor
    return yaml


def parse_value(text: str, where: str = "the command line") -> Any:
    """The value that `text` spells in YAML 1.2; `*…` is a word, for there is no anchor to stand for. Raises ConfigError."""
    if text.startswith("*"):
        return text
    try:
        with _bounded(text, where):
            found = _yaml().load(text)
    except YAMLError as error:
        raise ConfigError(f"{where}: {text[:200]!r} is not YAML ({_problem(error)}).") from None
    check_size(found, where)
    return found


@contextmanager
def _bounded(text: str, where: str) -> Generator[None]:
    """Within, a text is read. Raises ConfigError: it is nested too deeply for a parser, or a number has thousands of digits."""
    level = 0
    for bracket in re.findall(r"[][{}]", text):  # a parser takes minutes for what opens thousands
        level = max(level + (1 if bracket in "[{" else -1), 0)
        if level > _DEEPEST:
            raise ConfigError(_too_deep(where))
    try:
        yield
    except RecursionError:
        raise ConfigError(_too_deep(where)) from None
    except ValueError as error:
        if isinstance(error, YAMLError | D3rayError):
            raise
        raise ConfigError(f"{where} cannot be read: {error}.") from None


def _too_deep(where: str) -> str:
    return f"{where}: this is nested more than {_MOST_LEVELS} levels deep, which no config is."


def check_size(value: Any, where: str) -> None:
    """Raises ConfigError: a value is nested more deeply, or holds more, than any config; an alias counts wherever it stands."""
    count, level = 0, [value]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for one in level:
            held = list(one.values()) if isinstance(one, Mapping) else one if isinstance(one, list) else []
            count += len(held)
            if count > _MOST_VALUES:
                raise ConfigError(f"{where}: this holds more than {_MOST_VALUES:,} values, which no config does.")
            inner += [each for each in held if isinstance(each, Mapping | list)]
        if not inner:
            return
        level = inner
    raise ConfigError(_too_deep(where))


def read_yaml(path: str | Path) -> tuple[dict[str, Any], dict[Key, int]]:
    """The mapping in a YAML 1.2 file, and the line (from 1) of each of its keys, nested ones as tuples.

    `d3ray:PATH` is a file in d3ray's own folder: the config of a submitted job travels there, for it leaves its disk behind.

    Raises:
        ConfigError: no such file, not YAML 1.2, a key twice, or not a mapping.
    """
    inside = str(path).partition("d3ray:")
    path = Path(path) if inside[0] or not inside[1] else _PACKAGE / inside[2]
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        beside = [file.name for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise ConfigError(f"There is no config file {str(path)!r}{did_you_mean(path.name, beside)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The config file {str(path)!r} cannot be read: {error}.") from None
    if (header := _HEADER.search(text)) and header[1] != "1.2":
        raise ConfigError(
            f"{path}: it says %YAML {header[1]}, but d3ray reads YAML 1.2, where `on` is a word: leave that line out."
        )
    try:
        with _bounded(text, str(path)):
            values, root = _yaml().load(text), _yaml().compose(text)
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        key = re.search(r'duplicate key "(.*?)" with', str(error.problem))
        raise ConfigError(f"{path}:{line}: the key {key[1] if key else '?'!r} stands twice.") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(f"{path}:{mark.line + 1 if mark else '?'}: this is not YAML ({_problem(error)}).") from None
    except YAMLError as error:
        raise ConfigError(f"{path} is not YAML ({_problem(error)}).") from None
    if values is None:
        return {}, {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {str(values)[:40]!r}; a config is a mapping of settings to values.")
    check_size(values, str(path))
    return values, dict(_lines(root))


def _problem(error: YAMLError) -> str:
    problem = getattr(error, "problem", None) or str(error)
    return " ".join(str(problem).split()).rstrip(".")


def _lines(node: Node, above: Key = ()) -> Iterator[tuple[Key, int]]:
    if isinstance(node, MappingNode):  # what is in a list has no key of its own
        for key, value in node.value:
            path = (*above, str(key.value))
            yield path, key.start_mark.line + 1
            yield from _lines(value, path)


def _quoted(text: str) -> str:
    """`text` between double quotes; what does not print is escaped, since YAML refuses or folds it."""
    escaped = (f"\\{c}" if c in '"\\' else c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(escaped)}"'


def to_text(value: Any) -> str:
    """`value`, of JSON's kinds, on one line of YAML 1.2 that reads back as the same value."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and parse_value(value) == value else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{to_text(str(key))}: {to_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(to_text, value)) + "]"
    return json.dumps(value)


def to_block(values: Mapping[str, Any], indent: int = 0) -> str:
    """A mapping as lines of YAML, mappings in it below their names; a reader has the same values back."""
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{' ' * indent}{to_text(name)}:", to_block(value, indent + 2)]
        else:
            lines.append(f"{' ' * indent}{to_text(name)}: {to_text(value)}")
    return "\n".join(lines)
