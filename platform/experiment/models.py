"""The model of the dynamics that an algorithm is given, kept where trials of every node find it."""

from __future__ import annotations

import hashlib
from typing import TypeVar

from ...data.errors import ConfigError
from ..settings.config import AlgorithmChoice, Conditions
from ..storage.folders import Folder

KEPT = "learned-models"  # in the storage
_Config = TypeVar("_Config", bound=Conditions)


def with_kept_model(config: _Config) -> _Config:
    """The config with `algorithm.dynamics` copied into the storage, under a name that the model's numbers decide.

    What was named may be all that a policy may be named by: an experiment or a trial of the storage, a folder, a run.

    Raises:
        ConfigError: there is no such thing, it is no model, or an experiment of several seeds does not say which.
        StorageError: it is damaged, or cannot be read or written.
    """
    choice: AlgorithmChoice | None = getattr(config, "algorithm", None)
    given = choice.settings.get("dynamics") if isinstance(choice, AlgorithmChoice) else None
    if choice is None or not isinstance(given, str):
        return config
    told = {**choice.model_dump(), "dynamics": _kept(given, config.storage_place)}
    copy = config.model_copy(update={"algorithm": AlgorithmChoice.model_validate(told)})
    vars(copy).pop("sample", None)  # as of the model that was named
    return copy


def _kept(source: str, storage: str) -> str:
    place = Folder(storage) / KEPT
    if source.startswith(place.name):
        return source
    from ..tracking.policies import open_policy  # it brings the ONNX runtime

    with open_policy(source, storage=storage) as found, place.scratch() as scratch:
        if found.algorithm is None or not found.algorithm.models_dynamics:
            raise ConfigError(f"algorithm.dynamics: {found.what} is no model: name a trained ProbabilisticEnsemble.")
        found.algorithm.save(scratch / "model")
        name = hashlib.sha256((scratch / "model" / "tensors.safetensors").read_bytes()).hexdigest()[:16]
        if (place / name).read("manifest.json") is None:
            place.put_tree(scratch / "model", name)
    return (place / name).name
