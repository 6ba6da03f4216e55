"""What takes long: few at once, a few for a person, the same thing once, and whoever only looks waits for none of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from d3ray import Dataset, experiments
from d3ray.platform.record.datasets import Inspected
from d3ray.platform.record.policies import Video
from d3ray.platform.web.long_work import AT_ONCE, EACH

from ..results.fake_experiment import write_experiment
from .site_server import Served

MANY = 45  # as many threads as a server has for all requests, and some


@pytest.fixture
def trial(served: Served, monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as patch:
        write_experiment(patch, Path(served.site.storage), "one", {0: [1.0]})
    return served.site.watch.status("one").trials[0].identity


class Camera:
    """Records once it may."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Semaphore(0), threading.Event()
        self.n, self.at_once, self.most = 0, 0, 0

    def record(self, source: str, file: str, **more: Any) -> Video:
        self.n += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.begun.release()
        assert self.may.wait(60)
        self.at_once -= 1
        Path(file).write_bytes(b"GIF89a")
        return Video(file=file, said="")


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> Iterator[Camera]:
    made = Camera()
    monkeypatch.setattr(experiments, "record", made.record)
    yield made
    made.may.set()


def test_many_videos_hold_nobody_up(served: Served, trial: str, camera: Camera) -> None:
    def watch(seed: int) -> requests.Response:
        return served.get(f"/experiments/one/policy/video.gif?of={trial}:{seed}")

    with ThreadPoolExecutor(MANY) as pool:
        asked = [pool.submit(watch, seed) for seed in range(MANY)]
        for _ in range(AT_ONCE):
            assert camera.begun.acquire(timeout=30)
        end = time.monotonic() + 30
        while sum(one.done() for one in asked) < MANY - EACH:  # those that are one too many need not wait
            assert time.monotonic() < end
            time.sleep(0.01)
        begun = time.monotonic()
        assert served.get("/experiments").status_code == served.get("/experiments/one/state").status_code == 200
        assert time.monotonic() - begun < 2
        camera.may.set()
        answers = [one.result() for one in asked]
    assert sorted(one.status_code for one in answers) == [200] * EACH + [429] * (MANY - EACH)
    refused = next(one for one in answers if one.status_code == 429)
    assert int(refused.headers["Retry-After"]) > 0
    assert f"You wait for {EACH} of these already" in refused.text
    assert camera.most == AT_ONCE
    assert watch(MANY).status_code == 200  # the next one may ask again


def test_the_same_video_is_made_once(served: Served, trial: str, camera: Camera) -> None:
    path = f"/experiments/one/policy/video.gif?of={trial}:0"
    with ThreadPoolExecutor(MANY) as pool:
        asked = [pool.submit(served.get, path) for _ in range(MANY)]
        assert camera.begun.acquire(timeout=30)
        camera.may.set()
        assert {one.result().status_code for one in asked} == {200}
    assert served.get(f"/experiments/one/policy/play?of={trial}:0").status_code == 200
    assert served.get(path).content == b"GIF89a"
    assert camera.n == 1


def test_other_long_work_waits_for_no_video(served: Served, trial: str, camera: Camera, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "act", lambda *_, **__: [0.5])
    with ThreadPoolExecutor(EACH) as pool:
        asked = [pool.submit(served.get, f"/experiments/one/policy/video.gif?of={trial}:{seed}") for seed in range(EACH)]
        for _ in range(AT_ONCE):
            assert camera.begun.acquire(timeout=30)
        assert "0.5" in served.post("/experiments/one/policy/act", {"observation": "1"}).text
        camera.may.set()
        assert {one.result().status_code for one in asked} == {200}


def test_many_who_wait_for_the_doctor_hold_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    Dataset.open("d3ray/cartpole-replay").take(2).write(Path(served.site.datasets) / "mine")
    begun, may = threading.Semaphore(0), threading.Event()
    look = experiments.datasets.DatasetHandle.inspect

    def inspect(mine: experiments.datasets.DatasetHandle) -> Inspected:
        begun.release()
        assert may.wait(60)
        return look(mine)

    monkeypatch.setattr(experiments.datasets.DatasetHandle, "inspect", inspect)
    with ThreadPoolExecutor(MANY) as pool:
        asked = [pool.submit(served.get, "/datasets/mine/inspected") for _ in range(MANY)]
        try:
            assert begun.acquire(timeout=30)
            for _ in range(5):
                assert served.get("/datasets").status_code == 200
            assert not any(one.done() for one in asked)
        finally:
            may.set()
        assert {one.result().status_code for one in asked} == {200}
    assert begun.acquire(blocking=False) is False  # it looked once for all


def test_why_there_is_no_video_stands_in_its_place(served: Served, trial: str) -> None:
    """This experiment has no policy."""
    answer = served.get(f"/experiments/one/policy/play?of={trial}:0", headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert "<img" not in answer.text
    assert 'role="status"' in answer.text
