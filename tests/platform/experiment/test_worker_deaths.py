"""Whatever a trial's worker dies of, its trial is begun again and fails as any, and the others go on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial

from ...faults.processes import Command, clean_environment, kill

# The trial of seed 0 takes memory until it is ended, twice; that of seed 1 has its last epoch in between.
GREEDY = """
import time
from pathlib import Path
from d3ray.platform.worker import trial_run

here = Path(__file__).parent

def epoch(self, call=trial_run.TrialRun.epoch):
    if self.config.seeds == (0,) and (here / "greedy").exists():
        while self.writer.attempt > 1 and not list(here.glob("results/dying/trials/*-seed-1/status.json")):
            (here / "again").touch()
            time.sleep(0.01)
        taken = []
        while True:
            taken.append(bytearray(b"1" * 2**26))
            time.sleep(0.02)
    while self.config.seeds == (1,) and self.step and (here / "greedy").exists() and not (here / "again").exists():
        time.sleep(0.01)
    return call(self)

trial_run.TrialRun.epoch = epoch
"""
CRASHES = """
import ctypes
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Crashing(CartPoleEnv):
    def step(self, action):
        return ctypes.string_at(0)

gymnasium.register("Crashing-v0", Crashing)
"""
HOLDS = """
import os, time
from pathlib import Path
from d3ray.platform.worker import trial_run

here = Path(__file__).parent

def epoch(self, call=trial_run.TrialRun.epoch):
    while (here / "hold").exists():
        (here / "held").write_text(str(os.getpid()))
        time.sleep(0.01)
    return call(self)

trial_run.TrialRun.epoch = epoch
"""


class Train:
    """An experiment in a place of its own, and its command."""

    def __init__(self, place: Path, plugin: str, **settings: Any) -> None:
        self.place, self.storage = place, place / "results"
        (place / "its_plugin.py").write_text(plugin)
        told: dict[str, Any] = {
            "name": "dying",
            "dataset": "d3ray/cartpole-replay",
            "algorithm": {"name": "DQN", "preset": "small"},
            "n_steps": 20,
            "n_steps_per_epoch": 10,
            "evaluation": {"episodes": 1},
            "plugins": ["its_plugin"],
            "storage": str(self.storage),
        }
        (place / "train.yaml").write_text(json.dumps({**told, **settings}))
        self.commands: list[Command] = []

    def start(self, *arguments: str, **env: str) -> Command:
        """`d3ray train` in a session of its own, which holds Ray's processes too."""
        path = os.pathsep.join([str(self.place), os.environ.get("PYTHONPATH", "")])
        what = ["d3ray.jobs", "train", "--config", str(self.place / "train.yaml"), *arguments]
        self.commands.append(Command(what, self.place, {**clean_environment(), "PYTHONPATH": path, **env}))
        return self.commands[-1]

    def trials(self) -> dict[int, Trial]:
        """By seed."""
        return {trial.seeds[0]: trial for trial in Experiment.look(str(self.storage), "dying").trials()}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Train]]:
    begun: list[Train] = []

    def make(plugin: str, **settings: Any) -> Train:
        begun.append(Train(tmp_path, plugin, **settings))
        return begun[-1]

    yield make
    for one in begun:
        for command in one.commands:
            command.end()


@pytest.mark.long
def test_a_trial_that_takes_too_much_memory_fails_alone(begin: Callable[..., Train], tmp_path: Path) -> None:
    """Ray's memory monitor ends its workers, with what it leaves an experiment in that has no checkpoint yet."""
    train = begin(GREEDY, seeds=[0, 1], retries=1, checkpoint={"every": 20})
    (tmp_path / "greedy").touch()
    memory = psutil.virtual_memory()
    most = 1 - memory.available / memory.total + 6e9 / memory.total  # more than tests beside this one take
    command = train.start(RAY_memory_usage_threshold=f"{most:.3f}", RAY_memory_monitor_refresh_ms="100")
    assert command.wait() == 1, command.log.read_text()
    said = command.log.read_text()
    assert "Traceback" not in said
    reason = train.trials()[0].status[0]["reason"]
    assert reason.startswith("its worker died 2 times without a checkpoint between, at last: memory ran short and Ray ended it: ")
    assert " GB of its node were taken; lower algorithm.batch_size (" in reason
    faults = (train.storage / "dying/faults.log").read_text()
    assert "it had taken " in reason, "\n".join(line for line in faults.splitlines() if "memory used" in line)
    assert reason in said
    greedy = f"{train.trials()[0].identity}: its worker died: memory ran short and Ray ended it: "
    (line,) = [line for line in said.splitlines() if greedy in line]  # beside it Ray may have ended the other one
    assert "Another goes on from the beginning, restart 1 of 1 " in line
    assert train.trials()[1].status[1]["status"] == "FINISHED"
    (tmp_path / "greedy").unlink()
    again = train.start("--resume")
    assert again.wait() == 0, again.log.read_text()


@pytest.mark.long
def test_an_environment_that_crashes_is_said_each_time_and_fails_its_trial(begin: Callable[..., Train], tmp_path: Path) -> None:
    train = begin(CRASHES, evaluation={"environment": "Crashing-v0", "episodes": 1}, retries=2)
    command = train.start()
    assert command.wait() == 1, command.log.read_text()
    said = command.log.read_text()
    cause = "segmentation fault (SIGSEGV) in string_at, "
    for n in (1, 2):
        assert said.count(f"its worker died: {cause}") == 2
        assert said.count(f"restart {n} of 2 without a checkpoint between") == 1
    reason = train.trials()[0].status[0]["reason"]
    assert reason.startswith(f"its worker died 3 times without a checkpoint between, at last: {cause}")
    assert reason in said
    assert "Traceback" not in said


@pytest.mark.long
@pytest.mark.parametrize("dead", ["raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent"])
def test_a_ray_that_dies_ends_the_command(dead: str, begin: Callable[..., Train], tmp_path: Path) -> None:
    train = begin(HOLDS)
    (tmp_path / "hold").touch()
    command = train.start()
    command.until((tmp_path / "held").exists)
    kill(*(one for one in command.members(dead) if psutil.Process(one).name().startswith(dead.partition("::")[0])))
    assert command.wait(90) == 2, command.log.read_text()
    said = command.log.read_text()
    assert "another goes on" not in said.lower()
    assert "Traceback" not in said
    assert said.rstrip().endswith(f"once that is mended, d3ray resume dying storage={train.storage} goes on."), said
    (tmp_path / "hold").unlink()
    again = train.start("--resume")
    assert again.wait() == 0, again.log.read_text()


@pytest.mark.long
def test_a_worker_that_is_killed_is_said_with_its_signal(begin: Callable[..., Train], tmp_path: Path) -> None:
    train = begin(HOLDS)
    (tmp_path / "hold").touch()
    command = train.start()
    command.until((tmp_path / "held").exists)
    kill(int((tmp_path / "held").read_text()), by=signal.SIGKILL)
    (tmp_path / "hold").unlink()
    assert command.wait() == 0, command.log.read_text()
    assert command.log.read_text().count("its worker died: it was killed (SIGKILL), or ended itself. Another goes on from") == 1
