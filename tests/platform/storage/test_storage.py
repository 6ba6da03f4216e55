"""Folders of experiments and trials: who may write, what survives, what is refused."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.storage import experiments, folders
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.locks import Lock
from d3ray.platform.storage.trials import Trial, identity
from d3ray.platform.storage.writer import FencedError, Writer

from .bucket import register_bucket

CONFIGURATION = {"algorithm": {"name": "DQN", "gamma": 0.9}, "n_steps": 10}
DATASET = {"name": "tiny", "fingerprint": "aa"}


def begin(
    storage: Path, configuration: dict[str, object] = CONFIGURATION, dataset: dict[str, str] = DATASET, **how: bool
) -> Experiment:
    return Experiment.begin(str(storage), "first", configuration, dataset, **how)


def a_trial(folder: Path, seeds: tuple[int, ...] = (0,)) -> Trial:
    return Trial.create(Folder(folder / "trial"), CONFIGURATION, seeds, DATASET)


def commit(writer: Writer, step: int, keep: int = 2) -> None:
    boxes = writer.begin_outboxes()
    for box in boxes.values():
        box.add(step, {"train/loss": float(step)})
    writer.commit(step, {"w": torch.full((3,), float(step))}, {"step": step}, list(boxes.values()), keep)


def test_a_machine_that_does_not_see_the_storage_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=rf"is no trial: on {socket.gethostname()} .* Every machine that trains must"):
        Trial(Folder(tmp_path / "trial"))


def test_a_taken_name_is_refused_and_kept(tmp_path: Path) -> None:
    first = begin(tmp_path)
    first.trial(CONFIGURATION, (0,))
    first.close()
    with pytest.raises(ConfigError, match=r"'first' in .* already: say --resume .* --replace"):
        begin(tmp_path)
    again = begin(tmp_path, resume=True)
    assert again.key == first.key
    assert not again.is_new
    assert len(again.trials()) == 1


def test_replace_deletes_everything_and_says_whose_runs_are_done_with(tmp_path: Path) -> None:
    first = begin(tmp_path)
    trial = first.trial(CONFIGURATION, (0, 1))
    first.close()
    second = begin(tmp_path, replace=True)
    assert second.trials() == []
    assert second.key != first.key
    assert second.replaced == [first.key, *trial.runs.values()]


def test_whose_runs_are_done_with_is_known_until_they_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are killed while they delete the experiment, and before they have said it to the tracking server."""
    first = begin(tmp_path)
    keys = [first.key, *first.trial(CONFIGURATION, (0, 1)).runs.values()]
    first.close()
    remove = experiments._remove
    for entry in ("trials", "experiment.json"):

        def die_after(folder: Folder, name: str, last: str = entry) -> None:
            remove(folder, name)
            if name == last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(experiments, "_remove", die_after)
            with pytest.raises(KeyboardInterrupt):
                begin(tmp_path, replace=True)
    second = begin(tmp_path)
    assert second.is_new
    assert second.replaced == keys
    second.close()
    third = begin(tmp_path, replace=True)
    assert third.replaced == [*keys, second.key]
    third.discard()  # as where its dataset cannot be had
    fourth = begin(tmp_path)
    assert fourth.replaced == [*keys, second.key]
    fourth.forget_replaced()
    assert fourth.replaced == []
    fourth.discard()
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize("where", ["here", "in a store"])
def test_a_command_that_begins_while_another_discards_keeps_its_folder(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_bucket()
    storage = str(tmp_path) if where == "here" else f"fsspec+bucket://{tmp_path.name}"
    first, begun = Experiment.begin(storage, "first", CONFIGURATION, DATASET), list[Experiment]()
    remove = Folder.remove

    def begin_meanwhile(folder: Folder) -> None:
        if folder.name != first.folder.name:
            return remove(folder)
        with pytest.raises(ConfigError, match="is running"):
            Experiment.begin(storage, "first", CONFIGURATION, DATASET)
        remove(folder)
        return begun.append(Experiment.begin(storage, "first", CONFIGURATION, DATASET))

    monkeypatch.setattr(Folder, "remove", begin_meanwhile)
    first.discard()
    second = Experiment.look(storage, "first")
    assert second.key == begun[0].key != first.key
    assert not second.lock.is_free()
    begun[0].close()


@pytest.mark.parametrize(
    ("configuration", "dataset", "says"),
    [
        ({"algorithm": {"name": "DQN", "gamma": 0.5}, "n_steps": 10}, DATASET, r"algorithm\.gamma 0\.9, and now .* is 0\.5"),
        ({"algorithm": {"name": "DQN", "gamma": 0.9}, "n_steps": 11}, DATASET, "n_steps 10, and now n_steps is 11"),
        (CONFIGURATION, {"name": "tiny", "fingerprint": "bb"}, "other data"),
    ],
)
def test_resume_with_something_else_is_refused_by_name(
    tmp_path: Path, configuration: dict[str, object], dataset: dict[str, str], says: str
) -> None:
    begin(tmp_path).close()
    with pytest.raises(ConfigError, match=says):
        begin(tmp_path, configuration, dataset, resume=True)


def test_a_running_experiment_is_refused_and_a_killed_one_is_free(tmp_path: Path) -> None:
    begin(tmp_path).close()
    script = (
        "import sys, time; from d3ray.platform.storage.folders import Folder; from d3ray.platform.storage.locks import Lock; "
        "lock = Lock(Folder(sys.argv[1])); assert lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "first")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="is running"):
            begin(tmp_path, resume=True)
        assert not Lock(Folder(tmp_path / "first")).is_free()
    finally:
        holder.kill()
        holder.wait()
    assert Lock(Folder(tmp_path / "first")).is_free()
    begin(tmp_path, resume=True).close()


def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a folder"):
        Experiment.begin(str(tmp_path), "a/b", CONFIGURATION, DATASET)


def test_identity_tells_configurations_and_seeds_apart() -> None:
    other = {**CONFIGURATION, "n_steps": 11}
    names = {identity(c, s) for c in (CONFIGURATION, other) for s in ((0,), (1,), (0, 1), tuple(range(9)), tuple(range(8)))}
    assert len(names) == 10
    assert identity(CONFIGURATION, (0,)) == identity({"n_steps": 10, "algorithm": {"gamma": 0.9, "name": "DQN"}}, (0,))
    assert max(map(len, names)) < 60


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    writer = Writer(a_trial(tmp_path))
    for step in (10, 20, 30):
        commit(writer, step)
    assert writer.checkpoints.checkpoint_steps() == [20, 30]
    found = writer.newest()
    assert found is not None
    assert found[0]["w"].tolist() == [30.0] * 3


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    writer = Writer(a_trial(tmp_path))
    for step in (10, 20):
        commit(writer, step)
    part = tmp_path / "trial/checkpoints/step-000000020/tensors.safetensors"
    part.write_bytes(part.read_bytes()[:-1])
    found = Writer(Trial(Folder(tmp_path / "trial"))).newest()
    assert found is not None
    assert found[1]["step"] == 10
    assert not part.exists()


def test_a_checkpoint_that_cannot_be_read_now_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that began without it would train all of it anew: it fails with the reason, and is tried again."""
    writer = Writer(a_trial(tmp_path))
    for step in (10, 20):
        commit(writer, step)
    read = Path.read_bytes

    def stale(path: Path) -> bytes:
        if path.name == "tensors.safetensors":
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", stale)
        with pytest.raises(StorageError, match=r"step-000000020/tensors\.safetensors cannot be read: stale file handle"):
            writer.newest()
    found = writer.newest()
    assert found is not None
    assert found[1]["step"] == 20


def test_a_checkpoint_of_a_newer_format_is_kept(tmp_path: Path) -> None:
    writer = Writer(a_trial(tmp_path))
    for step in (10, 20):
        commit(writer, step)
    manifest = tmp_path / "trial/checkpoints/step-000000020/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(StorageError, match="is of the format d3ray-checkpoint 99; this d3ray reads d3ray-checkpoint 1"):
        writer.newest()
    assert writer.checkpoints.checkpoint_steps() == [10, 20]


def test_an_older_attempt_cannot_commit(tmp_path: Path) -> None:
    trial = a_trial(tmp_path)
    old = Writer(trial)
    commit(old, 10)
    new = Writer(trial)
    for write in (lambda: commit(old, 20), lambda: old.settle({0: {"status": "FINISHED"}}), lambda: old.keep_best(0, {}, {})):
        with pytest.raises(FencedError, match="begun again elsewhere"):
            write()
    assert trial.committed == 10
    assert trial.status == {}
    assert [path.name for path in (tmp_path / "trial/outbox/seed-0").iterdir()] == ["part-000000010.jsonl"]
    commit(new, 20)
    assert trial.committed == 20


def test_a_worker_of_a_replaced_experiment_cannot_commit(tmp_path: Path) -> None:
    """Attempts count from 1 again, and the trial's folder has the same name, even where the data are others."""
    first = begin(tmp_path)
    old = Writer(first.trial(CONFIGURATION, (0,)))
    commit(old, 10)
    first.close()
    second = begin(tmp_path, dataset={"name": "tiny", "fingerprint": "bb"}, replace=True)
    writes = (lambda: commit(old, 20), lambda: old.settle({0: {"status": "FINISHED"}}), lambda: old.keep_best(0, {}, {}))
    for write in writes:
        with pytest.raises(FencedError, match="was deleted or replaced"):
            write()
    trial = second.trial(CONFIGURATION, (0,))
    new = Writer(trial)
    assert (new.attempt, trial.identity) == (old.attempt, old.trial.identity)
    for write in writes:
        with pytest.raises(FencedError, match="was deleted or replaced"):
            write()
    assert (trial.committed, trial.status) == (-1, {})
    commit(new, 20)
    assert trial.committed == 20
    second.close()


def test_a_successor_that_begins_during_a_write_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old writer has everything on the disk and is about to rename when the new one begins."""
    trial = a_trial(tmp_path)
    old = Writer(trial)
    check = old.check
    newer: list[Writer] = []

    def begin_meanwhile(*_: object) -> None:
        newer.append(Writer.__new__(Writer))
        trial.folder.write("attempt", b"2")
        check()

    monkeypatch.setattr(old, "check", begin_meanwhile)
    with pytest.raises(FencedError):
        commit(old, 10)
    assert trial.committed == -1
    assert [path for path in (tmp_path / "trial/checkpoints").iterdir() if path.name[0] != "."] == []


def test_a_successor_that_clears_away_a_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stood still in the middle of a write finds its files gone: that is no fault of the disk."""
    trial = a_trial(tmp_path)
    old, sync = Writer(trial), os.fsync
    with monkeypatch.context() as patch:

        def begun_elsewhere(file: int) -> None:
            sync(file)
            patch.setattr(os, "fsync", sync)
            Writer(trial)

        patch.setattr(os, "fsync", begun_elsewhere)
        with pytest.raises(FencedError, match="begun again elsewhere"):
            commit(old, 10)
    assert trial.committed == -1


def test_a_successor_passes_a_worker_by_that_hangs_in_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock, has looked at its attempt number, and is about to rename; then it goes on."""
    monkeypatch.setattr(folders, "_HUNG_SECONDS", 0.2)
    trial = a_trial(tmp_path)
    old, check = Writer(trial), Writer.check
    newer: list[Writer] = []

    def hang(writer: Writer) -> None:
        check(writer)
        if writer is old and not newer:
            newer.append(Writer(trial))
            commit(newer[0], 5)

    monkeypatch.setattr(Writer, "check", hang)
    with pytest.raises(FencedError, match="attempt 2"):
        commit(old, 10)
    assert trial.committed == 5
    commit(newer[0], 10)  # the old one lets its lock go, which is the old file's
    assert trial.committed == 10


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(a_trial(tmp_path))
    commit(writer, 10)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"(?i)full|no space"):
            commit(writer, 20)
    assert writer.checkpoints.checkpoint_steps() == [10]
    assert [path.name for path in (tmp_path / "trial/checkpoints").iterdir()] == ["step-000000010"]
    commit(writer, 20)
    assert writer.trial.committed == 20


def test_what_a_killed_writer_left_half_made_goes(tmp_path: Path) -> None:
    trial = a_trial(tmp_path)
    commit(Writer(trial), 10)
    half = tmp_path / "trial/checkpoints/.tmp-step-000000020-abc"
    half.mkdir()
    (half / "tensors.safetensors").write_bytes(b"half")
    Writer(trial)
    assert not half.exists()


def test_a_failure_may_be_tried_again_unless_it_would_come_again(tmp_path: Path) -> None:
    trial = a_trial(tmp_path, (0, 1))
    assert not trial.is_settled
    trial.settle({0: {"status": "FINISHED"}, 1: {"status": "FAILED", "reason": "disk full"}})
    assert not trial.is_settled
    trial.settle({0: {"status": "FINISHED"}, 1: {"status": "FAILED", "reason": "diverged", "final": True}})
    assert trial.is_settled
    trial.reopen()
    assert trial.status == {}
