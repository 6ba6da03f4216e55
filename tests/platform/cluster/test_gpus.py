"""A trial that was given a GPU and finds none does not begin, and says why; on which machines it does begin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.tune import PlacementGroupFactory

from d3ray.data.errors import ConfigError
from d3ray.platform.cluster import gpus
from d3ray.platform.cluster.gpus import BY_NAME_ONLY, check_gpu, driver_version, gpu_state, why_none
from d3ray.platform.trainable import trainable
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...stand_ins.cuda import TOO_OLD, Card, pretend

CUDA = {"torch": "2.13.0+cu130", "cuda": "13.0", "driver": "580.105.08", "visible": "0", "gpus": []}
BUILT = "torch 2.13.0+cu130 is built for CUDA 13.0, which needs NVIDIA driver 580 or newer"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"torch": "2.13.0+cpu", "cuda": None}, "torch 2.13.0+cpu is built without CUDA; install one that is"),
        ({"driver": None}, f"{BUILT}, and there is no driver: its image has none, or its container was started without GPUs"),
        ({"driver": "470.57.02"}, f"{BUILT}, and the driver is 470.57.02: take an image of the machine with a newer one"),
        ({"visible": ""}, f"{BUILT}; the driver is 580.105.08, and CUDA_VISIBLE_DEVICES is ''"),
        ({"visible": None}, f"{BUILT}; the driver is 580.105.08, and CUDA_VISIBLE_DEVICES is not set"),
    ],
)
def test_the_reason_is_the_first_that_is_wrong(state: dict[str, Any], why: str) -> None:
    assert why_none({**CUDA, **state}) == why


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\nGCC version: 9", "470.57.02"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build\nGCC version: 12.2", "580.105.08"),
        ("something else", None),
    ],
)
def test_the_driver_is_read_from_its_kernel_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: str | None
) -> None:
    monkeypatch.setattr(gpus, "_DRIVER", tmp_path / "version")
    assert driver_version() is None
    (tmp_path / "version").write_text(text)
    assert driver_version() == version


def test_a_trial_that_was_given_a_gpu_and_finds_none_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv(BY_NAME_ONLY, raising=False)
    told = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DiscreteBC"}, "resources": {"cpu": 1, "gpu": 0.25}}
    with pytest.raises(
        ConfigError, match=r"^The trial was given 0.25 GPU on .*, and torch sees none there, so it does not begin: "
    ):
        TrialRun(TrialConfig.checked(told))
    assert gpu_state()["gpus"] == []
    check_gpu(0.0)
    check_gpu(1.0, "cpu")  # who asks for the CPU gets it
    monkeypatch.setenv(BY_NAME_ONLY, "1")
    check_gpu(1.0)


@pytest.mark.parametrize("counts", ["0", "1"])
def test_a_trial_under_a_driver_that_is_too_old_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: str
) -> None:
    """Whether torch sees no GPU, or counts those that the driver tells of and cannot begin."""
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021")
    monkeypatch.setattr(gpus, "_DRIVER", tmp_path / "version")
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", counts)
    for name in (BY_NAME_ONLY, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    told = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DiscreteBC"}, "resources": {"cpu": 1, "gpu": 0.25}}
    with pretend(Card(), too_old=True):
        assert torch.cuda.is_available() is (counts == "1")
        state = gpu_state()
        assert (state["gpus"], state["driver"], state["visible"]) == ([], "470.57.02", None)
        with pytest.raises(ConfigError) as caught:
            TrialRun(TrialConfig.checked(told))
        assert why_none(state) in str(caught.value)
        assert "which needs NVIDIA driver 580 or newer, and the driver is 470.57.02: take an image" in str(caught.value)
        assert (TOO_OLD in str(caught.value)) is (counts == "1")
        assert TrialRun(TrialConfig.checked({**told, "device": "cpu"})).device == torch.device("cpu")


def test_a_trial_begins_on_the_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BY_NAME_ONLY, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pretend(*(Card(name=f"card {number}") for number in range(4))):
        check_gpu(0.25)
        assert (gpu_state()["gpus"], gpu_state()["visible"]) == (["card 3"], "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(gpus, "driver_version", lambda: "580.105.08")
    with pretend(Card()), pytest.raises(ConfigError, match=r"torch sees none there, .* CUDA_VISIBLE_DEVICES is ''\.$"):
        check_gpu(0.25)


def own_tuners(gpu: float, **config: Any) -> Any:
    """A trial of a user's own Tuner that asked for a GPU, as Tune sets it up."""
    about = SimpleNamespace(trial_resources=PlacementGroupFactory([{"CPU": 1.0, "GPU": gpu}]), trial_id="1", trial_name="own")
    settings = {"dataset": "d3ray/cartpole-replay", "n_steps": 2, "n_steps_per_epoch": 1, **config}
    return trainable("DQN")(config={"__trial_info__": about, **settings})


def test_a_users_own_tuner_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BY_NAME_ONLY, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"The trial was given 0\.5 GPU on .*, and torch sees none there"):
        own_tuners(0.5)
    assert own_tuners(0.5, device="cpu").step()["done"] is False  # it was told to train on the CPU
    monkeypatch.setenv(BY_NAME_ONLY, "1")
    one = own_tuners(0.5)
    assert one.step()["step"] == 1
    assert one.run.config.resources == {"cpu": 1.0, "gpu": 0.5}
