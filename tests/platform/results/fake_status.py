"""Experiments at a moment of their lives, written through the real folders, without the training."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Line, _text  # pyright: ignore[reportPrivateUsage]
from d3ray.platform.storage.trials import Trial

DATASET = {"name": "pendulum-replay", "fingerprint": "ab12" * 16, "source": "/data/pendulum", "environment": "Pendulum-v1"}
SEARCH = {
    "search": {"algorithm.alpha": {"uniform": [1, 5]}, "algorithm.actor_learning_rate": {"loguniform": [1e-5, 1e-3]}},
    "objective": {"metric": "evaluation/return", "mode": None, "seeds": "mean"},
    "scheduler": {"name": "none"},
    "budget": {"configurations": None, "hours": None, "gpu_hours": None},
}
METRIC = "evaluation/return"


def configuration(n_steps: int = 1000, **settings: Any) -> dict[str, Any]:
    """What decides a trial's results."""
    algorithm = {"name": "TD3PlusBC", "alpha": 2.5, **settings}
    evaluation = {"environment": "Pendulum-v1", "episodes": 10, "every": None, "holdout": 0.0}
    return {"algorithm": algorithm, "n_steps": n_steps, "n_steps_per_epoch": n_steps // 10, "evaluation": evaluation, "best": None}


def begin(storage: Path | str, name: str, **more: Any) -> Experiment:
    """An experiment that this process holds and that runs since an hour; close it, and it has died."""
    experiment = Experiment.begin(str(storage), name, {**configuration(), **more}, DATASET)
    experiment.set_state("RUNNING")
    since(experiment, time.time() - 3600)
    return experiment


def since(experiment: Experiment, moment: float) -> None:
    """The experiment was begun at that moment."""
    folder = experiment.folder
    folder.write_json("state.json", {**folder.read_json("state.json"), "since": moment})
    folder.write_json("experiment.json", {**folder.read_json("experiment.json"), "created": moment})


def write_trial(
    experiment: Experiment,
    seeds: Sequence[int] = (0,),
    number: int | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    n_steps: int = 1000,
    epochs: Sequence[tuple[int, float, Mapping[int, float]]] = (),
    ended: Mapping[int, Mapping[str, Any]] | str | None = None,
    attempt: int | None = None,
    committed: int | None = None,
    losses: Mapping[str, float] | None = None,
) -> Trial:
    """A trial as its worker leaves it.

    `epochs` have the step, the moment in seconds since 1970, and the return by seed; `ended` says how each seed did, "FINISHED":
    all. It was begun once where there is an epoch, or `attempt` times, and `committed` at the last epoch, or a step.
    """
    trial = experiment.trial(configuration(n_steps, **(settings or {})), seeds, number=number)
    if number is not None:
        trial.folder.write_json("choice.json", {f"algorithm.{name}": value for name, value in (settings or {}).items()})
    if attempt or epochs:
        trial.folder.write("attempt", str(attempt or 1).encode())
        if epochs and trial.folder.local is not None:  # begun a second before its first epoch ended
            os.utime(trial.folder.local / "attempt", (epochs[0][1] - 1, epochs[0][1] - 1))
    for seed in seeds:
        for step, when, values in epochs:
            metrics = {"time/updates_per_second": 77.0, **(losses or {}), **({METRIC: values[seed]} if seed in values else {})}
            line = _text(Line(step, round(when * 1000), metrics))
            trial.outbox(seed).write(f"part-{step:09d}.jsonl", line.encode())
    if (reached := epochs[-1][0] if epochs and committed is None else committed) is not None:
        (trial.folder / "checkpoints" / f"step-{reached:09d}").write("manifest.json", b"{}")
    if ended == "FINISHED":
        last = {s: {METRIC: values[s]} for _, _, values in epochs[-1:] for s in seeds if s in values}
        speed = {"time/updates_per_second": 77.0, **(losses or {})}
        when = round(epochs[-1][1] * 1000)
        ended = {s: {"status": "FINISHED", "step": n_steps, "time": when, "metrics": {**last.get(s, {}), **speed}} for s in seeds}
    if ended:
        trial.settle(ended)  # type: ignore[arg-type]
    return trial
