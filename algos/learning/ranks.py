"""Processes that train one model together, each with a shard of every batch: torch.distributed's group, one process a GPU.

Each draws the whole batch, whose indices follow from seed and step alone, and goes on with its shard. Gradients, losses and metrics
are averaged before a step is taken, so all processes take the same one, and learn what one process would with the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.utils import _pytree as pytree  # it has no public name yet

from ...data.batch import Drawn
from ...data.errors import ConfigError, D3rayError
from ..definition import Definition
from ..dynamics.generated import Generated
from ..networks.training import Shard
from ..wants import Opens


class Ranks:
    """The processes of the default group. Raises ConfigError where there is none."""

    def __init__(self, algorithm: str) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise ConfigError(
                f"{algorithm}: data_parallel trains in several processes, and none has joined a group here: call "
                "torch.distributed.init_process_group in each, or give a trial several GPUs by resources.gpu."
            )
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def shard(self, batch: Drawn, axis: int) -> tuple[Drawn, Shard]:
        """This process's part of a batch whose samples lie along an axis. Raises ConfigError where it cannot be shared evenly."""
        n = batch.index.shape[axis]
        if n % self.size:
            raise ConfigError(
                f"A batch of {n} samples cannot be shared evenly by {self.size} processes: choose a batch_size that is a multiple "
                f"of {self.size}, as {max(n // self.size, 1) * self.size}."
            )
        shard = Shard(self.rank, self.size, n // self.size)
        return pytree.tree_map_only(Tensor, lambda part: shard.part(part, axis), batch), shard

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each by its mean over the processes; one message for all of a type."""
        by_type = dict[torch.dtype, list[Tensor]]()
        for tensor in tensors:
            if tensor.is_floating_point():  # counts are alike everywhere
                by_type.setdefault(tensor.dtype, []).append(tensor)
        for same in by_type.values():
            bucket = torch.cat([tensor.reshape(-1) for tensor in same])
            dist.all_reduce(bucket)
            bucket /= self.size
            for tensor, mean in zip(same, bucket.split([tensor.numel() for tensor in same]), strict=True):
                tensor.copy_(mean.view_as(tensor))

    def check_alike(self, step: int, parameters: Sequence[Tensor]) -> None:
        """Raises D3rayError where processes are not at the same step with the same parameters, bit for bit."""
        sums = torch.stack([parameter.detach().double().sum() for parameter in parameters])
        mine = torch.cat([sums.new_tensor([step]), sums])
        others = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(others, mine)
        for rank, other in enumerate(others):
            if not torch.equal(other.nan_to_num(), mine.nan_to_num()):
                raise D3rayError(
                    f"The processes that train one model no longer have the same one: rank {rank} is at step {other[0]:.0f} and "
                    f"rank {self.rank} at step {step}, with other parameters. Begin again from the last checkpoint."
                )


def alone(algorithm: Definition, config: Any) -> str | None:
    """Why an algorithm with these settings trains in one process only; None: several may share its batches."""
    wants = algorithm.wants(config)
    if algorithm.reads_values is not None:
        return algorithm.reads_values
    if isinstance(wants, Generated) or (isinstance(wants, Opens) and not wants.reads_data):
        return "it makes what it learns from"
    return f"it decides by a whole batch when to hold {algorithm.holds[0]!r}" if algorithm.holds else None


def ranks_of(algorithm: Definition, config: Any) -> Ranks | None:
    """The processes that train an algorithm; None: this one alone.

    Raises:
        ConfigError: there is no group, or the algorithm trains in one process only.
    """
    if not algorithm.data_parallel:
        return None
    if (why := alone(algorithm, config)) is not None:
        raise ConfigError(f"{algorithm.name} trains in one process: {why}.")
    ranks = Ranks(algorithm.name)
    return ranks if ranks.size > 1 else None
