"""README.md and docs/: every block of Python and shell is run, every link and image is there, nothing generated is stale.

A document is read from top to bottom in a folder of its own, as a person would: Python blocks in one interpreter, shell blocks in
bash. A shell block that is commands of d3ray and nothing else is called in that interpreter too, which has imported everything and
keeps the Ray that the first of them starts; a line with a redirection or a variable is left to bash. A block marked `no-run` in its
info string is left out; a comment in the line before it says why. README's blocks show numbers that a person would use; `SMALLER`
says what is run in their place, and `LEFT_OUT` which of its lines are not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.algos.pages import PAGES as ALGORITHMS

from .source_tree import ROOT

DOCUMENTS = [
    Path("README.md"),
    *sorted(file.relative_to(ROOT) for file in (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md"))),
]
PAGES = [
    *DOCUMENTS,
    Path("CONTRIBUTING.md"),
    *sorted(file.relative_to(ROOT) for file in (ROOT / "docs" / "algorithms").glob("*.md")),
]
SMALLER = {  # in README.md: what it shows, and what is run in its place
    "n_steps=10000 n_steps_per_epoch=2000": "n_steps=20 n_steps_per_epoch=10 evaluation.episodes=2",
    "'seeds=[0, 1, 2]'": "'seeds=[0]'",
    "datasets/random n_steps=10000": "datasets/random n_steps=100",
    "n_steps=1000, n_steps_per_epoch=500": "n_steps=20, n_steps_per_epoch=10",
    "n_steps=1000)": "n_steps=20)",
    "evaluate models:/DiscreteBC-cartpole-replay@candidate": "evaluate models:/DiscreteBC-cartpole-replay@candidate episodes=2",
}
LEFT_OUT = {  # lines of README.md that begin so
    "make demo": "the tests of the job run it",
    "make test": "runs this",
    "make benchmark": "takes minutes, beside peers that are not installed here",
    "python examples/own_scheduler.py": "tests/platform/test_trainable.py runs it",
    "d3ray benchmark": "tests/platform/benchmark/test_benchmark.py runs the command",
    "d3ray sweep": "tests/jobs/test_sweep_job.py runs the command",
    "mlflow ui": "serves until it is stopped",
    "d3ray promote": "what is trained here in a few steps does not pass the gate",
}
FOLLOW = """
import contextlib, gc, json, os, shlex, subprocess, sys
gc.set_threshold(50_000)
from d3ray.jobs.command.running import run_command
from d3ray.platform.cluster import session

end_ray, session._shut_down = session._shut_down, lambda: None  # the Ray that the first one starts is there for all that follow
session.ray_ahead = contextlib.nullcontext  # it starts Ray in a thread, with whose end Ray's processes end too

def shell(text):
    if all(line.startswith("d3ray ") or not line.strip() for line in text.splitlines()):
        return any(command(line) for line in text.splitlines() if line.strip())
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], stdin=subprocess.DEVNULL).returncode

def command(line):
    _, job, *arguments = words = shlex.split(line, comments=True)
    if any(mark in word for word in words for mark in "<>|&;$`"):
        return subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL).returncode
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # which MLflow leaves there
    return run_command(job, arguments)

document, blocks = sys.argv[1], json.load(sys.stdin)
for kind, line, text in blocks:
    if kind == "python":
        exec(compile("\\n" * line + text, document, "exec"), globals())
    elif shell(text):
        sys.exit(f"{document}, the block that begins at line {line + 1}, failed")
if "ray" in sys.modules:
    end_ray()
gc.freeze()  # which ends the process sooner
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: the language and the other words of its info string, the line of the fence (from 1), the text within."""

    language: str
    words: tuple[str, ...]
    line: int
    text: str
    before: str  # the line above the fence


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found: list[Block] = []
    lines, opened = text.splitlines(), None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if opened is None:
                opened = number
            else:
                language, *words = lines[opened - 1][3:].split() or [""]
                before = lines[opened - 2] if opened > 1 else ""
                found.append(Block(language, tuple(words), opened, "\n".join(lines[opened : number - 1]) + "\n", before))
                opened = None
    assert opened is None, f"The block that begins at line {opened} does not end."
    return found


def to_run(document: Path) -> list[tuple[str, int, str]]:
    """Language, line and text of the blocks of a document that are run."""
    found: list[tuple[str, int, str]] = []
    for block in blocks_of((ROOT / document).read_text(encoding="utf-8")):
        if block.language in ("sh", "python") and "no-run" not in block.words:
            text = block.text
            if document.name == "README.md":
                for shown, run in SMALLER.items():
                    text = text.replace(shown, run)
                text = "".join("\n" if line.startswith(tuple(LEFT_OUT)) else line for line in text.splitlines(keepends=True))
            found.append((block.language, block.line, text))
    return found


def write_d4rl(file: Path) -> None:
    """A file as a reader of README.md has it: Hopper's shapes, in D4RL's layout."""
    rng, n = np.random.default_rng(0), 40
    with h5py.File(file, "w") as out:
        out["observations"], out["actions"] = rng.normal(size=(n, 11)).astype("f4"), rng.uniform(-1, 1, (n, 3)).astype("f4")
        out["rewards"] = rng.normal(size=n).astype("f4")
        out["terminals"], out["timeouts"] = np.arange(n) % 20 == 9, np.arange(n) % 20 == 19


NEED_D4RL = ("README.md", "datasets.md")  # show how such a file is ingested


@pytest.mark.long
@pytest.mark.timeout(900)  # a busy machine starts a Ray slowly
@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_what_a_document_shows_runs(document: Path, tmp_path: Path) -> None:
    blocks = to_run(document)
    if not blocks:
        pytest.skip("shows nothing that is run")
    if document.name in NEED_D4RL:
        write_d4rl(tmp_path / "hopper-medium.hdf5")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_TRACKING", "RAY_ADDRESS"))}
    followed = subprocess.run(
        [sys.executable, "-c", FOLLOW, str(document)],
        input=json.dumps(blocks),
        cwd=tmp_path,
        env={**kept, "PATH": path, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert followed.returncode == 0, f"{followed.stdout[-3000:]}\n{followed.stderr[-6000:]}"


def test_what_is_run_in_place_of_the_readme_still_stands_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [shown for shown in [*SMALLER, *(f"\n{line}" for line in LEFT_OUT)] if shown not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_a_block_that_is_not_run_says_why(document: Path) -> None:
    blocks = [block for block in blocks_of((ROOT / document).read_text(encoding="utf-8")) if "no-run" in block.words]
    assert [block.line for block in blocks if not re.fullmatch(r"<!-- not run: .+ -->", block.before)] == []
    languages = {block.language for block in blocks_of((ROOT / document).read_text(encoding="utf-8"))}
    assert languages <= {"sh", "python", "yaml", "text", "json"}  # what is misspelt would not be run


def anchors(text: str) -> set[str]:
    """The names that headings can be linked by: lower case, punctuation dropped, spaces as dashes."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_images_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    missing: list[str] = []
    for target in [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'\bsrc(?:set)?="([^"]+)"', text)]:
        place, _, anchor = target.partition("#")
        if place.startswith(("http://", "https://")):
            continue
        file = (ROOT / page).parent / place if place else ROOT / page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
            missing.append(target)
    assert missing == []


def generate() -> Any:
    """docs/generate.py, imported."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_generated_is_as_the_code_says() -> None:
    stale = [str(file) for file, content in generate().documents().items() if not file.exists() or file.read_text() != content]
    assert stale == [], "python docs/generate.py writes them"
    listed = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    pages = sorted(file.name for file in (ROOT / "docs" / "algorithms").glob("*.md"))
    assert pages == sorted(file.name for file in generate().documents() if file.parent.name == "algorithms")
    assert [name for name in pages if f"(algorithms/{name})" not in listed] == []


def test_every_algorithm_has_a_row_in_both_tables() -> None:
    _, by_family, one_by_one = re.split("By family:|One by one:", (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8"))
    for table in (by_family, one_by_one):
        linked = set(re.findall(r"\[(\w+)\]\(algorithms/\1\.md\)", table))
        assert linked - {"behaviour_model"} == {*ALGORITHMS}


assert shutil.which("bash"), "the blocks are bash's"
