"""How many trials share a GPU: from the memory that one was seen to need."""

from __future__ import annotations

import math
from dataclasses import replace

from ...data.errors import ConfigError
from ..driver.node_maps import first_nodes, prepare_node_maps
from ..driver.work import Work
from ..worker.trial_config import program
from .probe import Measured, probe
from .rehearsal import proposed, rehearsal

HEAD_ROOM = 0.1  # of a GPU's memory that a pack leaves free: allocators round up, and later steps may need a little more
_SECONDS = 20.0  # that measuring may take
_KINDS = 8  # of trials that are measured at most


def pack(work: Work) -> Work:
    """The work with the share of a GPU that its trials need in place of `gpu: auto`. Ray must be initialised.

    A trial of each of the first kinds is trained for some steps on a GPU of its own, as many kinds as there is time for; the one
    that needs most decides. One that a whole GPU is too small for does not: its trials fail by themselves. Where no node has a GPU,
    and none will, trials get none.

    Raises:
        ConfigError, DataError, StorageError: what a trial would raise in its first seconds, or a whole GPU is too small for every
            kind; or no node came up.
    """
    if work.config.resources.gpu != "auto":
        return work
    cpu = work.config.resources.cpu
    try:
        ids = first_nodes({"CPU": cpu, "GPU": 1})
    except ConfigError:
        return _with_gpu(work, 0.0)
    import ray

    node, has = max(((n["NodeID"], n["Resources"]) for n in ray.nodes() if n["NodeID"] in ids), key=lambda one: one[1]["GPU"])
    alone = _with_gpu(work, 1.0)
    prepare_node_maps(*work.datasets, resources={"CPU": cpu, "GPU": 1}, mapped=not work.streams)
    with rehearsal(alone) as experiment:
        sample, _ = proposed(alone, experiment, 64)
        kinds = {program(told): told for told in (alone.told(trial, in_full=True) for trial in sample)}
        chosen = list(kinds.values())[:_KINDS]
        side = min(int(has["GPU"]), int(has["CPU"] / cpu), len(chosen))
        found = probe(chosen, side=max(side, 1), node=node, seconds=_SECONDS)
    most = max(one.gpu_memory for one in found if isinstance(one, Measured))
    return _with_gpu(work, share(most, int(has["CPU"] / cpu / has["GPU"])))


def _with_gpu(work: Work, gpu: float) -> Work:
    resources = work.config.resources.model_copy(update={"gpu": gpu})
    return replace(work, config=work.config.model_copy(update={"resources": resources}))


def share(memory: float, most: int) -> float:
    """The share of a GPU that a trial gets.

    Args:
        memory: The part of a GPU's memory that it was seen to hold; 0: none was seen, and it gets a GPU of its own.
        most: Trials that a GPU's part of the CPUs can feed; more would wait for CPUs and not for the GPU.

    Returns:
        1 / n of n trials, rounded down to the ten-thousandths that Ray counts in, so that n of them fit.
    """
    n = 1 if memory <= 0 else max(1, min(math.floor((1 - HEAD_ROOM) / memory + 1e-9), max(most, 1)))
    return math.floor(10_000 / n) / 10_000
