"""Workers, raylets and whole nodes are killed under `d3ray train`: it goes on by itself, and nothing is lost or doubled."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from d3ray.platform.driver.fault_log import FILE

from .cluster import LocalCluster
from .processes import alive, kill, until
from .runs import EPOCH, SEEDS, Runs, assert_equal_runs

Train = Callable[..., Runs]


def test_workers_killed_at_every_moment_of_a_commit(train: Train, undisturbed: Runs) -> None:
    runs = train()
    held = [runs.hold(moment, k * EPOCH, 0)[0] for k, moment in ((2, "commit"), (3, "write"), (4, "parts"))]
    held += [runs.hold(moment, k * EPOCH, 1)[0] for k, moment in ((3, "renamed"), (6, "policy"))]
    command = runs.start()
    while held:
        at = command.until(lambda: next(filter(runs.worker, held), None))
        kill(runs.worker(at))
        runs.release([at])
        held.remove(at)
    assert command.wait() == 0, command.log.read_text()
    assert [int(runs.trial(seed).folder.read("attempt") or 0) for seed in (0, 1)] == [4, 3]
    assert_equal_runs(undisturbed, runs)


def test_a_node_killed(cluster: LocalCluster, train: Train, undisturbed: Runs) -> None:
    runs = train()
    held = runs.hold("commit", 3 * EPOCH, *SEEDS)
    command = runs.start()
    command.until(lambda: runs.reached(held))
    cluster.node_of(runs.worker(held[1])).kill()
    command.until(lambda: runs.trial(1).folder.read("attempt") == b"2")  # noticed, and going again
    runs.release(held)
    assert command.wait() == 0, command.log.read_text()
    assert runs.trial(0).folder.read("attempt") == b"1"
    said = command.log.read_text()
    assert said.count(f"{runs.trial(1).identity}: its worker died: it cannot be reached any more, as where its node died. ") == 1, (
        said
    )
    sentence = "Another goes on from the newest checkpoint, restart 1 of 3 without a checkpoint between. Ray's words: "
    assert said.count(f"{sentence}{runs.experiment.folder.name}/{FILE}\n") == 1
    assert "Traceback" not in said
    assert "Traceback" in (runs.experiment.folder.read(FILE) or b"").decode()
    assert_equal_runs(undisturbed, runs)


@pytest.mark.parametrize("moment", ["write", "parts"])
def test_an_orphan_does_not_overwrite_its_successor(moment: str, cluster: LocalCluster, train: Train, undisturbed: Runs) -> None:
    """Only the raylet is killed: its worker, which nobody hears any more, writes a checkpoint that another has written since.

    It stops in the middle of its write, or where it holds the lock and has nothing but the rename left.
    """
    runs = train()
    held = runs.hold(moment, 3 * EPOCH, 1)
    command = runs.start()
    orphan = command.until(lambda: runs.worker(held[0]))
    lost = cluster.node_of(orphan)
    kill(orphan, by=signal.SIGSTOP)  # so that it lives on until its successor is further, however soon Ray ends orphans
    lost.kill_raylet()
    trial = runs.trial(1)
    command.until(lambda: trial.folder.read("attempt") == b"2")
    runs.release(held)
    command.until(lambda: trial.committed >= 5 * EPOCH)
    assert alive(orphan)
    kill(orphan, by=signal.SIGCONT)  # it is in the middle of its write, and commits at once
    until(lambda: not alive(orphan) or "was begun again elsewhere (attempt 2)" in cluster.logs(), cluster.logs)
    lost.kill()
    assert "this is attempt 1" in cluster.logs()
    assert command.wait() == 0, command.log.read_text()
    assert_equal_runs(undisturbed, runs)
