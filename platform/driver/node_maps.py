"""Node maps before trials: each node that will train builds its own, in a task that needs no CPU and so never waits for one.

Trials that hold every CPU stall anything that asks for one, Ray Data included; these tasks do not ask. A trial that finds no map
(a node that joined later) builds it in its own process.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError, StorageError
from ...data.node_maps.cache import under_way
from ...data.progress import progress
from ..cluster.growth import growth
from ..cluster.session import is_own_ray
from ..places import is_environment_place
from ..surroundings import usable_cpus

_BOOT = 1200.0  # seconds that a machine may take from being asked for until it is a node; clouds take 5 to 10 minutes
_SECONDS = 1.0  # between two reports of a node that builds


@dataclass(frozen=True)
class NodeMap:
    """A node's memory-mapped copy of a dataset."""

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

    Ray must be initialised. A node that dies meanwhile is left out. What takes longer than a second is shown on stderr, in lines.

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
    nodes = training_nodes(resources, grows=grows)
    places = [one for one in where if not is_environment_place(str(one))]  # there is nothing to map of those
    locations = [str(Path(one).expanduser().absolute()) if _is_path(one) else str(one) for one in places]
    bytes_of: dict[str, tuple[int, int]] = {}  # by node: that are mapped, and that there will be
    made: dict[str, list[NodeMap]] = {}  # by node, in the order of the datasets
    with progress(f"mapping data on {len(nodes)} node{'s' * (len(nodes) != 1)}", in_bytes=True, bar=False) as advance:
        for node, said in _here(nodes, locations, mapped) if is_own_ray() else _on_nodes(nodes, locations, mapped):
            if isinstance(said, D3rayError):
                raise _on_node(said, nodes[node], several=len(nodes) > 1)
            if isinstance(said, tuple):
                bytes_of[node] = said
                there, total = map(sum, zip(*bytes_of.values(), strict=True))
                if total:
                    advance(to=there, total=total)
            else:
                made[node] = [NodeMap(node, nodes[node], fingerprint, seconds) for fingerprint, seconds in said]
    found = [made[node] for node in nodes if node in made]
    of_each = [list(maps) for maps in zip(*found, strict=True)]
    for place, maps in zip(places, of_each, strict=False):  # no maps where no node is there yet
        _check_same(maps, (recorded or {}).get(str(place)))
    return [one for maps in of_each for one in maps]


def training_nodes(resources: Mapping[str, float] | None = None, *, grows: bool = False) -> dict[str, str]:
    """Ray's id and address of every node that has as much of each of these `resources`, whether free or not.

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


def check_own_machine(resources: Mapping[str, float]) -> None:
    """Raises ConfigError where trials run on a Ray of this machine's own, and it has not what one needs. No Ray is started."""
    wanted = {name: amount for name, amount in resources.items() if amount}
    if not is_own_ray() or "RAY_OVERRIDE_RESOURCES" in os.environ:
        return
    if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
        training_nodes(wanted)
        return
    has = {"CPU": float(max(os.cpu_count() or 1, usable_cpus()))}
    if wanted.get("GPU"):
        has["GPU"] = _own_gpus(default=wanted["GPU"])
    if lacking := next((name for name, amount in wanted.items() if has.get(name, amount) < amount), None):
        few = {name: has[name] for name in wanted if name in has}
        mend = f"choose resources.{lacking.lower()}={has[lacking]:g}" if has[lacking] or lacking == "GPU" else "choose less"
        raise ConfigError(
            f"This machine has not the resources of one trial, {_amounts(wanted)}: it has "
            f"{', '.join(f'{amount:g} {name}' for name, amount in few.items())}; {mend}, or name a cluster by RAY_ADDRESS."
        )


def _own_gpus(default: float) -> float:
    """The GPUs that a Ray of this machine's own would find, as it looks for them; `default` where it can no longer be asked so."""
    try:
        from ray._private.accelerators import get_accelerator_manager_for_resource

        manager: Any = get_accelerator_manager_for_resource("GPU")
        visible = manager.get_current_process_visible_accelerator_ids()
        found = int(manager.get_current_node_num_accelerators())
        return float(found if visible is None else min(found, len(visible)))
    except (ImportError, AttributeError, TypeError):
        return default


def first_nodes(resources: Mapping[str, float], seconds: float = _BOOT) -> dict[str, str]:
    """Ray's id and address of every node that has room for a trial; without any, one is asked for and waited for.

    Args:
        resources: Of a trial, as Ray names them: `CPU`, `GPU`.
        seconds: To wait for the first node.

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
    most = {name: max((float(node["Resources"].get(name, 0)) for node in nodes), default=0.0) for name in wanted}
    return ", ".join(f"{amount:g} {name}" for name, amount in most.items())


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount)


Said = tuple[int, int] | list[tuple[str, float]] | D3rayError


def _here(nodes: Iterable[str], where: Sequence[str], mapped: bool) -> Generator[tuple[str, Said]]:
    """Yield the reports of the only node, which this process runs on: no worker has to start for it."""
    for node in nodes:
        for said in _prepare(where, mapped):
            yield node, said


def _on_nodes(nodes: Mapping[str, str], where: Sequence[str], mapped: bool) -> Generator[tuple[str, Said]]:
    """Yield every node's reports as they come. One of several that dies meanwhile reports no more."""
    import ray
    from ray.exceptions import ActorUnschedulableError, NodeDiedError, TaskUnschedulableError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task: Any = ray.remote(num_cpus=0, max_retries=1)(_prepare)
    going: dict[Any, str] = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)).remote(where, mapped): node
        for node in nodes
    }
    while going:
        streams: list[Any] = ray.wait(list(going), num_returns=1, fetch_local=False)[0]
        stream = streams[0]
        node = going[stream]
        try:
            yield node, ray.get(next(stream))
        except StopIteration:
            del going[stream]
        except (NodeDiedError, TaskUnschedulableError, ActorUnschedulableError, WorkerCrashedError):
            if len(nodes) == 1:
                raise
            del going[stream]


def _prepare(where: Sequence[str], mapped: bool) -> Generator[Said]:
    """Runs on a node: says now and then how many bytes of maps are there and will be, and at last what there is, or what is wrong.

    An error that a user can mend is given back; raised, it would carry a worker's traceback.
    """
    with ThreadPoolExecutor(1, "node maps") as pool:
        made = pool.submit(_opened, where, mapped)
        while wait([made], _SECONDS).not_done:
            yield under_way()
        yield made.result()


def _opened(where: Sequence[str], mapped: bool) -> list[tuple[str, float]] | D3rayError:
    """Every dataset stays open until the last is prepared: in a cache that cannot hold them all, one would throw out another."""
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
