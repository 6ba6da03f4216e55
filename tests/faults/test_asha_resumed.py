"""ASHA, killed at random moments: who was stopped stays stopped, and rungs are remembered."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from d3ray.platform.storage.outbox import lines
from d3ray.platform.storage.trials import Trial

from .cluster import LocalCluster
from .runs import ALGORITHM, Runs
from .test_pbt_killed import kill_command, tracked

N_STEPS, EPOCH, N = 160, 20, 8
SWEEP = {
    "name": "halving",
    "algorithm": ALGORITHM,
    "search": {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-1]}},
    "budget": {"configurations": N},
    "scheduler": {"name": "asha", "grace_steps": EPOCH, "reduction_factor": 2},
    "objective": "train/critic_loss",
    "n_steps": N_STEPS,
    "n_steps_per_epoch": EPOCH,
}


def losses(trial: Trial) -> dict[int, float]:
    return {line.step: line.metrics["train/critic_loss"] for line in lines(trial.outbox(0), -1, trial.committed)}


@pytest.mark.timeout(1500)  # three commands
def test_killed_at_random_moments(cluster: LocalCluster, tiny: Path, tmp_path: Path) -> None:
    for node in cluster.nodes[1:]:
        node.kill()  # one slot: what comes when does not depend on the machine
    runs = Runs(tmp_path, {**SWEEP, "dataset": str(tiny)}, cluster.environment(), "sweep")
    rng, settled = random.Random(os.urandom(8).hex()), dict[str, object]()
    try:
        for kill in range(2):
            epochs = sum(runs.committed()) // EPOCH + rng.randint(1, 6)
            command = runs.start(*["--resume"] * kill)
            command.until(lambda at=epochs: sum(max(step, 0) for step in runs.committed()) // EPOCH >= at, 400)
            kill_command(command, cluster)
            settled |= {trial.identity: trial.status for trial in runs.trials() if trial.is_settled}
        again = runs.start("--resume")
        assert again.wait(600) == 0, again.log.read_text()
    finally:
        runs.end()
    trials = sorted(runs.trials(), key=lambda trial: trial.number or 0)
    assert len(trials) == N
    rungs: dict[int, list[float]] = {20: [], 40: [], 80: [], 160: []}
    for trial in trials:  # as a scheduler that nobody disturbs sees them
        found, stop = losses(trial), N_STEPS
        for step, loss in found.items():
            if step in rungs:
                if rungs[step] and loss > np.quantile(rungs[step], 0.5):
                    stop = min(stop, step)
                rungs[step].append(loss)
        reason = {"reason": f"stopped by asha at step {stop}"} if stop < N_STEPS else {}
        ended = trial.status[0]
        assert list(found) == list(range(EPOCH, stop + 1, EPOCH)), trial.identity
        assert ended["status"] == ("KILLED" if reason else "FINISHED")
        assert ended.items() >= reason.items()
        sent = [(n, line.step, v) for line in lines(trial.outbox(0), -1, N_STEPS) for n, v in line.metrics.items()]
        assert tracked(runs, trial, 0) == sorted(sent)
        assert settled.get(trial.identity, trial.status) == trial.status
    counts = runs.statuses()
    assert counts["KILLED"] > 0
    assert sum(counts.values()) == N + 1
