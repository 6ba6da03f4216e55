"""data <- algos <- platform <- jobs: nothing imports from above, nothing in circles, and only platform knows Ray and MLflow."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .source_tree import FLOORS, PACKAGE, ROOT, modules

PLATFORM_ONLY = ("ray", "mlflow")


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
                if room not in allowed and not (found.module == PACKAGE and found.name == "__version__"):
                    wrong.append(f"{place} imports {room or PACKAGE} from {module.floor}")
    return wrong


def import_circle(root: Path) -> list[str]:
    """Modules that import each other while they are being imported, or none."""
    tree = {module.name: module for module in modules(root)}
    graph = {
        name: {
            target
            for found in module.imports()
            if found.at_import_time
            for target in (f"{found.module}.{found.name}", found.module)
            if target in tree
        }
        for name, module in tree.items()
    }
    for name, module in tree.items():  # `from .room import thing` of a module in that room does not need the room's own names
        for found in module.imports():
            if f"{found.module}.{found.name}" in tree:
                graph[name].discard(found.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_room_imports_from_above() -> None:
    assert imports_from_above(ROOT) == []


def test_nothing_imports_in_a_circle() -> None:
    assert import_circle(ROOT) == []


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for floor in FLOORS:
        (tmp_path / floor).mkdir()
        (tmp_path / floor / "thing.py").write_text("")
    return tmp_path


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
        ("jobs/a.py", "from .. import __version__\nfrom ..platform.thing import x\nimport platform, raylike"),
    ],
)
def test_an_import_from_below_is_not(house: Path, file: str, source: str) -> None:
    (house / file).write_text(source)
    assert imports_from_above(house) == []


def test_a_circle_is_found_unless_it_waits(house: Path) -> None:
    (house / "data" / "a.py").write_text("from .b import x")
    (house / "data" / "b.py").write_text("from . import a")
    assert set(import_circle(house)) == {"d3ray.data.a", "d3ray.data.b"}
    (house / "data" / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a")
    assert import_circle(house) == []
    (house / "data" / "b.py").write_text("def f():\n    from . import a")
    assert import_circle(house) == []


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
