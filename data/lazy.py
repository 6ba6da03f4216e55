"""Names that a package offers without importing what defines them: loaded when they are first used.

Type checkers and editors read the same from imports under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def lazily(
    package: str, found: dict[str, str], spelled: Callable[[str, list[str]], str | None] | None = None
) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` of a package, which loads a name when it is first used, and its `__all__`, the names in order.

    Args:
        package: Its full name.
        found: By name the module that has it, relative to the package; what that module lacks is taken for a module in it.
        spelled: Of a name that is missing, and of all names, which of these it is another spelling of; None: of none.
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


def also_called(names: Mapping[str, ModuleType]) -> None:
    """Register modules under other names too, whose parents are there or come earlier in `names`."""
    for name, module in names.items():
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        setattr(sys.modules[above], last, module)


def moved(former: str, now: str) -> Callable[[str], Any]:
    """Make `__getattr__` of a module that is kept by its `former` name, which gives what it is `now` with a warning."""

    def found(name: str) -> Any:
        home = importlib.import_module(now)
        if name == "__all__":
            return [public for public in vars(home) if not public.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(name)
        warnings.warn(f"{former} is deprecated: write {now}.", DeprecationWarning, stacklevel=2)
        return getattr(home, name)

    return found
