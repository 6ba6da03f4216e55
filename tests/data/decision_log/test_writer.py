"""A decision that was answered is in the log once, however its writer ended and whoever reads meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.decision_log import DecisionRows, DecisionWriter, read_log
from d3ray.data.decision_log.layout import LogFolder
from d3ray.data.decision_log.reader import read_rows
from d3ray.data.decision_log.stream import messages
from d3ray.data.errors import DataError, StorageError
from d3ray.data.spec import Box, Spec
from d3ray.data.storage.files import Place

from .logs import CHOICE, POINT, choices, decisions

# Appends one to three decisions at a time until it is killed, and says after each time which were answered.
WRITER = """
import sys, numpy as np
from d3ray.data.decision_log import DecisionRows, DecisionWriter
from d3ray.data.spec import Box, Spec
spec = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-1.0, high=1.0))
writer, k = DecisionWriter(sys.argv[1], spec, policy="p", rotate_bytes=4000), 0
while True:
    n = k % 3 + 1
    ids = writer.append(
        DecisionRows("1", "champion", [sys.argv[2]] * n, np.arange(k, k + n), np.full((n, 2), k), np.zeros((n, 1)))
    )
    k += n
    print(*ids, flush=True)
"""


def killed_after(folder: Path, episode: str, answers: int) -> list[str]:
    """Let a process write until it has answered so many times, kill it, and return the ids that it answered."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder), episode], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(answers)]
        process.send_signal(signal.SIGKILL)
        return [id for line in [*said, *process.stdout.read().splitlines()] for id in line.split()]


def test_killed_writers_lose_no_answered_decision(tmp_path: Path) -> None:
    answered = [id for k in range(3) for id in killed_after(tmp_path, f"episode {k}", 7 + 11 * k)]
    for closed in (False, True):
        if closed:  # who writes next closes the files of the dead
            with DecisionWriter(tmp_path, POINT, policy="p") as writer:
                wait_until(lambda: not list((tmp_path / "decisions").glob("*.open")))
                assert writer.append(decisions("last", 0))
        ids = read_log(tmp_path)["id"].to_pylist()
        assert len(set(ids)) == len(ids)
        assert set(answered) <= set(ids)
        assert len(ids) <= len(answered) + 3 * 3 + closed  # what each had written as it was killed and not yet told


def test_a_torn_message_is_left_out_wherever_it_is_torn(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as writer:
        writer.append(decisions(["a", "a"], [0, 1]))
        (file,) = (tmp_path / "decisions").glob("*.open")
        whole = file.stat().st_size
        writer.append(decisions("a", 2))
        content = file.read_bytes()
    (tmp_path / "decisions" / file.with_suffix(".arrows").name).unlink()
    for size in range(whole, len(content) + 1):
        found = messages(pa.py_buffer(content[:size]))
        assert [step for batch in found.batches for step in batch["step"].to_pylist()] == [0, 1] + [2] * (size == len(content))
        assert found.size == (len(content) if size == len(content) else whole)
    file.write_bytes(content[:-1])
    rows = read_rows(LogFolder(tmp_path), "decisions")
    assert rows.table["step"].to_pylist() == [0, 1]
    assert not rows.torn  # it may be written just now
    for tail in (content[whole : whole + 100], bytes(200), b"\7" * 200):
        closed = file.with_suffix(".arrows")
        closed.write_bytes(content[:whole] + tail)
        file.unlink(missing_ok=True)
        rows = read_rows(LogFolder(tmp_path), "decisions")
        assert rows.table["step"].to_pylist() == [0, 1]
        assert rows.torn == {f"decisions/{file.stem}": len(tail)}


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_adopted_files_keep_whole_messages_and_are_read_by_arrow(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        writer = DecisionWriter(folder, POINT, policy="p")
        sizes, ends, file = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)), list[int](), folder
        for k, n in enumerate(sizes):
            writer.append(decisions([f"{k}"] * n, list(range(n))))
            (file,) = (folder / "decisions").glob("*.open")
            ends.append(file.stat().st_size)
        content = file.read_bytes()
        writer.close()
        (folder / "decisions" / f"{file.stem}.arrows").unlink()
        cut = data.draw(st.integers(0, len(content)))
        file.write_bytes(content[:cut])
        DecisionWriter(folder, POINT, policy="p").close()
        expected = sum(n for n, end in zip(sizes, ends, strict=True) if end <= cut)
        closed = folder / "decisions" / f"{file.stem}.arrows"
        assert not file.exists()
        assert read_log(folder).num_rows == expected
        if cut >= ends[0]:
            assert pa.ipc.open_stream(closed.read_bytes()).read_all().num_rows == expected


def test_a_log_is_read_while_two_write(tmp_path: Path) -> None:
    """Every read holds at least what was answered before it, each decision once, a writer's in order."""
    stop, answered = threading.Event(), [0, 0]

    def write(which: int) -> None:
        with DecisionWriter(tmp_path, POINT, policy="p", rotate_bytes=3000) as writer:
            while not stop.is_set():
                writer.append(decisions(f"{which}", answered[which]))
                answered[which] += 1

    threads = [threading.Thread(target=write, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: min(answered) > 3)
        while min(answered) < 60:
            before = list(answered)
            table = read_log(tmp_path, columns=("episode", "step"))
            for which in (0, 1):
                steps = [row["step"] for row in table.to_pylist() if row["episode"] == f"{which}"]
                assert steps == list(range(len(steps)))
                assert len(steps) >= before[which]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert read_log(tmp_path).num_rows == sum(answered)
    assert len(list((tmp_path / "decisions").glob("*.arrows"))) > 10
    assert not list((tmp_path / "decisions").glob("*.open"))


def test_a_file_is_closed_by_age_and_not_while_its_writer_lives(tmp_path: Path) -> None:
    with (
        DecisionWriter(tmp_path, POINT, policy="p", rotate_seconds=0.2) as young,
        DecisionWriter(tmp_path, POINT, policy="p") as old,
    ):
        old.append(decisions("old", 0))
        young.append(decisions("young", 0))
        wait_until(lambda: bool(list((tmp_path / "decisions").glob("*.arrows"))))
        young.append(decisions("young", 1))
        assert [path.name for path in (tmp_path / "decisions").glob("*-000000.open")] != []  # the old one's
    assert sorted(read_log(tmp_path)["episode"].to_pylist()) == ["old", "young", "young"]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    with DecisionWriter(tmp_path, CHOICE, policy="shop") as writer:
        ids = writer.append(choices(["a", None], [4, 0], [[0, 1], None]))
        late = DecisionRows(
            "2", "fallback", ["a"], [5], {"seen": [[1, 2]], "kind": [1]}, [1], np.nan * np.ones(1), None, [2.5], ["late"], 7.0
        )
        ids += writer.append(late)
    rows = read_log(tmp_path).to_pylist()
    assert [row["id"] for row in rows] == ids
    assert [row["episode"] for row in rows] == ["a", ids[1], "a"]
    assert [row["legal"] for row in rows] == [[0, 1], None, None]
    assert [row["action"] for row in rows] == [1, 0, 1]
    assert [row["observation/kind"] for row in rows] == [1, 0, 1]
    assert rows[0]["observation/seen"] == [4.0, -4.0]
    assert [row["log_prob"] for row in rows] == [np.float32(np.log(0.5))] * 2 + [None]
    assert (rows[2]["reason"], rows[2]["value"], rows[2]["time"].timestamp()) == ("late", 2.5, 7.0)
    assert {row["policy"] for row in rows} == {"shop"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            DecisionRows("1", "champion", ["a"], [0], np.zeros((1, 3)), np.zeros((1, 1))),
            "observation is of shape [1, 3]; a batch of [2]",
        ),
        (
            DecisionRows("1", "champion", ["a"], [0], np.full((1, 2), np.nan), np.zeros((1, 1))),
            "observation holds NaN or infinity.",
        ),
        (
            DecisionRows("1", "champoin", ["a"], [0], np.zeros((1, 2)), np.zeros((1, 1))),
            "no role 'champoin'; did you mean 'champion'?",
        ),
        (DecisionRows("1", "champion", ["a"], [-1], np.zeros((1, 2)), np.zeros((1, 1))), "step is [-1]; 1 whole numbers from 0 on"),
        (DecisionRows("1", "champion", ["a"], [0], np.zeros((1, 2)), np.zeros((1, 1)), [-np.inf]), "log_prob holds infinity."),
    ],
)
def test_a_wrong_decision_is_refused_and_writes_nothing(tmp_path: Path, rows: DecisionRows, said: str) -> None:
    with DecisionWriter(tmp_path, POINT, policy="p") as writer, pytest.raises(DataError, match=re.escape(said)):
        writer.append(rows)
    assert read_log(tmp_path).num_rows == 0


def test_a_log_of_another_problem_is_refused(tmp_path: Path) -> None:
    DecisionWriter(tmp_path, POINT, policy="p").close()
    wide = Spec(observation=Box(shape=(3,)), action=POINT.action)
    with pytest.raises(DataError, match=r"another problem: its observation is of shape \[2\] and the policy's of shape \[3\]"):
        DecisionWriter(tmp_path, wide, policy="p")
    with pytest.raises(DataError, match=r"has no service\.json"):
        read_log(tmp_path / "elsewhere")


def test_a_full_disk_refuses_a_decision_and_leaves_the_log_whole(tmp_path: Path) -> None:
    """In a process that may write no file of more than 6,000 bytes."""
    code = WRITER.replace("import sys,", "import resource, signal, sys,").replace("rotate_bytes=4000", "rotate_bytes=10**6")
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwhile True:"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("while True:", limit), str(tmp_path), "a"], capture_output=True, text=True, check=False
    )
    assert "StorageError" in done.stderr
    assert done.stdout.split() == read_log(tmp_path)["id"].to_pylist()


def test_what_could_not_be_synced_is_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with DecisionWriter(tmp_path, POINT, policy="p", fsync=True) as writer:
        writer.append(decisions("a", 0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", broken)
            with pytest.raises(StorageError, match="decisions cannot be written: input/output error"):
                writer.append(decisions("a", 1))
        writer.append(decisions("a", 2))
    assert read_log(tmp_path)["step"].to_pylist() == [0, 2]


def test_a_file_that_is_renamed_while_the_folder_is_listed_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is renamed once, so one of two looks sees it."""
    with DecisionWriter(tmp_path, POINT, policy="p") as writer:
        writer.append(decisions("a", 0))
    names, looks = Place.names, iter(range(100))
    monkeypatch.setattr(Place, "names", lambda place: [] if next(looks) == 0 else names(place))
    assert read_log(tmp_path).num_rows == 1


def test_a_bucket_gets_closed_files_in_order_and_again_after_it_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, spool = f"fsspec+memory://{tmp_path.name}/log", tmp_path / "spool"
    away, put = [True], Place.put

    def unwilling(place: Place, file: Path, name: str) -> None:
        if away[0] and place.local is None:
            raise StorageError("The store does not answer.")
        put(place, file, name)

    monkeypatch.setattr(Place, "put", unwilling)
    writer = DecisionWriter(uri, POINT, policy="p", rotate_bytes=2000, rotate_seconds=0.1, spool=spool)
    for k in range(6):
        writer.append(decisions("a", k))
    wait_until(lambda: writer.unsent == "The store does not answer.")
    assert read_log(uri).num_rows == 0
    away[0] = False
    wait_until(lambda: read_log(uri).num_rows == 6)
    writer.append(decisions("a", 6))
    writer.close()
    assert read_log(uri)["step"].to_pylist() == list(range(7))
    assert not list((spool / "decisions").glob("*-*"))


def test_what_a_killed_process_left_in_a_spool_is_sent_by_the_next(tmp_path: Path) -> None:
    uri, spool = f"fsspec+memory://{tmp_path.name}/killed", tmp_path / "spool"
    answered = killed_after(spool, "a", 12)  # a spool has the layout of a log
    with DecisionWriter(uri, POINT, policy="p", spool=spool):
        wait_until(lambda: not list((spool / "decisions").glob("*-*")))
    ids = read_log(uri)["id"].to_pylist()
    assert set(answered) <= set(ids)
    assert len(set(ids)) == len(ids)


def wait_until(true: object, seconds: float = 20.0) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
