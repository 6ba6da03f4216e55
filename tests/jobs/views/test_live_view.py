"""The live status: on terminals of any size, in a real one that is resized and interrupted, and in a log."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from d3ray.jobs.views import live_view
from d3ray.jobs.views.live_view import showing
from d3ray.jobs.views.view_text import Drawing, line, time_left
from d3ray.platform.record.status import Status
from d3ray.platform.results.status_reader import StatusReader
from d3ray.platform.storage.experiments import Experiment

from ...platform.results.fake_status import METRIC, SEARCH, begin, write_trial
from .terminal import Terminal

DIVERGED = "diverged at step 217: its losses are not finite from there on"


def sweep(storage: Path, n_configurations: int = 40) -> Experiment:
    """Every seventh failed, every fifth was stopped, the last two wait, six before them run; the return is -number."""
    experiment = begin(storage, "pendulum-sweep", **{**SEARCH, "budget": {"configurations": 60, "hours": 8.0}})
    now = time.time()
    for n in range(n_configurations):
        settings = {"alpha": 1 + n / 10, "actor_learning_rate": 3e-4}
        epochs = [(100 * k, now - 50 + 10 * k, {seed: -1.0 * n - seed for seed in range(3)}) for k in range(1, 4)]
        end: Any = "FINISHED"
        if n >= n_configurations - 8:
            end = None
            epochs = epochs if n < n_configurations - 2 else []
        elif n % 7 == 3:
            end = {seed: {"status": "FAILED", "reason": DIVERGED, "final": True, "step": 217} for seed in range(3)}
        elif n % 5 == 2:
            stopped = {"status": "KILLED", "reason": "stopped by asha at step 300", "final": True, "step": 300}
            end = {seed: {**stopped, "metrics": {METRIC: -1.0 * n - seed}} for seed in range(3)}
        write_trial(experiment, (0, 1, 2), n, settings=settings, epochs=epochs, ended=end)
    return experiment


def drawn(status: Status, width: int, height: int, rows: int | None = None) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False, color_system=None)
    console.print(Drawing(status, rows), height=height - 1)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Status:
    folder = tmp_path_factory.mktemp("sweep")
    experiment = sweep(folder)
    status = StatusReader(str(folder), experiment.name).read()
    experiment.close()
    return status


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (80, 14), (50, 20), (30, 12)])
def test_it_fits_the_terminal(seen: Status, width: int, height: int) -> None:
    lines = drawn(seen, width, height)
    assert len(lines) <= height - 1 or height <= 14
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "pendulum-sweep" in text
    assert "Best so far: evalu" in text
    assert "Last errors (" in text or height <= 14
    numbers = [int(found[1]) for found in re.finditer(r"^ +(\d+)  (?:running|pending|finished|stopped|failed)", text, re.MULTILINE)]
    hidden = re.search(r"^… and (\d+) configurations more", text, re.MULTILINE)
    assert len(numbers) + (int(hidden[1]) if hidden else 0) == 40


def test_what_runs_and_the_best_of_the_rest_come_first(seen: Status) -> None:
    lines = drawn(seen, 80, 24)
    rows = [row.split()[:2] for row in lines if re.match(r" +\d+  ", row)]
    running = [row for row in rows if row[1] == "running"]
    others = [row for row in rows if row[1] != "running"]
    assert [row[0] for row in running] == [str(n) for n in range(32, 32 + len(running))]
    assert [row[0] for row in others] == ["0", "1", "2", "4", "5", "6"][: len(others)]  # 3 failed
    assert len(others) >= 3
    assert any(row.startswith("Best so far: evaluation/return -1.000, interval below 95 % [-2, 0], 3 seeds") for row in lines)
    assert "             #0 alpha=1, actor_learning_rate=0.0003" in lines
    assert [row for row in lines if row.startswith("40 of 60 configurations: ")]
    wide = drawn(seen, 140, 30)
    assert [row for row in wide if re.search(r"interval below 95 % +updates/s +alpha +actor_learning_rate", row)]
    assert [row for row in wide if re.search(r"33  running .* 4\.3 +0\.0003$", row.rstrip())]
    in_full = drawn(seen, 80, 24, rows=100)
    assert not [row for row in in_full if row.startswith("…")]


def test_seeds_of_one_configuration_have_a_row_each(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "three")
    now = time.time()
    write_trial(experiment, (0, 1), epochs=[(100 * k, now - 50 + 10 * k, {0: -480.0, 1: -520.0}) for k in range(1, 5)], attempt=2)
    write_trial(
        experiment, (2,), ended={2: {"status": "FAILED", "reason": DIVERGED, "final": True, "step": 217, "time": now * 1000}}
    )
    write_trial(experiment, (3,))
    status = StatusReader(str(tmp_path), "three").read()
    lines = [row.rstrip() for row in drawn(status, 80, 24)]
    assert lines[0].startswith("three  running for ")
    assert re.search(r"about .* left, until \d\d:\d\d$", lines[0])
    assert lines[2] == "4 seeds of 1,000 updates: 1 running, 1 pending, 1 failed"
    assert lines[4].split() == ["seed", "state", "step", "done", "return", "updates/s"]
    assert lines[5].split() == ["0", "running", "400", "40", "%", "-480.00", "10", "attempt", "2"]
    assert lines[6].split() == ["1", "running", "400", "40", "%", "-520.00", "10", "attempt", "2"]
    assert lines[7].split()[:5] == ["2", "failed", "217", "21", "%"]
    assert lines[8].split() == ["3", "pending", "0", "0", "%"]
    assert lines[-1].endswith(f"seed 2: {DIVERGED}")
    assert max(map(len, lines)) <= 80
    said = line(status)
    assert said.startswith("three: 45 % of 4 seeds of 1,000 updates, 20 updates/s, about ")
    assert said.endswith("; 1 running, 1 pending, 1 failed")  # no mean: seed 3 has not been measured


def test_an_epoch_that_takes_longer_than_those_before_it_has_no_time_left_that_is_known(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    now = time.time()
    write_trial(experiment, (0,), epochs=[(100 * k, now - 90 + 10 * k, {0: 1.0}) for k in range(1, 10)])  # the last is due in 10 s
    status = StatusReader(str(tmp_path), "one").read()
    assert time_left(status.later(now + 5)).startswith("about 5 s left, until ")
    assert time_left(status.later(now + 15)) == "time left: unknown, this epoch takes longer than those before it"
    resumed = status.model_copy(
        update={"trials": tuple(one.model_copy(update={"state": "PENDING"}) for one in status.trials)}
    )  # no worker has begun yet
    assert time_left(resumed) == "time left: unknown before training goes on"
    fresh = resumed.model_copy(update={"trials": tuple(one.model_copy(update={"step": 0}) for one in resumed.trials)})
    assert time_left(fresh) == "time left: unknown before the first epoch"


def test_in_a_log_there_are_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_READ_SECONDS", 0.05)
    monkeypatch.setattr(live_view, "_SECONDS_BETWEEN", 0.05)
    monkeypatch.setattr(live_view, "_SECONDS_BETWEEN_LINES", 0.5)
    experiment = begin(tmp_path, "one", **SEARCH)
    now = time.time()
    first = write_trial(experiment, (0, 1), 0, settings={"alpha": 1.5}, epochs=[(500, now - 9, {0: 1.0, 1: 2.0})])
    second = write_trial(experiment, (0, 1), 1, settings={"alpha": 2.5})
    said = io.StringIO()
    reader = StatusReader(str(tmp_path), "one")

    def until(text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in said.getvalue():
            assert time.monotonic() < deadline, said.getvalue()
            time.sleep(0.01)

    with showing(reader.read, console=Console(file=said, width=80)) as over:
        until("one: 25 % of 2 configurations, ")
        bad = {"status": "FAILED", "reason": DIVERGED, "final": True, "step": 600}
        first.settle({0: {"status": "FINISHED", "step": 1000, "metrics": {METRIC: 3.0}}, 1: bad})
        until(f"one: #0 (alpha=1.5), seeds 0, 1 failed at step 1,000, evaluation/return 3.000: {DIVERGED}\n")
        until("one: 50 % of 2 configurations, ")
        assert not over.is_set()
        second.settle({seed: {"status": "FINISHED", "step": 1000, "metrics": {METRIC: 5.0}} for seed in (0, 1)})
        experiment.set_state("FINISHED")
    assert "one: #1 (alpha=2.5), seeds 0, 1 finished at step 1,000, evaluation/return 5.000, 5.000\n" in said.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", said.getvalue())


def test_a_command_that_is_refused_at_once_waits_for_no_storage() -> None:
    reads: list[None] = []
    with showing(lambda: reads.append(None), lambda: "one: starting", Console(file=io.StringIO(), width=80)):
        pass
    assert reads == []


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_waited_for_is_said_at_once(terminal: bool) -> None:
    said, screen = io.StringIO(), Terminal(80, 5)
    told = ["one: opening MLflow"]

    def until(text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in said.getvalue():
            assert time.monotonic() < deadline, said.getvalue()
            time.sleep(0.01)

    began = time.monotonic()
    with showing(lambda: None, lambda: told[0], Console(file=said, width=80, force_terminal=terminal, color_system=None)):
        until("one: opening MLflow")
        assert time.monotonic() - began < 10  # of a busy machine
        if terminal:
            until("one: opening MLflow, 1 s")
        told[0] = "one: starting Ray"
        until("one: starting Ray, 0 s" if terminal else "one: starting Ray\n")
    if terminal:
        screen.feed(said.getvalue().replace("\n", "\r\n"))
        assert screen.text == ""  # nothing of it stays
    else:
        assert said.getvalue() == "one: opening MLflow\none: starting Ray\n"


PROGRAM = """
import sys, time
from d3ray.jobs.views.live_view import showing
from d3ray.platform.results.status_reader import StatusReader
reader = StatusReader(sys.argv[1], "pendulum-sweep")
print("before", file=sys.stderr)
try:
    with showing(reader.read) as over:
        print("a remark", file=sys.stderr)
        over.wait()
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
"""


class Screen:
    """A program in a terminal of its own, of 80 columns and 24 rows."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.terminal = Terminal(80, 24)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        environment["TERM"] = "xterm-256color"
        take = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"  # then what is typed interrupts
        command = [sys.executable, "-c", take + program, *arguments]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.terminal.resize(width, height)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.terminal.text
            if select.select([self._ours], [], [], 0.1)[0]:
                self.terminal.feed(os.read(self._ours, 65536).decode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_in_a_terminal_it_stays_in_place_follows_its_size_and_leaves_nothing(tmp_path: Path) -> None:
    experiment = sweep(tmp_path)
    screen = Screen(PROGRAM, str(tmp_path))
    terminal, until = screen.terminal, screen.until

    def is_whole() -> bool:
        return terminal.text.startswith("a remark\npendulum-sweep  running") and "Last errors" in terminal.text

    try:
        until(is_whole)
        assert not terminal.cursor_is_shown
        first = terminal.text
        until(lambda: is_whole() and terminal.text != first)  # time goes on, in place
        assert terminal.text.count("pendulum-sweep") == 1
        screen.resize(60, 40)
        until(lambda: terminal.text.startswith("pendulum-sweep") and terminal.text.count("Last errors") == 1)
        settled = terminal.text
        until(lambda: terminal.text != settled and "Last errors" in terminal.text)
        assert terminal.text.count("pendulum-sweep  running") == 1
        os.kill(screen.process.pid, signal.SIGINT)
        until(lambda: "interrupted" in terminal.text)
        assert screen.process.wait(60) == 0
        assert terminal.text == "interrupted"
        assert terminal.cursor_is_shown
    finally:
        screen.end()
        experiment.close()


RUNS = """
import sys, time
sys.path.insert(0, sys.argv[2])
from d3ray.jobs.views.live_view import live_experiment
from tests.platform.results.fake_status import begin, write_trial
experiment = begin(sys.argv[1], "one")
write_trial(experiment, (0, 1), epochs=[(300, time.time() - 1, {0: -480.0, 1: -520.0})], losses={"train/critic_loss": 0.25})
try:
    with live_experiment(sys.argv[1], "one"):
        try:
            time.sleep(300)
        finally:
            experiment.set_state("KILLED", "stopped by the user")
            experiment.close()
except KeyboardInterrupt:
    print("To go on: …")
"""


def test_after_ctrl_c_the_table_stands_there_as_it_was_reached(tmp_path: Path) -> None:
    screen = Screen(RUNS, str(tmp_path), str(Path(__file__).parents[3]))
    terminal = screen.terminal
    try:
        screen.until(lambda: "one  running for" in terminal.text and "-520.00" in terminal.text)
        screen.type("\x03")
        screen.until(lambda: "To go on" in terminal.text)
        assert screen.process.wait(60) == 0
    finally:
        screen.end()
    rows = [row.split() for row in terminal.text.splitlines()]
    assert rows[0][:3] == ["one", "killed", "after"]  # nothing is left above it
    assert rows[1] == ["Stopped", "by", "the", "user."]
    assert ["0", "killed", "300", "30", "%", "-480.00", "0.25"] in rows
    assert ["1", "killed", "300", "30", "%", "-520.00", "0.25"] in rows
    assert rows[-1] == ["To", "go", "on:", "…"]
    assert "running" not in terminal.text
    assert terminal.cursor_is_shown


def test_losses_are_shown_the_critics_and_the_actors_first(tmp_path: Path) -> None:
    losses = {"train/imitation_loss": 3.0, "train/critic_loss": 0.25, "train/actor_loss": -1.5, "holdout/critic_loss": 9.0}
    experiment = begin(tmp_path, "one")
    write_trial(experiment, (0,), epochs=[(100, time.time() - 1, {0: -480.0})], losses=losses)
    status = StatusReader(str(tmp_path), "one").read()
    experiment.close()

    def table(status: Status, width: int) -> tuple[list[str], list[str]]:
        heads, row = drawn(status, width, 24)[-2:]
        return heads.split()[4:], row.split()[5:]

    assert table(status, 80) == (["return", "critic_loss", "updates/s"], ["-480.00", "0.25", "77"])
    assert table(status, 120) == (["return", "critic_loss", "actor_loss", "updates/s"], ["-480.00", "0.25", "-1.500", "77"])
    bare = status.model_copy(update={"objective": None})
    assert table(bare, 80) == (["critic_loss", "actor_loss", "updates/s"], ["0.25", "-1.500", "77"])
    assert line(bare).endswith("1 running; critic_loss 0.25, actor_loss -1.500")
    (trial,) = bare.trials
    seeds = (trial.seeds[0].model_copy(update={"losses": {"train/imitation_loss": 3.0}}),)
    only = bare.model_copy(update={"trials": (trial.model_copy(update={"seeds": seeds}),)})
    assert only.losses == ("train/imitation_loss",)
