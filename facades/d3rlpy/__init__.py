"""d3rlpy's users at home: `import d3ray.d3rlpy as d3rlpy`, and scripts of d3rlpy 2.8.1 run on d3ray's learner.

Names and arguments are d3rlpy's, and so are its defaults; what is learned, drawn and saved is d3ray's. docs/migrating.md says what
is told otherwise, and why. Scripts of its first versions run as far as their names are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from d3ray.algos import devices
from d3ray.algos.judging import scorers
from d3ray.algos.saving.saving import load
from d3ray.data.lazy import also_called

from .. import datasets as datasets
from . import algos as algos
from . import dataset as dataset
from . import distributed as distributed
from . import dynamics as dynamics
from . import envs as envs
from . import explorers
from . import logging as logging
from . import metrics as metrics
from . import models as models
from . import online as online
from . import ope as ope
from . import optimizers as optimizers
from . import preprocessing as preprocessing
from .constants import ActionSpace as ActionSpace
from .constants import device_of
from .constants import seed as seed
from .logging import LoggingStrategy as LoggingStrategy

_PARTS = {  # d3rlpy's modules, of all its versions, by what stands for them
    algos: ("algos.qlearning", "algos.qlearning.base"),
    dataset: ("dataset.buffers", "dataset.compat", "dataset.replay_buffer", "dataset.transition_pickers"),
    devices: ("context", "gpu"),
    dynamics: ("dynamics.mopo",),
    explorers: ("algos.qlearning.explorers", "online.explorers"),
    metrics: ("metrics.evaluators",),
    models: ("models.encoders", "models.q_functions"),
    online: ("online.buffers", "online.iterators"),
    optimizers: ("optimizers.lr_schedulers", "optimizers.optimizers"),
    preprocessing: (
        "preprocessing.action_scalers",
        "preprocessing.observation_scalers",
        "preprocessing.reward_scalers",
    ),
    scorers: ("metrics.comparer", "metrics.scorer"),
}
also_called({f"{__name__}.datasets": datasets})
also_called({f"{__name__}.{name}": module for module, names in _PARTS.items() for name in names})


def load_learnable(fname: str | Path, device: Any = None) -> Any:
    """What `save` wrote, or a `.d3` file of d3rlpy 2.8.1. Errors as `d3ray.load`'s."""
    algorithm = load(fname, device_of(device))
    return algos.algorithm_of(algorithm.name).adopt(algorithm)
