"""A submitted sweep is stopped by `d3ray jobs stop`, submitted again with --resume, and comes to the same end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..platform.cluster.ray_head import RayHead, ray_head
from .cluster import PLUGINS
from .processes import Command
from .runs import EPOCH, SEEDS, TRAIN, Runs, assert_equal_runs

SEARCH = {"search": {"algorithm.learning_rate": {"grid": [1e-4, 1e-3]}}, "searcher": "grid", "objective": "evaluation/return"}
SWEEP = {**TRAIN, **SEARCH, "seeds_per_trial": 1}  # four trials, two at a time


@pytest.fixture
def head() -> Iterator[RayHead]:
    """A head in token mode, with two CPUs, in an environment without d3ray: what runs there was sent."""
    with ray_head() as running:
        yield running
        assert running.stop_jobs() == []


class Sent(Runs):
    """A sweep whose commands are `d3ray submit`."""

    def start(self, *arguments: str, **env: str) -> Command:
        """The command, begun; it shows the job's log and ends with the job's exit status."""
        what = ["submit", "check_cluster=false", self.job, "--config", str(self.place / f"{self.job}.yaml"), *arguments]
        self.commands.append(Command(["d3ray.jobs", *what], self.place, {**self.env, **env}))
        return self.commands[-1]


def said(runs: Runs, name: str, *what: str) -> str:
    """What another command of that shell prints, which succeeds."""
    place = runs.place / name
    place.mkdir()
    command = Command(["d3ray.jobs", *what], place, runs.env)
    try:
        assert command.wait() == 0, command.log.read_text()
    finally:
        command.end()
    return command.log.read_text()


@pytest.mark.timeout(1500)  # three commands, one after another
def test_a_sweep_stopped_as_a_job_goes_on(head: RayHead, tiny: Path, tmp_path: Path) -> None:
    env = {**head.environment(), "PYTHONPATH": str(PLUGINS)}  # whose plugin travels
    alone, stopped = (Sent(tmp_path / name, {**SWEEP, "dataset": str(tiny)}, env, "sweep") for name in ("alone", "stopped"))
    try:
        command = alone.start()
        assert command.wait(400) == 0, command.log.read_text()
        held = stopped.hold("write", 3 * EPOCH, *SEEDS)
        command = stopped.start()
        command.until(lambda: stopped.reached(held), 400)
        (job,) = re.findall(r"^Job (sweep-[0-9a-f]{8}) runs: ", command.log.read_text(), re.MULTILINE)
        assert said(stopped, "stop", "jobs", "stop", job).startswith(f"{job} is stopped.\n")
        assert command.wait() == 130, command.log.read_text()
        assert "To go on: d3ray resume " in command.log.read_text()  # it was interrupted, not killed
        assert set(stopped.statuses()) == {"KILLED"}
        assert not any(trial.is_settled for trial in stopped.trials())
        stopped.release(held)
        again = stopped.start("--resume")
        assert again.wait(400) == 0, again.log.read_text()
    finally:
        alone.end()
        stopped.end()
    assert_equal_runs(alone, stopped)
