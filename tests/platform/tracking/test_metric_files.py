"""CSV and TensorBoard files of trials: each committed step once, whatever was killed when."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from d3ray.data.errors import StorageError
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Line, _text  # pyright: ignore[reportPrivateUsage]
from d3ray.platform.storage.trials import Trial
from d3ray.platform.tracking.metric_files import EVENTS, MetricFiles

from ..results.fake_status import begin, write_trial

BOTH = ("csv", "tensorboard")
T = 1_790_000_000.0


def commit(trial: Trial, step: int, *lines: Line) -> None:
    """Another part of seed 0's outbox, with its checkpoint."""
    trial.outbox(0).write(f"part-{step:09d}.jsonl", "".join(map(_text, lines)).encode())
    (trial.folder / "checkpoints" / f"step-{step:09d}").write("manifest.json", b"{}")


def part(step: int) -> tuple[Line, Line]:
    """Two epochs, the second of them evaluated."""
    half = step - 100
    return (
        Line(half, round(1000 * (T + half)), {"train/loss": half / 3}),
        Line(
            step,
            round(1000 * (T + step)),
            {"train/loss": float("nan") if step == 400 else step / 3, "evaluation/return": -1.0 * step},
        ),
    )


def contents(experiment: Experiment) -> dict[str, bytes]:
    folder = experiment.folder.local
    assert folder is not None
    files = [path for kind in BOTH for path in (folder / kind).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def events(content: bytes) -> list[Any]:
    """The events of a file, checksums compared."""
    found: list[Any] = []
    while content:
        head, (size,) = content[:8], struct.unpack("<Q", content[:8])
        data = content[12 : 12 + size]
        assert content[8:12] == struct.pack("<I", masked_crc32c(head))
        assert content[12 + size : 16 + size] == struct.pack("<I", masked_crc32c(data))
        found.append(event_pb2.Event.FromString(data))  # type: ignore[attr-defined]
        content = content[16 + size :]
    return found


def test_the_files_hold_what_is_committed(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    files = MetricFiles(experiment, BOTH)
    files.update([trial])
    assert contents(experiment) == {}
    commit(trial, 200, *part(200))
    trial.outbox(0).write("part-000000400.jsonl", b"[300, 5, {}]\n")  # no checkpoint stands for it
    files.update([trial])
    place = f"{trial.identity}/seed-0"
    written = contents(experiment)
    assert written[f"csv/{place}/train/loss.csv"].decode() == f"1,100,{100 / 3!r}\n2,200,{200 / 3!r}\n"
    assert written[f"csv/{place}/evaluation/return.csv"] == b"2,200,-200.0\n"
    assert b'"algorithm": "TD3PlusBC"' in written[f"csv/{place}/params.json"]
    version, first, second = events(written[f"tensorboard/{place}/{EVENTS}"])
    assert version.file_version == "brain.Event:2"
    assert (first.step, first.wall_time) == (100, T + 100)
    assert [(value.tag, value.simple_value) for value in second.summary.value] == [
        ("train/loss", pytest.approx(200 / 3)),
        ("evaluation/return", -200.0),
    ]


def test_tensorboards_own_writer_writes_such_records(tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("a/b", 2.5, 7, walltime=T)
    (file,) = tmp_path.glob("events.*")
    version, event = events(file.read_bytes())
    assert version.file_version == "brain.Event:2"
    assert (event.step, event.summary.value[0].tag, event.summary.value[0].simple_value) == (7, "a/b", 2.5)


def test_what_is_added_bit_by_bit_is_what_is_written_at_once(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    files = MetricFiles(experiment, BOTH)
    for step in (200, 400, 600):
        commit(trial, step, *part(step))
        files.update([trial])
        files.update([trial])
    grown = contents(experiment)
    for kind in BOTH:
        (experiment.folder / kind).remove()
    MetricFiles(experiment, BOTH).update([trial])
    assert contents(experiment) == grown
    assert [event.step for event in events(grown[f"tensorboard/{trial.identity}/seed-0/{EVENTS}"])[1:]] == list(
        range(100, 700, 100)
    )


def test_files_cut_short_anywhere_are_completed_and_strange_ones_written_anew(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    commit(trial, 200, *part(200))
    MetricFiles(experiment, BOTH).update([trial])
    whole = contents(experiment)
    for name, content in whole.items():
        for upto in {0, 1, 7, 11, 12, len(content) // 2, len(content) - 1}:
            (tmp_path / "one" / name).write_bytes(content[:upto])
            MetricFiles(experiment, BOTH).update([trial])
            assert contents(experiment) == whole, (name, upto)
        (tmp_path / "one" / name).write_bytes(b"something else")
        MetricFiles(experiment, BOTH).update([trial])
        assert contents(experiment) == whole


def test_a_disk_that_was_full_for_a_while_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    commit(trial, 200, *part(200))
    files = MetricFiles(experiment, BOTH)
    files.update([trial])
    commit(trial, 400, *part(400))
    opened, real = 0, Path.open

    def full(self: Path, *args: Any, **how: Any) -> Any:
        nonlocal opened
        opened += "ab" in args
        if "ab" in args and opened == 2:
            raise OSError(28, "No space left on device")
        return real(self, *args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(StorageError, match="no space left"):
            files.update([trial])
    files.update([trial])
    repaired = contents(experiment)
    for kind in BOTH:
        (experiment.folder / kind).remove()
    MetricFiles(experiment, BOTH).update([trial])
    assert contents(experiment) == repaired


def test_an_object_store_gets_them_whole(tmp_path: Path) -> None:
    local, remote = begin(tmp_path, "one"), begin(f"fsspec+memory://{tmp_path.name}", "one")
    trials = [write_trial(experiment, (0,)) for experiment in (local, remote)]
    all_files = [MetricFiles(experiment, BOTH) for experiment in (local, remote)]
    for step in (200, 400):
        for trial, files in zip(trials, all_files, strict=True):
            commit(trial, step, *part(step))
            files.update([trial])
    for name, content in contents(local).items():
        above, _, file = name.rpartition("/")
        folder = remote.folder
        for entry in above.split("/"):
            folder = folder / entry
        assert folder.read(file) == content


def test_a_trial_that_goes_on_is_looked_at_again(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    commit(trial, 200, *part(200))
    trial.settle({0: {"status": "FAILED", "reason": "x", "step": 200}})
    files = MetricFiles(experiment, ("csv",))
    files.update([trial])
    trial.reopen()
    files.forget(trial)
    commit(trial, 400, *part(400))
    files.update([trial])
    name = f"csv/{trial.identity}/seed-0/evaluation/return.csv"
    assert contents(experiment)[name] == b"2,200,-200.0\n4,400,-400.0\n"


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.platform.tracking.test_metric_files import *
there = Experiment.look(sys.argv[1], "one")
experiment = Experiment.begin(sys.argv[1], "one", there.configuration, there.dataset, resume=True)
(trial,) = experiment.trials()
files = MetricFiles(experiment, BOTH)
for step in range(200, 10**6, 200):
    if step > trial.committed:
        commit(trial, step, *part(step))
    files.update([trial])
"""


@pytest.mark.long
def test_a_killed_command_leaves_what_the_next_one_completes(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    experiment.close()
    for wanted in (400, 1000):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[3])])
        deadline = time.monotonic() + 120
        while trial.committed < wanted + 200 * 3:
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    MetricFiles.begun_before(experiment).update([trial])  # as the next command that looks does
    completed = contents(experiment)
    for kind in BOTH:
        (experiment.folder / kind).remove()
    MetricFiles(experiment, BOTH).update([trial])
    assert contents(experiment) == completed
    steps = [event.step for event in events(completed[f"tensorboard/{trial.identity}/seed-0/{EVENTS}"])[1:]]
    assert steps == list(range(100, trial.committed + 1, 100))


def test_what_was_killed_before_its_first_file_is_completed_too(tmp_path: Path) -> None:
    experiment = begin(tmp_path, "one")
    trial = write_trial(experiment, (0,))
    MetricFiles(experiment, ("csv",))
    commit(trial, 200, *part(200))  # nobody was left to write it
    MetricFiles.begun_before(experiment).update([trial])
    assert {path.rpartition("/")[2] for path in contents(experiment)} == {"params.json", "loss.csv", "return.csv"}
