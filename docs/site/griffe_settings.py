"""For the reference: settings of d3ray's configs with their descriptions as docstrings, defaults as values."""

from __future__ import annotations

import ast
from typing import Any

from griffe import Attribute, Docstring, Extension, ObjectNode

MADE_BY = ("setting", "option", "Field")


class Settings(Extension):
    """Reads `name: type = setting(default, description, source=…, gt=0)`."""

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, **_: Any) -> None:
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or ast.unparse(value.func) not in MADE_BY:
            return
        named = {keyword.arg: keyword.value for keyword in value.keywords}
        given = dict(zip(("default", "description"), value.args, strict=False))
        default, description = ((given | named).get(name) for name in ("default", "description"))
        if isinstance(description, ast.Constant) and isinstance(description.value, str):
            text = description.value
            if isinstance(source := named.get("source"), ast.Constant):
                text += f". Default: {source.value}" if source.value else ""
            attr.docstring = Docstring(f"{text[:1].upper()}{text[1:]}.", parent=attr)
        required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
        attr.value = None if required else ast.unparse(default)
