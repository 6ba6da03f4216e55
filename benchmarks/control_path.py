"""What the one driver of a wide sweep has to do, from costs measured here: which part is saturated first, and at how many trials.

    python benchmarks/control_path.py [--trials 10000] [--nodes 500] [--slots 8] [--minutes 60] [--epoch 30] [--write]

The parts are measured one by one on this machine (the least of several repetitions, so that other work counts little), on an
experiment of as many trial folders as `--sample` says, on a local disk; for a share of a network the last column gives round trips.
Then it is worked out how busy each part is while the cluster is full. Trials of some minutes begin as soon as there is room, report
every epoch, and end. `--write` puts the table into `benchmarks/results/control_path.md`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers import RESULTS, machine, page, table, today

from d3ray.platform.cluster.session import ray_session
from d3ray.platform.driver.budget import Spent
from d3ray.platform.results.progress import Progress
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Outbox
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import Writer
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import Search, check_sweep
from d3ray.platform.sweep.searchers import Past, make_searcher
from d3ray.platform.tracking.delivery import Delivery, deliver
from d3ray.platform.tracking.runs import Tracking

METRICS = {f"train/metric_{k}": 0.5 for k in range(8)} | {f"evaluation/metric_{k}": 0.5 for k in range(3)}


@dataclass(frozen=True)
class Part:
    """Something that one thread does."""

    name: str
    thread: str  # "driver": Tune's loop, in which trials wait; "optuna": there too, with that searcher; "delivery": beside it
    milliseconds: float  # each
    a_second: float  # how often it comes
    note: str = ""

    @property
    def busy(self) -> float:
        """The part of the thread's time."""
        return self.milliseconds * self.a_second / 1000


def least(work: Callable[[], Any], times: int = 5) -> float:
    """Milliseconds of the fastest of some repetitions."""
    found = list[float]()
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - begin))
    return min(found)


def sweep_config(folder: Path, searcher: str = "random") -> SweepConfig:
    sizes = {"n_steps": 1000, "n_steps_per_epoch": 100, "budget": {"configurations": 1_000_000}, "evaluation": None}
    search = {"search": {"algorithm.learning_rate": {"loguniform": [1e-6, 1e-2]}}, "searcher": searcher}
    search |= {"objective": {"metric": "train/critic_loss"}, "storage": str(folder)}
    return SweepConfig.checked({"name": "wide", "dataset": "d3ray/cartpole-replay", "algorithm": "DQN", **sizes, **search})


def proposals(folder: Path, sample: int) -> tuple[Experiment, list[Trial], dict[str, float]]:
    """What a proposal takes, folder and all; and how it grows with what was proposed before."""
    config = sweep_config(folder)
    datasets = check_sweep(config)
    searcher = make_searcher(config.searcher, config.space, config, config.objective.direction)
    about = next(iter(datasets.values()))
    experiment = Experiment.begin(str(folder), "wide", config.decided(searcher.end), about)
    search = Search(config, experiment, datasets, searcher, Spent(experiment.folder, config.budget))
    trials, each = list[Trial](), list[float]()
    for _ in range(sample):
        begin = time.perf_counter()
        trial = search.next()
        each.append(1000 * (time.perf_counter() - begin))
        assert trial is not None
        trials.append(trial)
    first, last = sorted(each[: sample // 5])[sample // 20], sorted(each[-sample // 5 :])[sample // 20]
    growth = max(last - first, 0.0) / (0.8 * sample)  # milliseconds more for each trial that is there
    return experiment, trials, {"proposal": first, "growth": growth}


def learned_proposal(folder: Path, n: int, running: int) -> float:
    """Milliseconds in which Optuna answers once `n` configurations were proposed, of which `running` have not ended."""
    config = sweep_config(folder, "optuna")
    searcher = make_searcher(config.searcher, config.space, config, config.objective.direction)
    draw = random.Random(0)
    history = [Past(k, {"algorithm.learning_rate": 10 ** draw.uniform(-6, -2)}) for k in range(n)]
    history[: n - running] = [replace(one, ended="finished", value=draw.random(), step=1000) for one in history[: n - running]]
    return least(lambda: searcher.suggest(n, history))


def commit(trials: list[Trial], step: int) -> None:
    """What a worker leaves after an epoch, as far as the driver looks at it."""
    for trial in trials:
        made = trial.folder.local / "checkpoints" / f"step-{step:09d}"
        made.mkdir(parents=True, exist_ok=True)
        for seed in trial.seeds:
            box = Outbox(trial.outbox(seed))
            box.add(step, METRICS)
            box.write(step)


def deliveries(experiment: Experiment, trials: list[Trial]) -> dict[str, float]:
    """What a pass takes for a trial that runs, with news and without, and for one that ended; and a run's creation."""
    for trial in trials:
        Writer(trial)
    experiment.set_state("RUNNING")
    tracking = Tracking.open(str(Path(experiment.folder.name).parent))
    n, found = len(trials), dict[str, float]()
    with Delivery(tracking, experiment, trials) as delivery:
        found["add"] = least(lambda: [delivery.add(trial) for trial in trials]) / n

        def one_pass() -> float:
            begin = time.perf_counter()
            deliver(tracking, experiment, trials)
            return 1000 * (time.perf_counter() - begin) / n

        found["create"] = one_pass()
        found["idle"] = min(one_pass() for _ in range(3))
        news = list[float]()
        for step in (100, 200, 300):
            commit(trials, step)
            news.append(one_pass())
        found["news"] = min(news) - found["idle"]
        for trial in trials:
            trial.settle({seed: {"status": "KILLED", "reason": "enough", "final": True, "step": 300} for seed in trial.seeds})
        found["end"] = one_pass()
        found["settled"] = min(one_pass() for _ in range(3))
    return found


def reading(experiment: Experiment, trials: list[Trial]) -> dict[str, float]:
    """What it takes to look at every trial when a command begins, and to show progress after an epoch."""
    progress, n = Progress({}), len(trials)
    for trial in trials:
        progress.add(trial)
    return {
        "listing": least(experiment.trials) / n,
        "opened": least(lambda: Progress({}).add(trials[0])),
        "shown": least(lambda: (progress.done, progress.total)) / n,
    }


def tune_loop(folder: Path, results: int = 200, trials: int = 14) -> dict[str, float]:
    """What Tune and the callbacks take for a result, and for a trial's beginning and end, in this process's CPU time."""
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler

    class Reports(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            pass

        def step(self) -> dict[str, Any]:
            return {"step": self.iteration + 1, "done": self.iteration + 1 >= self.config["n"], "seeds": {"0": METRICS}, **METRICS}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

    def seconds(n: int, each: int) -> float:
        begin, none = time.process_time(), tune.CheckpointConfig(checkpoint_at_end=False)
        several = tune.TuneConfig(num_samples=n, reuse_actors=True)
        run = tune.RunConfig(storage_path=str(folder), name=f"{n}x{each}", verbose=0, checkpoint_config=none)
        work = tune.with_resources(Reports, {"cpu": 1})
        tune.Tuner(work, param_space={"n": each}, tune_config=several, run_config=run).fit()
        return time.process_time() - begin

    os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0", "TUNE_GLOBAL_CHECKPOINT_S": "3600"}
    with ray_session(num_cpus=2):
        seconds(1, 1)
        few, many, wide = seconds(2, 5), seconds(2, results // 2), seconds(trials, 5)

    class Controller:
        def __init__(self, n: int) -> None:
            self.trials = [type("T", (), {"status": "RUNNING", "placement_group_factory": None})() for _ in range(n)]

        def get_trials(self) -> list[Any]:
            return self.trials

    scan = least(lambda: FIFOScheduler().choose_trial_to_run(Controller(10_000))) / 10_000
    made = least(lambda: Controller(10_000)) / 10_000
    return {
        "result": 1000 * (many - few) / (results - 10),
        "trial": 1000 * (wide - few) / (trials - 2),
        "scan": max(scan - made, 0.0),
    }


def parts(costs: dict[str, float], options: argparse.Namespace) -> list[Part]:
    """How busy each part is once the cluster is full, half of all trials begun."""
    at_once = min(options.nodes * options.slots, options.trials)
    results, ends, half = at_once / options.epoch, at_once / (60 * options.minutes), options.trials / 2
    proposal, run = costs["proposal"] + costs["growth"] * half, costs["create"] + costs["end"]
    grows, trips, passes = "grows with trials", "~6 round trips", 1.0  # passes a second
    return [
        Part("Tune: a result", "driver", costs["result"], results),
        Part("Tune: its scheduler looks at every trial, once a result", "driver", costs["scan"] * half, results, grows),
        Part("Tune: a trial begins and ends", "driver", costs["trial"], ends),
        Part("progress: sums over every trial, once a result", "driver", costs["shown"] * half, results, grows),
        Part("search: a proposal and its folder", "driver", proposal, ends, trips),
        Part("search: an answer of Optuna's", "optuna", costs["learned"], ends, grows),
        Part("delivery: a look at a trial that runs", "delivery", costs["idle"], at_once * passes, trips),
        Part("delivery: metrics of an epoch to SQLite", "delivery", costs["news"], results),
        Part("delivery: a run is created and ended", "delivery", run, ends),
        Part("delivery: a look at a trial that has ended", "delivery", costs["settled"], half * passes),
    ]


def words(found: list[Part], costs: dict[str, float], options: argparse.Namespace) -> str:
    """The table, and what follows."""
    at_once = min(options.nodes * options.slots, options.trials)
    threads = ("driver", "optuna", "delivery")
    busy = {thread: sum(part.busy for part in found if part.thread == thread) for thread in threads}
    busy["driver, with the searcher optuna"] = busy["driver"] + busy.pop("optuna")
    rows = [
        [part.name, part.thread, f"{part.milliseconds:.3g}", f"{part.a_second:,.3g}", f"{100 * part.busy:.3g} %", part.note]
        for part in sorted(found, key=lambda part: (threads.index(part.thread), -part.busy))
    ]
    full = [
        f"- {thread}: {100 * part:.0f} % of one core; full at about {at_once / part:,.0f} trials at once."
        for thread, part in busy.items()
    ]
    return page(
        "control_path",
        asked=f"{options.trials:,} trials of {options.minutes:g} min, {at_once:,} at once on {options.nodes} nodes, an epoch every "
        f"{options.epoch:g} s",
        table=table(["part", "thread", "ms each", "a second", "of the thread's time", ""], rows),
        busy="\n".join(full),
        listing=f"{options.trials * costs['listing'] / 1000:.1f}",
        shortest=f"at {at_once:,} at once: {busy['driver'] * options.epoch:.1f} s",
        where=f"{machine()['cpu']}, load {os.getloadavg()[0]:.1f}, {today()}, {options.sample} folders",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--slots", type=int, default=8, help="trials at once on a node")
    parser.add_argument("--minutes", type=float, default=60, help="of a trial")
    parser.add_argument("--epoch", type=float, default=30, help="seconds of an epoch")
    parser.add_argument("--sample", type=int, default=200, help="trial folders that are made to measure on")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="control-path-") as scratch:
        experiment, trials, costs = proposals(Path(scratch), options.sample)
        half, running = options.trials // 2, min(options.nodes * options.slots, options.trials // 2)
        costs |= {"learned": learned_proposal(Path(scratch), half, running), **reading(experiment, trials)}
        costs |= deliveries(experiment, trials)
        experiment.close()
        print({name: round(value, 4) for name, value in costs.items()}, file=sys.stderr, flush=True)
        costs |= tune_loop(Path(scratch) / "tune")
    text = words(parts(costs, options), costs, options)
    print(text)
    if options.write:
        (RESULTS / "control_path.md").write_text(text)


if __name__ == "__main__":
    main()
