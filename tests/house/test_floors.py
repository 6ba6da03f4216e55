"""data <- algos <- platform <- jobs: nothing imports from above, nothing in circles, and only platform knows Ray and MLflow."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .source_tree import FLOORS, PACKAGE, ROOT, modules

PLATFORM_ONLY = ("ray", "mlflow")
ROOMS = (  # of platform, from the bottom up; one imports from itself, from its own row where that holds together, and from below
    ({"uris", "statistics", "yaml_text", "arrow_source", "ray_data"}, "apart"),
    ({"storage"}, "apart"),
    ({"experiment", "sweep", "planning", "tracking", "cluster", "rllib", "trainable"}, "together"),  # how experiments run
    ({"datasets", "report"}, "apart"),
    ({"benchmark"}, "apart"),
)


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


def rooms_from_above(root: Path) -> list[str]:
    """Imports between platform's rooms, and its single modules, that go up or, in a row that stands apart, across."""
    floor = {room: height for height, (row, _) in enumerate(ROOMS) for room in row}
    wrong: list[str] = []
    for module in modules(root):
        if module.floor != "platform":
            continue
        mine = module.name.split(".")[2]
        for found in module.imports():
            below = found.module.split(".")
            if below[:2] != [PACKAGE, "platform"]:
                continue
            other = below[2] if len(below) > 2 else found.name
            together = floor[mine] == floor[other] and ROOMS[floor[mine]][1] == "together"
            beside = {mine, other} == {"ray_data", "arrow_source"}  # one entrance in two files
            if not (other == mine or floor[other] < floor[mine] or together or beside):
                wrong.append(f"{module.path.relative_to(root)}:{found.line} imports {other} from {mine}")
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


def test_every_room_of_platform_has_its_place() -> None:
    rooms = {module.name.split(".")[2] for module in modules() if module.floor == "platform"}
    assert rooms == {room for row, _ in ROOMS for room in row}
    assert rooms_from_above(ROOT) == []
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    said = text[text.index("`platform/` has rooms") : text.index("Users enter by")]
    for row, _ in ROOMS[1:]:
        heights = {said.count(". ", 0, said.index(f"`{room}`")) for room in row if room != "trainable"}
        assert len(heights) == 1, f"{row} stand in one sentence"
    assert [said.index(f"`{room}`") for room in ("storage", "experiment", "datasets", "benchmark")] == sorted(
        said.index(f"`{room}`") for room in ("storage", "experiment", "datasets", "benchmark")
    )


def test_an_import_from_a_room_above_is_found(house: Path) -> None:
    for file, source in {
        "storage/a.py": "def f():\n    from ..tracking import runs",
        "report/a.py": "from ..datasets.thing import x\nfrom ..sweep.thing import y",
        "sweep/a.py": "from ..experiment import thing\nfrom ..benchmark.thing import x",
    }.items():
        (house / "platform" / file).parent.mkdir()
        (house / "platform" / file).write_text(source)
    (house / "platform/thing.py").unlink()
    assert sorted(rooms_from_above(house)) == [
        "platform/report/a.py:1 imports datasets from report",
        "platform/storage/a.py:2 imports tracking from storage",
        "platform/sweep/a.py:2 imports benchmark from sweep",
    ]


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
