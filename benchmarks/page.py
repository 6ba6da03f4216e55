"""How fast the page answers: `python benchmarks/page.py`. Twenty viewers look at an experiment's state while two trainings run.

The page is `d3ray web`, a process of its own. Times are of this machine, with two trainings on its cores; beside them stands what a
server that answers nothing but a word takes under the same viewers, so that a slow machine shows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests

from d3ray import experiments
from d3ray.experiments import datasets

VIEWERS, LOOKS, PAUSE = 20, 30, 0.5  # each looks so often, and waits so many seconds between
RESULTS = Path(__file__).parent / "results" / "page.json"


def served(folder: Path) -> tuple[subprocess.Popen[str], str, str]:
    """The page as a process, its address and its token."""
    command = [sys.executable, "-m", "d3ray.jobs", "web", "port=0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = re.fullmatch(r"Open (\S+)/\?token=(\S+)\n", process.stdout.readline())
    assert said is not None
    return process, *said.groups()


def times(look: Callable[[requests.Session], Any]) -> dict[str, float]:
    """Median, 95th percentile and largest of the seconds that viewers wait."""

    def views(k: int) -> list[float]:
        found: list[float] = []
        with requests.Session() as session:
            time.sleep(PAUSE * k / VIEWERS)
            for _ in range(LOOKS):
                begun = time.perf_counter()
                look(session)
                found.append(time.perf_counter() - begun)
                time.sleep(PAUSE)
        return found

    with ThreadPoolExecutor(VIEWERS) as pool:
        waited = sorted(value for found in pool.map(views, range(VIEWERS)) for value in found)
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


def main() -> None:
    """Trains, looks, prints and keeps the numbers."""
    folder = Path(tempfile.mkdtemp(prefix="d3ray-page-"))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    root, storage = str(folder / "datasets"), str(folder / "d3ray_results")
    page, url, token = served(folder)
    datasets.derive(["d3ray/pendulum-replay"], "logs", folder=root).wait(60)
    handles = [
        experiments.submit(
            {
                "dataset": f"{root}/logs",
                "algorithm": {"name": name, "action_scaler": "min_max"},
                "n_steps": 200_000,
                "n_steps_per_epoch": 500,
                "storage": storage,
            }
        )
        for name in ("TD3PlusBC", "IQL")
    ]
    while not all(handle.status().updates for handle in handles):
        time.sleep(0.5)
    cookies = requests.get(f"{url}/?token={token}", allow_redirects=False, timeout=30).cookies.get_dict()

    def state(session: requests.Session) -> None:
        assert session.get(f"{url}/experiments/{handles[0].name}/state", cookies=cookies, timeout=30).status_code == 200

    def first(session: requests.Session) -> None:
        assert session.get(f"{url}/experiments", cookies=cookies, timeout=30).status_code == 200

    word = ThreadingHTTPServer(("127.0.0.1", 0), Word)
    threading.Thread(target=word.serve_forever, daemon=True).start()
    port = word.server_address[1]
    try:
        found = {
            "state": times(state),
            "list": times(first),
            "control": times(lambda session: session.get(f"http://127.0.0.1:{port}/", timeout=30)),
            "load": os.getloadavg()[0],
        }
    finally:
        for handle in handles:
            handle.cancel()
            handle.wait(120)
        page.send_signal(signal.SIGINT)
        page.wait(30)
        word.shutdown()
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
