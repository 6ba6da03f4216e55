"""Packages of models of the dynamics, as they are read: what policy packages are, with a model in them.

    model.onnx          the graph, scalers inside: raw observation and action in, what follows out, any batch size
    model.json          what it is: spaces, termination, config, data, inputs and outputs by name (`ModelRecord`)
    model.safetensors   the network of all members, for torch, with the errors on what was held out
    golden.safetensors  inputs and outputs at batch 1 and 32, compared when a package is written and when it is read
    manifest.json       format version, bytes and SHA-256 of each

`noise` is standard normal numbers by which members draw; at zeros they say their means. Importing this module and reading a package
need no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from safetensors.numpy import load as load_arrays

from ...data.config import setting
from ..acting.onnx_model import ANSWERS, OnnxModel
from ..saving.parts import Kind
from .golden import check_golden
from .package import Record, is_package, read_whole

MODEL = Kind("d3ray-model", 1, "model package")


class ModelRecord(Record):
    """`model.json`."""

    title: ClassVar = "model.json"

    format: Literal["d3ray-model"] = "d3ray-model"
    version: int = MODEL.version
    members: int = setting(..., "members that count", gt=0)
    termination: str = setting(..., "when the MDP ends: never, learned, or as the environment of that name")
    held_out_error: float = setting(..., "mean error of the members that count on what was held out, scaled; 0: not known")
    mean_error: float = setting(..., "the same error of the mean of all targets: a model above it is worse than none")


def is_model_package(folder: str | Path) -> bool:
    """Tell whether a folder says that it is a model package; it may still be damaged."""
    return is_package(folder, MODEL)


def read_model_record(folder: str | Path) -> ModelRecord:
    """`model.json`, without answering. Raises StorageError as `read_model` does."""
    return read_whole(folder, MODEL, ModelRecord)[1]


def read_model(folder: str | Path, threads: int = 1) -> OnnxModel:
    """Read the model of a package, through onnxruntime alone, once it has met its golden outputs.

    Raises StorageError where it is no package, not whole or changed (the file is named), or answers otherwise than when it was
    written.
    """
    parts, record = read_whole(folder, MODEL, ModelRecord)
    model = OnnxModel(parts["model.onnx"], record.model_dump(mode="json"), threads)
    golden = load_arrays(parts["golden.safetensors"])
    what = f"model.onnx in {folder}"
    check_golden(golden, lambda inputs: tuple(model.run(inputs).values()), record.tolerance, what, ANSWERS, "act as the model did")
    return model
