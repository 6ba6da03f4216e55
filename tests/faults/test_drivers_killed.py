"""The command is killed, stopped, or goes down with the head: `--resume` brings it to the same end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from d3ray.platform.cluster.jobs import STOP_SECONDS

from .cluster import LocalCluster
from .processes import alive, kill, until
from .runs import EPOCH, SEEDS, Runs, assert_equal_runs

Train = Callable[..., Runs]


def test_the_driver_killed(cluster: LocalCluster, train: Train, undisturbed: Runs) -> None:
    runs = train()
    held = [*runs.hold("parts", 3 * EPOCH, 0), *runs.hold("renamed", 3 * EPOCH, 1)]
    command = runs.start()
    command.until(lambda: runs.reached(held))
    workers = [runs.worker(file) for file in held]
    kill(command.process.pid)
    until(lambda: not any(map(alive, workers)), cluster.logs)  # Ray ends them
    assert runs.statuses() == {"RUNNING": 3}  # nobody was left to say otherwise
    runs.release(held)
    again = runs.start("--resume")
    assert again.wait() == 0, again.log.read_text()
    assert_equal_runs(undisturbed, runs)


def test_the_head_killed_with_the_driver(cluster: LocalCluster, train: Train, undisturbed: Runs) -> None:
    """Its nodes do not know yet: their workers go on writing while another cluster takes up the experiment."""
    runs = train()
    held = runs.hold("write", 3 * EPOCH, *SEEDS)
    command = runs.start()
    command.until(lambda: runs.reached(held))
    assert cluster.head is not None
    kill(command.process.pid, *cluster.head.processes())
    cluster.head.kill()
    left, cluster.nodes = cluster.nodes, []
    try:
        runs.env.update(cluster.whole().environment())
        again = runs.start("--resume")
        again.until(lambda: runs.attempts() == [2, 2])
        runs.release(held)
        assert again.wait() == 0, again.log.read_text()
    finally:
        for node in left:
            node.kill()
    assert_equal_runs(undisturbed, runs)


def test_a_job_stop(train: Train, undisturbed: Runs) -> None:
    """SIGTERM, and SIGKILL once the command had the time that `d3ray submit` asks Ray to give it, whatever it is in."""
    runs = train()
    held = [*runs.hold("commit", 3 * EPOCH, 0), *runs.hold("write", 3 * EPOCH, 1)]
    command = runs.start()
    command.until(lambda: runs.reached(held))
    kill(command.process.pid, by=signal.SIGTERM)
    began = time.monotonic()
    while command.process.poll() is None and time.monotonic() < began + STOP_SECONDS:
        time.sleep(0.05)
    kill(command.process.pid)
    took, status = time.monotonic() - began, command.wait()
    if status == 130:
        assert "To go on: d3ray resume " in command.log.read_text()
        assert runs.statuses() == {"KILLED": 3}
    runs.release(held)
    again = runs.start("--resume")
    assert again.wait() == 0, again.log.read_text()
    assert_equal_runs(undisturbed, runs)
    assert status == 130, f"it was stopped after {took:.1f} s with {status}"
