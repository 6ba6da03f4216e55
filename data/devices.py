"""Devices as tensors name them: each with its index, without which torch refuses to tell the memory of a GPU."""

from __future__ import annotations

import torch

from .errors import ConfigError


def find_device(device: torch.device | str, said: object = None) -> torch.device:
    """Return the device of a tensor that is made there, so that it compares equal with it: cuda:0 for cuda, unless another is set.

    `device` is a name, or what torch gave without an index; `said` what the user wrote, for the ConfigError of one that is not
    there.
    """
    try:
        named = torch.device(device)
        return named if named.type == "cpu" else torch.empty(0, device=named).device
    except (RuntimeError, AssertionError, TypeError) as error:  # in turn: of CUDA or a name, of a build without CUDA, of no name
        said = str(device) if said is None else said
        raise ConfigError(f"There is no device {said!r} here: {str(error).splitlines()[0]}") from None
