"""Policy packages as MLflow models: logged with their run, registered under the experiment's name, the best one the champion."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .storage import Experiment, Trial, is_better
from .tracking import Tracking

CHAMPION = "champion"


def log_policy(tracking: Tracking, experiment: Experiment, trial: Trial, seed: int, run: str, about: Mapping[str, Any]) -> str:
    """The version that a seed's policy is registered as; one that was registered before is found again.

    Args:
        tracking: Where.
        experiment: Whose name the model has.
        trial: Of the seed.
        seed: Whose policy.
        run: The seed's run.
        about: How the seed ended.
    """
    from mlflow.exceptions import MlflowException

    client = tracking.client
    try:
        client.create_registered_model(experiment.name, tags={"d3ray.experiment": experiment.name})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    for known in client.search_model_versions(f"name = '{experiment.name}'"):
        if known.run_id == run:
            return str(known.version)
    package = trial.folder / "policy" / f"seed-{seed}"
    best = about.get("best") or {}
    tags = {"d3ray.seed": str(seed), "d3ray.step": str(best.get("step", about["step"]))}
    if score := _score(about):
        tags |= {"d3ray.metric": score[0], "d3ray.value": repr(score[1])}
    logged = [m for m in client.search_logged_models([tracking.experiment_id], f"source_run_id = '{run}'") if m.status == "READY"]
    model_id = logged[0].model_id if logged else None
    if model_id is None:
        with tempfile.TemporaryDirectory(prefix="d3ray-") as scratch, package.as_local() as files:
            folder = Path(scratch) / "model"
            _save(files, folder)
            model_id = client.create_logged_model(
                tracking.experiment_id, name="policy", source_run_id=run, tags=tags, model_type="d3ray-policy"
            ).model_id
            client.log_model_artifacts(model_id, str(folder))
            client.finalize_logged_model(model_id, "READY")
    with tracking.as_global():
        made = client.create_model_version(experiment.name, f"models:/{model_id}", run_id=run, model_id=model_id, tags=tags)
    return str(made.version)


def _save(package: Path, folder: Path) -> None:
    """A package as an MLflow model of the ONNX flavour, with the package's own files beside it."""
    import numpy as np
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.onnx import save_model
    from mlflow.types import Schema, TensorSpec

    record = json.loads((package / "policy.json").read_text())

    def schema(kinds: Sequence[str]) -> Schema:
        ports = [port for kind in kinds for port in record.get(kind, [])]
        return Schema([TensorSpec(np.dtype(p["dtype"]), (-1, *p["shape"][1:]), p["name"]) for p in ports])

    save_model(
        onnx.load(str(package / "policy.onnx")),
        str(folder),
        signature=ModelSignature(schema(["inputs", "state_inputs", "noise_inputs"]), schema(["outputs"])),
        pip_requirements=[f"{name}=={version(name)}" for name in ("mlflow", "onnx", "onnxruntime", "numpy")],
        save_as_external_data=False,
        onnx_execution_providers=["CPUExecutionProvider"],
    )
    shutil.copytree(package, folder / "package")


def champion(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], parent: str) -> None:
    """Sets the alias `champion` to the version of the seed that scored best."""
    chosen: tuple[str, float, int, Mapping[str, Any]] | None = None
    for trial in trials:
        delivered = trial.delivered
        for seed, about in trial.status.items():
            note, score = delivered.get(seed, {}), _score(about)
            if about["status"] != "FINISHED" or score is None or "model" not in note:
                continue
            if chosen is None or is_better(score[0], score[1], chosen[1]):
                chosen = (*score, seed, note)
    if chosen is None:
        return
    metric, value, seed, note = chosen
    tracking.client.set_registered_model_alias(experiment.name, CHAMPION, note["model"])
    tags = {"metric": metric, "best_value": repr(value), "best_seed": str(seed), "best_run": note["run"]}
    for name, text in tags.items():
        tracking.client.set_tag(parent, f"d3ray.{name}", text)


def _score(about: Mapping[str, Any]) -> tuple[str, float] | None:
    """The metric by which a seed's policy is compared, and its value."""
    if best := about.get("best"):
        return best["metric"], best["value"]
    value = about.get("metrics", {}).get("evaluation/return")
    return None if value is None else ("evaluation/return", value)
