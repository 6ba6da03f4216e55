"""What the worker of a trial is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ...data.config import Config
from ...data.uris import without_secrets
from ..settings.config import CheckpointConfig, EvaluationConfig, ExperimentConfig
from ..settings.objective import Objective
from ..settings.online import OnlineConfig
from ..storage.trials import Trial

_SHARE = "resources.json"  # of a trial's folder


class TrialConfig(Config):
    """Config of a worker. A user's own Tuner gives the first seven fields; the driver of `d3ray train` all of them."""

    dataset: str = Field(description="dataset folder, URI or catalog name")
    algorithm: dict[str, Any] = Field(description="name, preset and settings")
    n_steps: int = Field(500_000, gt=0)
    n_steps_per_epoch: int = Field(10_000, gt=0)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    evaluation: EvaluationConfig | None = None
    online: OnlineConfig | None = None
    plugins: tuple[str, ...] = ()
    system_metrics: bool = False
    device: str | None = None
    threads: int = Field(1, gt=0)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    resources: dict[str, float] = Field(
        default_factory=dict[str, float], description="what the driver reserved: cpu and gpu, actors"
    )
    objective: Objective | None = Field(None, description="what trials are compared by, the `objective` of a result")
    heeds: bool = Field(False, description="whether a scheduler's decisions may come to lie in the folder")
    stop_diverging: bool = Field(False, description="whether a seed fails whose objective is not finite or whose values diverge")
    perturbed: tuple[str, ...] = Field((), description="coefficients that exploits change: they are metrics then")
    time_limit: float | None = Field(None, description="seconds that it may train, over all attempts", gt=0)
    folder: str | None = Field(None, description="the trial's folder; None: whoever asked for the trial keeps its checkpoints")

    @property
    def n_processes(self) -> int:
        return max(1, int(self.resources.get("gpu", 0.0)))


def trial_config(config: ExperimentConfig, trial: Trial) -> dict[str, Any]:
    """Build the config of a trial's worker: JSON, without credentials. The trial's folder holds what decides its results."""
    decided, gpu, needed = trial.configuration, config.resources.gpu, trial.folder.read_json(_SHARE)
    if needed is not None:
        gpu = max(float(gpu), needed["gpu"])
    return {
        "dataset": without_secrets(trial.dataset["source"]),
        "algorithm": decided["algorithm"],
        "n_steps": decided["n_steps"],
        "n_steps_per_epoch": decided["n_steps_per_epoch"],
        "seeds": list(trial.seeds),
        "evaluation": decided["evaluation"],
        "online": decided.get("online"),
        "plugins": list(config.plugins),
        "system_metrics": config.system_metrics,
        "device": None if config.resources.gpu else "cpu",
        "threads": max(1, int(config.resources.cpu)),
        "time_limit": config.time_limit.trial,
        "checkpoint": {**config.checkpoint.model_dump(mode="json"), "best": decided["best"]},
        "resources": {"cpu": config.resources.cpu + decided["algorithm"].get("env_runners", 0), "gpu": gpu, **_actors(config)},
        "folder": without_secrets(trial.folder.name),
    }


def _actors(config: ExperimentConfig) -> dict[str, float]:
    """How many actors a trial has, and the CPUs of each; nothing where it has none."""
    if config.online is None or not config.online.actors:
        return {}
    return {"actors": config.online.actors, "actor_cpu": config.resources.actor_cpu}


def note_share(trial: Trial, gpu: float) -> None:
    """Keeps the share of a GPU that a trial was found to need: from now on its worker is told no smaller one."""
    trial.folder.write_json(_SHARE, {"gpu": gpu})


def program(config: Mapping[str, Any]) -> str:
    """Return a key of what decides how long updates take: all of the worker's config but coefficients, seeds and places."""
    algorithm = {name: value for name, value in config["algorithm"].items() if not isinstance(value, float)}
    others = ("folder", "n_steps", "plugins", "objective", "time_limit")
    kept = {name: value for name, value in config.items() if name not in others}
    return json.dumps({**kept, "algorithm": algorithm, "seeds": len(config["seeds"])}, sort_keys=True, default=str)


def too_little(gpu: str, n_seeds: int, algorithm: Mapping[str, Any], lacking: str | None) -> str:
    """A clause that a GPU, as "a whole GPU", has too little memory for a trial, and what to lower.

    `lacking` is what a `GpuTooSmallError` says: no batch is so small that networks would fit; None: they did.
    """
    why = "" if lacking is None else f", for {lacking}"
    return f"{gpu} has too little memory for it{why}: {what_to_lower(n_seeds, algorithm, networks=lacking is not None)}"


def what_to_lower(n_seeds: int, algorithm: Mapping[str, Any], stack: str = "seeds_per_trial", *, networks: bool = False) -> str:
    """Say what to lower if a trial runs out of memory: `stack` names the setting of its number of seeds.

    `networks`: whether its networks alone do not fit, whatever the batch.
    """
    batch = algorithm.get("batch_size")
    cures = [f"{stack} ({n_seeds} seeds are stacked)"] * (n_seeds > 1)
    cures += ["the size of its networks"] if networks else [f"algorithm.batch_size ({batch})"] * (batch is not None)
    return f"lower {' or '.join(cures) or 'what it computes with'}"
