"""What Tune and the driver cost: trials through `d3ray train` beside the same trials in two plain processes.

    python benchmarks/tune_share.py [--trials 60] [--seconds 10] [--epochs 10]

Both sides run the same trials, two at a time, one thread each, one side after the other in one run of this script. A plain process
takes one trial after another and does all that a worker does for it: training, checkpoints, metrics in its outbox, the policy
package. What the other side has on top is Ray, Tune, the driver, and the delivery to MLflow on the same two cores. Starting is left
out on both sides (a process that imports torch; Ray, and its first worker): timed is from the first trial's beginning to the last
one's end, as their folders say. A control loop beside each side shows the machine's noise. The result goes to
`benchmarks/results/tune_share.json` when 60 trials or more were run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers import HERE, Worker, control, machine, serve, versions

from d3ray.data.dataset import Dataset
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.worker.trial_config import TrialConfig, trial_config
from d3ray.platform.worker.trial_run import TrialRun

DATASET = "d3ray/cartpole-replay"
ALGORITHM = {"name": "DQN", "batch_size": 32}
RESULT = HERE / "results" / "tune_share.json"


def settings(folder: Path, name: str, trials: int, n_steps: int, n_epochs: int) -> ExperimentConfig:
    return ExperimentConfig.checked(
        {
            "name": name,
            "dataset": DATASET,
            "algorithm": ALGORITHM,
            "n_steps": n_steps,
            "n_steps_per_epoch": n_steps // n_epochs,
            "seeds": list(range(trials)),
            "storage": str(folder),
        }
    )


def plain(told: list[dict[str, Any]]) -> None:
    """One trial after another, as a worker does them."""
    for one in told:
        run = TrialRun(TrialConfig.checked(one))
        while not run.done:
            run.epoch()
        run.finish()
        run.close()


def took(experiment: Path) -> tuple[float, float]:
    """When its first trial began and its last one ended, in seconds since 1970."""
    trials = list((experiment / "trials").iterdir())
    begin = min((trial / "attempt").stat().st_mtime for trial in trials)
    return begin, max((trial / "status.json").stat().st_mtime for trial in trials)


def outside(config: ExperimentConfig, log: Path) -> float:
    """Seconds of all trials in two plain processes that are up."""
    about = describe_dataset(Dataset.open(DATASET), DATASET)
    experiment = Experiment.begin(config.storage_place, config.experiment, config.configuration(), about)
    told = [trial_config(config, experiment.trial(config.configuration(), seeds)) for seeds in config.groups()]
    with Worker("tune_share.py", 1, log) as one, Worker("tune_share.py", 1, log) as two, ThreadPoolExecutor(2) as pool:
        one("control")
        two("control")
        list(pool.map(lambda pair: pair[0]("plain", told=pair[1]), [(one, told[::2]), (two, told[1::2])]))
    experiment.close()
    begin, end = took(Path(experiment.folder.name))
    return end - begin


def inside(config: ExperimentConfig) -> dict[str, float]:
    """Seconds of all trials through the driver."""
    os.environ["RAY_AUTH_MODE"] = "token"
    with ray_session(num_cpus=2):
        started = time.time()
        result = run_experiment(config)
        ended = time.time()
    if [seed.status for seed in result.seeds] != ["FINISHED"] * len(config.seeds):
        raise RuntimeError(f"not every trial finished: {result}")
    begin, end = took(Path(result.folder))
    return {"seconds": end - begin, "start": begin - started, "after": ended - end}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a trial outside, about")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tune-share-") as scratch:
        folder = Path(scratch)
        short, long = (outside(settings(folder, f"speed-{n}", 2, n, 1), folder / "log") for n in (1_000, 11_000))
        n_steps = max(int(options.seconds * 10_000 / (long - short)), options.epochs)  # less what a process does once
        n_steps -= n_steps % options.epochs
        controls = [control()]
        plain_seconds = outside(settings(folder, "plain", options.trials, n_steps, options.epochs), folder / "log")
        controls.append(control())
        ours = inside(settings(folder, "share", options.trials, n_steps, options.epochs))
        controls.append(control())
    share = ours["seconds"] / plain_seconds - 1
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
        "versions": versions(),
        "trials": options.trials,
        "n_steps": n_steps,
        "epochs": options.epochs,
        "plain_seconds": plain_seconds,
        "driver_seconds": ours["seconds"],
        "before_the_first": ours["start"],
        "after_the_last": ours["after"],
        "share": share,
        "control_seconds": controls,
    }
    print(
        f"{options.trials} trials of {n_steps} updates, two at a time: {plain_seconds:.1f} s in plain processes, "
        f"{ours['seconds']:.1f} s through the driver, {share:+.1%} (goal: under 8 %); {ours['start']:.1f} s before the first, "
        f"{ours['after']:.1f} s after the last; control loop {', '.join(f'{c:.2f}' for c in controls)} s"
    )
    if options.trials >= 60:
        RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].isdigit():  # a worker of this script
        serve({"plain": plain})
    else:
        main()
