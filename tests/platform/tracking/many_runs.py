"""A finished sweep of thousands of child runs: folders and a SQLite store, made by copying what one real delivery left.

python -m tests.platform.tracking.many_runs FOLDER 10000        # from the repository's root; prints how long looking at it takes
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from d3ray.platform.report.experiment import report
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Outbox
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer
from d3ray.platform.tracking.delivery import Delivery, deliver
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.settling import settle

NAME, SEEDS = "many", (0, 1)
EPOCHS = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
LOSSES = ("critic_loss", "actor_loss", "q_mean", "td_error", "gradient_norm")
_OWN = (("tags", "run_uuid"), ("params", "run_uuid"), ("metrics", "run_uuid"), ("latest_metrics", "run_uuid"))
DATASET: dict[str, Any] = {
    "name": "pendulum",
    "fingerprint": "ab12cd34" * 8,
    "source": "/data/pendulum",
    "n_transitions": 1200,
    "n_episodes": 4,
    "environment": "Pendulum-v1",
    "schema": {},
    "return_mean": -1200.0,
    "return_std": 50.0,
}
SEARCH = {
    "algorithm.alpha": {"uniform": [1.0, 5.0]},
    "algorithm.actor_learning_rate": {"loguniform": [1e-5, 1e-3]},
    "algorithm.n_critics": {"integers": [2, 10]},
    "algorithm.encoder": {"choice": ["small", "large"]},
}
SETTINGS: dict[str, Any] = {
    "algorithm": {"name": "TD3PlusBC", **{f"setting_{k}": k for k in range(25)}, "dtype": "float32"},
    "n_steps": EPOCHS[-1],
    "n_steps_per_epoch": EPOCHS[0],
    "evaluation": {"environment": "Pendulum-v1", "episodes": 10, "every": None, "n_envs": None, "holdout": 0.0},
    "best": None,
}
SWEEP = {
    **SETTINGS,
    "seeds": list(SEEDS),
    "seeds_per_trial": 1,
    "search": SEARCH,
    "searcher": {"name": "random", "seed": 0},
    "scheduler": {"name": "none"},
    "objective": {"metric": "evaluation/return", "mode": "max", "seeds": "mean"},
    "budget": {"configurations": None, "hours": None, "gpu_hours": None},
}


def choice(number: int) -> dict[str, Any]:
    """What the searcher chose for a configuration."""
    rng = np.random.default_rng(number)
    return {
        "algorithm.alpha": float(rng.uniform(1, 5)),
        "algorithm.actor_learning_rate": float(10 ** rng.uniform(-5, -3)),
        "algorithm.n_critics": int(rng.integers(2, 11)),
        "algorithm.encoder": str(rng.choice(["small", "large"])),
    }


def configuration(number: int) -> dict[str, Any]:
    """A configuration, as a trial's folder has it."""
    chosen = {name.removeprefix("algorithm."): value for name, value in choice(number).items()}
    return {**SETTINGS, "algorithm": {**SETTINGS["algorithm"], **chosen}}


def score(number: int, seed: int, step: int = EPOCHS[-1]) -> float:
    """What a seed returns: best with alpha 3 and a learning rate of 1e-4; with one of ten critics it fails."""
    chosen = choice(number)
    far = abs(chosen["algorithm.alpha"] - 3) + abs(math.log10(chosen["algorithm.actor_learning_rate"]) + 4)
    noise = np.random.default_rng((number, seed, step)).normal(scale=30)
    return -150 - 400 * far - 900 * (1 - step / EPOCHS[-1]) + noise


def fails(number: int) -> bool:
    """Whether a configuration diverges."""
    return number % 20 == 7


def write_trial(experiment: Experiment, number: int, seed: int) -> Trial:
    """A trial as its worker leaves it."""
    trial = experiment.trial(configuration(number), (seed,), number=number)
    folder = trial.folder.local
    assert folder is not None
    (folder / "choice.json").write_text(json.dumps(choice(number)))
    Writer(trial)
    box = Outbox(trial.outbox(seed))
    box.begin(-1)
    for step in EPOCHS:
        metrics = {f"train/{name}": 1.0 / step + k for k, name in enumerate(LOSSES)} | {"time/updates_per_second": 100.0}
        box.add(step, {**metrics, "evaluation/return": score(number, seed, step), "evaluation/length": 200.0})
        if step in (EPOCHS[len(EPOCHS) // 2], EPOCHS[-1]):
            box.write(step)
            box.written()
    (folder / f"checkpoints/step-{EPOCHS[-1]:09d}").mkdir(parents=True)
    about = {"time": 1_790_000_000_000 + number, "step": EPOCHS[-1], "metrics": {"evaluation/return": score(number, seed)}}
    ended = {"status": "FINISHED", **about}
    if fails(number):
        ended = {**about, "status": "FAILED", "reason": "diverged at step 990: its losses are not finite", "final": True}
    trial.settle({seed: ended})
    return trial


class NoPolicies:
    """In place of the registry: what is measured is the delivery of runs."""

    def __call__(self, *args: Any) -> None:
        return


def generate(storage: Path, n: int, without_registry: Callable[[], None]) -> None:
    """A finished sweep with `n` children. Two trials are delivered; the others copy their files and their rows."""
    without_registry()
    tracking = Tracking.open(str(storage))
    experiment = Experiment.begin(str(storage), NAME, SWEEP, DATASET)
    first = [write_trial(experiment, 0, seed) for seed in SEEDS]
    experiment.set_state("RUNNING")
    deliver(tracking, experiment, first)
    experiment.set_state("FINISHED")
    deliver(tracking, experiment, first)
    others = [(number, seed) for number in range(1, -(-n // len(SEEDS))) for seed in SEEDS][: n - len(SEEDS)]
    with closing(sqlite3.connect(storage / "mlflow.db")) as database:
        template = Template(database, first)
        for number, seed in others:
            folder = clone_folder(experiment, first[seed], number, seed)
            template.clone(folder, number, seed)
        template.write()
    experiment.close()


def clone_folder(experiment: Experiment, first: Trial, number: int, seed: int) -> Trial:
    """Another configuration's trial, in a tenth of the time that its worker would take: nothing is flushed to the disk."""
    from d3ray.platform.storage import folders

    write = folders.write_atomically
    folders.write_atomically = lambda path, content: path.write_bytes(content)  # type: ignore[assignment]
    try:
        trial = write_trial(experiment, number, seed)
        note = {"status": "FAILED", "reason": trial.status[seed]["reason"]} if fails(number) else {}
        trial.note_delivered({seed: {**first.delivered[seed], "run": uuid.uuid4().hex, **note}})
    finally:
        folders.write_atomically = write
    return trial


class Template:
    """Rows of the first runs, copied for others."""

    def __init__(self, database: sqlite3.Connection, first: Sequence[Trial]) -> None:
        self.database, self.first = database, first
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.columns: dict[str, list[str]] = {}
        self.source: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        for table, key in (("runs", "run_uuid"), *_OWN, ("inputs", "destination_id")):
            self.columns[table] = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            self.rows[table] = []
            for trial in first:
                run = trial.delivered[trial.seeds[0]]["run"]
                self.source[table, trial.seeds[0]] = database.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,)).fetchall()

    def clone(self, trial: Trial, number: int, seed: int) -> None:
        """The rows of another trial's run."""
        run, failed = trial.delivered[seed]["run"], fails(number)
        tags = {
            "d3ray.key": trial.runs[seed],
            "d3ray.trial": trial.identity,
            "d3ray.folder": trial.folder.name,
            "d3ray.configuration": str(number),
            "mlflow.runName": f"{NAME} {number} seed {seed}",
        }
        params = {name: value if isinstance(value, str) else json.dumps(value) for name, value in choice(number).items()}
        for table, rows in self.rows.items():
            columns = self.columns[table]
            for row in self.source[table, seed]:
                new = dict(zip(columns, row, strict=True))
                for column in ("run_uuid", "destination_id"):
                    if column in new:
                        new[column] = run
                if table == "inputs":
                    new["input_uuid"] = uuid.uuid4().hex
                elif table == "runs":
                    new |= {"name": tags["mlflow.runName"], "status": "FAILED" if failed else "FINISHED"}
                elif table in ("tags", "params"):
                    new["value"] = (tags if table == "tags" else params).get(new["key"], new["value"])
                elif new["key"] == "evaluation/return" or new["key"] == "objective":
                    new["value"] = score(number, seed, new["step"])
                elif "objective" in new["key"]:
                    if failed:
                        continue
                    new["value"] = float(np.mean([score(number, s) for s in SEEDS]))
                rows.append(tuple(new[column] for column in columns))
            if table == "tags" and failed:
                reason = trial.status[seed]["reason"]
                rows.append(tuple({"key": "d3ray.reason", "value": reason, "run_uuid": run}[column] for column in columns))

    def write(self) -> None:
        """All rows at once."""
        for table, rows in self.rows.items():
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                self.database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self.database.commit()


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long something takes, and what it gives."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def measure(storage: Path) -> dict[str, float]:
    """Seconds of what a user waits for."""
    found: dict[str, float] = {}
    found["open the store"], tracking = seconds(lambda: Tracking.open(str(storage)))
    found["settle"], _ = seconds(lambda: settle(str(storage), tracking))
    experiment = Experiment.look(str(storage), NAME)
    found["list the trials"], trials = seconds(experiment.trials)
    delivery = Delivery(tracking, experiment, trials)
    calls = count_calls(tracking)
    found["first delivery pass"], _ = seconds(delivery.attempt)
    found["requests of it"] = float(len(calls))
    calls.clear()
    found["later delivery pass"], _ = seconds(delivery.attempt)
    found["requests of a later one"] = float(len(calls))
    assert delivery.trouble == ""
    children = [tracking.experiment_id], "tags.`d3ray.kind` = 'seed' and tags.`d3ray.experiment` = 'many'"
    search = tracking.client.search_runs
    found["search by tags: a configuration"], one = seconds(
        lambda: search(children[0], f"{children[1]} and tags.`d3ray.configuration` = '17'")
    )
    assert len(one) == len(SEEDS)
    order = ["metrics.objective DESC"]
    found["top 20 by objective"], top = seconds(lambda: search(*children, max_results=20, order_by=order))
    values = [run.data.metrics["objective"] for run in top]
    assert values == sorted(values, reverse=True)
    found["report"], _ = seconds(lambda: report(str(storage), [NAME]))
    return found


def count_calls(tracking: Tracking) -> list[str]:
    """The names of the requests that are made from now on."""
    made: list[str] = []
    client = tracking.client

    class Counted:
        def __getattr__(self, name: str) -> Any:
            made.append(name)
            return getattr(client, name)

    tracking.client = Counted()
    return made


if __name__ == "__main__":
    from d3ray.platform.tracking import delivery as module

    torch.set_num_threads(1)
    place = Path(sys.argv[1]).absolute()
    if not place.exists():
        took, _ = seconds(lambda: generate(place, int(sys.argv[2]), lambda: setattr(module, "register", NoPolicies())))
        print(f"{took:8.1f} s  generate {sys.argv[2]} children")
    for what, value in measure(place).items():
        print(f"{value:8.2f}   {what}")
