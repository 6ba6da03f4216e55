"""What an experiment in an object store takes to go on with, at 30 ms a request.

    python benchmarks/object_store.py [--delay 0.03] [--finished 50] [--planted 2000]

Two resumes of planted experiments, behind a server on loopback (moto, in a process of its own, which answers one request at a time
but delays many side by side):
    finished   all trials are finished and delivered; the whole command, from its first request to its last
    planted    one trial more has not begun; until its first epoch is reported, the start of Ray included
Each is timed and its requests are counted by method. Goals on two cores that nobody else uses: 5 s and 60 s. What moto itself
takes, some 2 ms a request one after another, is told apart. Results go to `results/object_store.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from workers import control, keep, machine, versions

from tests.platform.object_store import KEYS, ObjectStore

GOALS = {"finished": 5.0, "planted": 60.0}
STEPS = 2


class Server:
    """A store in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._root = self._answer("uri")

    def _answer(self, question: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def uri(self, path: str) -> str:
        """Of something in its bucket."""
        return self._root.replace("PATH", path)

    def counted(self, delay: float) -> tuple[dict[str, int], float]:
        """Requests since the last call by method, and seconds in which they were worked on; from here on each is delayed."""
        return tuple(self._answer(f"count {delay}"))

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


def serve() -> None:
    """Answers on the standard streams, until they are closed."""
    store = ObjectStore()
    for line in sys.stdin:
        question, *arguments = line.split()
        if question == "uri":
            print(json.dumps(store.uri("PATH")), flush=True)
        else:
            asked, busy = Counter(method for method, _, _ in store.requests), store.busy
            store.requests.clear()
            store.busy, store.delay = 0.0, float(arguments[0])
            print(json.dumps([asked, busy]), flush=True)


def plant(storage: str, name: str, finished: int, unfinished: int) -> Any:
    """An experiment of trials of one seed and two steps, as if so many had finished; its config."""
    from d3ray.data.storage.stores.base import side_by_side
    from d3ray.platform.experiment.run import train_work
    from d3ray.platform.settings.config import ExperimentConfig
    from d3ray.platform.storage.experiments import Experiment
    from d3ray.platform.storage.folders import Folder
    from d3ray.platform.tracking.delivery import deliver
    from d3ray.platform.tracking.place import keep_place
    from d3ray.platform.tracking.runs import Tracking

    algorithm = {"name": "BC", "action_scaler": "min_max", "batch_size": 32, "encoder": {"hidden_units": [16]}}
    sizes = {"n_steps": STEPS, "n_steps_per_epoch": STEPS, "seeds": tuple(range(finished + unfinished))}
    config = ExperimentConfig(dataset="d3ray/pendulum-replay", algorithm=algorithm, **sizes, name=name, storage=storage)
    work = train_work(config)
    tracking = Tracking.open(config.storage_place)
    experiment = Experiment.begin(config.storage_place, config.experiment, work.configuration, work.about)
    experiment.set_state("FINISHED" if not unfinished else "KILLED")
    keep_place(experiment, tracking.place)
    deliver(tracking, experiment, [])  # its parent run
    decided = config.configuration()
    status = {"status": "FINISHED", "step": STEPS, "metrics": {"train/loss": 1.0, "step": STEPS}, "time": time.time_ns() // 10**6}
    line = json.dumps([STEPS, status["time"], {"train/loss": 1.0}]) + "\n"

    step = f"step-{STEPS:09d}"
    plain = {"attempt": "1", "worker.json": json.dumps({"attempt": 1, "host": "planted", "machine": ""})}
    plain |= {f"checkpoints/{step}/{name}": "{}" for name in ("aaaaaaaa-meta.json", "manifest.json")}
    plain |= {f"checkpoints/{step}/aaaaaaaa-tensors.safetensors": ""}

    def make(seed: int) -> None:
        trial = type(experiment)(Folder(experiment.folder.name)).trial(decided, (seed,))
        note = {
            "run": trial.runs[seed],
            "uri": tracking.place["uri"],
            "step": STEPS,
            "status": "FINISHED",
            "reason": "",
            "attempt": 1,
        }
        own = {"delivered.json": json.dumps({seed: note}), f"outbox/seed-{seed}/part-{STEPS:09d}.jsonl": line}
        own |= {f"policy/seed-{seed}/policy.onnx": "", f"policy/seed-{seed}/manifest.json": "{}"}
        for path, content in {**plain, **own, "status.json": json.dumps({seed: status})}.items():  # what is read last comes last
            trial.folder.write(path, content.encode())

    side_by_side(make, range(finished))
    experiment.close()
    return config


def resume(config: Any, *, until_first: bool) -> float:
    """Seconds of a resume, or of its way to the first epoch."""
    from d3ray.platform.experiment.run import run_experiment

    begun, first = time.monotonic(), list[float]()

    def told(progress: Any) -> None:
        if not first and any(trial.step > 0 for trial in progress.trials.values()):
            first.append(time.monotonic() - begun)

    run_experiment(config, resume=True, on_progress=told)
    return first[0] if until_first else time.monotonic() - begun


def main() -> None:
    """Plants, resumes and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.03, help="seconds that each answer takes longer")
    parser.add_argument("--finished", type=int, default=50)
    parser.add_argument("--planted", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    rows: list[dict[str, Any]] = []
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            os.environ |= {**KEYS, "MLFLOW_TRACKING_URI": f"sqlite:///{scratch}/mlflow.db"}
            for name, finished, unfinished in (("finished", options.finished, 0), ("planted", options.planted, 1)):
                server.counted(0.0)
                config = plant(server.uri(name), "planted", finished, unfinished)
                server.counted(options.delay)
                before = control()
                seconds = resume(config, until_first=bool(unfinished))
                requests, busy = server.counted(0.0)
                row = {"resume": name, "trials": finished + unfinished, "seconds": round(seconds, 2), "goal": GOALS[name]}
                row |= {"requests": requests, "server": round(busy, 2), "control": [before, control()]}
                print(json.dumps(row), flush=True)
                rows.append(row)
    finally:
        server.close()
    about = {"machine": machine(), "versions": versions(), "delay": options.delay, "rows": rows}
    keep("object_store", about)


if __name__ == "__main__":
    main()
