"""The repository root is the package: every folder is listed, the standard library keeps its `platform`, versions are pinned."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
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


def test_every_dependency_is_imported() -> None:
    """But for onnxscript, which torch's exporter imports."""
    modules_of: dict[str, list[str]] = {}
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules_of.setdefault(canonicalize_name(name), []).append(module)
    text = "\n".join(module.path.read_text() for module in modules())
    declared = [canonicalize_name(Requirement(one).name) for one in PROJECT["project"]["dependencies"]]

    def is_imported(name: str) -> bool:
        return any(re.search(rf"^\s*(from|import) {module}\b", text, re.MULTILINE) for module in modules_of[name])

    assert [name for name in declared if not is_imported(name)] == ["onnxscript"]


def test_every_folder_with_code_is_packaged() -> None:
    folders = {module.path.parent.relative_to(ROOT) for module in modules()} | {Path(floor) for floor in FLOORS}
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(".".join(("d3ray", *folder.parts)) for folder in folders)


def test_every_other_folder_with_code_has_an_init() -> None:
    folders = {module.path.parent for module in modules() if module.floor != "platform"}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_version_is_stated_once_in_each_place() -> None:
    version = re.search(r'^__version__ = "(.*)"$', (ROOT / "data/version.py").read_text(), re.MULTILINE)
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


VERSIONS = [f"3.{minor}" for minor in range(9, 16)]
SUPPORTED = [version for version in VERSIONS if version in SpecifierSet(PROJECT["project"]["requires-python"])]

# A Python that says it is of another version than it is, and makes a folder in place of an environment.
PRETENDS = """#!/bin/sh
if [ "$1" = -m ]; then exec mkdir -p "$3"; fi
exec {python} -c "import sys; sys.version_info = ({version}, 0)
$2"
"""


def test_every_place_says_the_same_of_python() -> None:
    assert len(SUPPORTED) >= 3
    told = [line for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert told == [f"Programming Language :: Python :: {version}" for version in SUPPORTED]
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{SUPPORTED[0].replace('.', '')}"
    assert PROJECT["tool"]["basedpyright"]["pythonVersion"] == SUPPORTED[0]
    for file in ("README.md", "CONTRIBUTING.md", "Makefile"):
        assert f"Python {', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}" in (ROOT / file).read_text()


def made_with(folder: Path, names: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `make` says of a machine that has these Pythons and nothing else."""
    for file in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, folder)
    (folder / "mkdir").symlink_to(shutil.which("mkdir") or "mkdir")
    for name, version in names.items():
        (folder / name).write_text(PRETENDS.format(python=sys.executable, version=version.replace(".", ", ")))
        (folder / name).chmod(0o755)
    make = shutil.which("make") or "make"
    return subprocess.run(
        [make, ".venv/bin/python"], cwd=folder, env={"PATH": str(folder)}, capture_output=True, text=True, check=False
    )


def test_a_checkout_that_no_module_can_be_called_by_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d3-ray").symlink_to(ROOT)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path / 'd3-ray'}"]
    command += ["-c", str(tmp_path / "d3-ray" / "pyproject.toml"), "--collect-only", str(tmp_path / "d3-ray" / "tests" / "data")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "'d3-ray' is no name of a module: call it 'd3_ray'." in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_takes_a_python_that_is_supported(tmp_path: Path) -> None:
    done = made_with(tmp_path, {"python3": "3.9", "python": "3.14"})
    assert done.returncode != 0
    assert "d3ray needs Python 3.11, 3.12 or 3.13" in done.stderr
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    done = made_with(tmp_path, {"python3": "3.9", "python": "2.7", "python3.12": "3.12", "python3.13": "3.13"})
    assert done.stdout == "python3.12 -m venv .venv\n"
