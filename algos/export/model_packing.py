"""Models of the dynamics for use without d3ray, and taken back into torch. See `model_package` for what a package holds."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.spec import Box, Environment
from ...data.storage.files import Place
from ...data.uris import is_remote
from ..acting.graph_inputs import NoiseInput
from ..acting.inputs import action_dtype
from ..acting.onnx_model import ANSWERS, NOISE
from ..devices import AnyDevice
from ..dynamics.model import Model
from ..learning.estimator import Estimator
from ..saving.parts import write_parts
from ..saving.saving import load
from .golden import BATCHES, Arrays, draw, golden_observations
from .graphs import Portable, with_golden
from .model_package import MODEL, ModelRecord, is_model_package
from .package import read_whole
from .packing import contents, described, unweighted
from .portable import ByName


class Predicts(ByName, nn.Module):
    """Maps inputs by name to `ANSWERS`: what a model's members say, in the data's units, and the means of that."""

    def __init__(self, model: Model, algorithm: Estimator) -> None:
        super().__init__()
        self.model, self.spec, self.algorithm = model, model.spec, algorithm
        self.shown: torch.dtype = getattr(torch, cast("Box", model.spec.observation).dtype)

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        found = self.model(inputs["observation"], inputs["action"])
        drawn = found.mean + inputs[NOISE].to(self.model.dtype) * found.deviation
        following, reward = drawn[..., :-1], drawn[..., -1]
        said = following.to(self.shown), reward, self.model.end_chance(following, found.end)
        members = [part.transpose(0, 1) for part in said]
        return *(part.mean(1) for part in members), found.uncertainty("variance"), *members

    def arguments(self, inputs: Mapping[str, np.ndarray]) -> Any:
        return {name: torch.as_tensor(rows, device=self.model.units.device) for name, rows in inputs.items()}


def portable_model(algorithm: Any) -> Portable:
    """Take the model of a trained `ProbabilisticEnsemble` out of what trains it, with golden inputs and outputs.

    It computes in float32, also what was trained in float64, for which onnxruntime has no softplus. Raises ConfigError where it has
    not been trained, or does not say when the MDP ends.
    """
    model: Model = algorithm.model()
    copies = (copy.deepcopy(model).to("cpu", dtype) for dtype in (torch.float32, torch.float64))
    live, module, exact = (Predicts(one, algorithm) for one in (model, *copies))
    noise = NoiseInput(name=NOISE, dtype="float32", shape=("batch", model.network.outputs), distribution="normal")
    return with_golden(module, exact, _drawn(model, noise), live.act_on, answers=ANSWERS, noises=(noise,), noun="model")


def _drawn(model: Model, noise: NoiseInput) -> Arrays:
    """Inputs that are made up, the same at every call."""
    n, scaled = 8 * sum(BATCHES), {}
    if "observation" in model.scaled:
        parts = (model.get_buffer(f"observation_{part}").double().cpu().numpy() for part in ("scale", "shift"))
        scaled["observation"] = tuple(parts)
    rng = np.random.default_rng(1)
    action = draw(model.spec.action, n, rng, None).astype(action_dtype(model.spec))
    normal = rng.standard_normal((n, model.network.outputs)).astype(noise.dtype)
    return {**golden_observations(model.spec, n, scaled), "action": action, NOISE: normal}


def write_model_package(
    algorithm: Any,
    folder: str | Path,
    dataset: Dataset | None = None,
    environment: Environment | str | None = None,
    run: str | None = None,
) -> ModelRecord:
    """Write the model of a trained `ProbabilisticEnsemble` as a model package, in place of an earlier package at `folder`.

    Arguments and errors are those of `packing.write_package`.
    """
    made, fit, noted = portable_model(algorithm), algorithm.fitted, algorithm.fitted.sources.data
    model = cast("Predicts", made.module).model
    named = environment or (dataset.environment if dataset is not None else None) or noted.get("environment")
    record = ModelRecord(
        algorithm=algorithm.name,
        config=fit.config.model_dump(mode="json"),
        seed=algorithm.seed,
        step=algorithm.step,
        dtype=algorithm.dtype,
        **described(made, {"name": dataset.name, "fingerprint": dataset.fingerprint} if dataset is not None else noted, named),
        members=model.members,
        termination=model.termination,
        held_out_error=model.held_out[0],
        mean_error=model.held_out[1],
    )
    write_parts(Path(folder), MODEL, contents(made, record, fit.learner.modules["dynamics"].state_dict(), run))
    return record


def read_torch_model(folder: str | Path, device: AnyDevice = "cpu") -> Any:
    """Read a package's `ProbabilisticEnsemble`, for others to learn in, to write in another form, or to look inside.

    Raises StorageError where it is no package, not whole or changed; ConfigError where the algorithm is not known here.
    """
    parts, record = read_whole(folder, MODEL, ModelRecord)
    algorithm = unweighted(record, device)
    fit = algorithm.fit_
    fit.learner.modules["dynamics"].load_state_dict(safetensors.torch.load(parts["model.safetensors"]))
    fit.learner.step, fit.completed = record.step, True
    named = record.environment.id if record.environment else None
    fit.sources.data = {**(record.data.model_dump() if record.data else {}), "environment": named}
    return algorithm


def opened_model(name: str, given: Any) -> Model:
    """The trained model of the dynamics that algorithm `name` is given, or the path of. Raises ConfigError for what is none."""
    if isinstance(given, str | Path) and is_remote(given):
        with Place(given).as_local() as folder:
            return opened_model(name, folder)
    trained: Any = given
    if isinstance(given, str | Path):
        trained = read_torch_model(given) if is_model_package(given) else load(given, "cpu")
    if not getattr(trained, "models_dynamics", False):
        raise ConfigError(
            f"{name}: dynamics is a {type(trained).__name__}, which is no model: give a trained ProbabilisticEnsemble, or its path."
        )
    return trained.model()
