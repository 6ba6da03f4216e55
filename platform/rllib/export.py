"""A policy package of one of RLlib's algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...algos.export import Portable, with_golden
from ...algos.golden import BATCHES, Arrays, golden_observations
from ...algos.package import write_portable
from ...data.spec import Environment
from .policy import RllibPolicy

if TYPE_CHECKING:
    from ..places import Data
    from .algorithm import RllibAlgorithm


def portable(policy: RllibPolicy) -> Portable:
    """A policy ready to be written, compared with RLlib's own module on golden observations. Raises as `with_golden`."""
    seen = policy.module.seen
    numbers = {} if seen is None else {"observation": (1 / (seen.std + 1e-8), -seen.mean / (seen.std + 1e-8))}
    drawn = golden_observations(policy.spec.observation, 8 * sum(BATCHES), numbers)

    def live(inputs: Arrays) -> np.ndarray:
        return policy.predict(inputs["observation"])

    return with_golden(policy.portable(), policy.portable(torch.float64), drawn, live)


def write_package(algorithm: RllibAlgorithm, folder: Path, dataset: Data, environment: str | Environment | None) -> None:
    """Writes the greedy policy as a policy package, as `algos.package.write_package` does of d3ray's own.

    Raises:
        ConfigError: the module cannot be written as ONNX.
        StorageError: the place cannot be written, or the graph does not act as the module does.
    """
    write_portable(
        portable(algorithm.policy()),
        folder,
        algorithm=algorithm.name,
        config=algorithm.settings.model_dump(mode="json"),
        seed=algorithm.seed,
        step=algorithm.step,
        dtype=algorithm.dtype,
        networks=("module",),
        scalers={"observation": None, "action": None},
        data={"name": dataset.name, "fingerprint": dataset.fingerprint},
        environment=environment,
    )
