"""Population based training, killed in the middle of an exploit: what was decided is done, and identities stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from d3ray.platform.storage.outbox import lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.worker.decisions import exploits_of

from .cluster import LocalCluster
from .processes import Command, alive, kill, until
from .runs import ALGORITHM, SWEEPS, Runs

N_STEPS, EPOCH, INTERVAL, SEEDS = 160, 20, 40, (0, 1)
SWEEP = {
    "name": "population",
    "algorithm": ALGORITHM,
    "search": {"algorithm.learning_rate": {"loguniform": [1e-4, 1e-2]}, "algorithm.gamma": {"uniform": [0.9, 0.99]}},
    "budget": {"configurations": 2},
    "scheduler": {"name": "pbt", "interval": INTERVAL, "quantile": 0.5},
    "objective": "train/critic_loss",
    "n_steps": N_STEPS,
    "n_steps_per_epoch": EPOCH,
    "seeds": list(SEEDS),
    "plugins": ["d3ray_holds_exploits"],
}
COEFFICIENTS = ("learning_rate", "gamma")


@pytest.fixture
def runs(cluster: LocalCluster, tiny: Path, tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path, {**SWEEP, "dataset": str(tiny)}, cluster.environment(), "sweep")
    yield found
    found.end()


def kill_command(command: Command, cluster: LocalCluster) -> None:
    """The driver and every worker, at once."""
    kill(command.process.pid, *(one for node in cluster.nodes for one in node.workers))
    command.process.wait()


def tracked(runs: Runs, trial: Trial, seed: int) -> list[tuple[str, int, float]]:
    """What MLflow has of a seed, without what the sweep says of its configuration."""
    return [row for row in runs.tracked(trial, seed) if not row[0].startswith(SWEEPS)]


def curve(trial: Trial, seed: int, name: str) -> dict[int, float]:
    return {line.step: line.metrics[name] for line in lines(trial.outbox(seed), -1, trial.committed)}


@pytest.mark.timeout(1500)  # three commands
def test_killed_in_the_middle_of_an_exploit(cluster: LocalCluster, runs: Runs) -> None:
    """Once when it is decided and nothing is done, and once when all is done and nothing committed: driver and workers."""
    decided: dict[str, list[object]] = {}
    known: dict[str, str] = {}
    for moment in ("decided", "loaded"):
        file = runs.place / "holds" / moment
        file.touch()
        command = runs.start(*["--resume"] * bool(known))
        reached = file.with_name(f"{moment}.reached")
        command.until(lambda at=reached: at.exists() and at.read_text(), 400)
        process, identity = reached.read_text().split()
        kill_command(command, cluster)
        until(lambda gone=int(process): not alive(gone), cluster.logs)
        (taker,) = [trial for trial in runs.trials() if trial.identity == identity]
        assert exploits_of(taker)[-1].step == taker.committed  # nothing beyond it is there
        for trial in runs.trials():
            now = [*exploits_of(trial)]
            assert now[: len(decided.get(trial.identity, []))] == decided.get(trial.identity, [])
            decided[trial.identity] = list(now)
        found = {**runs.run_ids()}
        assert found.items() >= known.items()
        known = found
        file.unlink()
    again = runs.start("--resume")
    assert again.wait(400) == 0, again.log.read_text()
    trials = {trial.identity: trial for trial in runs.trials()}
    assert len(trials) == 2
    assert runs.run_ids() == known  # the parent's, and one for each configuration and seed
    assert runs.statuses() == {"FINISHED": 1 + 2 * len(SEEDS)}
    for identity, trial in trials.items():
        exploits = exploits_of(trial)
        assert exploits[: len(decided[identity])] == decided[identity]
        assert trial.seeds == SEEDS
        changes = {one.step: one for one in exploits}
        coefficients, offset = {name: trial.configuration["algorithm"][name] for name in COEFFICIENTS}, 0.0
        expected: dict[int, tuple[float, ...]] = {}
        for step in range(EPOCH, N_STEPS + 1, EPOCH):
            expected[step] = (*(coefficients[name] for name in COEFFICIENTS), step + offset)
            if (one := changes.get(step)) is not None:
                coefficients = one.coefficients
                offset = curve(trials[one.donor], SEEDS[0], "time/gradient_steps")[one.donor_step] - step
        for seed in SEEDS:
            columns = [curve(trial, seed, name) for name in (*(f"hyper/{n}" for n in COEFFICIENTS), "time/gradient_steps")]
            assert {step: tuple(column[step] for column in columns) for step in columns[0]} == expected
            sent = [(n, line.step, v) for line in lines(trial.outbox(seed), -1, N_STEPS) for n, v in line.metrics.items()]
            assert tracked(runs, trial, seed) == sorted(sent)
    assert any(decided.values())
