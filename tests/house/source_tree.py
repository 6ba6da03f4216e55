"""The package's source as its structural tests see it: modules, what they import and what they name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("data", "algos", "platform", "jobs", "facades")  # each may import from itself and from those before it
PACKAGE = "d3ray"
Parts = tuple[str, ...]  # of a path from the root, without its suffix


@dataclass(frozen=True)
class Import:
    """One imported name: `module` is absolute, `name` is what is taken from it, "" for a plain import."""

    module: str
    name: str
    line: int


@dataclass(frozen=True)
class Module:
    """A source file below the package's root."""

    root: Path
    path: Path

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path.read_text(encoding="utf-8"))

    @property
    def parts(self) -> Parts:
        return self.path.relative_to(self.root).with_suffix("").parts

    @property
    def name(self) -> str:
        return ".".join((PACKAGE, *(self.parts[:-1] if self.parts[-1] == "__init__" else self.parts)))

    @property
    def floor(self) -> str:
        """The room that the file is in; "" for the root's own."""
        return self.parts[0] if len(self.parts) > 1 else ""

    def imports(self) -> Iterator[Import]:
        """Every import, wherever it stands, relative ones made absolute, and `import_module("name")` too."""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, "", node.lineno)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                for alias in node.names:
                    yield Import(module, alias.name, node.lineno)
            elif isinstance(node, ast.Call) and node.args and _called(node) in ("import_module", "__import__"):
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("."):
                    yield Import(first.value, "", node.lineno)

    def identifiers(self) -> Iterator[tuple[str, int]]:
        """Every name in the code, dotted ones as a whole, and keywords of calls; not what strings and comments say."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name | ast.Attribute):
                yield ast.unparse(node), node.lineno
            elif isinstance(node, ast.keyword) and node.arg:
                yield node.arg, node.value.lineno
        for imported in self.imports():
            yield f"{imported.module}.{imported.name}".rstrip("."), imported.line


@cache
def _parsed(source: str) -> ast.Module:
    """Several tests look at the same files."""
    return ast.parse(source)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def modules(root: Path = ROOT) -> list[Module]:
    """Every source file of the package."""
    files = [root / "__init__.py", *(file for floor in FLOORS for file in sorted((root / floor).rglob("*.py")))]
    return [Module(root, file) for file in files if file.is_file() and "__pycache__" not in file.parts]
