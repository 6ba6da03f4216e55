"""Plugins: modules of a user's that register algorithms, environments and scalers. Named as modules, or by their files."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

from ...data.errors import ConfigError, did_you_mean

_EXTRAS = {"gymnasium_robotics": "robotics"}  # of d3ray, that bring modules which suites name under plugins


def is_file(plugin: str) -> bool:
    """Return whether a plugin is named by its file or package folder, not as a module."""
    return plugin.endswith(".py") or "/" in plugin


def located(plugins: Iterable[str], folder: Path | None = None) -> tuple[str, ...]:
    """Plugins as any process of this machine finds them: files, and modules that are not installed, by their absolute paths.

    Args:
        plugins: as a user names them; what is not found stays as it is.
        folder: where to look after the current one, as that of a config file.
    """
    folders = [Path.cwd(), *([folder.absolute()] if folder else [])]
    return tuple(_located(plugin, folders) for plugin in plugins)


def _located(plugin: str, folders: Sequence[Path]) -> str:
    if is_file(plugin):
        places = [folder / Path(plugin).expanduser() for folder in folders]
        return next((str(place.resolve()) for place in places if place.exists()), plugin)
    if _is_installed(plugin.partition(".")[0]):
        return plugin
    bare = [folder.joinpath(*plugin.split(".")) for folder in folders]
    found = next((place for path in bare for place in (path.with_suffix(".py"), path / "__init__.py") if place.is_file()), None)
    return plugin if found is None else str(found.parent if found.name == "__init__.py" else found)


def _is_installed(top: str) -> bool:
    try:
        return top in sys.modules or importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def top_and_name(file: Path) -> tuple[Path, str]:
    """The folder or file of the top-level package or module that a file belongs to, and the dotted name of the file's module."""
    file = file.parent if file.name == "__init__.py" else file
    top, parts = file, [file.stem if file.suffix == ".py" else file.name]
    while (top.parent / "__init__.py").is_file():
        top = top.parent
        parts.insert(0, top.name)
    return top, ".".join(parts)


def module_names(plugins: Iterable[str]) -> list[str]:
    """Located plugins as modules, as they are named where they were sent to."""
    return [top_and_name(Path(plugin))[1] if is_file(plugin) else plugin for plugin in plugins]


def import_plugins(plugins: Iterable[str]) -> list[ModuleType]:
    """Imports them. Raises ConfigError naming the one that cannot be imported."""
    return [_import(plugin) for plugin in plugins]


def _import(plugin: str) -> ModuleType:
    name, file = plugin, Path(plugin).resolve() if is_file(plugin) else None
    if file is not None:
        if not file.exists():
            beside = [other.name for other in file.parent.glob("*.py")]
            raise ConfigError(f"There is no plugin {plugin!r}{did_you_mean(file.name, beside)}")
        top, name = top_and_name(file)
        if str(top.parent) not in sys.path:
            sys.path.append(str(top.parent))  # last: its other modules hide nothing that is installed
    try:
        module = importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            extra = f"pip install 'd3ray[{_EXTRAS[name]}]' brings it" if name in _EXTRAS else ""
            how = extra or f"name its file, as plugins=[folder/{name.rpartition('.')[2]}.py]"
            raise ConfigError(
                f"There is no plugin {name!r}, neither installed nor in this folder or the config file's; {how}."
            ) from error
        raise ConfigError(f"The plugin {plugin!r} cannot be imported: {type(error).__name__}: {error}.") from error
    if file is not None and file not in _files(module):
        raise ConfigError(
            f"The plugin {plugin!r} has the name of another module, {module.__name__}: give the file a name of its own."
        )
    return module


def _files(module: ModuleType) -> list[Path]:
    own = Path(module.__file__ or "").resolve()
    return [own, *([own.parent] if own.name == "__init__.py" else [])]
