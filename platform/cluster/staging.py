"""What a submitted job takes along: the d3ray that was imported, plugins, and secrets. No wheel, no build tool."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import site
import sysconfig
import tempfile
import tomllib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ...data.errors import ConfigError, StorageError
from ...data.storage.claims import scratch_names
from ..settings.plugins import is_file, top_and_name

PACKAGE = Path(__file__).parents[2]
_ROOT_FILES = ("__init__.py", "py.typed")
_FLOORS = ("data", "algos", "platform", "jobs", "facades")
_NOT_SENT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
_MOST = 100 * 2**20  # bytes of a package that Ray's job server takes
SUBMITTED = "submitted"
SECRETS = "secrets.json"
LOAD_SECRETS = f"{__name__}.load_secrets"


@dataclass(frozen=True)
class Cargo:
    """Files sent with a job."""

    modules: tuple[Path, ...]  # packages: folders
    working_dir: Path | None = None


@contextmanager
def cargo(
    *,
    files: Mapping[str, bytes] | None = None,
    plugins: Sequence[str] = (),
    working_dir: Path | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Generator[Cargo]:
    """The imported d3ray as a temporary folder, and what else the job needs.

    Args:
        files: found again in the job as `d3ray:submitted/NAME`.
        plugins: as `settings.plugins.located` names them; those that are not installed here but lie in some folder go along, as
            the whole package of which they are a part.
        working_dir: a folder that goes along as the job's working directory; plugins at its top go along with it.
        secrets: environment variables of the job and of its trials that stand in no text which Ray shows.

    Raises:
        StorageError: no room, no such working directory, or more in a folder than Ray takes.
    """
    if working_dir is not None and not working_dir.is_dir():
        raise StorageError(f"There is no folder {str(working_dir)!r} to send as the working directory.")
    local = [module for module in map(local_module, plugins) if module is not None]
    if working_dir is not None:
        local = [module for module in local if working_dir.resolve() != module.resolve().parent]
        _check_size(working_dir, default_excludes=True)
    for module in local:
        _check_size(module)
    with tempfile.TemporaryDirectory(prefix=scratch_names("submit")) as folder:
        try:
            staged = stage_package(Path(folder), files, secrets)
            others = [_as_package(module, Path(folder)) for module in dict.fromkeys(local)]
        except OSError as error:
            raise StorageError(f"d3ray cannot be copied to {folder}: {error}.") from error
        yield Cargo((staged, *others), working_dir)


def _check_size(folder: Path, *, default_excludes: bool = False) -> None:
    """Raises StorageError for a folder that Ray's job server would refuse once it is packed, which takes minutes."""
    from ray._private.ray_constants import RAY_RUNTIME_ENV_IGNORE_GITIGNORE, get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import (
        _dir_travel,  # pyright: ignore[reportPrivateUsage] - what it leaves out does not count
        _get_excludes,  # pyright: ignore[reportPrivateUsage]
    )

    sizes = Counter[str]()

    def add(file: Path) -> None:
        if file.is_file():
            sizes[file.relative_to(folder).parts[0]] += file.stat().st_size

    excludes = [_get_excludes(folder, get_runtime_env_default_excludes())] if default_excludes else []
    gitignore = os.environ.get(RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1"
    if folder.is_dir():
        _dir_travel(folder, excludes, add, include_gitignore=gitignore)
    if sizes.total() > _MOST:
        (name, size), *_ = sizes.most_common(1)
        raise StorageError(
            f"{str(folder)!r} would go along with {sizes.total() / 2**20:,.0f} MiB, and Ray takes {_MOST >> 20}: name in "
            f"{folder / '.rayignore'} what stays here, as {name} of {size / 2**20:,.0f} MiB, and keep data where nodes read them."
        )


def _as_package(module: Path, folder: Path) -> Path:
    """A package as it is; a single module as the `__init__.py` of one: Ray's client for jobs sends nothing but folders."""
    if module.is_dir():
        return module
    package = folder / "modules" / module.stem
    package.mkdir(parents=True)
    shutil.copy2(module, package / "__init__.py")
    return package


def stage_package(folder: Path, files: Mapping[str, bytes] | None = None, secrets: Mapping[str, str] | None = None) -> Path:
    """Copies the four floors, code and data files, to `folder/d3ray`, from where they can be imported.

    `files` are found again as `d3ray:submitted/NAME`; `secrets` are for `load_secrets`, in a file that only its owner reads.
    """
    target = folder / "d3ray"
    target.mkdir()
    for name in _ROOT_FILES:
        shutil.copy2(PACKAGE / name, target / name)
    for floor in _FLOORS:
        shutil.copytree(PACKAGE / floor, target / floor, ignore=_NOT_SENT)
    if files or secrets:
        (target / SUBMITTED).mkdir()
    for name, content in (files or {}).items():
        (target / SUBMITTED / name).write_bytes(content)
    if secrets:
        place = target / SUBMITTED / SECRETS
        place.touch(mode=0o600)
        place.write_text(json.dumps(dict(secrets)))
    return target


def load_secrets() -> bool:
    """Sets the variables that came with a submitted job, in its driver and in each of its workers; whether there are any."""
    place = PACKAGE / SUBMITTED / SECRETS
    if found := place.is_file():
        os.environ.update(json.loads(place.read_text()))
    return found


def local_module(name: str) -> Path | None:
    """The file or folder of the top-level module or package that holds a plugin; None where it is installed, or not found."""
    if is_file(name):
        return top_and_name(Path(name))[0]
    top = name.partition(".")[0]
    if top == "d3ray":
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    found = next(iter(spec.submodule_search_locations or ()), None) or spec.origin
    if found is None or not Path(found).exists():
        return None
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib")] + [*site.getsitepackages()]
    inside = any(Path(place).resolve() in Path(found).resolve().parents for place in installed)
    return None if inside else Path(found)


def requirements() -> list[str]:
    """List the imported d3ray's requirements, as `python>=3.11` and `numpy>=2.2`, without its extras.

    From the `pyproject.toml` of its checkout, else from the installed distribution; empty where there is neither, as in a job.
    """
    file = PACKAGE / "pyproject.toml"
    if file.is_file():
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == "d3ray":
            return [f"python{project['requires-python']}", *project["dependencies"]]
    try:
        found = [f"python{metadata.metadata('d3ray')['Requires-Python']}", *(metadata.requires("d3ray") or ())]
    except metadata.PackageNotFoundError:
        return []
    return [text for text in found if (marker := Requirement(text).marker) is None or marker.evaluate({"extra": ""})]


def carried_config(arguments: Sequence[str], others: Sequence[str] = ()) -> tuple[list[str], dict[str, bytes]]:
    """The arguments with `--config FILE` pointing into the staged package, and what to stage there.

    Args:
        arguments: Of a job.
        others: Further values of theirs that name files, which travel too.

    Raises:
        ConfigError: one of the others stands in the config file, where it would go on naming a file of this machine.
    """
    names = dict[str, str]()
    for place in others:
        name = Path(place).name
        names[place] = f"{len(names)}-{name}" if name in names.values() else name
    changed, waiting = list[str](), iter(arguments)
    files = {name: Path(place).read_bytes() for place, name in names.items()}
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name != "--config":
            said = value if equals else argument
            place = f"d3ray:{SUBMITTED}/{names.pop(said)}" if said in names else said
            changed.append(f"{name}={place}" if equals else place)
            continue
        path = Path(value or next(waiting, ""))
        sent = f"config-{path.name}" if path.name in files else path.name
        files[sent] = path.read_bytes()
        changed += ["--config", f"d3ray:{SUBMITTED}/{sent}"]
    if names:
        raise ConfigError(
            f"The job would not find {next(iter(names))!r}, which its config file names: name it on the command line."
        )
    return changed, files
