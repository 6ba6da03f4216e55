"""d3rlpy's `distributed`: processes that train one algorithm, each started by torchrun."""

from __future__ import annotations

from torch import distributed as dist


def init_process_group(backend: str) -> int:
    """Joins the group of the processes that torchrun started. Gives this one's rank."""
    dist.init_process_group(backend)
    return dist.get_rank()


def destroy_process_group() -> None:
    """Leaves the group."""
    dist.destroy_process_group()


def agreed_seed(seed: int) -> int:
    """Rank 0's seed, where there is a group: one model is drawn from one seed."""
    if not (dist.is_available() and dist.is_initialized()):
        return seed
    agreed = [seed]
    dist.broadcast_object_list(agreed)
    return agreed[0]
