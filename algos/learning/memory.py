"""The memory that a learner takes of a device at least, known before it is taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..definition import Network
from ..optimizers import remembered


def least_bytes(networks: Mapping[str, Network], n_seeds: int, dtype: torch.dtype) -> int:
    """Bytes that training these networks takes at least: a bound from below, upon which comes what losses compute on the way.

    Counts what a learner holds from its beginning, of each seed: parameters, buffers, targets and what optimisers remember; and the
    gradients of its largest network, which are there together before the first step.

    Args:
        networks: Of one seed, wherever they lie.
        n_seeds: How many are stacked.
        dtype: Of the parameters on the device.
    """
    held, gradients = 0, 0
    for network in networks.values():
        parameters = dict(network.module.named_parameters())
        size = {name: _bytes(tensor, dtype) for name, tensor in parameters.items()}
        whole = sum(size.values()) + sum(_bytes(buffer, dtype) for buffer in network.module.buffers())
        held += 2 * whole if network.target else whole
        optimizers = {"": network.optimizer} | {group.prefix: group.optimizer for group in network.groups}
        for prefix, names in network.parts(parameters).items():
            kept = remembered(optimizers[prefix], {name: tuple(parameters[name].shape) for name in names})
            held += sum(size[name] * times for name, times in kept.items())
        gradients = max(gradients, sum(size.values()))
    return n_seeds * (held + gradients)


def _bytes(tensor: Tensor, dtype: torch.dtype) -> int:
    """Of a tensor once it is on the device, where numbers that are no integers are of another type."""
    return tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else tensor.itemsize)
