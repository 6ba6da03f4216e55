"""Folders, locks and fences in a bucket of S3: of many who want the same thing in the same moment one has it."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from d3ray.data.errors import StorageError
from d3ray.data.storage.files import Place
from d3ray.data.storage.stores.base import side_by_side
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.locks import Lock
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import FencedError, Writer

from ..object_store import ObjectStore, object_store
from .bucket import register_bucket
from .test_lease import HandClock

TAKERS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.fixture
def store(server: ObjectStore) -> ObjectStore:
    server.requests.clear()
    return server


def asked(store: ObjectStore) -> list[str]:
    """The methods of the requests since the last call."""
    methods = [method for method, _, _ in store.requests]
    store.requests.clear()
    return methods


# ---- files


def test_a_small_file_is_one_request_to_write_and_one_to_read(store: ObjectStore) -> None:
    folder = Folder(store.uri("small"))
    folder.write("a=1+2 b/é%41#?.json", b"[1]")
    assert asked(store) == ["PUT"]
    assert folder.read_json("a=1+2 b/é%41#?.json") == [1]
    assert asked(store) == ["GET"]
    assert folder.read("nothing") is None
    assert asked(store) == ["GET"]
    assert (folder.names(), (folder / "a=1+2 b").names(), folder.tree()) == (["a=1+2 b"], ["é%41#?.json"], ["a=1+2 b/é%41#?.json"])
    assert asked(store) == ["GET", "GET", "GET"]
    for name in ("x", "y", "z"):
        folder.touch(name)
    asked(store)
    folder.delete(["x", "y", "never there"])
    assert asked(store) == ["POST"]
    assert folder.names() == ["a=1+2 b", "z"]
    folder.remove()
    assert folder.names() == []


def test_a_large_file_goes_in_pieces_side_by_side(store: ObjectStore, tmp_path: Path) -> None:
    content, folder = os.urandom(20 << 20), Place(store.uri("large"))
    (tmp_path / "there").write_bytes(content)
    folder.put(tmp_path / "there", "file")
    assert not (tmp_path / "there").exists()
    folder.fetch("file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert sum(bool(piece) for _, _, piece in store.requests) == 3
    file = folder.open("file")
    assert (file.read_at(5, 7), file.read_at(5, len(content) - 2)) == (content[7:12], content[-2:])
    assert folder.sizes(["file", "none"]) == {"file": 20 << 20, "none": None}
    with pytest.raises(FileNotFoundError):
        folder.fetch("none", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_folders_that_pyarrow_made_are_read(store: ObjectStore) -> None:
    """It leaves an empty object as the mark of a folder."""
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(store.uri("marked"))
    files.create_dir(f"{root}/one/two", recursive=True)
    with files.open_output_stream(f"{root}/one/two/file") as file:
        file.write(b"1")
    folder = Folder(store.uri("marked"))
    assert (folder.names(), (folder / "one").names(), (folder / "one/two").names()) == (["one"], ["two"], ["file"])
    assert folder.tree() == ["one/two/file"]


def test_what_cannot_be_reached_is_said_without_its_keys(store: ObjectStore) -> None:
    nowhere = f"s3://THEKEY:THESECRET@nobucket/x?{store.options}"
    for act in (lambda: Folder(nowhere).names(), lambda: Folder(nowhere).read("x"), lambda: Folder(nowhere).write("x", b"")):
        with pytest.raises(StorageError, match=r"there is no bucket 'nobucket'\.$"):
            act()
    with pytest.raises(StorageError, match=r"^s3://bucket/x/none\?.* cannot be read: the store does not answer\.$"):
        Folder("s3://bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1").read("none")
    with pytest.raises(StorageError, match=r"has an option 'regio', which there is not; did you mean 'region'\?"):
        Folder("s3://THEKEY:THESECRET@bucket/x?regio=us-east-1")
    with pytest.raises(StorageError, match="a slash in SECRET is %2F") as slash:
        Folder("s3://THEKEY:THE/SECRET@bucket/x")
    assert "THE/SECRET" not in str(slash.value)


def package(folder: Path, *names: str, content: bytes) -> Path:
    folder.mkdir()
    for name in (*names, "manifest.json"):
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("kind", ["s3", "others"])
def test_a_package_is_there_whole_until_all_of_another_has_been_sent(
    kind: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_bucket()
    folder = Folder(store.uri("packages") if kind == "s3" else f"fsspec+bucket://{tmp_path.name}/packages")
    folder.put_tree(package(tmp_path / "first", "policy.onnx", "golden", content=b"1"), "mine")
    sent: list[str] = []

    def upload(self: Any, file: Path, key: str) -> None:
        sent.append(key)
        if len(sent) == 2:
            raise OSError("the store is away")
        put(self, file, key)

    kind_of_store = type(folder._store._store)  # pyright: ignore[reportAttributeAccessIssue] - of what remembers
    put = kind_of_store.upload
    with monkeypatch.context() as patch:
        patch.setattr(kind_of_store, "upload", upload)
        with pytest.raises(StorageError, match="the store is away"):
            folder.put_tree(package(tmp_path / "second", "policy.onnx", "new", content=b"2"), "mine")
    assert {name: (folder / "mine").read(name) for name in (folder / "mine").tree()} == dict.fromkeys(
        ("golden", "manifest.json", "policy.onnx"), b"1"
    )
    folder.put_tree(package(tmp_path / "third", "policy.onnx", "new", content=b"3"), "mine")
    assert {name: (folder / "mine").read(name) for name in (folder / "mine").tree()} == dict.fromkeys(
        ("manifest.json", "new", "policy.onnx"), b"3"
    )
    assert folder.names() == ["mine"]


# ---- locks


def test_of_many_that_take_a_lock_at_once_one_holds_it(store: ObjectStore) -> None:
    """Eighty takes, of a new lock and of one that was given up; below are a thousand by processes."""
    for turn in range(10):
        folder, ready = Folder(store.uri(f"taken-{turn % 5}")), threading.Barrier(TAKERS)
        locks = [Lock(folder) for _ in range(TAKERS)]

        def take(lock: Lock, ready: threading.Barrier = ready) -> bool:
            ready.wait(30)
            return lock.acquire()

        assert side_by_side(take, locks).count(True) == 1
        (holder,) = [lock for lock in locks if lock.held]
        assert Lock(folder).is_free() is False
        assert holder._lease.renew()
        holder.release()
        assert Lock(folder).is_free()


HOLDER = """
import os, sys, time
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.locks import Lock
assert Lock(Folder(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_holder_that_was_killed_on_this_machine_holds_nothing_any_more(store: ObjectStore) -> None:
    folder, stopped = Folder(store.uri("killed")), HandClock()  # by which nothing grows old, and nobody is outwaited
    other = subprocess.Popen([sys.executable, "-c", HOLDER, store.uri("killed")], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert not Lock(folder, stopped).is_free()
        assert not Lock(folder, stopped).acquire()
        other.send_signal(signal.SIGKILL)
        other.wait(30)
    finally:
        other.kill()
    assert Lock(folder, stopped).is_free()
    ours = Lock(folder, stopped)
    assert ours.acquire()
    ours.release()


@pytest.mark.parametrize("changed", [{"machine": "another"}, {"started": 1.0}, {}])
def test_only_a_process_of_this_very_machine_is_known_to_be_gone(store: ObjectStore, changed: dict[str, object]) -> None:
    """A process that lives keeps its note; its number alone, or one on another machine, says nothing."""
    folder = Folder(store.uri(f"about-{len(changed)}-{next(iter(changed), '')}"))
    held = Lock(folder)
    assert held.acquire()
    note = folder.read_json("lock") | changed
    held._lease._ended.set()  # no more renewals
    folder.write_json("lock", note)
    assert Lock(folder).is_free() is ("started" in changed)


def test_a_renewal_whose_answer_was_lost_is_known_again(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, write = Lock(Folder(store.uri("late"))), Folder.write_version

    def answered_late(folder: Folder, name: str, content: bytes, version: str | None) -> str | None:
        write(folder, name, content, version)
        return write(folder, name, content, version)  # as the client says it again

    monkeypatch.setattr(Folder, "write_version", answered_late)
    assert lock.acquire()
    assert lock._lease.renew()
    lock.check()
    lock.release()
    assert lock.is_free()


# ---- fences


@pytest.fixture
def trial(store: ObjectStore, request: pytest.FixtureRequest) -> Trial:
    folder = Folder(store.uri(re.sub(r"\W", "-", request.node.name)))
    return Trial.create(folder, {"n_steps": 10}, (0,), {"name": "tiny"})


def commit(writer: Writer, step: int, value: float) -> None:
    writer.commit(step, {"w": torch.full((3,), value)}, {"value": value}, [], keep=2)


def test_of_many_that_begin_a_trial_each_has_a_number_of_its_own(trial: Trial) -> None:
    ready = threading.Barrier(TAKERS)

    def begin(_: int) -> Writer:
        ready.wait(30)
        return Writer(trial)

    writers = side_by_side(begin, range(TAKERS))
    assert sorted(writer.attempt for writer in writers) == [1, 2, 3, 4, 5, 6, 7, 8]
    for writer in writers:
        if writer.attempt < TAKERS:
            with pytest.raises(FencedError, match="attempt 8"):
                commit(writer, 10, 0.0)
        else:
            commit(writer, 10, 1.0)
    newest = writers[0].newest()
    assert newest is not None
    assert newest[1]["value"] == 1.0


Write = Callable[[Writer, float], None]


def keep_best(writer: Writer, value: float) -> None:
    writer.keep_best(0, {"w": torch.full((3,), value)}, {"value": value})


def settle(writer: Writer, value: float) -> None:
    writer.settle({0: {"status": "FINISHED", "metrics": {"value": value}}})


@pytest.mark.parametrize("write", [lambda writer, value: commit(writer, 10, value), keep_best, settle], ids=["step", "best", "end"])
def test_who_was_begun_before_replaces_nothing_however_late_it_is(
    trial: Trial, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that it is the newest, and hangs before its last request until its successor has written."""
    old, put = Writer(trial), Folder.write_version
    hangs, goes_on = threading.Event(), threading.Event()

    def late(folder: Folder, name: str, content: bytes, version: str | None) -> str | None:
        if threading.current_thread() is orphan:
            hangs.set()
            assert goes_on.wait(30)
        return put(folder, name, content, version)

    refused: list[str] = []

    def write_late() -> None:
        try:
            write(old, 2.0)
        except FencedError as error:
            refused.append(str(error))

    orphan = threading.Thread(target=write_late)
    monkeypatch.setattr(Folder, "write_version", late)
    orphan.start()
    assert hangs.wait(30)
    new = Writer(trial)
    write(new, 1.0)
    before = {name: trial.folder.read(name) for name in trial.folder.tree()}
    goes_on.set()
    orphan.join(30)
    assert len(refused) == 1
    after = {name: trial.folder.read(name) for name in trial.folder.tree()}
    assert after == {name: content for name, content in before.items() if name in after}
    assert sum(name.startswith(("checkpoints", "best")) for name in after) in (0, 3)  # and nothing that the late one uploaded


def contend(uri: str, ready: object, results: object, turns: int) -> None:
    """A process that takes a lock in each turn, together with the others."""
    for turn in range(turns):
        lock = Lock(Folder(uri.replace("TURN", str(turn % 10))))
        ready.wait(60)  # type: ignore[attr-defined]
        took = lock.acquire()
        results.put((turn, took))  # type: ignore[attr-defined]
        ready.wait(60)  # type: ignore[attr-defined]
        if took:
            lock.release()


@pytest.mark.slow
def test_of_a_thousand_takes_by_processes_one_in_eight_holds(store: ObjectStore) -> None:
    spawn, turns = multiprocessing.get_context("spawn"), 125
    ready, results = spawn.Barrier(TAKERS), spawn.Queue()
    takers = [spawn.Process(target=contend, args=(store.uri("many-TURN"), ready, results, turns)) for _ in range(TAKERS)]
    for taker in takers:
        taker.start()
    took = [results.get(timeout=120) for _ in range(TAKERS * turns)]
    for taker in takers:
        taker.join(60)
        assert taker.exitcode == 0
    holders = [sum(took for at, took in took if at == turn) for turn in range(turns)]
    assert holders == [1] * turns
