"""The repository root is the package: every folder is listed, the standard library keeps its `platform`, versions are pinned."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .source_tree import FLOORS, ROOT, modules

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_platform_is_no_regular_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_the_standard_library_keeps_its_platform(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import platform; print(platform.system(), platform.__file__)"]
    seen = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    elsewhere = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert seen == elsewhere
    assert str(ROOT) not in seen


def test_every_folder_with_code_is_packaged() -> None:
    folders = {module.path.parent.relative_to(ROOT) for module in modules()} | {Path(floor) for floor in FLOORS}
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(".".join(("d3ray", *folder.parts)) for folder in folders)


def test_every_other_folder_with_code_has_an_init() -> None:
    folders = {module.path.parent for module in modules() if module.floor != "platform"}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_version_is_stated_once_in_each_place() -> None:
    version = re.search(r'^__version__ = "(.*)"$', (ROOT / "__init__.py").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == PROJECT["project"]["version"]
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    wrong = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert wrong == [], "a pin is NAME==VERSION, without a local suffix, a URL or an option"
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_every_dependency_is_pinned_within_its_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    declared = [Requirement(line) for line in [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]]
    pinned = pins()
    assert [str(r) for r in declared if r.name != "d3ray" and pinned.get(canonicalize_name(r.name), "0") not in r.specifier] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_which_python_it_needs(tmp_path: Path) -> None:
    for file in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, tmp_path)
    for name in ("python3.11", "python3", "python"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")  # as a Python of another version answers the check
        (tmp_path / name).chmod(0o755)
    make = shutil.which("make") or "make"
    done = subprocess.run([make, "lint"], cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "d3ray needs Python 3.11" in done.stderr
    assert not (tmp_path / ".venv").exists()
