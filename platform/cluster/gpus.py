"""Whether a trial that was given a GPU can use it: where the driver does not fit, torch would train on the CPU without a word."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import torch

from ...algos.devices import GpuTooSmallError
from ...data.errors import ConfigError
from ..surroundings import gpu_names

BY_NAME_ONLY = "RAY_FAKE_CLUSTER"  # Ray's variable of rehearsals, whose GPUs are numbers and no cards
_DRIVER = Path("/proc/driver/nvidia/version")  # which containers of NVIDIA's see too
NEEDED_DRIVER = {
    11: 450,
    12: 525,
    13: 580,
}  # NVIDIA's, by CUDA's major version; docs.nvidia.com, "CUDA compatibility"


def check_gpu(wanted: float, device: str | None = None) -> None:
    """Looks whether torch sees the GPU that a trial was given.

    Args:
        wanted: GPUs that were reserved for it; 0: none.
        device: that it was told to train on; None: the GPU.

    Raises:
        ConfigError: it sees none; the sentence names driver, CUDA and what is visible.
    """
    if not wanted or device == "cpu" or BY_NAME_ONLY in os.environ:
        return
    said = ""
    if torch.cuda.is_available():
        try:
            torch.cuda.init()
            return
        except RuntimeError as error:  # the driver may count GPUs that torch cannot use
            said = f"; torch says: {str(error).splitlines()[0].rstrip('.')}"
    raise ConfigError(
        f"The trial was given {wanted:g} GPU on {socket.gethostname()}, and torch sees none there, so it does not begin: "
        f"{why_none(gpu_state())}{said}."
    )


def ran_out(error: BaseException) -> bool:
    """Return True if an error from d3ray, torch, CUDA or its libraries says that a GPU's memory is too small."""
    words = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | GpuTooSmallError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def gpu_state() -> dict[str, Any]:
    """Describe GPU visibility as JSON: `torch`, its `cuda` (None: built without), `driver`, `visible`, `gpus`."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "driver": driver_version(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "gpus": gpu_names(),
    }


def driver_version() -> str | None:
    """The version of NVIDIA's driver of this machine, as its kernel module tells; None: it has none, or a container hides it."""
    try:
        text = _DRIVER.read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)", text)
    return found[1] if found else None


def why_none(state: dict[str, Any]) -> str:
    """Why a process with this state, as `gpu_state` gives it, sees no GPU: a clause."""
    if state["cuda"] is None:
        return f"torch {state['torch']} is built without CUDA; install one that is"
    major = int(str(state["cuda"]).partition(".")[0])
    needs = NEEDED_DRIVER.get(major)
    built = f"torch {state['torch']} is built for CUDA {state['cuda']}"
    built += f", which needs NVIDIA driver {needs} or newer" if needs else ""
    if state["driver"] is None:
        return f"{built}, and there is no driver: its image has none, or its container was started without GPUs"
    if needs and int(state["driver"].partition(".")[0]) < needs:
        return f"{built}, and the driver is {state['driver']}: take an image of the machine with a newer one"
    shown = "is not set" if state["visible"] is None else f"is {state['visible']!r}"
    return f"{built}; the driver is {state['driver']}, and CUDA_VISIBLE_DEVICES {shown}"


if __name__ == "__main__":
    import json

    print(json.dumps(gpu_state()), flush=True)
