"""Names that a package offers without importing what defines them: loaded when they are first used.

The table is the package's own imports under `if TYPE_CHECKING:`, which type checkers and editors read too.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def homes(file: str) -> dict[str, str]:
    """By name the module, relative to the package, that a package's file imports it from for type checkers."""
    found = dict[str, str]()
    for block in ast.parse(Path(file).read_text("utf-8")).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    found |= {alias.name: "." * node.level + (node.module or "") for alias in node.names}
    return found


def lazily(
    package: str, found: dict[str, str], spelled: Callable[[str, list[str]], str | None] | None = None
) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package with these names; a name that its home lacks is a module in it.

    Of a name that is missing `spelled` says which of these it is another spelling of, None where it is none.
    """

    def load(name: str) -> Any:
        if name not in found:
            if spelled is not None and (meant := spelled(name, sorted(found))):
                said = f"module {package!r} has no attribute {name!r}; did you mean {meant!r}?"
                raise AttributeError(said, name=meant)  # else Python names one that looks alike, too
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(found[name], package)
        value = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{home.__name__}.{name}")
        setattr(importlib.import_module(package), name, value)
        return value

    return load, sorted(found)
