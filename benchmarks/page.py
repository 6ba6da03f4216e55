"""How fast the page answers: `python benchmarks/page.py`.

Fifty browse, first alone, then while somebody asks for 45 videos, sixty come in by name and two files are uploaded: who only
looks is to wait for none of it. Then twenty look at an experiment's state while two trainings run.

The page is `d3ray web`, a process of its own, and what asks it for much is another. Beside them stands what a server that answers
nothing but a word takes under the same viewers, so that a slow machine shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests
from workers import HERE, machine, table, versions

from d3ray import experiments
from d3ray.experiments import datasets

VIEWERS, LOOKS, PAUSE = 20, 30, 0.5  # each looks so often, and waits so many seconds between
BROWSERS, PAGES, READS = 50, 12, 2.0  # the same of those who browse
VIDEOS, SEEDS = 45, 8  # so many are asked for at once, of so many policies
LOGINS, PEOPLE, PASSWORD = 60, 6, "correct horse battery"
FILES, SIZE, CHUNK = 2, 256 << 20, 8 << 20
MOST = 1.0  # seconds that whoever looks waits
RESULTS = HERE / "results" / "page.json"
Look = Callable[[requests.Session], Any]


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The page as a process: its address, and the cookies of a browser that was let in."""
    command = [sys.executable, "-m", "d3ray.jobs", "web", "port=0", "accounts=true"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = re.fullmatch(r"Open (\S+)/\?token=(\S+)\n", process.stdout.readline())
    assert said is not None
    url, token = said.groups()
    try:
        yield url, requests.get(f"{url}/?token={token}", allow_redirects=False, timeout=60).cookies.get_dict()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def times(look: Look, viewers: int = VIEWERS, looks: int = LOOKS, pause: float = PAUSE) -> dict[str, float]:
    """Median, 95th percentile and largest of the seconds that viewers wait."""

    def views(k: int) -> list[float]:
        found: list[float] = []
        with requests.Session() as session:
            time.sleep(pause * k / viewers)
            for _ in range(looks):
                begun = time.perf_counter()
                look(session)
                found.append(time.perf_counter() - begun)
                time.sleep(pause)
        return found

    with ThreadPoolExecutor(viewers) as pool:
        waited = sorted(value for found in pool.map(views, range(viewers)) for value in found)
    return {"median": statistics.median(waited), "p95": waited[int(0.95 * len(waited))], "largest": waited[-1]}


class Word(BaseHTTPRequestHandler):
    """Answers a word."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def until_it_comes(ask: Callable[[], requests.Response], end: threading.Event, seen: Counter[str]) -> None:
    """Asks until it is given, later where the server says so."""
    while not end.is_set():
        answer = ask()
        seen[str(answer.status_code)] += 1
        if answer.status_code not in (429, 503):
            return
        end.wait(float(answer.headers.get("Retry-After", "1")))


def press(url: str, cookies: dict[str, str], name: str, trial: str, seconds: float, told: Any) -> None:
    """Videos, logins and uploads, all at once, for so long; what they were answered, by status."""
    seen = {kind: Counter[str]() for kind in ("videos", "logins", "chunks")}
    end, same = threading.Event(), {"Sec-Fetch-Site": "same-origin", "Origin": url}
    threading.Timer(seconds, end.set).start()

    def video(k: int) -> None:
        path = f"{url}/experiments/{name}/policy/video.gif?of={trial}:{k % SEEDS}"
        until_it_comes(lambda: requests.get(path, cookies=cookies, timeout=600), end, seen["videos"])

    def login(k: int) -> None:
        form = {"name": f"person{k % PEOPLE}", "password": PASSWORD}
        until_it_comes(
            lambda: requests.post(f"{url}/login", form, headers=same, timeout=600, allow_redirects=False), end, seen["logins"]
        )

    def upload(k: int) -> None:
        content = os.urandom(CHUNK)
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        with requests.Session() as session:
            session.cookies.update(cookies)
            session.headers.update(same)
            while not end.is_set():
                one = session.post(f"{url}/uploads?name=log{k}.csv", headers={"Upload-Length": str(SIZE)}, timeout=60).json()["id"]
                for offset in range(0, SIZE, CHUNK):
                    headers = {"Upload-Offset": str(offset), "Upload-Checksum": f"sha256 {digest}"}
                    answer = session.patch(f"{url}/uploads/{one}", data=content, headers=headers, timeout=600)
                    seen["chunks"][str(answer.status_code)] += 1
                    if end.is_set():
                        break
                session.delete(f"{url}/uploads/{one}", timeout=60)

    with ThreadPoolExecutor(VIDEOS + LOGINS + FILES) as pool:
        for work, n in ((upload, FILES), (video, VIDEOS), (login, LOGINS)):
            for k in range(n):
                pool.submit(work, k)
    told.put({kind: dict(found) for kind, found in seen.items()})


def trained(algorithm: str, /, **more: Any) -> experiments.ExperimentHandle:
    config = {"algorithm": {"name": algorithm, "action_scaler": "min_max"}, "n_steps_per_epoch": 500, **more}
    return experiments.submit(config)


def browsing(url: str, cookies: dict[str, str], name: str) -> Look:
    """A page of those that people open, each in its turn."""
    paths = ("/experiments", "/datasets", f"/experiments/{name}", f"/experiments/{name}/state", f"/experiments/{name}/rows.json")
    paths += ("/datasets/logs", "/datasets/logs/episodes/0", "/experiments/new?dataset=logs&algorithm=BC")
    turn = threading.local()

    def look(session: requests.Session) -> None:
        turn.at = (getattr(turn, "at", id(session) // 64) + 1) % len(paths)
        answer = session.get(url + paths[turn.at], cookies=cookies, timeout=600)
        assert answer.status_code == 200, (paths[turn.at], answer.status_code, answer.text[:500])

    return look


def pressed(url: str, cookies: dict[str, str], name: str, trial: str) -> dict[str, Any]:
    """Times of those who browse, alone and beside others."""
    look, browse = browsing(url, cookies, name), {"viewers": BROWSERS, "looks": PAGES, "pause": READS}
    with requests.Session() as session:
        for _ in range(10):  # what a server reads or imports once, somebody has asked for
            look(session)
    alone = times(look, **browse)
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    others = spawn.Process(target=press, args=(url, cookies, name, trial, PAGES * READS, told))
    others.start()
    beside = times(look, **browse)
    answers = told.get()
    others.join()
    return {"browse": alone, "browse beside": beside, "answers": answers}


def main() -> None:
    """Trains, looks, prints and keeps the numbers."""
    folder = Path(tempfile.mkdtemp(prefix="d3ray-page-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    root, storage = str(folder / "datasets"), str(folder / "d3ray_results")
    word = ThreadingHTTPServer(("127.0.0.1", 0), Word)
    threading.Thread(target=word.serve_forever, daemon=True).start()
    control = f"http://127.0.0.1:{word.server_address[1]}/"
    with served(folder) as (url, cookies):
        datasets.derive(["d3ray/pendulum-replay"], "logs", folder=root).wait(60)
        about = {"dataset": f"{root}/logs", "storage": storage}
        played = {
            "evaluation": {"environment": "Pendulum-v1", "episodes": 1},
            "seeds": list(range(SEEDS)),
            "seeds_per_trial": SEEDS,
        }
        watched = trained("BC", n_steps=500, name="watched", **played, **about)
        assert watched.wait(600).state == "FINISHED"
        for k in range(PEOPLE):
            form = {"name": f"person{k}", "password": PASSWORD, "role": "viewer"}
            made = requests.post(f"{url}/people", form, cookies=cookies, headers={"Origin": url}, timeout=60)
            assert made.status_code == 200, made.text
        found = pressed(url, cookies, "watched", watched.status().trials[0].identity)
        keep({**found, "control of these": times(lambda s: s.get(control, timeout=30), BROWSERS, PAGES, READS)})
        handles = [trained(name, n_steps=200_000, **about) for name in ("TD3PlusBC", "IQL")]
        try:
            while not all(handle.status().updates for handle in handles):
                time.sleep(0.5)
            found = {"control": times(lambda s: s.get(control, timeout=30)), "load": os.getloadavg()[0]}
            for name, path in (("state", f"/experiments/{handles[0].name}/state"), ("list", "/experiments")):
                found[name] = times(lambda s, path=path: s.get(url + path, cookies=cookies, timeout=30).raise_for_status())
            keep(found)
        finally:
            for handle in handles:
                handle.cancel()
                handle.wait(120)
    word.shutdown()


def keep(found: dict[str, Any]) -> None:
    """Keeps numbers beside those that there are, and prints all."""
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions()}
    found = {**json.loads(RESULTS.read_text()), **about, **found}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    rows = {
        "browse": f"{BROWSERS} browse, and nothing else is asked",
        "browse beside": f"the same, beside {VIDEOS} videos, {LOGINS} logins and {FILES} uploads",
        "control of these": f"{BROWSERS} at a server that answers a word",
        "state": f"{VIEWERS} look at a state, beside two trainings",
        "list": f"{VIEWERS} look at the list, beside two trainings",
        "control": f"{VIEWERS} at a server that answers a word, beside two trainings",
    }
    keys = ("median", "p95", "largest")
    cells = [[what, *(f"{1000 * found[name][key]:,.0f}" for key in keys)] for name, what in rows.items()]
    answers = "; ".join(
        f"{kind}: {', '.join(f'{n} times {status}' for status, n in sorted(by.items()))}" for kind, by in found["answers"].items()
    )
    waited = "Nobody" if found["browse beside"]["largest"] < MOST else "Somebody"
    lines = [
        "# The page",
        f"{found['date']}, {found['machine']['cpu']}, {found['machine']['cores']} cores; `python benchmarks/page.py`.",
        table(["who", "median, ms", "95 %, ms", "longest, ms"], cells),
        f"What was asked beside was answered so: {answers}. Who is answered 429 or 503 asks again later.",
        f"{waited} who browsed waited more than a second. The machine's load was {found['machine']['load_average']}.",
    ]
    text = "\n\n".join(lines) + "\n"
    print(text, flush=True)
    RESULTS.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
