"""A trial inside Ray Tune beside the same training outside it, in a process of its own: see `workers.py`.

Both train a fresh algorithm for whole epochs and are timed from the end of the first epoch to the end of the last, by wall clock.
Inside Tune those are the moments when the driver has the result in hand, so everything that Tune does for a result is in.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from ours import open_dataset
from workers import control, serve

from d3ray.algos.registry import make_algorithm


def outside(dataset: str, algorithm: dict[str, Any], n_epochs: int, n_steps_per_epoch: int) -> dict[str, float]:
    """A plain loop over `fitter`."""
    data, before = open_dataset(dataset), control()
    epochs = make_algorithm(algorithm, seed=0, device="cpu").fitter(data, n_epochs * n_steps_per_epoch, n_steps_per_epoch)
    moments = [time.perf_counter() for _ in epochs]
    return {"seconds": moments[-1] - moments[0], "control": (before + control()) / 2}


def start_ray(threads: int) -> None:
    """A Ray of this machine's own, for as long as this process lives."""
    import atexit

    from d3ray.platform.cluster.session import ray_session

    session = ray_session(num_cpus=threads)
    session.__enter__()
    atexit.register(session.__exit__, None, None, None)


def inside(dataset: str, algorithm: dict[str, Any], n_epochs: int, n_steps_per_epoch: int, threads: int) -> dict[str, float]:
    """One trial of a Tuner, reporting after every epoch."""
    from ray import tune

    from d3ray.platform.trainable import trainable

    moments: list[float] = []

    class Clock(tune.Callback):
        def on_trial_result(self, **_: Any) -> None:
            moments.append(time.perf_counter())

    settings = dict(algorithm)
    name, before = settings.pop("name"), control()
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            tune.with_resources(trainable(name), {"cpu": threads}),
            param_space={
                "dataset": str(Path(dataset).absolute()),
                "algorithm": settings,
                "n_steps": n_epochs * n_steps_per_epoch,
                "n_steps_per_epoch": n_steps_per_epoch,
                "seed": 0,
                "evaluation": None,
            },
            run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[Clock()]),
        ).fit()
    if results.num_errors or len(moments) != n_epochs:
        raise RuntimeError(f"the trial gave {len(moments)} of {n_epochs} results: {results.errors}")
    return {"seconds": moments[-1] - moments[0], "control": (before + control()) / 2}


if __name__ == "__main__":
    serve({"outside": outside, "inside": inside, "start_ray": start_ray})
