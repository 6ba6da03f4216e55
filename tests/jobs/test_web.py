"""`d3ray web` as a command: it prints a link, serves, is killed and started anew, and finds everything again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

SAME = {"Sec-Fetch-Site": "same-origin"}


class Page:
    """A process that serves the page."""

    def __init__(self, folder: Path, pages: list[Page], *arguments: str, env: Mapping[str, str] = os.environ) -> None:
        command = [sys.executable, "-m", "d3ray.jobs", "web", "port=0", *arguments]
        env = {**env, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        pages.append(self)  # whatever comes of it, it is ended
        assert self.process.stdout is not None
        said = re.fullmatch(r"Open ((http://127\.0\.0\.1:\d+)/\?token=\S+)\n", self.process.stdout.readline())
        assert said is not None
        self.link, self.url = said.groups()
        self.session = requests.Session()
        self.session.headers["Accept"] = "text/html"
        assert self.session.get(self.link, timeout=60).status_code == 200

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


@pytest.fixture
def pages() -> Iterator[list[Page]]:
    started: list[Page] = []
    yield started
    for page in started:
        if page.process.poll() is None:
            page.end(signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_in_an_upload_and_a_training_everything_is_found_again(tmp_path: Path, pages: list[Page]) -> None:
    first = Page(tmp_path, pages)
    first.session.post(f"{first.url}/datasets/shipped", {"name": "cartpole-replay"}, headers=SAME, timeout=60)
    end = time.monotonic() + 60
    while "state ready" not in first.session.get(f"{first.url}/datasets", timeout=60).text:
        assert time.monotonic() < end
        time.sleep(0.2)
    form = {"dataset": "cartpole-replay", "algorithm": "DiscreteBC", "n_steps": "100000", "n_steps_per_epoch": "200", "seeds": "0"}
    begun = first.session.post(f"{first.url}/experiments", {**form, "name": "left"}, headers=SAME, timeout=60)
    assert begun.url.endswith("/experiments/left"), begun.text
    headers = {**SAME, "Upload-Length": "1000"}
    id = first.session.post(f"{first.url}/uploads?name=log.csv", headers=headers, timeout=60).json()["id"]
    first.session.patch(f"{first.url}/uploads/{id}", b"x" * 400, headers={**SAME, "Upload-Offset": "0"}, timeout=60)
    first.end(signal.SIGKILL)

    second = Page(tmp_path, pages)
    assert requests.get(f"{second.url}/datasets", timeout=60).status_code == 401  # the old token lets nobody in
    assert second.session.head(f"{second.url}/uploads/{id}", timeout=60).headers["Upload-Offset"] == "400"
    end = time.monotonic() + 240
    while not (rows := second.session.get(f"{second.url}/experiments/left/rows.json", timeout=60).json()):
        assert time.monotonic() < end
        time.sleep(0.5)
    assert rows[0]["metrics"]
    stopped = second.session.post(f"{second.url}/experiments/left/cancel", headers=SAME, timeout=60)
    assert stopped.status_code == 200, stopped.text
    while "Go on" not in second.session.get(f"{second.url}/experiments/left/state", timeout=60).text:
        assert time.monotonic() < end
        time.sleep(0.5)
    assert second.end(signal.SIGINT) == 0
    assert "what it started goes on" in second.process.stdout.read()  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(("more", "is_told"), [([], True), (["proxies=127.0.0.1"], False)])
def test_behind_a_proxy_that_is_not_named(tmp_path: Path, pages: list[Page], more: list[str], is_told: bool) -> None:
    """Everybody would have its address, by which wrong passwords are counted."""
    page = Page(tmp_path, pages, "allowed_hosts=[page.example:443]", *more)
    page.end(signal.SIGINT)
    assert ("proxies=127.0.0.1" in page.process.stdout.read()) == is_told  # pyright: ignore[reportOptionalMemberAccess]
    assert (tmp_path / "d3ray_web").stat().st_mode & 0o777 == 0o700


def test_a_port_that_is_taken(tmp_path: Path, pages: list[Page]) -> None:
    first = Page(tmp_path, pages)
    port = first.url.rpartition(":")[2]
    command = [sys.executable, "-m", "d3ray.jobs", "web", f"port={port}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"127.0.0.1:{port} cannot be had (Address already in use): say another port.\n"


@pytest.mark.parametrize("base", ["d3ray", "/d3ray/"])
def test_a_base_path_begins_with_a_slash(base: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "d3ray.jobs", "web", f"base={base}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "begins with a slash" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
