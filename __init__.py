"""Data-driven (offline) deep RL on Ray: ingest logs, train over seeds, compare runs, take a policy away.

Importing this package is cheap: the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .algos.awac import AWAC
    from .algos.awr import AWR
    from .algos.bc import BC
    from .algos.bcq import BCQ
    from .algos.bear import BEAR
    from .algos.cal_ql import CalQL
    from .algos.cql import CQL
    from .algos.crr import CRR
    from .algos.ddpg import DDPG
    from .algos.decision_transformer import DecisionTransformer
    from .algos.discrete_bc import DiscreteBC
    from .algos.dqn import DQN
    from .algos.edac import EDAC
    from .algos.environments import datasets
    from .algos.iql import IQL
    from .algos.mcq import MCQ
    from .algos.online_run import OnlineRun
    from .algos.plas import PLAS
    from .algos.plas_with_perturbation import PLASWithPerturbation
    from .algos.rebrac import ReBRAC
    from .algos.sac import SAC
    from .algos.sac_n import SACN
    from .algos.saving import load
    from .algos.spot import SPOT
    from .algos.stack import Stack
    from .algos.td3 import TD3
    from .algos.td3_plus_bc import TD3PlusBC
    from .algos.xql import XQL
    from .data.dataset import Dataset
    from .data.doctor.examine import doctor
    from .data.mdp_dataset import MDPDataset
    from .data.replay import ReplayBuffer

__version__ = "0.1.0"
__all__ = [
    "AWAC",
    "AWR",
    "BC",
    "BCQ",
    "BEAR",
    "CQL",
    "CRR",
    "DDPG",
    "DQN",
    "EDAC",
    "IQL",
    "MCQ",
    "PLAS",
    "SAC",
    "SACN",
    "SPOT",
    "TD3",
    "XQL",
    "CalQL",
    "Dataset",
    "DecisionTransformer",
    "DiscreteBC",
    "MDPDataset",
    "OnlineRun",
    "PLASWithPerturbation",
    "ReBRAC",
    "ReplayBuffer",
    "Stack",
    "TD3PlusBC",
    "datasets",
    "doctor",
    "load",
]

_HOMES = {
    "AWAC": "algos.awac",
    "AWR": "algos.awr",
    "BC": "algos.bc",
    "BCQ": "algos.bcq",
    "BEAR": "algos.bear",
    "CQL": "algos.cql",
    "CRR": "algos.crr",
    "CalQL": "algos.cal_ql",
    "DDPG": "algos.ddpg",
    "DQN": "algos.dqn",
    "Dataset": "data.dataset",
    "DecisionTransformer": "algos.decision_transformer",
    "DiscreteBC": "algos.discrete_bc",
    "EDAC": "algos.edac",
    "IQL": "algos.iql",
    "MCQ": "algos.mcq",
    "MDPDataset": "data.mdp_dataset",
    "OnlineRun": "algos.online_run",
    "PLAS": "algos.plas",
    "PLASWithPerturbation": "algos.plas_with_perturbation",
    "ReBRAC": "algos.rebrac",
    "ReplayBuffer": "data.replay",
    "SAC": "algos.sac",
    "SACN": "algos.sac_n",
    "SPOT": "algos.spot",
    "Stack": "algos.stack",
    "TD3": "algos.td3",
    "TD3PlusBC": "algos.td3_plus_bc",
    "XQL": "algos.xql",
    "datasets": "algos.environments.datasets",
    "doctor": "data.doctor.examine",
    "load": "algos.saving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'd3ray' has no attribute {name!r}")
    home = importlib.import_module(f".{_HOMES[name]}", __name__)
    value = home if _HOMES[name].endswith(f".{name}") else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
