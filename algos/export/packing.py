"""Policy packages, as they are written, and taken back into torch. See `package` for what one holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import safetensors.torch
from torch import Tensor

from ...data.dataset import Dataset
from ...data.spec import Environment
from ..acting.fitted import policy as policy_of
from ..acting.graph_inputs import Port
from ..acting.policy import Policy, PolicyModule
from ..devices import AnyDevice
from ..learning.estimator import Estimator
from ..learning.fit import Fit
from ..registry import algorithm_class
from ..saving.parts import write_parts
from .graphs import Portable, onnx_bytes, portable
from .package import KIND, DataRecord, PolicyRecord, Record, read_whole
from .values import values_parts


def write_package(
    algorithm: Estimator,
    folder: str | Path,
    dataset: Dataset | None = None,
    environment: Environment | str | None = None,
    run: str | None = None,
    holdout: float = 0.0,
) -> PolicyRecord:
    """Writes the greedy policy of a trained algorithm as a policy package, in place of an earlier package at `folder`.

    Args:
        algorithm: Trained.
        folder: Where it will stand; written aside and renamed.
        dataset: What it was trained on; None: the dataset that `fit` has noted.
        environment: Where the policy acts; None: the dataset's environment.
        run: Which run made it, for the graph's metadata.
        holdout: Share of the dataset's episodes that training kept back, as `split(holdout, seed=0)` does.

    Raises:
        ConfigError: the algorithm has not been trained, or its policy cannot be exported.
        StorageError: the place cannot be written or holds something else, or the graph does not act as the policy does.
    """
    acting = policy_of(algorithm.fitted)
    policy = portable(acting)
    noted = {"name": dataset.name, "fingerprint": dataset.fingerprint} if dataset is not None else algorithm.fit_.sources.data
    noted = noted and {**noted, "holdout": holdout}
    now = {name: rows[0] for name, rows in algorithm.fit_.learner.values.items()}  # coefficients, which may have been written since
    config = {**algorithm.config_.model_dump(mode="json"), **now}
    return write_portable(
        policy,
        folder,
        algorithm=algorithm.name,
        config=config,
        seed=algorithm.seed,
        step=algorithm.step,
        dtype=algorithm.dtype,
        networks=tuple(cast("PolicyModule", policy.module).networks),
        frames=acting.frames,
        frame_padding=acting.frame_padding,
        scalers={name: config.get(f"{name}_scaler") for name in ("observation", "action")},
        data=noted,
        environment=environment or (dataset.environment if dataset is not None else None),
        run=run,
        more=values_parts(acting),
    )


def write_portable(
    policy: Portable,
    folder: str | Path,
    *,
    data: Mapping[str, Any] | None = None,
    environment: Environment | str | None = None,
    run: str | None = None,
    more: Mapping[str, bytes] | None = None,
    **about: Any,
) -> PolicyRecord:
    """Write a policy that was made portable, whoever trained it, as a policy package.

    `data` has `name` and `fingerprint` of what it was trained on; further fields are the record's: `algorithm`, `config`, `seed`,
    `step`, `dtype`, `networks`, `frames`, `frame_padding`, `scalers`; `more` are files beside those that every package has. Else as
    `write_package`.
    """
    record = PolicyRecord(**about, **described(policy, data, environment), state_inputs=policy.states, options=dict(policy.options))
    parts = contents(policy, record, policy.module.state_dict(), run)
    write_parts(Path(folder), KIND, parts | dict(more or {}))
    return record


def described(made: Portable, data: Mapping[str, Any] | None, environment: Environment | str | None) -> dict[str, Any]:
    """Give the fields of a record that follow from the graph and from what it was trained on."""
    ports = {port.name for port in (*made.states, *made.noises)}
    return {
        "spaces": made.spec,
        "data": data_record(data),
        "environment": Environment(id=environment) if isinstance(environment, str) else environment,
        "inputs": tuple(_port(made, name) for name in made.inputs if name not in ports),
        "outputs": tuple(_port(made, name) for name in made.outputs),
        "noise_inputs": made.noises,
        "tolerance": made.tolerance,
    }


def contents(made: Portable, record: Record, weights: Mapping[str, Tensor], run: str | None = None) -> dict[str, bytes]:
    """Give the files of a package by name: the graph, the record, weights and golden arrays."""
    own = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
    made = replace(made, about=told(record.seed, record.step, record.data, record.environment, run))
    return {
        f"{made.noun}.onnx": onnx_bytes(made),
        f"{made.noun}.json": json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False).encode(),
        f"{made.noun}.safetensors": safetensors.torch.save(own),
        "golden.safetensors": made.golden_bytes,
    }


def told(seed: int, step: int, data: DataRecord | None, environment: Environment | None, run: str | None = None) -> dict[str, str]:
    """Say where a graph comes from, beside version, algorithm, spaces and the golden arrays' SHA-256, for its metadata."""
    found = {
        "seed": str(seed),
        "step": str(step),
        "data": data and data.name,
        "environment": environment and environment.model_dump_json(exclude_defaults=True),
        "run": run,
    }
    return {key: value for key, value in found.items() if value is not None}


def read_torch_policy(folder: str | Path, device: AnyDevice = "cpu") -> Policy:
    """Read the policy of a package as torch modules, to write it in another form, or to look inside.

    Raises StorageError as `read_package`, ConfigError where the algorithm is not known here.
    """
    parts, record = read_whole(folder, KIND, PolicyRecord)
    algorithm = unweighted(record, device)
    weights = safetensors.torch.load(parts["policy.safetensors"])
    for name in record.networks:
        prefix = f"networks.{name}."
        own = {key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)}
        algorithm.fit_.learner.acting[name].load_state_dict(own)
    return policy_of(algorithm.fit_)


def unweighted(record: Record, device: AnyDevice) -> Any:
    """Make the algorithm of a record, with networks that are still to be loaded. Raises ConfigError where it is not known here."""
    cls = algorithm_class(record.algorithm)
    config = cls.Config.checked(record.config, title=cls.__name__)
    settings = {name: getattr(config, name) for name in cls.Config.model_fields}
    algorithm = cls(**settings, seed=record.seed, device=device, dtype=record.dtype)
    algorithm.fit_ = Fit(algorithm, config, record.spaces, (record.seed,))
    return algorithm


def _port(made: Portable, name: str) -> Port:
    array = made.golden[f"batch_1/{name}"]
    return Port(name=name, dtype=str(array.dtype), shape=("batch", *array.shape[1:]))


def data_record(data: Mapping[str, Any] | None) -> DataRecord | None:
    if not data:
        return None
    return DataRecord(name=_without_folders(data["name"]), fingerprint=data["fingerprint"], holdout=data.get("holdout", 0.0))


def _without_folders(name: str) -> str:
    """A dataset's name; of a path only its last part, for it may be one of this machine."""
    return Path(name).name if Path(name).is_absolute() or "://" in name else name
