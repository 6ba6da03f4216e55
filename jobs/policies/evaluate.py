"""`d3ray evaluate POLICY`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...data.spec import Environment
from ..command.base import Result, option
from .acting import PolicyConfig, asked_for, check_fits


class EvaluateConfig(PolicyConfig):
    """Settings of an evaluation."""

    episodes: int = option(10, "episodes to play", gt=0, also="n_episodes")
    n_envs: int | None = option(None, "environments played at once; null: as many as episodes, at most 10", gt=0)
    output: str | Path | None = option(None, "JSON file for the result, a path or URI")


@dataclass(frozen=True, kw_only=True)
class EvaluateResult(Result):
    """Returns of the episodes, undiscounted, and steps; `normalized` where D4RL has a reference, and what it may be called.

    `success` is the share of episodes whose task was solved, and `costs` what each came to, where the environment tells.
    """

    environment: Environment
    returns: np.ndarray
    lengths: np.ndarray
    mean: float
    std: float
    normalized: float | None = None
    label: str | None = None
    success: float | None = None
    costs: np.ndarray | None = None


def run(config: EvaluateConfig) -> EvaluateResult:
    """Plays the episodes; a policy that was exported acts through onnxruntime alone.

    Raises:
        ConfigError: it is no policy, no environment is named or it cannot be made, or its spaces are not the policy's.
        StorageError: it is not whole, was changed, or cannot be fetched.
    """
    from ...algos.environments.evaluate import evaluate
    from ...algos.environments.make import make
    from ...algos.environments.scores import reference_score

    with config.opened() as one:
        environment, algorithm = one.environment, one.algorithm
        acting = asked_for(one.policy, config.target_return, config.policy)
        n = min(config.episodes, config.n_envs or 10)
        with make(environment, n=n, evaluating=True) as vector:
            check_fits(one.policy, vector, environment.id)
            played = evaluate(acting, vector, episodes=config.episodes, seed=config.seed, epsilon=config.epsilon)
    reference = reference_score(environment.id)
    normalized = None if reference is None else float(reference.score(played.mean))
    score = "" if reference is None else f"; {reference.label}: {normalized:.1f}"
    shares = [f"{name.removeprefix('success_')} {100 * share:.0f} %" for name, share in played.shares.items()]
    score += f"; solved: {', '.join([shares[0].removeprefix('success '), *shares[1:]])}" if shares else ""
    score += "" if played.cost is None else f"; cost of an episode: {played.cost:.4g}"
    result = EvaluateResult(
        made=f"{environment.id}: return {played.mean:.2f} ± {played.std:.2f} over {config.episodes} episodes of "
        f"{played.lengths.mean():.0f} steps on average (seed {config.seed}){score}.",
        look={} if config.output is None else {"result": str(config.output)},
        environment=environment,
        returns=played.returns,
        lengths=played.lengths,
        mean=played.mean,
        std=played.std,
        normalized=normalized,
        label=None if reference is None else reference.label,
        success=played.success,
        costs=played.costs,
    )
    if config.output is not None:
        _write(result, config, algorithm)
    return result


def _write(result: EvaluateResult, config: EvaluateConfig, algorithm: str) -> None:
    from ...platform.storage.folders import Folder

    assert config.output is not None
    content = {
        "policy": config.policy,
        "algorithm": algorithm,
        "environment": result.environment.model_dump(mode="json"),
        "episodes": config.episodes,
        "seed": config.seed,
        "mean": _told(result.mean),
        "std": _told(result.std),
        "normalized": None if result.normalized is None else {"label": result.label, "score": _told(result.normalized)},
        "success": result.success,
        "costs": None if result.costs is None else list(map(_told, result.costs.tolist())),
        "returns": list(map(_told, result.returns.tolist())),
        "lengths": result.lengths.tolist(),
    }
    folder, name = Folder.of_file(config.output)
    folder.write(name, json.dumps(content, indent=1, allow_nan=False).encode())


def _told(value: float) -> float | None:
    """A number as JSON has it, which knows no NaN."""
    return value if math.isfinite(value) else None
