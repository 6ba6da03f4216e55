"""What tracking costs a trial: gradient steps a second with and without it, in one process, epochs of both in turn.

    python benchmarks/tracking_share.py [--pairs 20] [--seconds 3]

Tracked is what a trial of `d3ray train` does about its metrics: it keeps a line for every epoch, and writes the lines beside its
checkpoint. It talks to no server: the driver delivers, in another process, and what that costs is part of `tune_share.py`.
Checkpoints are written by both.
The share is the median over pairs of (tracked / untracked seconds) - 1, and goes to `benchmarks/results/tracking_share.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers import HERE, control, machine, table, versions

RESULT = HERE / "results" / "tracking_share.json"
DATASET = "d3ray/cartpole-replay"


def make_run(folder: Path, name: str, n_steps_per_epoch: int) -> Any:
    """A trial in a folder of its own."""
    from d3ray import Dataset
    from d3ray.platform.experiment.checks import describe_dataset
    from d3ray.platform.storage.experiments import Trial
    from d3ray.platform.storage.folders import Folder
    from d3ray.platform.worker.trial_config import TrialConfig
    from d3ray.platform.worker.trial_run import TrialRun

    about = describe_dataset(Dataset.open(DATASET), DATASET)
    trial = Trial.create(Folder(folder / name), {"algorithm": {"name": "DQN"}, "n_steps": 10**7}, (0,), about)
    told = {
        "dataset": DATASET,
        "algorithm": {"name": "DQN", "batch_size": 32},
        "n_steps": 10**7,
        "n_steps_per_epoch": n_steps_per_epoch,
        "device": "cpu",
        "folder": trial.folder.name,
    }
    return TrialRun(TrialConfig.checked(told))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of an epoch, about")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracking-share-") as scratch:
        folder = Path(scratch)
        warm = make_run(folder, "warm", 500)
        warm.epoch()
        begin = time.perf_counter()
        warm.epoch()
        n = max(int(500 * options.seconds / (time.perf_counter() - begin)), 1)
        runs = {"tracked": make_run(folder, "tracked", n), "untracked": make_run(folder, "untracked", n)}
        runs["untracked"]._outboxes = {}  # no lines, so no parts beside its checkpoints
        for run in runs.values():
            run.epoch()
        before, ratios, seconds = control(), list[float](), {name: list[float]() for name in runs}
        for pair in range(options.pairs):
            for name in sorted(runs, reverse=bool(pair % 2)):
                begin = time.perf_counter()
                runs[name].epoch()
                seconds[name].append(time.perf_counter() - begin)
            ratios.append(seconds["tracked"][-1] / seconds["untracked"][-1])
        parts = len(list((folder / "tracked" / "outbox" / "seed-0").iterdir()))
        controls = [before, control()]
    share = statistics.median(ratios) - 1
    if parts != options.pairs + 1:
        raise RuntimeError(f"{parts} parts were written in {options.pairs + 1} epochs")
    rows = [[name, f"{n / statistics.median(each):,.0f}", f"{statistics.median(each):.3f}"] for name, each in seconds.items()]
    print(table(["", "updates/s", "seconds of an epoch, median"], rows))
    print(f"a trial's slowdown from tracking: {share:+.2%}, median of {options.pairs} pairs of {n} updates (goal: under 1 %)")
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions(), "control_seconds": controls}
    if options.pairs >= 20:
        RESULT.write_text(json.dumps({**about, "n_updates": n, "ratios": ratios, "share": share}, indent=1) + "\n")


if __name__ == "__main__":
    main()
