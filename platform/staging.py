"""The d3ray that was imported, as a folder that a cluster can be given: no wheel, no build tool."""

from __future__ import annotations

import shutil
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PACKAGE = Path(__file__).parent.parent
_ROOT_FILES = ("__init__.py", "py.typed")
_FLOORS = ("data", "algos", "platform", "jobs")
_NOT_SENT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
SUBMITTED = "submitted"


def stage_package(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """Copies the four floors, code and data files, to `folder/d3ray`; nothing else that lies beside them in a checkout.

    Args:
        folder: an existing folder.
        files: further files by name; they are found again as `d3ray:submitted/NAME`.

    Returns:
        The copy, a package that can be imported from `folder`.
    """
    target = folder / "d3ray"
    target.mkdir()
    for name in _ROOT_FILES:
        shutil.copy2(PACKAGE / name, target / name)
    for floor in _FLOORS:
        shutil.copytree(PACKAGE / floor, target / floor, ignore=_NOT_SENT)
    for name, content in (files or {}).items():
        place = target / SUBMITTED / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
    return target


def requirements() -> list[str]:
    """What the imported d3ray needs, such as `numpy>=2.2`, without extras of its own.

    From the `pyproject.toml` of its checkout, else from the installed distribution; empty where there is neither, as in a job.
    """
    file = PACKAGE / "pyproject.toml"
    if file.is_file():
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == "d3ray":
            return list(project["dependencies"])
    try:
        found = metadata.requires("d3ray") or []
    except metadata.PackageNotFoundError:
        return []
    return [text for text in found if (marker := Requirement(text).marker) is None or marker.evaluate({"extra": ""})]
