"""d3rlpy's users at home: `import d3ray.d3rlpy as d3rlpy`, and scripts of d3rlpy 2.8.1 run on d3ray's learner.

Names and arguments are d3rlpy's, and so are its defaults; what is learned, drawn and saved is d3ray's. docs/migrating.md says what
is told otherwise, and why. Scripts of its first versions run as far as their names are here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..environments import datasets as datasets
from ..saving.saving import load
from . import algos as algos
from . import dataset as dataset
from . import distributed as distributed
from . import dynamics as dynamics
from . import envs as envs
from . import logging as logging
from . import metrics as metrics
from . import models as models
from . import ope as ope
from . import optimizers as optimizers
from . import preprocessing as preprocessing
from .constants import ActionSpace as ActionSpace
from .constants import device_of
from .constants import seed as seed
from .logging import LoggingStrategy as LoggingStrategy


def load_learnable(fname: str | Path, device: Any = None) -> Any:
    """What `save` wrote, or a `.d3` file of d3rlpy 2.8.1. Errors as `d3ray.load`'s."""
    algorithm = load(fname, device_of(device))
    return algos.algorithm_of(algorithm.name).adopt(algorithm)
