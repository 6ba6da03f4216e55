"""Devices as tensors name them: each with its index, without which torch refuses to tell the memory of a GPU."""

from __future__ import annotations

import torch

from .errors import ConfigError


def find_device(device: torch.device | str, said: object = None) -> torch.device:
    """The device of a tensor that is made there, so that it compares equal with it: the process's current one where none is named.

    Args:
        device: A name, or what torch gave, such as `torch.accelerator.current_accelerator()`, which has no index.
        said: What the user wrote, for the error; None: `device`.

    Returns:
        cuda:0 for cuda, unless `torch.cuda.set_device` has chosen another. The CPU, which is one device, stays as it is named.

    Raises:
        ConfigError: there is no such device, or its driver cannot be used.
    """
    try:
        named = torch.device(device)
        return named if named.type == "cpu" else torch.empty(0, device=named).device
    except (RuntimeError, AssertionError, TypeError) as error:  # in turn: of CUDA or a name, of a build without CUDA, of no name
        said = str(device) if said is None else said
        raise ConfigError(f"There is no device {said!r} here: {str(error).splitlines()[0]}") from None
