"""A log that grows is imported again and again: each episode once, as if it had been imported once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from d3ray.data.errors import DataError, StorageError
from d3ray.data.formats.decisions.decision_log import NothingNewError
from d3ray.data.spec import Box, Spec
from d3ray.jobs.command.running import run_command
from d3ray.platform.datasets.ingest import Ingested, ingest

from ..object_store import object_store

POINT = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-1.0, high=1.0))


def play(writer: DecisionWriter, episode: str, steps: Sequence[int], version: str = "1") -> None:
    """Write decisions, one by one; what was seen and done says which."""
    number = float(int(episode))
    for k in steps:
        writer.append(DecisionRows(version, "champion", [episode], [k], [[number, k]], [[k / 100]], log_prob=[-0.5]))


def tell(ledger: OutcomeLedger, episode: str, steps: Sequence[int], last: int) -> None:
    told = [Outcome(int(episode) + k / 100, episode, k, terminated=k == last) for k in steps]
    assert {answer.status for answer in ledger.record(told)} <= {"recorded"}


def add(log: Path, episodes: Sequence[int], length: int = 3) -> None:
    with DecisionWriter(log, POINT, policy="p") as writer, OutcomeLedger(log, POINT) as ledger:
        for e in episodes:
            play(writer, f"{e}", range(length))
            tell(ledger, f"{e}", range(length), length - 1)


def run(log: Path, target: Path, **options: Any) -> Ingested:
    return ingest(log, target, options=options)


def test_imported_in_parts_it_is_what_it_is_at_once(tmp_path: Path) -> None:
    """Through episodes that go over imports, files and versions of the policy."""
    log, parts = tmp_path / "log", tmp_path / "parts"
    with DecisionWriter(log, POINT, policy="p", rotate_bytes=3000) as writer, OutcomeLedger(log, rotate_bytes=3000) as ledger:
        play(writer, "0", range(3))
        tell(ledger, "0", range(3), 2)
        play(writer, "1", range(2))
        tell(ledger, "1", range(2), 5)
        assert run(log, parts).added is None
        for e in (2, 3, 4):
            play(writer, f"{e}", range(4), version=f"{e}")
            tell(ledger, f"{e}", range(4), 3)
        found = run(log, parts)
        assert found.added == (12, 3)
        play(writer, "1", range(2, 6), version="7")
        assert run(log, parts).added == (0, 0)
        tell(ledger, "1", range(2, 6), 5)
        play(writer, "5", range(2))
        assert run(log, parts).added == (6, 1)
    found, again = run(log, parts), Dataset.open(parts)
    assert (found.added, found.files) == ((0, 0), [])
    assert "no complete episode that is new. 1 episodes have not ended yet" in found.notes[0]
    whole = run(log, tmp_path / "whole").dataset
    assert again.fingerprint == whole.fingerprint
    again.verify()
    about, whole_about = (dataset.provenance["ingested"]["files"][0] for dataset in (again, whole))
    assert about["log"] == whole_about["log"]
    assert about["log"]["versions"] == ["1", "2", "3", "4", "7"]
    assert (about["n_episodes"], about["n_transitions"]) == (5, 21)
    assert about["before"]["n_episodes"] == 4
    assert (again.name, again.spec) == ("parts", POINT)


def test_what_comes_late_is_left_out_and_told_of(tmp_path: Path) -> None:
    log, target = tmp_path / "log", tmp_path / "set"
    with DecisionWriter(log, POINT, policy="p") as writer, OutcomeLedger(log) as ledger:
        play(writer, "0", range(3))
        tell(ledger, "0", range(2), 5)
        assert run(log, target, episode_timeout=0).dataset.n_transitions == 2  # given up
        play(writer, "0", [1, 3])  # an answer that was asked for again, and another step
        tell(ledger, "0", [2], 2)
        add(log, [1])
        found = run(log, target)
    assert found.added == (3, 1)
    assert found.dataset.n_transitions == 5
    assert found.notes[0] == "2 decisions are of episodes that the dataset has already, and were left out."
    assert found.notes[1].startswith("1 outcomes came after their episodes were taken")
    anew = ingest(log, target, options={"episode_timeout": 0}, overwrite=True)
    assert anew.added is None
    assert anew.dataset.n_transitions == 6


def test_another_log_and_other_settings_are_refused(tmp_path: Path) -> None:
    add(tmp_path / "log", [0])
    add(tmp_path / "other", [0, 1])
    run(tmp_path / "log", tmp_path / "set", role="champion")
    before = Dataset.open(tmp_path / "set").fingerprint
    add(tmp_path / "log", [1])
    with pytest.raises(DataError, match=r"was made with role=champion: say the same .*, or overwrite=true"):
        run(tmp_path / "log", tmp_path / "set")
    with pytest.raises(DataError, match=r"was made of another log than .*other; give a new folder, or overwrite=true"):
        run(tmp_path / "other", tmp_path / "set")
    with OutcomeLedger(tmp_path / "log") as ledger, DecisionWriter(tmp_path / "log", POINT, policy="p") as writer:
        play(writer, "2", [0])
        ledger.record([Outcome(1, "2", 0, terminated=True, cost=2.0)])
    with pytest.raises(DataError, match="The log has cost now, and the dataset has no such column: overwrite=true"):
        run(tmp_path / "log", tmp_path / "set", role="champion")
    assert Dataset.open(tmp_path / "set").fingerprint == before
    (tmp_path / "arrays").mkdir()
    np.savez(
        tmp_path / "arrays.npz", observations=np.zeros((2, 2)), actions=np.zeros((2, 1)), rewards=np.zeros(2), terminals=[0, 1]
    )
    ingest(tmp_path / "arrays.npz", tmp_path / "plain")
    with pytest.raises(StorageError, match="is a dataset already"):
        run(tmp_path / "log", tmp_path / "plain")


def test_a_log_is_imported_while_it_is_written(tmp_path: Path) -> None:
    """By two replicas that share episodes; in the end each is there once, whole."""
    log, target, n = tmp_path / "log", tmp_path / "set", 40
    begun, turn, ended = threading.Barrier(4), threading.Barrier(3), threading.Event()

    def replica(which: int) -> None:
        with DecisionWriter(log, POINT, policy="p", rotate_bytes=4000) as writer:
            begun.wait()
            for e in range(n):
                play(writer, f"{e}", range(which, 6, 2))
                turn.wait()

    def client() -> None:
        with OutcomeLedger(log, POINT, rotate_bytes=4000) as ledger:
            begun.wait()
            for e in range(n):
                turn.wait()
                tell(ledger, f"{e}", range(6), 5)
        ended.set()

    threads = [threading.Thread(target=replica, args=(which,)) for which in (0, 1)] + [threading.Thread(target=client)]
    for thread in threads:
        thread.start()
    begun.wait()
    imports = 0
    while not ended.is_set():
        with suppress(NothingNewError):  # yet
            imports += run(log, target).added != (0, 0)
    for thread in threads:
        thread.join()
    dataset = run(log, target).dataset
    assert imports > 1
    rows = ~dataset.columns["closing"]
    assert dataset.columns["observation"][rows].tolist() == [[e, k] for e in range(n) for k in range(6)]
    assert dataset.fingerprint == run(log, tmp_path / "once").dataset.fingerprint


def test_a_log_in_a_bucket_is_imported_as_it_grows_and_into_one(tmp_path: Path) -> None:
    with object_store() as store:
        log, target = store.uri("logs/p"), store.uri("sets/p")
        for k, episodes in enumerate(([0, 1], [2])):
            with (
                DecisionWriter(log, POINT, policy="p", spool=tmp_path / "one") as writer,
                OutcomeLedger(log, POINT, spool=tmp_path / "two") as ledger,
            ):
                for e in episodes:
                    play(writer, f"{e}", range(3))
                    tell(ledger, f"{e}", range(3), 2)
            assert ingest(log, target).added == (None, (3, 1))[k]
        at_once = ingest(log, tmp_path / "once").dataset
        assert Dataset.open(target).fingerprint == at_once.fingerprint
        assert at_once.columns["reward"].astype(np.float64).round(2).tolist() == [
            *(0, 0.01, 0.02, 0),
            *(1, 1.01, 1.02, 0),
            *(2, 2.01, 2.02, 0),
        ]


def test_the_command_says_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, target, told = tmp_path / "log", tmp_path / "set", tmp_path / "outcomes.csv"
    with DecisionWriter(log, POINT, policy="p") as writer:
        play(writer, "0", range(2))
        told.write_text("episode,step,reward,terminated\n0,0,1,\n0,1,2,1\n")
        assert run_command("ingest", [str(log), str(target), f"join={told}"]) == 0
        assert "2 transitions in 1 episodes from 1 file, mean return 3.0" in capsys.readouterr().out
        play(writer, "1", [0])
        told.write_text(told.read_text() + "1,0,5,1\n")
        assert run_command("ingest", [str(log), str(target), "--join", str(told)]) == 0
        assert "3 transitions in 2 episodes, of which 1 in 1 are new, mean return 4.0" in capsys.readouterr().out
        assert run_command("ingest", [str(log), str(target), f"join={told}"]) == 0
        assert ", of which 0 in 0 are new, " in capsys.readouterr().out
        told.write_text("episode,step\n0,0\n")
        assert run_command("ingest", [str(log), str(target), f"join={told}"]) == 2
        assert "has no column reward, only episode, step." in capsys.readouterr().err


# One process imports, and forks children that import the grown log and are killed at a file operation of their own.
KILLER = """
import json, os, random, shutil, signal, sys
from d3ray.data.dataset import Dataset
from d3ray.platform.datasets.ingest import ingest

log, folder = sys.argv[1:]
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.listdir", "shutil.rmtree")

def child(target, at_event=None):
    process = os.fork()
    if process == 0:
        seen = 0
        def hook(event, arguments):
            nonlocal seen
            if event in EVENTS and folder in str(arguments):
                seen += 1
                if seen == at_event:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        ingest(log, target)
        with open(f"{folder}.seen", "w") as file:
            file.write(str(seen))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

old = Dataset.open(f"{folder}/old").fingerprint
shutil.copytree(f"{folder}/old", f"{folder}/whole")
assert child(f"{folder}/whole") == 0
n, left = int(open(f"{folder}.seen").read()), []
for k in sorted(random.Random(3).sample(range(1, n + 1), min(n, 16))):
    target = f"{folder}/{k}"
    shutil.copytree(f"{folder}/old", target)
    status, half = child(target, k), Dataset.open(target).fingerprint
    again = child(target)
    found = Dataset.open(target)
    found.verify()
    left.append([status, half, again, found.fingerprint, sorted(os.listdir(target))])
print(json.dumps({"old": old, "new": Dataset.open(f"{folder}/whole").fingerprint, "left": left}))
"""


@pytest.mark.long
def test_killed_anywhere_there_is_the_old_or_the_new_version(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    add(log, range(3))
    run(log, out / "old")
    add(log, range(3, 6))
    said = subprocess.run([sys.executable, "-c", KILLER, log, out], capture_output=True, text=True, timeout=200, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["old"] != found["new"]
    halves = {half for _, half, _, _, _ in found["left"]}
    assert halves == {found["old"], found["new"]}
    for status, half, again, fingerprint, files in found["left"]:
        assert (status, again) == (-signal.SIGKILL, 0)
        assert fingerprint == found["new"]
        assert "dataset.json" in files
        if half == found["old"]:  # else what was replaced lies there until the next write
            assert len(files) == 3  # a shard, the episodes and the manifest: what was half written is gone
