"""`python -m d3ray.platform.cluster.check REQUIREMENT ...`: runs as a job and says what each node of the cluster lacks.

Imports nothing of d3ray's dependencies but ray and packaging, which every cluster has: it must run where they are missing.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from importlib import metadata

from packaging.requirements import Requirement

ANSWER = "d3ray cluster check: "


def missing(requirements: Sequence[str]) -> list[str]:
    """Requirements that this Python environment does not meet, with the version it has, if any."""
    lacking: list[str] = []
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            python = requirement.name == "python"
            version = sys.version.partition(" ")[0] if python else metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            lacking.append(f"{requirement.name}{requirement.specifier}")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement.name}{requirement.specifier} (it has {version})")
    return lacking


def on_every_node(requirements: Sequence[str]) -> dict[str, list[str]]:
    """List missing packages by node address, by tasks that need no CPU. Skips nodes that die meanwhile."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(logging_level=logging.ERROR, log_to_driver=False)
    task = ray.remote(num_cpus=0)(missing)
    answers = {
        node["NodeManagerAddress"]: task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        ).remote(requirements)
        for node in ray.nodes()
        if node["Alive"]
    }
    found: dict[str, list[str]] = {}
    for address, answer in answers.items():
        try:
            found[address] = ray.get(answer)
        except RayError:
            continue
    return found


def main() -> None:
    """The driver itself runs on the head, where the job's driver will run too."""
    requirements = sys.argv[1:]
    found = {"head": missing(requirements)}
    if not found["head"]:
        found |= on_every_node(requirements)
    print(ANSWER + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
