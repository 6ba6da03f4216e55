"""Experiments from a program: started, watched, stopped and taken from, on this machine or a cluster.

    from d3ray import experiments

    first = experiments.submit({"dataset": "d3ray/cartpole-replay", "algorithm": "DiscreteBC", "n_steps": 10_000})
    print(first.status().share, first.wait().state)
    print(first.export("policy.onnx").target)

Plain data goes in and comes out (`platform.record`); nothing is printed or asked; errors are d3ray's. The `d3ray` command does the
same.
"""

from ..settings.objective import caution
from . import datasets
from .configs import algorithm, algorithms, check, offline_algorithms, problems, schema
from .handle import ExperimentHandle
from .planning import expected, plan
from .policies import about, act, export, judges, promote, record, rollback
from .reports import report, verdicts
from .services import loops, watch_page, watched
from .submitting import list, open, submit

__all__ = [
    "ExperimentHandle",
    "about",
    "act",
    "algorithm",
    "algorithms",
    "caution",
    "check",
    "datasets",
    "expected",
    "export",
    "judges",
    "list",
    "loops",
    "offline_algorithms",
    "open",
    "plan",
    "problems",
    "promote",
    "record",
    "report",
    "rollback",
    "schema",
    "submit",
    "verdicts",
    "watch_page",
    "watched",
]
