"""The commands of `d3ray`: by name the function that runs each, below `jobs/`, and its line in `d3ray --help`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...data.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from ...data.config import Config

COMMANDS: dict[str, tuple[str, str]] = {
    "collect": ("data.collect:run", "experience of a policy, or of random actions, in an environment as a dataset."),
    "convert": (
        "data.convert:run",
        "a dataset for other programs (D4RL's, d3rlpy's, Minari's, Parquet, NumPy), or in other files.",
    ),
    "datasets": ("data.datasets:run", "the datasets that have a name, and which of them are on this machine."),
    "derive": ("data.derive:run", "a dataset of others: some of their episodes, put together, mixed, with other rewards."),
    "diff": (
        "data.diff:run",
        "what differs between two datasets: spaces, columns, counts, statistics, rows, where they come from.",
    ),
    "ingest": ("data.ingest:run", "logged experience from files of other programs into a dataset folder."),
    "inspect": (
        "data.inspect:run",
        "what is in a dataset, and what is wrong with it: counts, distributions, the doctor's findings.",
    ),
    "make": ("data.make:run", "make datasets that cannot be downloaded, by training an agent in their environment."),
    "algorithms": ("training.algorithms:run", "the algorithms that there are, and every setting of one."),
    "benchmark": (
        "training.benchmark:run",
        "train the algorithms of a suite on its datasets over its seeds, and write its tables and report.",
    ),
    "cancel": (
        "training.cancel:run",
        "stop an experiment, or one of its trials, at the next epoch, from wherever its storage is seen.",
    ),
    "demo": (
        "training.demo:run",
        "the whole way in minutes: recorded data, two algorithms over three seeds, a policy that runs without d3ray.",
    ),
    "resume": (
        "training.resume:run",
        "go on with an experiment that was interrupted or failed in part, with the settings that it has.",
    ),
    "sweep": ("training.sweep:run", "search settings, algorithms and datasets for the best configuration, over seeds."),
    "train": ("training.train:run", "train one algorithm on a dataset, a trial for each seed or stack of seeds."),
    "compare": ("results.compare:run", "runs or policies side by side: settings, metrics, and whether the difference is shown."),
    "delete": ("results.delete:run", "delete an experiment that does not run: its folder, and its runs in MLflow."),
    "plot": ("results.plot:run", "curves of metrics, means and bands over seeds, in the terminal or as a picture."),
    "report": ("results.report:run", "one page about an experiment, several compared, or a benchmark: scores, curves, conditions."),
    "stats": ("results.stats:run", "the metrics of runs in a few numbers each: final, best, mean of the last, over seeds."),
    "status": (
        "results.status:run",
        "how an experiment stands, running or dead, as its storage says; without a name, every one there.",
    ),
    "web": ("results.web:run", "datasets, experiments and policies in a browser, for whoever does not write code."),
    "evaluate": ("policies.evaluate:run", "the return of a policy in an environment."),
    "export": (
        "policies.export:run",
        "a trained policy or model of the dynamics as ONNX, TorchScript, torch.export program or package.",
    ),
    "loop": (
        "policies.loop:run",
        "from the log of a service to a better policy: ingest, train, judge, try out, promote; goes on where it was killed.",
    ),
    "watch": (
        "policies.watch:run",
        "what a served policy's log shows: traffic, drift, returns over time; exits with 3 where something is an alarm.",
    ),
    "judge": ("policies.judge:run", "what policies would return, estimated from logs alone, with intervals and refusals."),
    "play": (
        "policies.play:run",
        "a policy plays before your eyes, in a window, or in the terminal where the environment is text.",
    ),
    "promote": ("policies.promote:run", "make the candidate of a registered model its champion, if it passes the gate."),
    "record": ("policies.record:run", "a video of episodes that a policy plays, drawn by its environment; no display is needed."),
    "rollback": ("policies.rollback:run", "give a registered model's champion back to the version that was it before."),
    "serve": (
        "service.serve:run",
        "policies answer over HTTP with what to do, explore with known probabilities, and log every decision.",
    ),
    "cluster": ("cluster.cluster:run", "write the files that start a cluster there, from one description of it."),
    "down": ("cluster.down:run", "end the Ray cluster that a file of Ray's cluster launcher describes, and its costs."),
    "jobs": ("cluster.jobs:run", "what runs on a Ray cluster: list it, follow it again, wait for it, stop it."),
    "submit": ("cluster.submit:run", "run a job on a Ray cluster with the d3ray that is installed here, and follow its log."),
    "up": ("cluster.up:run", "start the Ray cluster that a file of Ray's cluster launcher describes."),
}
TITLES = {
    "data": "Data",
    "training": "Training",
    "results": "Results",
    "policies": "Policies",
    "service": "Service",
    "cluster": "Clusters",
}
FROM_HERE = ("submit", "jobs", "up", "down", "cluster")  # commands that speak to clusters, on which `submit` runs the others


def load(name: str) -> tuple[Callable[[Any], Any], type[Config]]:
    """The function that runs a command, and the config that it takes. Raises ConfigError: there is no such command."""
    if name not in COMMANDS:
        raise ConfigError(f"d3ray has no job {name!r}{did_you_mean(name, COMMANDS)}")
    module, _, function = COMMANDS[name][0].partition(":")
    run = getattr(importlib.import_module(f"..{module}", __package__), function)
    return run, getattr(sys.modules[run.__module__], run.__annotations__["config"])
