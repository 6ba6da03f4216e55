"""What a cluster may grow to: the node types of its autoscaler, in the file that Ray's cluster launcher leaves on the head."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SEEN = 1000  # requests that wait, of which Ray tells its autoscaler; more of them start no further node
_FILE = "~/ray_bootstrap_config.yaml"  # Ray's name for it, on the head, where drivers run


@dataclass(frozen=True)
class NodeType:
    """A kind of machine that the autoscaler may start."""

    resources: Mapping[str, float]  # as Ray names them: CPU, GPU
    most: int  # at a time


@dataclass(frozen=True)
class Growth:
    """The autoscaler's limits."""

    types: tuple[NodeType, ...]
    most: int  # workers at a time, of all types together
    head: NodeType

    def room(self, wanted: Mapping[str, float]) -> int:
        """Trials with these resources, `cpu` and `gpu`, at once when everything has been started that may be."""
        left, found = self.most, room_on(self.head.resources, wanted)
        for each, most in sorted(((room_on(one.resources, wanted), one.most) for one in self.types), reverse=True):
            found += each * min(most, left)
            left -= min(most, left)
        return found

    def nodes(self, wanted: Mapping[str, float]) -> list[Mapping[str, float]]:
        """The resources of all workers with room for such a trial, those with the most room first."""
        fit = sorted((one for one in self.types if room_on(one.resources, wanted)), key=lambda one: -room_on(one.resources, wanted))
        return [one.resources for one in fit for _ in range(one.most)][: self.most]


def growth() -> Growth | None:
    """Read what the autoscaler of this cluster may start; None: there is none, or it is unknown.

    The launcher's file says it, on the head that it made. On Kubernetes the autoscaler knows it alone, and on machines that are
    there a file need not say what they have.
    """
    if os.environ.get("RAY_ADDRESS", "") in ("", "local"):
        return None
    try:
        told: Any = yaml.safe_load(Path(_FILE).expanduser().read_text(encoding="utf-8"))
        types, head = dict(told["available_node_types"]), told["head_node_type"]
        most = int(told["max_workers"])
        known = {name: NodeType(dict(about["resources"]), int(about.get("max_workers", most))) for name, about in types.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return None
    first = known.pop(head, NodeType({}, 1))
    if not most or not known or any("CPU" not in one.resources for one in known.values()):
        return None
    return Growth(tuple(known.values()), most, first)


def room_on(resources: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """Trials with resources `cpu` and `gpu` that a node has room for at once, with those that Ray names CPU and GPU."""
    cpu, gpu = (resources.get(name, 0.0) for name in ("CPU", "GPU"))
    fit = [_times(cpu, wanted["cpu"])] if wanted["cpu"] else []
    if (share := wanted["gpu"]) > 0:
        fit.append(_times(gpu, share) if share >= 1 else int(gpu) * _times(1.0, share))
    return min(fit, default=1)


def _times(has: float, wanted: float) -> int:
    """How often it fits, as exact as Ray counts: 0.1 fits ten times into 1."""
    return math.floor(has / wanted + 1e-6)
