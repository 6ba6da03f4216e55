"""The GPUs that a machine's description names are those that torch can use; on GPUs that are pretended."""

from __future__ import annotations

import pytest
import torch

from d3ray.platform.surroundings import describe_machine, gpu_names, this_machine

from ..stand_ins.cuda import Card, pretend


@pytest.mark.parametrize(
    ("visible", "names"), [(None, ["A", "A", "B"]), ("1,2", ["A", "B"]), ("2", ["B"]), ("", []), ("-1", []), ("0,0", [])]
)
def test_gpus_are_named_as_the_process_sees_them(monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pretend(Card(name="A"), Card(name="A"), Card(name="B")):
        about = this_machine()
    assert about["gpus"] == names
    assert {3: "2 × A, B", 2: "A, B", 1: "B", 0: "no GPU"}[len(names)] in describe_machine(about)


@pytest.mark.parametrize("counts", ["0", "1"])
def test_a_driver_that_is_too_old_is_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch, counts: str) -> None:
    """It counts its GPUs all the same, to `torch.cuda.device_count` and, where the variable says so, to `is_available`."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", counts)
    with pretend(Card(), Card(), too_old=True):
        assert (torch.cuda.device_count(), torch.cuda.is_available()) == (2, counts == "1")
        assert gpu_names() == this_machine()["gpus"] == []
