"""The names that users import: lazily from the root and from each floor, and old ones where documents once showed them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import d3ray
from d3ray import algos, data
from d3ray.algos.registry import algorithm_names


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_the_root_and_the_floors_offer_the_same_names() -> None:
    assert d3ray.__all__ == algos.__all__ + data.__all__ + [
        "MLflowLogger",
        "RayActors",
        "ShardSink",
        "from_ray",
        "map_batches",
        "plot",
        "to_ray",
    ]
    assert {"IQL", "Stack", "load", "OnlineRun", "datasets"} <= set(algos.__all__)
    assert {"Dataset", "MDPDataset", "ReplayBuffer", "doctor"} == set(data.__all__)
    assert [name for name in algorithm_names() if name.startswith("Cal")] == ["CalQL"]
    for name in algos.__all__:
        assert getattr(d3ray, name) is getattr(algos, name)
    assert d3ray.Dataset is data.Dataset
    with pytest.raises(AttributeError, match="no attribute 'IQ'"):
        d3ray.IQ  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'IQ'"):
        algos.IQ  # pyright: ignore  # noqa: B018


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
def test_another_name_is_the_module_where_it_stands() -> None:
    code = (
        "import importlib\nfrom d3ray.data.moved import MOVED\n"
        "get = lambda name: importlib.import_module(f'd3ray.{name}')\n"
        "modules = [(get(old), get(new)) for old, new in MOVED.items()]\n"
        "print(all(old is new and new.__name__ == new.__spec__.name and importlib.reload(new) is new for old, new in modules))"
    )
    assert run(code) == "True\n"


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"d3ray\.algos\.nowhere"):
        __import__("d3ray.algos.nowhere")
