"""How long a killed sweep takes to its first new update, and a dead node's trials to theirs.

    python benchmarks/resume.py [--repeat 10] [--only sweep|node|hung]

`sweep`: a sweep of 12 trials on a local Ray is killed with all its processes once a third is done; the time from the start of the
same command with `--resume` to the first checkpoint that was not there before; then it is killed again. A checkpoint comes every
100 updates (0.1 s).

`node`: two trials train on a local cluster of three nodes of one CPU (`tests/faults/cluster.py`); all processes of a node with a
trial are killed at once. Noticed: Ray says that the node is dead. Going: every trial that was there has a new checkpoint.

`hung`: the same, but the node's processes are stopped (SIGSTOP): nothing answers, and no connection is closed.

Prints medians and the worst, and writes `benchmarks/results/resume.json`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))
os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it when it is imported

from workers import keep, kept  # noqa: E402

from tests.faults.cluster import LocalCluster, health_checks  # noqa: E402
from tests.faults.processes import clean_environment, kill  # noqa: E402
from tests.faults.runs import TRAIN, Runs, write_dataset  # noqa: E402

ENDLESS = {**TRAIN, "n_steps": 100_000_000, "n_steps_per_epoch": 100, "evaluation": None, "seeds": [0, 1]}
SWEEP = {
    "name": "sweep",
    "algorithm": TRAIN["algorithm"],
    "n_steps": 10_000,
    "n_steps_per_epoch": 100,
    "seeds": [0, 1, 2],
    "seeds_per_trial": 1,
    "search": {"algorithm.learning_rate": {"grid": [1e-4, 3e-4, 1e-3, 3e-3]}},
    "searcher": "grid",
    "objective": {"metric": "train/td_error"},
}


@contextmanager
def runs_in(folder: Path, settings: dict[str, Any], env: dict[str, str], job: str) -> Iterator[Runs]:
    """An experiment whose processes end with the context."""
    runs = Runs(folder, {**settings, "dataset": str(folder.parent / "tiny")}, env, job)
    try:
        yield runs
    finally:
        runs.end()


def resumed_sweeps(place: Path, repeat: int) -> list[dict[str, float]]:
    """Seconds from the start of `--resume` to the first new checkpoint, of one sweep that is killed again right after it."""
    found: list[dict[str, float]] = []
    with runs_in(place, SWEEP, clean_environment(), "sweep") as runs:
        command = runs.start()
        command.until(lambda: sum(trial.is_settled for trial in runs.trials()) >= 4, 600)
        for _ in range(repeat):
            command.end()
            reached = {trial.identity: trial.committed for trial in runs.trials()}
            began = time.monotonic()
            command = runs.start("--resume")
            command.until(lambda: any(one.committed > reached.get(one.identity, -1) for one in runs.trials()))  # noqa: B023
            found.append({"seconds": time.monotonic() - began, "unfinished": 12 - sum(one.is_settled for one in runs.trials())})
    return found


def lost_node(place: Path, cluster: LocalCluster, *, hung: bool) -> dict[str, float]:
    """Seconds until Ray says that a node is dead, and until its trials have something new."""
    import ray

    with runs_in(place, ENDLESS, cluster.whole().environment(), "train") as runs:
        held = runs.hold("commit", 100, 0, 1)  # so that it is known which process trains what
        command = runs.start()
        command.until(lambda: runs.reached(held))
        lost = cluster.node_of(runs.worker(held[0]))
        there = [runs.trial(seed) for seed in (0, 1) if runs.worker(held[seed]) in lost.processes()]
        runs.release(held)
        command.until(lambda: min(runs.committed()) > 1000)
        dead = {node["NodeID"] for node in ray.nodes() if not node["Alive"]}
        began = time.monotonic()
        if hung:
            kill(*lost.processes(), by=signal.SIGSTOP)
        else:
            lost.kill()
        reached = {trial.identity: trial.committed for trial in there}
        after: dict[str, float] = {}

        def both() -> bool:
            if {node["NodeID"] for node in ray.nodes() if not node["Alive"]} - dead:
                after.setdefault("noticed", time.monotonic() - began)
            if all(trial.committed > reached[trial.identity] for trial in there):  # perhaps earlier: connections break at once
                after.setdefault("going", time.monotonic() - began)
            return len(after) == 2

        command.until(both)
        lost.kill()
        return {**after, "trials": len(there)}


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--only", choices=["sweep", "node", "hung"])
    told = parser.parse_args()
    found: dict[str, Any] = kept("resume", {})
    os.environ["D3RAY_CACHE"] = tempfile.mkdtemp(prefix="d3ray-cache-")
    with tempfile.TemporaryDirectory(prefix="d3ray-resume-") as folder:
        place = Path(folder)
        write_dataset(place / "tiny")
        if told.only in (None, "sweep"):
            found["sweep"] = resumed_sweeps(place / "sweep", told.repeat)
            keep("resume", {**found, "health_checks": health_checks()})
        if told.only != "sweep":
            with cluster_of_three() as cluster:
                for kind in ("node", "hung"):
                    if told.only in (None, kind):
                        hung = kind == "hung"
                        found[kind] = [lost_node(place / f"{kind}-{k}", cluster, hung=hung) for k in range(told.repeat)]
                        keep("resume", {**found, "health_checks": health_checks()})
    for kind, name in (("sweep", "seconds"), ("node", "noticed"), ("node", "going"), ("hung", "noticed"), ("hung", "going")):
        if seconds := [one[name] for one in found.get(kind, [])]:
            middle = statistics.median(seconds)
            print(f"{kind:6} {name:8} median {middle:5.1f} s, worst {max(seconds):5.1f} s, {len(seconds)} times")


@contextmanager
def cluster_of_three() -> Iterator[LocalCluster]:
    """A local cluster that this process looks at; each `whole` gives it a new node for one that was lost."""
    import ray

    cluster = LocalCluster()
    try:
        cluster.whole()
        os.environ.update({name: value for name, value in cluster.environment().items() if name.startswith("RAY_")})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.end()


if __name__ == "__main__":
    main()
