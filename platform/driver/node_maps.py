"""Node maps before trials: each node that will train builds its own, in a task that needs no CPU and so never waits for one.

Trials that hold every CPU stall anything that asks for one, Ray Data included; these tasks do not ask. A trial that finds no map
(a node that joined later) builds it in its own process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError, StorageError
from ..cluster.growth import growth
from ..places import is_environment_place

_BOOT = 1200.0  # seconds that a machine may take from being asked for until it is a node; clouds take 5 to 10 minutes


@dataclass(frozen=True)
class NodeMap:
    """What one node has."""

    node: str  # Ray's id of the node
    address: str  # where it is, as Ray names it
    fingerprint: str
    seconds: float  # that it took to open or build the map


def prepare_node_maps(
    *where: str | Path,
    resources: Mapping[str, float] | None = None,
    recorded: Mapping[str, str] | None = None,
    mapped: bool = True,
    grows: bool = False,
) -> list[NodeMap]:
    """Builds the datasets' maps on every node that will train, all nodes at once; a node that has one already only opens it.

    Ray must be initialised. A node that dies meanwhile is left out.

    Args:
        where: the folder, URI or catalog name of each dataset, as trials will open it.
        resources: of one trial, such as `{"CPU": 1, "GPU": 0.25}`; nodes that never have so much are left out.
        recorded: the fingerprint of each dataset by its place, as trials are told it; None: whatever the nodes have alike.
        mapped: false where trials stream: nodes only look whether they see the same datasets.
        grows: as of `training_nodes`.

    Returns:
        The maps: of each dataset one a node.

    Raises:
        DataError: a node cannot read a dataset, or reads another one under this name than other nodes or than was recorded; the
            sentence names the node.
        StorageError: a node has no room for the maps of all of them at once.
        ConfigError: no node has such resources.
    """
    import ray
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, TaskUnschedulableError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = training_nodes(resources, grows=grows)
    task = ray.remote(num_cpus=0, max_retries=1)(_prepare)
    places = [one for one in where if not is_environment_place(str(one))]  # there is nothing to map of those
    locations = [str(Path(one).expanduser().absolute()) if _is_path(one) else str(one) for one in places]
    waiting = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)).remote(locations, mapped): node
        for node in nodes
    }
    found: list[list[NodeMap]] = []  # of each node, in the order of the datasets
    for reference, node in waiting.items():
        try:
            result: Any = ray.get(reference)
        except (NodeDiedError, TaskUnschedulableError, ActorUnschedulableError, WorkerCrashedError):
            if len(nodes) == 1:
                raise
            continue
        if isinstance(result, D3rayError):
            raise _on_node(result, nodes[node], several=len(nodes) > 1)
        found.append([NodeMap(node, nodes[node], fingerprint, seconds) for fingerprint, seconds in result])
    of_each = [list(maps) for maps in zip(*found, strict=True)]
    for place, maps in zip(places, of_each, strict=False):  # no maps where no node is there yet
        _check_same(maps, (recorded or {}).get(str(place)))
    return [one for maps in of_each for one in maps]


def training_nodes(resources: Mapping[str, float] | None = None, *, grows: bool = False) -> dict[str, str]:
    """Ray's id and address of every node that has as much of each resource, whether free or not.

    There is none yet where workers start when trials wait for them: where the autoscaler may start such a node, and where nobody
    knows what it may start and no node has CPUs, or its user says that it `grows`.

    Raises:
        ConfigError: there is none, and none will come.
    """
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    wanted = {name: amount for name, amount in (resources or {}).items() if amount}
    fit = [node for node in alive if all(node["Resources"].get(name, 0) >= amount for name, amount in wanted.items())]
    if not fit:
        may = growth()
        room = bool(may and may.room({"cpu": wanted.get("CPU", 0.0), "gpu": wanted.get("GPU", 0.0)}))
        if not (grows or (room if may else all(not node["Resources"].get("CPU") for node in alive))):
            raise ConfigError(
                f"No node of the Ray cluster has the resources of one trial, {_amounts(wanted)}: the largest have "
                f"{_largest(alive, wanted)}."
            )
    return {node["NodeID"]: node["NodeManagerAddress"] for node in fit}


def first_nodes(resources: Mapping[str, float], seconds: float = _BOOT) -> dict[str, str]:
    """As `training_nodes`, but where there is none yet it asks for one, as a trial would, and waits until it is there.

    Raises:
        ConfigError: there is none, and none will come.
        StorageError: none came within so many seconds.
    """
    import ray

    if found := training_nodes(resources):
        return found
    logging.getLogger("d3ray").warning("No node for trials is there yet: the cluster is asked for one, and this waits for it.")
    asked = ray.remote(num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0), max_retries=-1)(_nothing).remote()
    done, _ = ray.wait([asked], timeout=seconds)
    if not done:
        ray.cancel(asked, force=True)
        raise StorageError(
            f"No node with {_amounts(resources)} came up in {seconds / 60:.0f} min: see what the cluster's autoscaler says, or "
            "start one by hand."
        )
    return training_nodes(resources)


def _nothing() -> None:
    pass


def _largest(nodes: Sequence[Mapping[str, Any]], wanted: Mapping[str, float]) -> str:
    """The most that any node has of each resource that is wanted."""
    most = {name: max((float(node["Resources"].get(name, 0)) for node in nodes), default=0.0) for name in wanted}
    return ", ".join(f"{amount:g} {name}" for name, amount in most.items())


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount)


def _prepare(where: Sequence[str], mapped: bool) -> list[tuple[str, float]] | D3rayError:
    """Runs on a node. An error that a user can mend is given back; raised, it would carry a worker's traceback.

    Every dataset stays open until the last is prepared: in a cache that cannot hold them all, one would throw out another.
    """
    import time

    opened: list[Dataset] = []
    found: list[tuple[str, float]] = []
    try:
        for one in where:
            start = time.monotonic()
            opened.append(Dataset.open(one))
            if mapped:
                opened[-1].prepare()
            found.append((opened[-1].fingerprint, time.monotonic() - start))
    except D3rayError as error:
        return error
    return found


def _is_path(where: str | Path) -> bool:
    return "://" not in str(where) and Path(where).expanduser().exists()


def _on_node(error: D3rayError, address: str, *, several: bool) -> D3rayError:
    return type(error)(f"On the node {address}: {error}") if several else error


def _check_same(maps: list[NodeMap], recorded: str | None = None) -> None:
    for other in maps:
        if recorded is not None and other.fingerprint != recorded:
            raise DataError(
                f"The node {other.address} has another dataset of that name than the machine of this command "
                f"(fingerprints {other.fingerprint[:12]} and {recorded[:12]}): give a place that all nodes share."
            )
        if other.fingerprint != maps[0].fingerprint:
            raise DataError(
                f"The nodes {maps[0].address} and {other.address} have different datasets of that name "
                f"(fingerprints {maps[0].fingerprint[:12]} and {other.fingerprint[:12]}): give a place that all nodes share."
            )
