"""A form from a JSON Schema: what a setting means, where its value comes from, and the settings that a filled-in form says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["number", "switch", "choice", "text", "list"]

TOPICS = (  # a setting's topic, by parts of its name; the first that fits
    ("Networks", ("encoder", "q_function", "n_critics", "share_", "n_heads", "hidden", "dropout")),
    ("Data", ("scaler", "augment", "sampler", "batch_size", "frames", "td_steps", "bootstrap")),
    ("Optimisation", ("learning_rate", "optimizer", "precision", "tau", "interval", "warmup")),
)
OWN = "Algorithm"
MOST_PARTS = 10  # of a dotted name


@dataclass
class Field:
    path: str  # dotted
    hint: str
    source: str  # where its starting value comes from
    kind: Kind
    value: Any
    start: Any  # what it is compared with: the preset's value, or the default
    optional: bool = False  # it may be none
    options: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # with a hint each
    children: list[Field] = field(default_factory=list["Field"])  # settings of what is chosen
    bounds: str = ""  # in words

    @property
    def label(self) -> str:
        return label_of(self.path)

    @property
    def id(self) -> str:
        return self.path.replace(".", "-")

    @property
    def text(self) -> str:
        return as_text(self.value)

    @property
    def start_text(self) -> str:
        return as_text(self.start)

    @property
    def is_changed(self) -> bool:
        """True if it or a field within it differs from its start."""
        return self.text != self.start_text or any(child.is_changed for child in self.children)


def label_of(path: str) -> str:
    words = path.rpartition(".")[2].replace("_", " ")
    return words[:1].upper() + words[1:]


def fields(schema: Mapping[str, Any], values: Mapping[str, Any], start: Mapping[str, Any], at: str = "") -> list[Field]:
    """The settings of a schema.

    Args:
        schema: With its `$defs`.
        values: What they are, by name.
        start: What they are compared with.
        at: Dotted path in front of their names, with its dot.
    """
    return _fields(schema, schema.get("$defs", {}), values, start, at)


def _fields(
    schema: Mapping[str, Any], defs: Mapping[str, Any], values: Mapping[str, Any], start: Mapping[str, Any], at: str
) -> list[Field]:
    return [
        _field(f"{at}{name}", raw, defs, values.get(name, raw.get("default")), start.get(name, raw.get("default")))
        for name, raw in schema.get("properties", {}).items()
        if "const" not in raw  # the name of a member of a union is its parent's choice
    ]


def _field(path: str, raw: Mapping[str, Any], defs: Mapping[str, Any], value: Any, start: Any) -> Field:
    members = [one for one in raw.get("anyOf", [raw]) if one.get("type") != "null"]
    optional = len(members) < len(raw.get("anyOf", [raw]))
    unions = [inner for one in members for inner in one.get("oneOf", [one])]
    body = members[0] if len(members) == 1 else {}
    made = Field(path, str(raw.get("description", "")), str(raw.get("source", "")), "text", value, start, optional)
    models = {}
    for one in unions:
        model = defs.get(one.get("$ref", "").rpartition("/")[2], one)
        if "const" in (name := model.get("properties", {}).get("name", {})):
            models[name["const"]] = model
    if models:
        _as_choice_of_models(made, models, defs)
    elif "enum" in body or "const" in body:
        made.kind = "choice"
        made.options = [(str(one), "") for one in body.get("enum", [body.get("const")])]
    elif body.get("type") == "boolean":
        made.kind = "switch"
    elif body.get("type") in ("number", "integer"):
        made.kind, made.bounds = "number", _bounds(body)
    elif len(members) != 1 or body.get("type") != "string":
        made.kind = "list"
    if made.kind == "choice" and optional:
        made.options.insert(0, ("", "none"))
    return made


def _as_choice_of_models(made: Field, models: Mapping[str, Any], defs: Mapping[str, Any]) -> None:
    value, start = ({"name": one} if isinstance(one, str) else one or {} for one in (made.value, made.start))
    made.kind = "choice"
    made.options = [(name, str(model.get("description", "")).partition("\n")[0]) for name, model in models.items()]
    made.value, made.start = value.get("name", ""), start.get("name", "")
    if made.value in models:
        begun = start if made.value == made.start else {}
        made.children = _fields(models[made.value], defs, value, begun, f"{made.path}.")


def _bounds(body: Mapping[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    return ", ".join(f"{word} {body[key]:g}" for key, word in words.items() if key in body)


def grouped(found: Iterable[Field]) -> dict[str, list[Field]]:
    """Settings by topic, those of the algorithm's own first."""
    groups: dict[str, list[Field]] = {OWN: []} | {topic: [] for topic, _ in TOPICS}
    for one in found:
        last = one.path.rpartition(".")[2]
        groups[next((topic for topic, parts in TOPICS if any(part in last for part in parts)), OWN)].append(one)
    return {topic: members for topic, members in groups.items() if members}


def as_text(value: Any) -> str:
    """A value as a field shows it: nothing for none, JSON for lists and mappings."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def nested(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """`{"a": {"b": …}}` of a.b=…; an empty field is none. A value with settings of its own below it is their `name`.

    Numbers, lists and mappings are JSON; whatever is not is text, of which pydantic makes what the setting is.
    """
    tree: dict[str, Any] = {}
    for path, text in pairs:
        *above, last = path.split(".", MOST_PARTS)  # what has more is no setting's name, and is found to be none
        place = tree
        for part in above:
            inner = place.get(part)
            if not isinstance(inner, dict):
                inner = place[part] = {} if inner is None else {"name": inner}
            place = inner
        place[last] = _value(text)
    return tree


def _value(text: str) -> Any:
    if not (text := text.strip()):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def differing(found: Iterable[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a form gave, what differs from where it starts; of a choice all of its settings, for they belong together."""
    kept: dict[str, Any] = {}
    for one in found:
        name = one.path.rpartition(".")[2]
        if name in given and one.is_changed:
            kept[name] = given[name]
    return kept
