"""A policy package of one of RLlib's algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...algos.export.golden import BATCHES, Arrays, golden_observations
from ...algos.export.graphs import Portable, with_golden
from ...algos.export.packing import write_portable
from ...data.spec import Environment
from ..places import Data
from .algorithm import RllibAlgorithm
from .policy import RllibPolicy, module_of


def portable(policy: RllibPolicy) -> Portable:
    """A policy ready to be written, compared with RLlib's own module on golden observations. Raises as `with_golden`."""
    seen = policy.module.seen
    numbers = {} if seen is None else {"observation": (1 / (seen.std + 1e-8), -seen.mean / (seen.std + 1e-8))}
    drawn = golden_observations(policy.spec, 8 * sum(BATCHES), numbers)

    return with_golden(policy.portable(), policy.portable(torch.float64), drawn, lambda inputs: module_actions(policy, inputs))


def module_actions(policy: RllibPolicy, inputs: Arrays) -> np.ndarray:
    """Compute actions of raw observations by RLlib's own module and functions; `RllibPolicyModule` must match."""
    import gymnasium
    from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

    module, seen, bounds = module_of(policy), policy.module.seen, policy.module.bounds
    observation = inputs["observation"]
    if seen is not None:
        observation = (observation - seen.mean) / (seen.std + 1e-8)
        observation = observation if seen.clip is None else np.clip(observation, -seen.clip, seen.clip)
    with torch.no_grad():
        out: Any = module.forward_inference({"obs": torch.as_tensor(observation.astype(np.float32), device=policy.device)})  # pyright: ignore[reportCallIssue]
        if "actions" in out:
            action = out["actions"]
        else:
            distribution = module.get_inference_action_dist_cls().from_logits(out["action_dist_inputs"])  # pyright: ignore[reportCallIssue]
            mode = distribution.to_deterministic().sample()
            action = distribution._squash(mode) if hasattr(distribution, "_squash") else mode
    if bounds is None:
        return action.cpu().numpy()
    low, high = (np.asarray(bound, np.float32) for bound in (bounds.low, bounds.high))
    space = gymnasium.spaces.Box(low, high)
    return np.asarray((unsquash_action if bounds.scales else clip_action)(action.cpu().numpy(), space))


def write_package(
    algorithm: RllibAlgorithm, folder: Path, dataset: Data, environment: str | Environment | None, run: str | None = None
) -> None:
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
        run=run,
    )
