"""Packages as MLflow models: those of the best configuration, registered under the experiment's name.

The alias `candidate` is on the version of its best seed. The alias `champion` is given by `d3ray promote` alone
(`d3ray.platform.tracking.promotion`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...data.storage.claims import scratch_names
from ...data.storage.json_text import parse_json
from ..results.configurations import best_by, objective_of, read_configurations, seed_score
from ..settings.evaluation import evaluation_seed
from ..settings.objective import is_better
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.trials import Trial
from .registered import as_global
from .runs import Tracking

CANDIDATE = "candidate"


def prepare_to_register() -> None:
    """Imports what `register` needs, which takes half a second: better while trials run than when they are done."""
    for name in ("mlflow.onnx", "mlflow.pyfunc"):
        dir(import_module(name))  # MLflow gives a module that imports itself when it is looked at
    import_module("onnxruntime")


def register(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], parent: str) -> None:
    """Registers the policies of the best configuration's finished seeds, and says on the parent run which they are.

    Where trials learned from several datasets, whose scores do not compare, there is a model for each: `EXPERIMENT-DATASET`.
    """
    objective, by_name = objective_of(experiment.configuration), {trial.identity: trial for trial in trials}
    several = len({trial.dataset["name"] for trial in trials}) > 1
    found = best_by(lambda one: str(one.data["name"]), read_configurations(trials, objective), objective)
    for dataset, best in found.items():
        model = experiment.name if not several else f"{experiment.name}-{re.sub('[/:]', '-', dataset)}"
        members = [by_name[name] for name in dict.fromkeys(seed.trial for seed in best.seeds)]
        chosen = _register(tracking, experiment, model, members, objective.metric)
        tags = {} if best.number is None else {"best_configuration": str(best.number)}
        if chosen is not None:
            metric, value, seed, note = chosen
            tracking.client.set_registered_model_alias(model, CANDIDATE, note["model"])
            tags |= {"metric": metric, "best_value": repr(value), "best_seed": str(seed), "best_run": note["run"]}
        if not several:
            tracking.set_tags(parent, {f"d3ray.{name}": text for name, text in tags.items()})


def _register(
    tracking: Tracking, experiment: Experiment, model: str, trials: Sequence[Trial], metric: str
) -> tuple[str, float, int, Mapping[str, Any]] | None:
    """The seed of a configuration that scored best: metric, value, seed and what is noted of it."""
    chosen: tuple[str, float, int, Mapping[str, Any]] | None = None
    for trial, seed, about in [(one, *ended) for one in trials for ended in one.status.items()]:
        delivered = trial.delivered
        note = delivered.get(seed)
        package = trial.package(seed)  # None: it judges another's policy
        if about["status"] != "FINISHED" or note is None or package is None:
            continue
        if "model" not in note:
            version = _register_seed(tracking, experiment, model, trial, seed, note["run"], about, package)
            note = {**note, "registered": model, "model": version}
            trial.note_delivered({**delivered, seed: note})
        score = seed_score(about, metric)
        if score is not None and (chosen is None or is_better(score[0], score[1], chosen[1])):
            chosen = (*score, seed, note)
    return chosen


def _register_seed(
    tracking: Tracking,
    experiment: Experiment,
    model: str,
    trial: Trial,
    seed: int,
    run: str,
    about: Mapping[str, Any],
    package: Folder,
) -> str:
    """The version that a seed's package is registered as; one that was registered before is found again."""
    from mlflow.exceptions import MlflowException

    client = tracking.client
    try:
        client.create_registered_model(model, tags={"d3ray.experiment": experiment.name})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    kind = package.above.label
    tags = _version_tags(trial, seed, about, package.read_json(f"{kind}.json"))

    def is_this(one: Any) -> bool:  # a run that has gone on has one of an earlier step too
        return one.tags.get("d3ray.step") == tags["d3ray.step"]

    for known in filter(is_this, client.search_model_versions(f"name = '{model}' and run_id = '{run}'")):
        return str(known.version)
    there = filter(is_this, client.search_logged_models([tracking.experiment_id], f"source_run_id = '{run}'"))
    logged = [one for one in there if one.status == "READY"]
    model_id = logged[0].model_id if logged else None
    if model_id is None:
        with tempfile.TemporaryDirectory(prefix=scratch_names("model")) as scratch, package.as_local() as files:
            folder = Path(scratch) / "model"
            _save(files, folder, kind)
            model_id = client.create_logged_model(
                tracking.experiment_id, name=kind, source_run_id=run, tags=tags, model_type=f"d3ray-{kind}"
            ).model_id
            client.log_model_artifacts(model_id, str(folder))
            client.finalize_logged_model(model_id, "READY")
    with as_global(tracking.uri):
        made = client.create_model_version(model, f"models:/{model_id}", run_id=run, model_id=model_id, tags=tags)
    return str(made.version)


def _save(package: Path, folder: Path, kind: str) -> None:
    """A package as an MLflow model of the ONNX flavour, with the package's own files beside it."""
    import numpy as np
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.onnx import save_model
    from mlflow.types import Schema, TensorSpec

    record = parse_json((package / f"{kind}.json").read_text())

    def schema(kinds: Sequence[str]) -> Schema:
        ports = [port for kind in kinds for port in record.get(kind, [])]
        return Schema([TensorSpec(np.dtype(p["dtype"]), (-1, *p["shape"][1:]), p["name"]) for p in ports])

    save_model(
        onnx.load(str(package / f"{kind}.onnx")),
        str(folder),
        signature=ModelSignature(schema(["inputs", "state_inputs", "noise_inputs"]), schema(["outputs"])),
        pip_requirements=[f"{name}=={version(name)}" for name in ("mlflow", "onnx", "onnxruntime", "numpy")],
        save_as_external_data=False,
        onnx_execution_providers=["CPUExecutionProvider"],
    )
    shutil.copytree(package, folder / "package")


def _version_tags(trial: Trial, seed: int, about: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, str]:
    """Return a version's tags: how it was scored, so that `d3ray evaluate` can do the same, and the data's return.

    Episodes are drawn by the policy's own gradient step, `record`'s, which after an exploit is not the logging step.
    """
    best, evaluation = about.get("best") or {}, trial.configuration.get("evaluation") or {}
    tags = {"d3ray.seed": str(seed), "d3ray.step": str(best.get("step", about["step"])), "d3ray.trial": trial.identity}
    if trial.number is not None:
        tags["d3ray.configuration"] = str(trial.number)
    if score := seed_score(about):
        tags |= {"d3ray.metric": score[0], "d3ray.value": repr(score[1])}
        if score[0] == "evaluation/return":
            tags |= {
                "d3ray.evaluation_episodes": str(evaluation.get("episodes", "")),
                "d3ray.evaluation_seed": str(evaluation_seed(seed, record["step"])),
            }
    if (mean := trial.dataset.get("return_mean")) is not None:
        tags["d3ray.data_return"] = repr(mean)
    if "held_out_error" in record:  # of a model: what it is worth, and the same error of the mean of all targets
        tags |= {"d3ray.held_out_error": repr(record["held_out_error"]), "d3ray.mean_error": repr(record["mean_error"])}
    return tags
