"""Trials through Ray on shares of a GPU, in a process of its own: one alone, four beside each other, and what the plan says.

Rates are from the end of the first epoch to that of the last, as the trials' own metrics say; those of trials side by side are of
the time in which all of them train. On the CPU a trial has a quarter of the cores in place of a quarter of the GPU.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from workers import serve

EPOCHS, SHARE = 5, 4
PLAN_SECONDS = 8.0  # that probing may take
Points = tuple[np.ndarray, np.ndarray]  # when each epoch ended, in seconds, and how many updates were done


class Trials:
    """One Ray, and the experiments in it."""

    settings: dict[str, Any]

    def begin(self, dataset: str, folder: str, device: str) -> dict[str, float]:
        """Starts Ray: its seconds."""
        begin = time.perf_counter()
        import ray  # without which nothing here can be done

        from d3ray.platform.cluster.session import ray_session

        os.environ["RAY_AUTH_MODE"] = "token"
        cores, on_cuda = len(os.sched_getaffinity(0)), device.startswith("cuda")
        session = ray_session(num_cpus=cores)
        session.__enter__()
        atexit.register(session.__exit__, None, None, None)
        if on_cuda and not ray.cluster_resources().get("GPU"):
            raise RuntimeError("Ray sees no GPU")
        share = {"cpu": max(cores // 8, 1), "gpu": 1 / SHARE} if on_cuda else {"cpu": cores / SHARE}
        self.settings = {
            "dataset": dataset,
            "algorithm": {"name": "TD3PlusBC", "batch_size": 256},
            "resources": share,
            "storage": f"{folder}/results",
        }
        return {"ray": time.perf_counter() - begin}

    def config(self, name: str, seeds: Sequence[int], n_steps: int) -> Any:
        from d3ray.platform.settings.config import ExperimentConfig

        n_steps = max(n_steps // EPOCHS, 1) * EPOCHS
        steps = {"n_steps": n_steps, "n_steps_per_epoch": n_steps // EPOCHS}
        return ExperimentConfig.checked({**self.settings, **steps, "name": name, "seeds": list(seeds)})

    def train(self, name: str, seeds: Sequence[int], n_steps: int) -> dict[str, float]:
        """Updates a second of all seeds together while all train, and the seconds of the whole experiment."""
        from d3ray import experiments
        from d3ray.platform.experiment.run import run_experiment

        begin = time.perf_counter()
        result = run_experiment(self.config(name, seeds, n_steps))
        seconds = time.perf_counter() - begin
        if failed := [seed for seed in result.seeds if seed.status != "FINISHED"]:
            raise RuntimeError(f"{len(failed)} of {len(seeds)} trials failed: {failed[0].reason}")
        found = defaultdict[int, set[tuple[float, int]]](set)
        for line in experiments.open(name, storage=self.settings["storage"]).metrics():
            found[line.seed].add((line.time, line.step))
        points = [(times, steps) for times, steps in (np.array(sorted(one)).T for one in found.values())]
        return {"per_second": together(points), "seconds": seconds, "first": min(times[0] for times, _ in points)}

    def plan(self, seeds: Sequence[int], n_steps: int) -> dict[str, float]:
        """What `--plan` says of it, with a shorter probe."""
        from d3ray.platform.experiment.run import train_work
        from d3ray.platform.planning.plan import plan

        begin = time.perf_counter()
        said = plan(train_work(self.config("planned", seeds, n_steps)), seconds=PLAN_SECONDS)
        at_once = {"per_second": said.updates_per_second * said.at_once, "at_once": said.at_once}
        return {**at_once, "seconds": said.wall_seconds, "took": time.perf_counter() - begin}


def together(points: Sequence[Points]) -> float:
    """Updates a second of all, in the time in which all train; where there is no such time, over all that any takes."""
    begin, end = max(times[0] for times, _ in points), min(times[-1] for times, _ in points)
    if end > begin:
        return sum(float(np.diff(np.interp([begin, end], times, steps))[0]) for times, steps in points) / (end - begin)
    begin, end = min(times[0] for times, _ in points), max(times[-1] for times, _ in points)
    return sum(float(steps[-1] - steps[0]) for _, steps in points) / (end - begin)


if __name__ == "__main__":
    trials = Trials()
    serve({"begin": trials.begin, "train": trials.train, "plan": trials.plan})
