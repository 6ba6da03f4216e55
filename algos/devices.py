"""Where training runs, and how copies that train side by side spread over several accelerators.

`d3ray.gpu.Device` and `d3ray.context.parallel` are those of d3rlpy's first versions: scikit-learn copies an algorithm for each fit,
so that within `parallel()` each copy takes the next accelerator.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..data.devices import find_device
from ..data.errors import ConfigError, in_words

_parallels = 0  # of the process, not of a thread: joblib copies algorithms in threads of its own


@contextmanager
def parallel() -> Generator[None]:
    """Within it a copy of a `Device` is of the next accelerator, and fits with `n_jobs` spread over all."""
    global _parallels  # noqa: PLW0603
    _parallels += 1
    try:
        yield
    finally:
        _parallels -= 1


class Device:
    """An accelerator by its number, as a value of `device`.

    A copy has the same number. Within `parallel()` what `copy.deepcopy` makes, as scikit-learn's `clone` does, has the next one,
    and so has the original from then on: the copy after it comes to the one after that. After the last accelerator comes 0.

    Args:
        gpu_id: Its number, as torch counts accelerators; whether there is one is looked at when something is trained on it.

    Raises:
        ConfigError: that is no whole number from 0.
    """

    def __init__(self, gpu_id: int = 0) -> None:
        if not isinstance(gpu_id, int) or isinstance(gpu_id, bool) or gpu_id < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"Device({gpu_id!r}): accelerators have numbers, from 0.")
        self._id = gpu_id

    def get_id(self) -> int:
        return self._id

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Device:
        if _parallels:
            self._id = (self._id + 1) % max(1, torch.accelerator.device_count())
        return Device(self._id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other._id == self._id

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # the number may change

    def __repr__(self) -> str:
        return f"Device({self._id})"


AnyDevice = str | int | Device | None
"""A device as `Definition` takes it; True and False are among the integers."""


class GpuTooSmallError(ConfigError):
    """A GPU has too little memory for what is to be trained there, whatever its losses compute.

    Attributes:
        lacking: What is needed and what is there, a clause.
    """

    def __init__(self, name: str, lacking: str, n_seeds: int) -> None:
        self.lacking = lacking
        fewer = f"stack fewer seeds than {n_seeds} or " if n_seeds > 1 else ""
        super().__init__(f"{name} is too large for this GPU, for {lacking}: {fewer}make its networks smaller.")


def check_room(name: str, needed: int, device: torch.device, n_seeds: int) -> None:
    """Looks whether a GPU has the bytes that an algorithm needs at least: the process's share, or of a whole one what is free.

    Args:
        name: Of the algorithm.
        needed: Bytes of all its seeds.
        device: Where it is to be trained; what is no GPU is not looked at.
        n_seeds: In the stack, which the error may advise to make smaller.

    Raises:
        GpuTooSmallError: it has not.
    """
    if device.type != "cuda":
        return
    device = find_device(device)  # the share of a device without an index is refused
    free, total = torch.cuda.mem_get_info(device)
    share = torch.cuda.get_per_process_memory_fraction(device)
    there = int(share * total) if share < 1 else free + torch.cuda.memory_reserved(device)  # what this process has it may use again
    if needed > there:
        which = f"a share of {share:g} is {in_words(there)}" if share < 1 else f"{in_words(there)} are free"
        has = f"{torch.cuda.get_device_name(device)} has {in_words(total)}, of which {which}"
        raise GpuTooSmallError(name, f"it needs at least {in_words(needed)} of memory and {has}", n_seeds)


def pick_device(device: AnyDevice | torch.device) -> torch.device:
    """The device that `Definition` describes, with its index.

    Apple's `mps` has no float64, in which random numbers are hashed and metrics added up: it is never taken by itself, and refused
    by name.

    Raises:
        ConfigError: there is no such device.
    """
    chosen = device.get_id() if isinstance(device, Device) else device
    if chosen is None or isinstance(chosen, bool):
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        picked = torch.device("cpu") if chosen is False or accelerator is None or accelerator.type == "mps" else accelerator
        if chosen is True and picked.type == "cpu":
            raise ConfigError("There is no device True here: torch finds no accelerator.")
        return find_device(picked, said=device)
    if str(chosen).partition(":")[0] == "mps":
        raise ConfigError("The device 'mps' has no float64, which random numbers and metrics need: choose 'cpu'.")
    picked = find_device(f"cuda:{chosen}" if isinstance(chosen, int) else chosen, said=device)
    return torch.device("cpu") if picked.type == "cpu" else picked  # cpu:0 is the same one, by a name that its tensors do not have
