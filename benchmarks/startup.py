"""How long an import of an algorithm takes, and `d3ray train` to its first word, first gradient steps and end, beside bare ones.

    python benchmarks/startup.py [--rounds 3] [--beside FOLDER]

The command trains BC for ten steps on `d3ray/pendulum-replay`, with a new storage each time. Bare is a program without d3ray:
`import torch`; and `ray.init`, an actor that imports torch, `ray.shutdown`; who trains on a Ray of one machine waits for that.
`--beside` names another checkout of d3ray, as one of before a change, which takes turns with this one, after a round that warms the
caches up. Times of a shared machine say little: what to read is the ratio within a round, and the CPU seconds of all processes
together, those that outlive the command included.

Prints medians and writes `benchmarks/results/startup.json`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from workers import HERE, machine, table, versions

RESULT = HERE / "results" / "startup.json"
TRAIN = ["d3ray/pendulum-replay", "algorithm=BC", "algorithm.action_scaler=min_max", "n_steps=10", "n_steps_per_epoch=10"]
BARE = """
import ray

ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)

@ray.remote
class Trains:
    def __init__(self):
        import torch
    def ready(self):
        return True

print(ray.get(Trains.remote().ready.remote()), flush=True)
ray.shutdown()
"""
MARKS = ("import", "first word", "first steps", "whole", "CPU")  # seconds
_SUBREAPER = 36  # of prctl(2): orphans of a command become children of this process, which can then wait for them
_OUTLIVE = 30.0  # seconds that Ray's processes may take to end after their command


def run(command: list[str], folder: Path, paths: Path | None) -> dict[str, float]:
    """Seconds to the first word and to the end, and CPU seconds of every process that it started."""
    environment = {**os.environ, "D3RAY_CACHE": str(folder.parent / "cache"), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("RAY_", "MLFLOW_"))}
    if paths is not None:
        environment["PYTHONPATH"] = str(paths)
    before, began = _cpu(), time.time()
    with subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = {"first word": time.time() - began}
        said = first + process.stdout.read()
        if process.wait() != 0:
            sys.exit(said.decode())
        found["whole"] = time.time() - began
    deadline = time.monotonic() + _OUTLIVE
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    return {**found, "CPU": _cpu() - before, "began": began}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(folder: Path, paths: Path) -> dict[str, float]:
    """A command of the d3ray that is found in `paths`."""
    found = run(["-m", "d3ray.jobs", "train", *TRAIN, "evaluation=null", f"storage={folder / 'results'}"], folder, paths)
    (kept,) = folder.glob("results/*/trials/*/checkpoints/*/manifest.json")
    imported = run(["-c", "from d3ray import TD3PlusBC; print()"], folder, paths)["whole"]
    return {**found, "first steps": kept.stat().st_mtime - found["began"], "import": imported}


def bare(folder: Path) -> dict[str, float]:
    """A torch and a Ray without d3ray; its first step is the actor that has torch, which is also its first word."""
    found = run(["-c", BARE], folder, None)
    return {**found, "first steps": found["first word"], "import": run(["-c", "import torch; print()"], folder, None)["whole"]}


def measure(trees: Mapping[str, Path], scratch: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """What each side took in each round, the first left out."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (*trees, "bare")}
    for name, tree in trees.items():
        (scratch / name).mkdir()
        (scratch / name / "d3ray").symlink_to(tree.resolve(), target_is_directory=True)
    for k in range(rounds + 1):
        for name, rows in found.items():
            folder = scratch / f"{name}-{k}"
            folder.mkdir()
            took = train(folder, scratch / name) if name in trees else bare(folder)
            print(k or "warming up", name, {mark: round(took[mark], 1) for mark in MARKS}, flush=True)
            if k > 0:
                rows.append({mark: took[mark] for mark in MARKS})
    return found


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout, whose command takes turns with this one's")
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    trees = {**({"before": told.beside} if told.beside else {}), "d3ray": HERE.parent}
    with tempfile.TemporaryDirectory(prefix="d3ray-startup-", ignore_cleanup_errors=True) as scratch:
        found = measure(trees, Path(scratch), told.rounds)
    middle = {name: {mark: statistics.median(one[mark] for one in took) for mark in MARKS} for name, took in found.items()}
    rows = [[name, *(f"{middle[name][mark]:.1f}" for mark in MARKS)] for name in found]
    ratios: dict[str, dict[str, float]] = {}
    for other in (name for name in found if name != "d3ray"):
        pairs = list(zip(found["d3ray"], found[other], strict=True))
        ratios[other] = {mark: statistics.median(ours[mark] / theirs[mark] for ours, theirs in pairs) for mark in MARKS}
        rows.append([f"d3ray / {other}, in a round", *(f"{ratios[other][mark]:.2f}" for mark in MARKS)])
    print(table(["median of seconds", *MARKS], rows))
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions()}
    RESULT.write_text(json.dumps({**about, "rounds": found, "medians": middle, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
