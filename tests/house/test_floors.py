"""data <- algos <- platform <- jobs: nothing imports from above, nothing in circles, and only platform knows Ray and MLflow."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from .source_tree import FLOORS, PACKAGE, ROOT, Parts, modules

PLATFORM_ONLY = ("ray", "mlflow")
MOST = 24  # Python files of a folder, so that a reader can hold it in mind
PAGE = (
    "platform.api",
    "platform.record",
    "platform.web",
    "platform.words",
    "platform.yaml_text",
    "data.errors",
    "data.storage.claims",  # the names of temporary folders
)  # what platform/web may know of d3ray
SHOWN = 3  # imports between two children in a circle that a message names


def imports_from_above(root: Path) -> list[str]:
    """Imports that go up, of Ray or MLflow outside platform, and of the root's public names, which would hide where they go."""
    wrong: list[str] = []
    for module in modules(root):
        if not module.floor:
            continue
        allowed = FLOORS[: FLOORS.index(module.floor) + 1]
        for found in module.imports():
            top, _, below = found.module.partition(".")
            place = f"{module.path.relative_to(root)}:{found.line}"
            if top in PLATFORM_ONLY and module.floor != "platform":
                wrong.append(f"{place} imports {top}")
            if top == PACKAGE:
                room = (below or found.name).partition(".")[0]
                if room not in allowed:
                    wrong.append(f"{place} imports {room or PACKAGE} from {module.floor}")
    return wrong


def ways_beside_the_api(root: Path) -> list[str]:
    """Imports by which the page would do something that no call of the API does."""
    wrong: list[str] = []
    for module in modules(root):
        if module.parts[:2] != ("platform", "web"):
            continue
        for found in module.imports():
            top, _, below = f"{found.module}.{found.name}".rstrip(".").partition(".")
            known = top == PACKAGE and any(f"{below}.".startswith(f"{room}.") for room in PAGE)
            if top in (PACKAGE, *PLATFORM_ONLY) and not known:
                wrong.append(f"{module.path.relative_to(root)}:{found.line} imports {below if top == PACKAGE else top}")
    return wrong


def circles(root: Path) -> dict[str, list[str]]:
    """The folders whose children import each other in circles, each with the imports that tie them.

    A folder's children are its files, its own `__init__` among them, and each subfolder taken as one. Imports inside functions, for
    type checkers only and in `__init__` count as any other: a reader follows them all.
    """
    found: dict[str, list[str]] = {}
    for folder, pairs in sorted(_ties(root).items()):
        reach = _reachable({a: {b for other, b in pairs if other == a} for a, _ in pairs})
        for (a, b), lines in sorted(pairs.items()):
            if a in reach.get(b, ()):
                more = [f"... and {len(lines) - SHOWN} more of {b} in {a}"] if len(lines) > SHOWN else []
                found.setdefault("/".join(folder) or ".", []).extend([*lines[:SHOWN], *more])
    return found


def _ties(root: Path) -> dict[Parts, dict[tuple[str, str], list[str]]]:
    """By folder and two of its children, the lines in the one that import from the other."""
    files = {module.parts for module in modules(root)}
    ties: defaultdict[Parts, defaultdict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for module in modules(root):
        mine = module.parts
        for found in module.imports():
            top, *rest = found.module.split(".")
            if top != PACKAGE:
                continue
            other = _file_of((*rest, found.name), files) or _file_of(tuple(rest), files)
            if other and other != mine:
                depth = next(i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b)
                line = f"{'/'.join(mine)}:{found.line} imports {'/'.join(other)}"
                between = ties[mine[:depth]][mine[depth], other[depth]]
                between += [line] if line not in between else []
    return ties


def _file_of(name: Parts, files: set[Parts]) -> Parts | None:
    """The file of a module: of its name, or a folder's `__init__`."""
    return next((file for file in (name, (*name, "__init__")) if file in files), None)


def _reachable(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """What each child comes to, import by import."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, ahead = set[str](), [start]
        while ahead:
            new = graph.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        reach[start] = seen
    return reach


def large_folders(root: Path) -> dict[str, int]:
    """Folders with more Python files than `MOST`, and how many they have."""
    sizes = Counter(module.path.parent.relative_to(root).as_posix() for module in modules(root))
    return {folder: n for folder, n in sizes.items() if n > MOST}


@pytest.mark.long
def test_no_room_imports_from_above() -> None:
    assert imports_from_above(ROOT) == []


def test_what_the_page_does_the_api_does() -> None:
    assert ways_beside_the_api(ROOT) == []


def test_nothing_imports_in_a_circle() -> None:
    assert circles(ROOT) == {}


def test_no_folder_is_large() -> None:
    assert large_folders(ROOT) == {}


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    for name, source in {
        "data/a.py": "def f():\n    from ..algos.b import x",
        "algos/b.py": "import ray.data\nfrom d3ray import Dataset",
        "platform/web/c.py": "from ..storage.d import Experiment\nfrom .. import api",
        "platform/storage/d.py": "",
        "data/m/e.py": "from ..n import x",  # folders in a circle, by files that know nothing of one another
        "data/n/__init__.py": "",
        "data/n/f.py": "import importlib\nimportlib.import_module('d3ray.data.m.g')",
        "data/m/g.py": "",
        **{f"jobs/a{i}.py": "" for i in range(MOST + 1)},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    assert imports_from_above(tmp_path) == [
        "data/a.py:2 imports algos from data",
        "algos/b.py:1 imports ray",
        "algos/b.py:2 imports Dataset from algos",
    ]
    assert ways_beside_the_api(tmp_path) == ["platform/web/c.py:1 imports platform.storage.d.Experiment"]
    assert circles(tmp_path)["data"] == ["data/m/e:1 imports data/n/__init__", "data/n/f:2 imports data/m/g"]
    assert large_folders(tmp_path) == {"jobs": MOST + 1}


def run_without(blocked: tuple[str, ...], code: str, cwd: Path) -> str:
    """What `code` prints in a new process in which the `blocked` packages cannot be imported."""
    blocker = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked!r}:\n"
        "            raise ImportError(f'{name} is blocked')\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    done = subprocess.run([sys.executable, "-c", blocker + code], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_an_algorithm_trains_without_ray_and_mlflow(tmp_path: Path) -> None:
    code = """
import numpy as np
import d3ray

rng = np.random.default_rng(0)
terminated = np.zeros(64, bool)
terminated[31::32] = True
dataset = d3ray.Dataset.from_arrays(
    rng.normal(size=(64, 3)).astype("float32"), rng.uniform(-1, 1, (64, 2)).astype("float32"), rng.normal(size=64), terminated
)
algorithm = d3ray.TD3PlusBC(seed=0)
epochs = list(algorithm.fitter(dataset, n_steps=5, n_steps_per_epoch=5))
print(len(epochs), algorithm.predict(dataset.columns["observation"][:4]).shape)
"""
    assert run_without(PLATFORM_ONLY, code, tmp_path) == "1 (4, 2)\n"


def test_what_only_looks_does_without_torch(tmp_path: Path) -> None:
    """`d3ray status`, `jobs`, `submit`, `plot`, `stats` and `compare`; torch would take longer than the rest of them."""
    run = tmp_path / "logs" / "CQL_1"
    run.mkdir(parents=True)
    (run / "params.json").write_text('{"algorithm": "cql"}')
    (run / "environment.csv").write_text("1,100,2.5\n2,200,3.5\n")
    shutil.copytree(run, tmp_path / "logs" / "CQL_2")
    code = """
import d3ray.platform.cluster.jobs, d3ray.platform.results.reading
from d3ray.jobs.command.running import run_command

print(run_command("status", []), *(run_command(job, ["logs", "logs/CQL_1"]) for job in ("plot", "stats", "compare")))
"""
    assert run_without(("torch", "mlflow", "matplotlib"), code, tmp_path).endswith("\n2 0 0 0\n")  # there are no experiments
