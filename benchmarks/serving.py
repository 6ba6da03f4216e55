"""How fast a served policy answers: `python benchmarks/serving.py [--seconds 4] [--only NAME ...]`.

One, eight and 64 clients ask for an action, each again as soon as it was answered, over connections that they keep. What answers
is a process of its own each time:

    d3ray             `d3ray serve` of one replica
    d3ray, log        the same, with every decision in a log before it is answered
    d3ray, no Serve   `d3ray.serving.app` behind uvicorn
    onnxruntime       a session, and batches of what came together, behind the same Serve, with no checks
    uvicorn           a session behind FastAPI and uvicorn, one request at a time
    word              a server of the standard library that answers a word: what the clients and the machine take

All graphs are the same: two layers of 256, 17 numbers in, 6 out. Clients run on the cores of what they ask, so throughput is that
of the machine and not of a server alone: rows are to be compared with each other. A control, products of matrices, is timed beside
each row, so that a machine that was busy shows. Without uvloop, which d3ray[serve] brings, its proxy keeps answers back for some
40 ms on connections that are kept: the page says whether it was there.

Prints a table and writes `benchmarks/results/serving.json` and `serving.md`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from workers import control, keep, machine, table, today, versions

CLIENTS = (1, 8, 64)
TOKEN = "benchmark-of-serving"
SIZE, ACTIONS = 17, 6
BARE = """
import json, sys
import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
model, port = sys.argv[1], int(sys.argv[2])
"""
UVICORN = (
    BARE
    + """
import uvicorn
from fastapi import FastAPI, Request

session, app = onnxruntime.InferenceSession(model, options), FastAPI()

@app.post("/act")
async def act(request: Request):
    rows = np.array([(await request.json())["observation"]], np.float32)
    return {"action": session.run(["action"], {"observation": rows})[0][0].tolist()}

uvicorn.run(app, port=port, log_level="warning")
"""
)
SERVE = (
    BARE
    + """
import logging, signal
import ray
from fastapi import FastAPI, Request
from ray import serve

app = FastAPI()

@serve.deployment(max_ongoing_requests=256)
@serve.ingress(app)
class Bare:
    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0)
    async def together(self, rows):
        return list(self.session.run(["action"], {"observation": np.array(rows, np.float32)})[0])

    @app.post("/act")
    async def act(self, request: Request):
        return {"action": (await self.together((await request.json())["observation"])).tolist()}

ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)
quiet = {"log_level": "WARNING", "enable_access_log": False}
serve.start(http_options={"port": port}, logging_config=quiet)
serve.run(Bare.bind(model), logging_config=quiet)
try:
    signal.pause()
except KeyboardInterrupt:
    ray.shutdown()
"""
)
OURS = """
import sys, uvicorn
import d3ray.serving

uvicorn.run(d3ray.serving.app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
"""
WORD = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Word(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"word")
    def log_message(self, *_):
        pass

class Server(ThreadingHTTPServer):
    request_queue_size = 256

Server(("127.0.0.1", int(sys.argv[2])), Word).serve_forever()
"""


def commands(package: Path) -> dict[str, list[str]]:
    """What answers, by its name: a command that ends with the port."""
    serve = [sys.executable, "-m", "d3ray.jobs", "serve", str(package)]
    model = str(package / "policy.onnx")
    return {
        "d3ray": [*serve, "port=PORT"],
        "d3ray, log": [*serve, f"log={package.parent / 'log'}", "port=PORT"],
        "d3ray, no Serve": [sys.executable, "-c", OURS, str(package), "PORT"],
        "onnxruntime": [sys.executable, "-c", SERVE, model, "PORT"],
        "uvicorn": [sys.executable, "-c", UVICORN, model, "PORT"],
        "word": [sys.executable, "-c", WORD, model, "PORT"],
    }


@contextmanager
def answering(command: list[str], body: bytes) -> Iterator[int]:
    """The port of a command that answers, for as long as the context lasts."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {**os.environ, "D3RAY_SERVE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [word.replace("PORT", str(port)) for word in command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 180
        while not _answers(port, body):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[:4]} does not answer")
            time.sleep(0.2)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(port: int, body: bytes) -> bool:
    try:
        return ask(http.client.HTTPConnection("127.0.0.1", port, timeout=10), body)
    except OSError:
        return False


def ask(connection: http.client.HTTPConnection, body: bytes) -> bool:
    """Whether a request was answered well."""
    connection.request("POST", "/act", body, {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
    reply = connection.getresponse()
    reply.read()
    return reply.status == 200


def load(port: int, clients: int, seconds: float, body: bytes) -> dict[str, float]:
    """Milliseconds of answers, and answers a second, of so many clients for so long; half a second before does not count."""
    taken, failures = list[list[float]](), [0]
    begin = time.perf_counter() + 0.5

    def one(own: list[float]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while (start := time.perf_counter()) < begin + seconds:
            try:
                well = ask(connection, body)
            except (OSError, http.client.HTTPException):
                connection.close()
                well = False
            if start >= begin:
                own.append(time.perf_counter() - start)
                failures[0] += not well
        connection.close()

    threads = list[threading.Thread]()
    for _ in range(clients):
        taken.append([])
        threads.append(threading.Thread(target=one, args=(taken[-1],)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    each = np.concatenate([np.array(own) for own in taken]) * 1000
    p50, p99 = np.percentile(each, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "a_second": len(each) / seconds, "failures": failures[0]}


def package(folder: Path) -> Path:
    """A policy of a common size, of two layers of 256."""
    from d3ray import BC, Dataset
    from d3ray.algos.export.packing import write_package

    rng = np.random.default_rng(0)
    n = 2000
    data = Dataset.from_arrays(
        rng.normal(size=(n, SIZE)).astype(np.float32),
        rng.uniform(-1, 1, (n, ACTIONS)).astype(np.float32),
        np.zeros(n),
        np.arange(n) % 100 == 99,
    )
    write_package(BC().fit(data, n_steps=2, n_steps_per_epoch=2), folder / "policy")
    return folder / "policy"


def main() -> None:
    """Measures each in turn, and writes what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="that each number is measured for")
    parser.add_argument("--only", nargs="+", default=[])
    said = parser.parse_args()
    body = json.dumps({"observation": np.random.default_rng(1).normal(size=SIZE).tolist()}).encode()
    rows: dict[str, Any] = {}
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="d3ray-serving-") as scratch:
        for name, command in commands(package(Path(scratch))).items():
            if said.only and name not in said.only:
                continue
            with answering(command, body) as port:
                rows[name] = {"control_ms": control() * 1000, **{str(n): load(port, n, said.seconds, body) for n in CLIENTS}}
            print(name, json.dumps(rows[name]), flush=True)
    where = machine()
    found = {
        "date": today(),
        "machine": where,
        "load_before": before,
        "uvloop": find_spec("uvloop") is not None,
        "versions": versions(),
        "seconds": said.seconds,
        "rows": rows,
    }
    keep("serving", found, text(found))
    print(text(found))


def text(found: dict[str, Any]) -> str:
    """The page of results."""
    header = ["what answers", *(f"{what}, {n}" for n in CLIENTS for what in ("p50 ms", "p99 ms", "a second")), "control, ms"]
    lines = [
        [
            name,
            *(
                f"{row[str(n)][key]:.3g}" if key != "a_second" else f"{row[str(n)][key]:.0f}"
                for n in CLIENTS
                for key in ("p50", "p99", "a_second")
            ),
            f"{row['control_ms']:.0f}",
        ]
        for name, row in found["rows"].items()
    ]
    failed = sum(row[str(n)]["failures"] for row in found["rows"].values() for n in CLIENTS)
    where, cores = found["machine"]["cpu"], found["machine"]["cores"]
    busy, with_uvloop = found["load_before"] > 0.5, "with uvloop" if found["uvloop"] else "without uvloop"
    return "\n".join(
        [
            "# Serving",
            "",
            f"{found['date']}, {where}, {cores} cores; `python benchmarks/serving.py`, {with_uvloop}.",
            "Numbers at 1, 8 and 64 clients, which share the cores.",
            "",
            f"The machine's load was {found['load_before']:.2f} before"
            + (": others used it too, so these are no speeds of its own." if busy else "."),
            "",
            table(header, lines),
            "",
            f"{failed} requests were not answered well." if failed else "Every request was answered.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
