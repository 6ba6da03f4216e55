"""Data-driven (offline) deep RL on Ray: ingest logs, train over seeds, compare runs, take a policy away.

Importing this package is cheap: the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "data.dataset",
    "MDPDataset": "data.dataset",
    "ReplayBuffer": "data.replay",
    "BC": "algos.bc",
    "DiscreteBC": "algos.discrete_bc",
    "DQN": "algos.dqn",
    "TD3": "algos.td3",
    "TD3PlusBC": "algos.td3_plus_bc",
    "Stack": "algos.stack",
    "load": "algos.saving",
}

__all__ = [  # noqa: PLE0604 - the names are written once, in _HOMES
    "__version__",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'd3ray' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
