"""The names that users import: lazily from the root and from each floor, and old ones where documents once showed them."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest

import d3ray
from d3ray import algos, data
from d3ray.algos.pages import PAGES
from d3ray.algos.registry import algorithm_names

from .source_tree import ROOT, modules

FORMER = {
    "algos.behaviour_model": "algos.behaviour.behaviour_model",
    "algos.callbacks": "algos.learning.callbacks",
    "algos.environments.datasets": "datasets",
    "algos.held_out": "algos.judging.held_out",
    "algos.loggers": "algos.saving.loggers",
    "algos.package": "algos.export.package",
    "algos.remembering": "algos.acting.remembering",
    "data.mdp_dataset": "mdp_dataset",
    "platform.experiment.config": "platform.settings.config",
    "platform.experiment.objective": "platform.settings.objective",
    "platform.experiment.status_reader": "platform.results.status_reader",
}
MODULES = 100  # of d3ray that an algorithm's page stands on, at most: 97 on 2026-11-28


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_root_and_the_floors_offer_the_same_names() -> None:
    assert d3ray.__all__ == algos.__all__ + data.__all__ + [
        "MDPDataset",
        "MLflowLogger",
        "RayActors",
        "ShardSink",
        "from_ray",
        "map_batches",
        "plot",
        "to_ray",
        "datasets",
    ]
    assert {"IQL", "Stack", "load", "OnlineRun"} <= set(algos.__all__)
    assert {"Dataset", "ReplayBuffer", "doctor"} == set(data.__all__)
    assert [name for name in algorithm_names() if name.startswith("Cal")] == ["CalQL"]
    for name in algos.__all__:
        assert getattr(d3ray, name) is getattr(algos, name)
    assert d3ray.Dataset is data.Dataset
    with pytest.raises(AttributeError, match="no attribute 'IQ'"):
        d3ray.IQ  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'IQ'"):
        algos.IQ  # pyright: ignore  # noqa: B018


@pytest.mark.parametrize("package", [".", "data", "algos", "algos/pages"])
def test_what_is_loaded_late_is_what_type_checkers_are_told(package: str) -> None:
    file = ROOT / f"{package}.py" if package == "algos/pages" else ROOT / package / "__init__.py"
    tree = ast.parse(file.read_text())
    (told,) = (block.body for block in tree.body if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING")
    imports = [one for one in told if isinstance(one, ast.ImportFrom)]
    names = {
        alias.name: f".{(one.module or '').removeprefix('facades.')}"
        for one in imports
        for alias in one.names
        if alias.asname == alias.name
    }
    tables: Any = {".": d3ray.DOORS, "data": data.HOMES, "algos": algos.HOMES, "algos/pages": PAGES}
    assert names == tables[package]


def test_a_page_stands_on_little() -> None:
    """Learner, fit, environments, export, saving, data and their formats are loaded when a method needs them."""
    code = "import sys; from d3ray import TD3PlusBC; print(*sorted(name for name in sys.modules if name.startswith('d3ray')))"
    loaded = run(code).split()
    assert len(loaded) <= MODULES, loaded
    rooms = ("dataset", "storage.files", "catalog", "formats", "sampling", "replay")
    rooms = *(f"data.{room}" for room in rooms), *(f"algos.{room}" for room in ("learning.fit", "export", "saving", "online"))
    assert not {f"d3ray.{room}" for room in (*rooms, "algos.acting", "algos.environments")} & {*loaded}


@pytest.mark.long
def test_names_are_loaded_when_they_are_used() -> None:
    code = "import sys, d3ray; before = 'torch' in sys.modules; d3ray.IQL; print(before, 'torch' in sys.modules)"
    assert run(code) == "False True\n"


@pytest.mark.long
def test_the_doors_to_ray_data_import_ray_when_they_are_used() -> None:
    code = "import sys, d3ray; d3ray.from_ray, d3ray.to_ray, d3ray.map_batches; before = 'ray' in sys.modules; d3ray.ShardSink; "
    assert run(f"{code}print(before, 'ray' in sys.modules)") == "False True\n"


def test_the_doctor_is_a_function_whatever_was_imported_before() -> None:
    assert run("import d3ray.data.doctor; from d3ray import doctor; print(callable(doctor))") == "True\n"


@pytest.mark.long
def test_a_former_name_of_a_module_gives_what_the_present_one_has_and_warns() -> None:
    code = (
        f"import importlib, warnings\nformer = {FORMER!r}\n"
        "get = lambda name: importlib.import_module(f'd3ray.{name}')\n"
        "for old, new in former.items():\n"
        "    assert importlib.util.find_spec(f'd3ray.{old}') is not None\n"
        "    name = next(name for name in vars(get(new)) if not name.startswith('_'))\n"
        "    with warnings.catch_warnings(record=True) as said:\n"
        "        warnings.simplefilter('always')\n"
        "        assert getattr(get(old), name) is getattr(get(new), name)\n"
        "    assert [str(one.message) for one in said] == [f'd3ray.{old} is deprecated: write d3ray.{new}.']\n"
        "print('all')"
    )
    assert run(code) == "all\n"


@pytest.mark.parametrize(
    "code",
    [
        "import d3ray.experiments, d3ray.platform.api as api; assert d3ray.experiments is api",
        "from d3ray.experiments.told import Status; from d3ray.platform.api import told; assert Status is told.Status",
        "from d3ray.metrics.scorer import td_error_scorer; import d3ray; assert d3ray.metrics.td_error_scorer is td_error_scorer",
        "import d3ray.d3rlpy.dataset.buffers as buffers, d3ray; assert d3ray.d3rlpy.dataset.buffers is buffers",
        "from d3ray.d3rlpy.algos.qlearning.explorers import NormalNoise; import d3ray; d3ray.d3rlpy.online.explorers.NormalNoise",
        "import d3ray; d3ray.datasets.get_cartpole, d3ray.context.parallel, d3ray.gpu.Device, d3ray.ope.FQE, d3ray.pfrl.Agent",
    ],
)
def test_facades_stand_beside_under_names_at_the_root(code: str) -> None:
    run(code)


def test_no_other_room_knows_of_the_facades() -> None:
    names = {f"d3ray.{file.stem}" for file in (ROOT / "facades").iterdir() if file.stem != "__init__"} | {"d3ray.facades"}
    found = [
        (module.name, one.module)
        for module in modules()
        if module.floor not in ("", "facades")
        for one in module.imports()
        if any(f"{one.module}.{one.name}.".startswith(f"{name}.") for name in names)
    ]
    assert found == []


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"d3ray\.algos\.nowhere"):
        __import__("d3ray.algos.nowhere")


def test_former_names_are_asked_by_nobody_who_only_pickles() -> None:
    code = "import pickle, sys, scipy.special, d3ray; n = len(sys.modules); pickle.dumps(scipy.special.expit); "
    assert run(f"{code}print(len(sys.modules) - n)") == "0\n"
