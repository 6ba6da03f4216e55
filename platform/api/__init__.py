"""Experiments from a program: started, watched, stopped and taken from, on this machine or a cluster.

    from d3ray import experiments

    first = experiments.submit({"dataset": "d3ray/cartpole-replay", "algorithm": "DiscreteBC", "n_steps": 10_000})
    print(first.status().share, first.wait().state)
    print(first.export("policy.onnx").target)

Plain data goes in and comes out (`told`); nothing is printed or asked; errors are d3ray's. The `d3ray` command does the same.
"""

from .configs import algorithm, algorithms, check, problems, schema
from .handle import ExperimentHandle
from .policies import export, promote
from .reports import report
from .submitting import list, open, submit

__all__ = [
    "ExperimentHandle",
    "algorithm",
    "algorithms",
    "check",
    "export",
    "list",
    "open",
    "problems",
    "promote",
    "report",
    "schema",
    "submit",
]
