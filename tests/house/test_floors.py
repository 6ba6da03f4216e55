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
STILL: set[str] = set()  # folders whose children import each other in circles, which is to end
STILL_LARGE: set[str] = set()  # folders with more files, which is to end


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
    found = circles(ROOT)
    assert {folder: ties for folder, ties in found.items() if folder not in STILL} == {}
    assert STILL - found.keys() == set(), "nothing there imports in circles any more: take it out of STILL"


def test_no_folder_is_large() -> None:
    found = large_folders(ROOT)
    assert {folder: n for folder, n in found.items() if folder not in STILL_LARGE} == {}
    assert STILL_LARGE - found.keys() == set(), "it is large no longer: take it out of STILL_LARGE"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for floor in FLOORS:
        (tmp_path / floor).mkdir()
        (tmp_path / floor / "thing.py").write_text("")
    return tmp_path


def plant(house: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        (house / name).parent.mkdir(exist_ok=True)
        (house / name).write_text(source)


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("data/a.py", "from ..algos.thing import x", "data/a.py:1 imports algos from data"),
        ("data/a.py", "def f():\n    from d3ray.jobs import thing", "data/a.py:2 imports jobs from data"),
        ("algos/a.py", "import d3ray.platform.thing", "algos/a.py:1 imports platform from algos"),
        ("algos/a.py", "from d3ray import Dataset", "algos/a.py:1 imports Dataset from algos"),
        ("algos/a.py", "import ray.data", "algos/a.py:1 imports ray"),
        ("jobs/a.py", "def f():\n    import mlflow", "jobs/a.py:2 imports mlflow"),
        ("jobs/a.py", "import importlib\nimportlib.import_module('ray')", "jobs/a.py:2 imports ray"),
        ("data/formats/a.py", "from ...platform import thing", "data/formats/a.py:1 imports platform from data"),
    ],
)
def test_an_import_from_above_is_found(house: Path, file: str, source: str, complaint: str) -> None:
    (house / file).parent.mkdir(exist_ok=True)
    (house / file).write_text(source)
    assert imports_from_above(house) == [complaint]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("platform/a.py", "import ray\nfrom ..algos.thing import x\nfrom ..data import thing"),
        ("jobs/a.py", "from ..data.thing import __version__\nfrom ..platform.thing import x\nimport platform, raylike"),
    ],
)
def test_an_import_from_below_is_not(house: Path, file: str, source: str) -> None:
    (house / file).write_text(source)
    assert imports_from_above(house) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("from .. import api as d3ray\nfrom ..record.status import Status\nfrom ...data.errors import ConfigError", None),
        ("import fastapi, json\nfrom ..words import count\nfrom ..yaml_text import to_block\nfrom . import site", None),
        ("from ..storage.experiments import Experiment", "imports platform.storage.experiments.Experiment"),
        ("def f():\n    from ...data.dataset import Dataset", "imports data.dataset.Dataset"),
        ("from .. import storage", "imports platform.storage"),
        ("from ... import Dataset", "imports Dataset"),
        ("import ray", "imports ray"),
        ("from mlflow import MlflowClient", "imports mlflow"),
    ],
)
def test_a_way_beside_the_api_is_found(house: Path, source: str, complaint: str | None) -> None:
    plant(house, {"platform/web/a.py": source, "platform/b.py": "from .storage import c"})
    line = source.count("\n") + 1
    assert ways_beside_the_api(house) == ([] if complaint is None else [f"platform/web/a.py:{line} {complaint}"])


@pytest.mark.parametrize(
    ("files", "where", "ties"),
    [
        (  # at the top
            {"data/a.py": "from .b import x", "data/b.py": "import os\nfrom . import a"},
            "data",
            ["data/a:1 imports data/b", "data/b:2 imports data/a"],
        ),
        (  # late
            {"data/a.py": "from .b import x", "data/b.py": "def f():\n    from .a import y"},
            "data",
            ["data/a:1 imports data/b", "data/b:2 imports data/a"],
        ),
        (  # for types only
            {
                "jobs/a.py": "from .b import x",
                "jobs/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import y",
            },
            "jobs",
            ["jobs/a:1 imports jobs/b", "jobs/b:3 imports jobs/a"],
        ),
        (  # by a name
            {"data/a.py": "from .b import x", "data/b.py": "import importlib\nimportlib.import_module('d3ray.data.a')"},
            "data",
            ["data/a:1 imports data/b", "data/b:2 imports data/a"],
        ),
        (  # of three, and what is beside it is not named
            {"algos/a.py": "from .b import x", "algos/b.py": "from .c import x\nfrom .d import x", "algos/c.py": "from .a import x"}
            | {"algos/d.py": ""},
            "algos",
            ["algos/a:1 imports algos/b", "algos/b:1 imports algos/c", "algos/c:1 imports algos/a"],
        ),
        (  # between folders, of files that know nothing of one another
            {"algos/m/a.py": "from ..n.b import x", "algos/n/b.py": "", "algos/n/c.py": "from ..m import d", "algos/m/d.py": ""},
            "algos",
            ["algos/m/a:1 imports algos/n/b", "algos/n/c:1 imports algos/m/d"],
        ),
        (  # of a file and a folder
            {"data/m/a.py": "from ..b import x", "data/b.py": "from .m.c import x", "data/m/c.py": ""},
            "data",
            ["data/b:1 imports data/m/c", "data/m/a:1 imports data/b"],
        ),
        (  # through a folder's own names
            {"data/m/__init__.py": "from .a import x", "data/m/a.py": "from . import y"},
            "data/m",
            ["data/m/__init__:1 imports data/m/a", "data/m/a:1 imports data/m/__init__"],
        ),
        (  # through those of the folder above
            {"data/__init__.py": "from .m.a import x", "data/m/a.py": "from .. import y"},
            "data",
            ["data/__init__:1 imports data/m/a", "data/m/a:1 imports data/__init__"],
        ),
        (  # through the root's
            {"__init__.py": "from .data.a import x", "data/a.py": "from .. import __version__"},
            ".",
            ["__init__:1 imports data/a", "data/a:1 imports __init__"],
        ),
    ],
)
def test_a_circle_is_found(house: Path, files: dict[str, str], where: str, ties: list[str]) -> None:
    plant(house, files)
    assert circles(house) == {where: ties}


def test_what_is_no_circle_is_not_one(house: Path) -> None:
    plant(
        house,
        {
            "__init__.py": "from .data.a import x",
            "data/a.py": "from .m import b\nfrom . import thing\nimport data.m.b",
            "data/m/__init__.py": "from .b import x\nfrom .c import y",
            "data/m/b.py": "from .c import x\nfrom ..thing import y",
            "data/m/c.py": "",
            "algos/a.py": "from ..data.m import x\nfrom ..data import a",
        },
    )
    assert circles(house) == {}


def test_of_many_imports_a_circle_names_a_few(house: Path) -> None:
    plant(house, {"data/a.py": "from . import b\n" * (SHOWN + 2), "data/b.py": "from . import a"})
    ties = circles(house)["data"]
    assert ties[SHOWN - 1 :] == [f"data/a:{SHOWN} imports data/b", "... and 2 more of b in a", "data/b:1 imports data/a"]


def test_a_large_folder_is_found(house: Path) -> None:
    plant(house, {f"data/m/a{i}.py": "" for i in range(MOST)})
    assert large_folders(house) == {}
    plant(house, {"data/m/__init__.py": ""})
    assert large_folders(house) == {"data/m": MOST + 1}


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


def test_the_blocker_blocks(tmp_path: Path) -> None:
    code = "try:\n    import ray\nexcept ImportError as error:\n    print(error)"
    assert run_without(PLATFORM_ONLY, code, tmp_path) == "ray is blocked\n"


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
