"""Policy packages, as they are read: a folder with everything that acting needs, for any program that has onnxruntime.

    policy.onnx         the graph, scalers inside: raw observation in, raw action out, any batch size
    policy.json         what it is: spaces, scalers, config, data, inputs and outputs by name (`PolicyRecord`)
    policy.safetensors  weights and scaler numbers, for torch
    golden.safetensors  inputs and actions at batch 1 and 32, compared when a package is written and when it is read
    values.onnx         where the algorithm learns values: raw observation in, what each discrete action is worth out; of other
                        actions the raw action in too, and its value out (`values.py`)
    values.safetensors  its golden arrays
    manifest.json       format version, bytes and SHA-256 of each

Equal policies make equal bytes. No file holds a path of the machine that wrote it. Importing this module and reading a package
need no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from safetensors.numpy import load as load_arrays

from ...data.config import Config, setting
from ...data.errors import ConfigError, StorageError
from ...data.frames import Padding
from ...data.spec import Environment, Spec
from ...data.storage.json_text import parse_json
from ..acting.graph_inputs import NoiseInput, Port, StateInput
from ..acting.onnx_policy import OnnxPolicy, OnnxValues, RememberingOnnxPolicy
from ..saving.parts import Kind, read_manifest, read_parts, write_parts
from .golden import check_golden

KIND = Kind("d3ray-policy", 1, "policy package")
VALUES, VALUES_GOLDEN = "values.onnx", "values.safetensors"


class DataRecord(Config):
    name: str
    fingerprint: str
    holdout: float = setting(
        0.0,
        "share of its episodes that was kept back, as split(holdout, seed=0) does",
        ge=0,
        lt=1,
        exclude_if=lambda share: share == 0,
    )


class Record(Config):
    """Holds what the record of every package says."""

    algorithm: str = setting(..., "registered name of the algorithm")
    config: dict[str, Any] = setting(..., "its settings; scalers in it are fitted")
    seed: int = setting(..., "seed of the training run")
    step: int = setting(..., "gradient steps done", ge=0)
    dtype: str = setting(..., "float type of the training run")
    spaces: Spec = setting(..., "raw observations and actions")
    data: DataRecord | None = setting(None, "what it was trained on")
    environment: Environment | None = setting(None, "where the data came from")
    inputs: tuple[Port, ...] = setting(..., "raw observations, and what else the graph takes that is neither memory nor random")
    outputs: tuple[Port, ...] = setting(..., "raw answers, and what the memory becomes")
    noise_inputs: tuple[NoiseInput, ...] = setting((), "random numbers that it consumes")
    tolerance: float = setting(..., "how closely the golden outputs are met", gt=0)


_Record = TypeVar("_Record", bound=Record)


class PolicyRecord(Record):
    """`policy.json`."""

    title: ClassVar = "policy.json"

    format: Literal["d3ray-policy"] = "d3ray-policy"
    version: int = KIND.version
    networks: tuple[str, ...] = setting(..., "the networks that act")
    frames: int = setting(1, "single images that were stacked to one observation, the newest last", gt=0)
    frame_padding: Padding = setting("zero", "what stands for images from before an episode began: zero, or repeat the first")
    scalers: dict[str, Any] = setting(..., "fitted scalers of observation and action, inside the graph; null where there is none")
    state_inputs: tuple[StateInput, ...] = setting((), "memory that is handed from step to step")
    options: dict[str, Any] = setting({}, "further things to choose when acting, such as a target return")


def is_package(folder: str | Path, kind: Kind = KIND) -> bool:
    """Tell whether a folder says that it is a policy package, or one of another kind; it may still be damaged."""
    try:
        read_manifest(Path(folder), kind)
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
    parts, record = read_whole(folder, KIND, PolicyRecord)
    kind = RememberingOnnxPolicy if record.state_inputs or record.noise_inputs else OnnxPolicy
    policy = kind(parts["policy.onnx"], record.model_dump(mode="json"), threads)
    golden = load_arrays(parts["golden.safetensors"])
    outputs = [port.name for port in record.outputs]
    check_golden(golden, policy.run, record.tolerance, f"policy.onnx in {folder}", outputs)
    return policy


def read_values(folder: str | Path, threads: int = 1) -> OnnxValues | None:
    """The values of a package, once they have met their golden ones; None where it has none.

    Raises StorageError as `read_package`.
    """
    parts, record = read_whole(folder, KIND, PolicyRecord)
    if VALUES not in parts:
        return None
    values = OnnxValues(parts[VALUES], record.spaces, threads)
    what = f"{VALUES} in {folder}"
    check_golden(load_arrays(parts[VALUES_GOLDEN]), values.run, record.tolerance, what, ("values",), "value as the critic did")
    return values


def read_record(folder: str | Path) -> PolicyRecord:
    """`policy.json`, without acting. Raises StorageError as `read_package` does."""
    return read_whole(folder, KIND, PolicyRecord)[1]


def copy_package(source: str | Path, target: str | Path) -> PolicyRecord:
    """Copy a package that is whole. Raises StorageError as `read_package`, or where the place cannot be written."""
    read_package(source)
    parts, record = read_whole(source, KIND, PolicyRecord)
    write_parts(Path(target), KIND, parts)
    return record


def read_whole(folder: str | Path, kind: Kind, record: type[_Record]) -> tuple[Mapping[str, bytes], _Record]:
    """The parts of a package and its record, the part that is called as `record` is. Raises StorageError where it is not whole."""
    parts = read_parts(Path(folder), kind)
    try:
        return parts, record.checked(parse_json(parts[record.title]))
    except (KeyError, ValueError, ConfigError) as error:
        raise StorageError(f"The {kind.noun} {folder} cannot be read: {str(error).rstrip('.')}.") from None
