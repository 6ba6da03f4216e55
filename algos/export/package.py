"""Policy packages: a folder with everything that acting needs, for any program that has onnxruntime.

    policy.onnx         the graph, scalers inside: raw observation in, raw action out, any batch size
    policy.json         what it is: spaces, scalers, config, data, inputs and outputs by name (`PolicyRecord`)
    policy.safetensors  weights and scaler numbers, for torch
    golden.safetensors  inputs and actions at batch 1 and 32, compared when a package is written and when it is read
    manifest.json       format version, bytes and SHA-256 of each

Equal policies make equal bytes. No file holds a path of the machine that wrote it. Importing this module and reading a package
need no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ...data.config import Config, setting
from ...data.errors import ConfigError, StorageError
from ...data.spec import Environment, Spec
from ..acting.onnx_policy import OnnxPolicy, RememberingOnnxPolicy
from ..acting.ports import NoiseInput, Port, StateInput
from ..saving.parts import Kind, read_manifest, read_parts, write_parts
from .golden import check_golden

if TYPE_CHECKING:
    from ...data.dataset import Dataset
    from ..acting.policy import Policy, PolicyModule
    from ..base import Algorithm
    from .export import Portable

KIND = Kind("d3ray-policy", 1, "policy package")


class DataRecord(Config):
    """What the policy was trained on."""

    name: str
    fingerprint: str


class PolicyRecord(Config):
    """`policy.json`."""

    title: ClassVar = "policy.json"

    format: Literal["d3ray-policy"] = "d3ray-policy"
    version: int = KIND.version
    algorithm: str = setting(..., "registered name of the algorithm")
    config: dict[str, Any] = setting(..., "its settings; scalers in it are fitted")
    seed: int = setting(..., "seed of the training run")
    step: int = setting(..., "gradient steps done", ge=0)
    dtype: str = setting(..., "float type of the training run")
    networks: tuple[str, ...] = setting(..., "the networks that act")
    spaces: Spec = setting(..., "raw observations and actions")
    scalers: dict[str, Any] = setting(..., "fitted scalers of observation and action, inside the graph; null where there is none")
    data: DataRecord | None = setting(None, "what it was trained on")
    environment: Environment | None = setting(None, "where the data came from")
    inputs: tuple[Port, ...] = setting(..., "raw observations, and the reward since the last step where the policy remembers it")
    outputs: tuple[Port, ...] = setting(..., "raw actions, and what the memory becomes")
    state_inputs: tuple[StateInput, ...] = setting((), "memory that is handed from step to step")
    noise_inputs: tuple[NoiseInput, ...] = setting((), "random numbers that the policy consumes")
    options: dict[str, Any] = setting({}, "further things to choose when acting, such as a target return")
    tolerance: float = setting(..., "how closely the golden actions are met", gt=0)


def write_package(
    algorithm: Algorithm, folder: str | Path, dataset: Dataset | None = None, environment: Environment | str | None = None
) -> PolicyRecord:
    """Writes the greedy policy of a trained algorithm as a policy package, in place of an earlier package at `folder`.

    Args:
        algorithm: Trained.
        folder: Where it will stand; written aside and renamed.
        dataset: What it was trained on; None: the dataset that `fit` has noted.
        environment: Where the policy acts; None: the dataset's environment.

    Raises:
        ConfigError: the algorithm has not been trained, or its policy cannot be exported.
        StorageError: the place cannot be written or holds something else, or the graph does not act as the policy does.
    """
    from .export import portable

    policy = portable(algorithm.policy())
    noted = {"name": dataset.name, "fingerprint": dataset.fingerprint} if dataset is not None else algorithm.fit_.data
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
        scalers={name: config.get(f"{name}_scaler") for name in ("observation", "action")},
        data=noted,
        environment=environment or (dataset.environment if dataset is not None else None),
    )


def write_portable(
    policy: Portable,
    folder: str | Path,
    *,
    data: Mapping[str, str] | None = None,
    environment: Environment | str | None = None,
    **about: Any,
) -> PolicyRecord:
    """Writes a policy that was made portable, whoever trained it, as a policy package.

    Args:
        policy: What acts.
        folder: Where it will stand; written aside and renamed.
        data: `name` and `fingerprint` of what it was trained on.
        environment: Where it acts.
        **about: Further fields of the record: `algorithm`, `config`, `seed`, `step`, `dtype`, `networks`, `scalers`.

    Raises:
        ConfigError: the policy cannot be exported.
        StorageError: the place cannot be written or holds something else, or the graph does not act as the policy does.
    """
    record = PolicyRecord(
        **about,
        spaces=policy.spec,
        data=DataRecord(name=_without_folders(data["name"]), fingerprint=data["fingerprint"]) if data else None,
        environment=Environment(id=environment) if isinstance(environment, str) else environment,
        inputs=tuple(_port(policy, name) for name in policy.inputs if name not in {state.name for state in policy.states}),
        outputs=tuple(_port(policy, name) for name in policy.outputs),
        state_inputs=policy.states,
        options=dict(policy.options),
        tolerance=policy.tolerance,
    )
    write_parts(Path(folder), KIND, _contents(policy, record))
    return record


def _contents(policy: Portable, record: PolicyRecord) -> dict[str, bytes]:
    import safetensors.torch

    from .export import onnx_bytes

    weights = {name: tensor.contiguous().clone() for name, tensor in policy.module.state_dict().items()}
    return {
        "policy.onnx": onnx_bytes(policy),
        "policy.json": json.dumps(record.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False).encode(),
        "policy.safetensors": safetensors.torch.save(weights),
        "golden.safetensors": save_arrays({name: np.ascontiguousarray(a) for name, a in policy.golden.items()}),
    }


def is_package(folder: str | Path) -> bool:
    """Whether a folder says that it is a policy package; it may still be damaged."""
    try:
        read_manifest(Path(folder), KIND)
    except StorageError:
        return False
    return True


def read_package(folder: str | Path, threads: int = 1) -> OnnxPolicy:
    """The policy of a package, through onnxruntime alone, once it has met its golden actions.

    Args:
        folder: The package.
        threads: Of onnxruntime.

    Raises:
        StorageError: it is no package, not whole or changed (the file is named), or it acts otherwise than when it was written.
    """
    parts, record = _read(Path(folder))
    kind = RememberingOnnxPolicy if record.state_inputs else OnnxPolicy
    policy = kind(parts["policy.onnx"], record.model_dump(mode="json"), threads)
    golden = load_arrays(parts["golden.safetensors"])
    outputs = [port.name for port in record.outputs]
    check_golden(golden, policy.run, record.tolerance, f"policy.onnx in {folder}", outputs)
    return policy


def read_record(folder: str | Path) -> PolicyRecord:
    """`policy.json`, without acting. Raises StorageError as `read_package` does."""
    return _read(Path(folder))[1]


def read_torch_policy(folder: str | Path, device: str | int | None = "cpu") -> Policy:
    """The policy of a package as torch modules: to write it in another form, or to look inside.

    Raises:
        StorageError: as for `read_package`.
        ConfigError: the algorithm is not known here.
    """
    import safetensors.torch

    from ..learning.fit import Fit
    from ..registry import algorithm_class

    parts, record = _read(Path(folder))
    cls = algorithm_class(record.algorithm)
    config = cls.Config.checked(record.config, title=cls.__name__)
    settings = {name: getattr(config, name) for name in cls.Config.model_fields}
    algorithm = cls(**settings, seed=record.seed, device=device, dtype=record.dtype)
    algorithm.fit_ = Fit(algorithm, config, record.spaces, (record.seed,), None)
    weights = safetensors.torch.load(parts["policy.safetensors"])
    for name in record.networks:
        prefix = f"networks.{name}."
        own = {key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)}
        algorithm.fit_.learner.modules[name].load_state_dict(own)
    return algorithm.policy()


def copy_package(source: str | Path, target: str | Path) -> PolicyRecord:
    """The same package at another place. Raises StorageError: as for `read_package`, or the place cannot be written."""
    read_package(source)
    parts, record = _read(Path(source))
    write_parts(Path(target), KIND, parts)
    return record


def _read(folder: Path) -> tuple[Mapping[str, bytes], PolicyRecord]:
    parts = read_parts(folder, KIND)
    try:
        record = PolicyRecord.checked(json.loads(parts["policy.json"]))
    except (KeyError, ValueError, ConfigError) as error:
        raise StorageError(f"The policy package {folder} cannot be read: {str(error).rstrip('.')}.") from None
    return parts, record


def _port(policy: Portable, name: str) -> Port:
    array = policy.golden[f"batch_1/{name}"]
    return Port(name=name, dtype=str(array.dtype), shape=("batch", *array.shape[1:]))


def _without_folders(name: str) -> str:
    """A dataset's name; of a path only its last part, for it may be one of this machine."""
    return Path(name).name if Path(name).is_absolute() or "://" in name else name
