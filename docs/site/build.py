"""The documents as a site: `python docs/site/build.py` writes build/site, which is read from the disk or from any web server.

Pages are the documents as they are, in the repository's own layout, so that their links lead where they lead there. What is linked
and is no document (code, a table, a cluster file) becomes a page that shows it. The reference is made of docstrings, of the names
that `reference.yaml` lists, by reading the source: nothing of d3ray is run, and what it needs need not be installed.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "docs"
FLOORS = ("data", "algos", "platform", "jobs", "facades")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md", "benchmarks/**/*.md")
REFERENCE = "reference"
ALONE = ("README.md", "docs/datasets.md")  # pages that have no others beside them in the navigation
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".csv": "text"}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCES = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def pages() -> dict[str, str]:
    """Every page of the site by its path: the documents, the files that they link, and the reference."""
    documents = sorted({file.relative_to(ROOT).as_posix() for pattern in DOCUMENTS for file in ROOT.glob(pattern)})
    made: dict[str, str] = {}
    linked: set[str] = set()
    for name in documents:
        text = _plain_fences((ROOT / name).read_text(encoding="utf-8"))
        made[name] = _with_links(text, Path(name).parent, set(documents), linked)
    while linked - {page.removesuffix(".md") for page in made}:  # a folder's page links its files
        for name in sorted(linked):
            made.setdefault(f"{name}.md", _shown(name, linked))
    for name in ALONE:
        made[name] = f"---\nhide: [navigation]\n---\n\n{made[name]}"
    return made | reference()


def images() -> list[str]:
    """Pictures that documents show."""
    return sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("docs/images/*"))


def _plain_fences(text: str) -> str:
    """A document without what is said to the tests that run its code."""
    text = re.sub(r"^<!-- not run: .* -->\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^```(\w+) no-run$", r"```\1", text, flags=re.MULTILINE)


def _with_links(text: str, folder: Path, documents: set[str], linked: set[str]) -> str:
    """A document whose links to files that are no documents lead to the pages that show those, which `linked` gets."""

    def replaced(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target:
            return found[0]
        name = Path(os.path.normpath(folder / target)).as_posix()
        if name in documents or (ROOT / name).suffix in (".png", ".svg"):
            return found[0]
        linked.add(name)
        return f"{found[1]}{target.rstrip('/')}.md{found[4]}"

    parts, at = list[str](), 0
    for fence in FENCES.finditer(text):
        parts += [LINK.sub(replaced, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(replaced, text[at:])])


def _shown(name: str, linked: set[str]) -> str:
    """A page that shows a file, or lists what a folder holds."""
    path = ROOT / name
    head = f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n# `{name}`\n\n"
    if path.is_dir():
        files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.suffix in LANGUAGES)
        linked |= {f"{name}/{file}" for file in files}
        return head + "".join(f"- [{file}]({path.name}/{file}.md)\n" for file in files)
    fence = "`" * 8
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8').rstrip()}\n{fence}\n"


# ---- the reference


def reference() -> dict[str, str]:
    """Pages of names with their docstrings, and one that lists them all."""
    found: dict[str, str] = {}
    listed = ["# Reference", "", "Every public name; the algorithms have [pages of their own](../docs/algorithms.md).", ""]
    for title, about in sections().items():
        file = re.sub(r"\W+", "_", title.lower())
        lines = [f"# {title}", "", about.get("about", ""), ""]
        listed += [f"## [{title}]({file}.md)", ""]
        for group in about["names"]:
            named = names_of(group)
            public = group["from"]
            if group.get("about"):
                lines += [group["about"], ""]
            lines += [f"`from {public} import {', '.join(named)}`" if len(named) < 4 else f"From `{public}`:"]
            lines += ["{: .doc-from }", ""]
            for name, path in named.items():
                options = {"inherited_members": name in group.get("inherited", ())}
                if _file(path).exists():  # a module, whose names have a group of their own
                    options["members"] = False
                lines += [f"::: {path}", f"    options: {json.dumps(options)}", ""]
            listed += [f"From `{public}`: " + ", ".join(f"[`{name}`][{path}]" for name, path in named.items()), ""]
        found[f"{REFERENCE}/{file}.md"] = "\n".join(lines)
    return {f"{REFERENCE}/index.md": "\n".join(listed), **found}


def sections() -> dict[str, Any]:
    """The pages of the reference, as `reference.yaml` says."""
    return yaml.safe_load((HERE / "reference.yaml").read_text(encoding="utf-8"))


def names_of(group: dict[str, Any]) -> dict[str, str]:
    """Names of a group, each with where it is defined; without `names` all that its module offers."""
    module = group.get("at", group["from"])
    return {name: _defined(module, name) for name in group.get("names") or _all(module)}


def _file(module: str) -> Path:
    """The file of a module of d3ray."""
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def _all(module: str) -> list[str]:
    """What a module says that it offers."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{module} has no __all__: name what the reference shows of it.")


def _defined(module: str, name: str) -> str:
    """Where a name is defined that a module has, however many modules hand it on."""
    if name in {getattr(node, "name", None) for node in _tree(module).body}:  # what imports it too may do so within a function
        return f"{module}.{name}"
    package = module.split(".") if _file(module).name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.level and name in {alias.name for alias in node.names}:
            home = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
            return f"{home}.{name}" if _file(f"{home}.{name}").exists() else _defined(home, name)
    return f"{module}.{name}"


# ---- the build


def navigation(made: dict[str, str]) -> list[Any]:
    """The pages in the order of `navigation.yaml`; a pattern stands for all pages that it fits and nothing else names."""
    tree = yaml.safe_load((HERE / "navigation.yaml").read_text(encoding="utf-8"))
    named = {page for page in _leaves(tree) if "*" not in page}

    def filled(entries: list[Any]) -> list[Any]:
        done: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                ((title, below),) = entry.items()
                done.append({title: filled(below) if isinstance(below, list) else below})
            elif "*" in entry:
                done += sorted((page for page in made if Path(page).match(entry) and page not in named), key=str.lower)
            else:
                done.append(entry)
        return done

    return filled(tree)


def _leaves(entries: Any) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from _leaves(below)
        else:
            yield entry


def write(made: dict[str, str]) -> Path:
    """Writes the pages, a copy of the source for the reference, and the settings, whose file is returned."""
    shutil.rmtree(BUILD, ignore_errors=True)
    for name, text in made.items():
        (BUILD / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / "pages" / name).write_text(text, encoding="utf-8")
    for name in images():
        (BUILD / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, BUILD / "pages" / name)
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(HERE / name, BUILD / "pages")
    for file in [ROOT / "__init__.py", *(file for floor in FLOORS for file in (ROOT / floor).rglob("*.py"))]:
        copy = BUILD / "source" / "d3ray" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text(encoding="utf-8")
        copy.write_text(re.sub(r"^__all__ = algos.*", "", text, flags=re.MULTILINE), encoding="utf-8")  # none that can be read
    (BUILD / "source" / "d3ray" / "platform" / "__init__.py").touch()  # a copy may have one
    settings, nav = BUILD / "mkdocs.yml", navigation(made)
    hidden = [name for name in made if name not in set(_leaves(nav)) and _is_shown(name)]
    more = {"nav": nav, "not_in_nav": "\n".join(f"/{name}" for name in hidden)}
    settings.write_text((HERE / "mkdocs.yml").read_text(encoding="utf-8") + yaml.safe_dump(more, sort_keys=False), encoding="utf-8")
    return settings


def _is_shown(page: str) -> bool:
    """Whether a page shows a file or folder of the repository, and so has no place in the navigation."""
    return (ROOT / page.removesuffix(".md")).exists()


if __name__ == "__main__":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(write(pages()))]
    done = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit("".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO")))
    print(f"The site is in {ROOT / 'build' / 'site'}: open its index.html.")
