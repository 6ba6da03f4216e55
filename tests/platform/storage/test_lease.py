"""The lock of an object store: held for as long as its command lives, free soon after, and never anybody else's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.driver.deaths import Deaths
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trial_queue import TrialQueue, Watch
from d3ray.platform.results.progress import Progress
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.lease import Clock, LostError
from d3ray.platform.storage.locks import Lock

from .bucket import Bucket, register_bucket


class HandClock(Clock):
    """A clock that stands still until it is moved. Who waits wakes when the time comes, and waits again before it goes on."""

    def __init__(self) -> None:
        self.time = 1e9  # may be moved at once too, where nobody has to keep up
        self._changed = threading.Condition()
        self._until: dict[int, float] = {}  # when those who wait wake, by thread

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        with self._changed:
            until = self.time + seconds
            self._until[threading.get_ident()] = until
            self._changed.notify_all()
            while self.time < until and not ended.is_set():
                self._changed.wait(0.005)
            del self._until[threading.get_ident()]
            return ended.is_set()

    def move(self, seconds: float, waiting: int = 1) -> None:
        """Five seconds and five seconds; `waiting` threads wait in between."""
        for _ in range(round(seconds / 5)):
            with self._changed:
                self.time += 5
                self._changed.notify_all()
                self._settle(waiting)

    def settle(self, waiting: int) -> None:
        """Until so many threads wait."""
        with self._changed:
            self._settle(waiting)

    def settled(self, waiting: int) -> bool:
        """Whether so many threads wait, and will go on to wait."""
        with self._changed:
            return len(self._until) == waiting and all(until > self.time for until in self._until.values())

    def _settle(self, waiting: int) -> None:
        assert self._changed.wait_for(lambda: self.settled(waiting), 30)


@pytest.fixture(autouse=True, scope="module")
def bucket() -> None:
    register_bucket()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(f"fsspec+bucket://{tmp_path.name}/first")
    yield made
    made.remove()


def taking(lock: Lock, *, wait: bool) -> tuple[threading.Thread, list[bool]]:
    """Whoever would take a lock while the test goes on, and what comes of it."""
    taken: list[bool] = []
    taker = threading.Thread(target=lambda: taken.append(lock.acquire(wait=wait)), daemon=True)
    taker.start()
    return taker, taken


def test_a_lease_is_held_however_long_whatever_its_holder_does(folder: Folder) -> None:
    """Nothing but the clock goes on: the holder reads folders, starts Ray, packs trials."""
    clock, before = HandClock(), set(threading.enumerate())
    ours, theirs = Lock(folder, clock), Lock(folder, clock)
    assert ours.acquire()
    clock.settle(1)
    for _ in range(4):
        clock.move(65)
        assert not theirs.is_free()
        assert not theirs.acquire()
    ours.check()
    ours.release()
    assert theirs.is_free()
    assert theirs.acquire()
    theirs.release()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "d3ray-lease"]


def test_a_holder_that_died_is_outwaited(folder: Folder) -> None:
    clock = HandClock()
    folder.write_json("lock", {"owner": "dead", "time": clock.now()})
    ours = Lock(folder, clock)
    taker, taken = taking(ours, wait=True)
    clock.settle(1)
    clock.move(55)
    assert not taken
    clock.move(5)  # then it waits for the time of its first renewal
    taker.join(30)
    assert taken == [True]
    ours.release()


def test_a_holder_that_lives_is_not_waited_for(folder: Folder) -> None:
    clock = HandClock()
    ours, theirs = Lock(folder, clock), Lock(folder, clock)
    assert ours.acquire()
    clock.settle(1)
    taker, taken = taking(theirs, wait=True)
    clock.settle(2)
    clock.move(10, waiting=2)
    assert not taken
    clock.time += 5  # the holder renews: whoever waits sees it now or five seconds later
    until(lambda: folder.read_json("lock")["time"] == clock.time)
    until(lambda: bool(taken) or clock.settled(2))
    clock.time += 5
    taker.join(30)
    assert taken == [False]
    ours.release()


def test_a_holder_that_slept_sees_that_another_has_taken_it(folder: Folder) -> None:
    """As after a laptop was closed: its renewals come late, and neither they nor its end touch the other's note."""
    clock, late = HandClock(), HandClock()
    ours, theirs = Lock(folder, late), Lock(folder, clock)
    assert ours.acquire()
    late.settle(1)
    taker, taken = taking(theirs, wait=True)
    clock.settle(1)
    clock.move(60)
    taker.join(30)
    assert taken == [True]
    clock.settle(1)
    note = folder.read_json("lock")
    assert not ours.lost
    late.time += 61
    until(lambda: ours.lost)
    with pytest.raises(LostError, match=r"Another command has taken .*/first over, because this one gave no sign of life"):
        ours.check()
    assert folder.read_json("lock") == note
    ours.release()
    assert folder.read_json("lock") == note
    theirs.release()
    assert folder.read_json("lock") == {"owner": None}


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """The store's own clock, by which it tells when an object was written."""
    clock = HandClock()
    monkeypatch.setattr(Bucket, "clock", clock.now)
    return clock


@pytest.mark.parametrize("ahead", [-3600, 61, 3600])
@pytest.mark.parametrize("wait", [False, True])
def test_a_clock_that_is_wrong_takes_nothing_from_a_holder_that_lives(folder: Folder, ahead: int, wait: bool) -> None:
    """The store does not tell: whoever would take the note watches it until it is renewed."""
    clock, wrong = HandClock(), HandClock()
    wrong.time += ahead
    ours, theirs = Lock(folder, clock), Lock(folder, wrong)
    assert ours.acquire()
    clock.settle(1)
    taker, taken = taking(theirs, wait=wait)
    if wait or ahead > 0:
        wrong.settle(1)
        wrong.move(40)
        assert not taken
        clock.move(15)
        until(lambda: folder.read_json("lock")["time"] == clock.time)
        wrong.time += 5
    taker.join(30)
    assert taken == [False]
    ours.check()
    ours.release()


@pytest.mark.parametrize("ahead", [-3600, 0, 61, 3600])
def test_a_store_that_tells_is_asked_how_old_a_note_is(folder: Folder, telling: HandClock, ahead: int) -> None:
    """Nobody waits: these clocks are moved at once."""
    wrong = HandClock()
    folder.write_json("lock", {"owner": "another", "time": telling.now()})
    telling.time += 59
    wrong.time = telling.time + ahead
    assert not Lock(folder, wrong).is_free()
    assert not Lock(folder, wrong).acquire()
    telling.time += 1
    wrong.time += 1
    assert Lock(folder, wrong).is_free() is (ahead >= 0)  # who only looks asks the store about what looks old
    ours = Lock(folder, wrong)
    assert ours.acquire()
    ours.release()
    assert folder.names() == ["lock"]


def test_a_look_needs_no_right_to_write(folder: Folder, telling: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_json("lock", {"owner": "another", "time": telling.now() - 61})

    def refused(*_: object) -> None:
        raise StorageError("denied")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", refused)
        assert Lock(folder, telling).is_free()
    assert not Lock(folder, telling).is_free()


def test_a_store_that_is_away_for_a_moment_loses_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    ours = Lock(folder, clock)
    assert ours.acquire()
    clock.settle(1)
    read = Folder.read_json

    def away(self: Folder, name: str) -> None:
        raise StorageError("away")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "read_json", away)
        clock.move(50)
    clock.move(10)
    assert read(folder, "lock")["time"] == clock.now()
    ours.check()
    ours.release()


def test_an_experiment_that_was_taken_over_writes_no_state(tmp_path: Path) -> None:
    storage = f"fsspec+bucket://{tmp_path.name}"
    experiment = Experiment.begin(storage, "first", {"n_steps": 1}, {"name": "tiny", "fingerprint": "aa"})
    experiment.set_state("RUNNING")
    note = {"owner": "another", "time": time.time()}
    experiment.folder.write_json("lock", note)
    assert not experiment.lock._lease.renew()
    with pytest.raises(LostError):
        experiment.set_state("KILLED")
    told: list[Progress] = []
    watch = Watch(TrialQueue(Listed([]), lambda trial: {}), experiment, Progress({}), told.append, Deaths())
    with pytest.raises(LostError):  # nor does its training go on
        watch._changed()
    assert told == []
    experiment.close()
    assert experiment.state["status"] == "RUNNING"
    assert experiment.folder.read_json("lock") == note


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
