"""A policy that acts through onnxruntime, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime

from ...data.errors import DataError, StorageError
from ...data.spec import Spec
from .frames import Memoryless
from .graph_inputs import NoiseInput, StateInput
from .inputs import named_inputs, raw_inputs
from .remembering import Remembering, in_pieces


class OnnxPolicy(Memoryless):
    """A policy without memory: raw observations in, raw actions out, for n environments at once.

    Args:
        model: The ONNX graph, as `policy.onnx` of a package holds it.
        about: `policy.json` of that package.
        threads: Of onnxruntime. A small network is quickest with one.

    Attributes:
        about: As given.
        spec: The spaces; of a policy that was trained on stacks of frames, with stacks.
        frames, frame_padding: How those were stacked.

    Raises:
        StorageError: onnxruntime cannot read the graph, or it takes other inputs than `about` names.
    """

    def __init__(self, model: bytes, about: Mapping[str, Any], threads: int = 1) -> None:
        self.about = dict(about)
        self.spec = Spec.checked(about["spaces"], title="policy.json")
        self.frames, self.frame_padding = int(about.get("frames", 1)), about.get("frame_padding", "zero")
        self._types = {name: np.dtype(box.dtype) for name, box in named_inputs(self.spec).items()}
        self._session = opened_graph(model, about, threads)

    def _acted(self, observation: Any) -> np.ndarray:
        rows = raw_inputs(self.spec, observation)
        typed = {name: as_type(f"The policy takes {name}", part, self._types[name]) for name, part in rows.items()}
        return in_pieces(lambda inputs: (self.run(inputs),), typed)[0]

    def run(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Actions at inputs by name, in the graph's own types."""
        action: Any = self._session.run(["action"], dict(inputs))[0]
        return action


class RememberingOnnxPolicy(Remembering, OnnxPolicy):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A policy with a memory, or one that draws: `start(n)` or `start(n, target_return)`, `step`, and `rewarded` after each step.

    Where another action was done than `step` gave, an explorer's say, `executed` tells it that too, before the next step.
    """

    def __init__(self, model: bytes, about: Mapping[str, Any], threads: int = 1) -> None:
        OnnxPolicy.__init__(self, model, about, threads)
        self.name = str(about["algorithm"])
        self.states = tuple(StateInput.checked(state) for state in about["state_inputs"])
        self.noises = tuple(NoiseInput.checked(port) for port in about.get("noise_inputs", ()))
        self.seed = int(about.get("seed", 0))
        self.target_returns = tuple(about["options"].get("target_return", ()))

    def run(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        outputs: Any = self._session.run(["action", *(state.becomes for state in self.states)], dict(inputs))
        return tuple(outputs)

    run_graph = run


class OnnxValues:
    """What a policy's critics think of actions, through onnxruntime.

    Args:
        model: `values.onnx` of a package.
        spec: The policy's spaces.
        threads: Of onnxruntime.

    Raises StorageError where onnxruntime cannot read it.
    """

    def __init__(self, model: bytes, spec: Spec, threads: int = 1) -> None:
        self.spec = spec
        self._session = session_of(model, threads, "the values' graph")

    def run(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Q(s, a) at inputs by name, in the graph's own types: of every discrete action [B, n], else of `action`, [B]."""
        values: Any = self._session.run(["values"], dict(inputs))[0]
        return values


def opened_graph(graph: bytes, about: Mapping[str, Any], threads: int, noun: str = "policy") -> Any:
    """Open a graph on the CPU that takes what `about`, the record of its package, names; of a graph alone that names nothing.

    Raises StorageError where onnxruntime cannot read it, or it takes other inputs.
    """
    session = session_of(graph, threads, f"the {noun}'s graph")
    named = {port["name"] for kind in ("inputs", "state_inputs", "noise_inputs") for port in about.get(kind, ())}
    taken = {port.name for port in session.get_inputs()}
    if named and named != taken:
        raise StorageError(f"The {noun}'s graph takes {sorted(taken)}, and {noun}.json names {sorted(named)}.")
    return session


def session_of(graph: bytes, threads: int, name: str) -> Any:
    """Open an ONNX graph on the CPU. Raises StorageError, which calls it `name`, where onnxruntime cannot read it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own, below Exception
        raise StorageError(f"onnxruntime cannot read {name}: {str(error).splitlines()[0].rstrip('.')}.") from error


def as_type(takes: str, rows: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Rows in the type of a graph's input. Raises DataError where they are of another kind."""
    if rows.dtype == dtype:
        return rows
    whole = rows.dtype.kind in "iu" and dtype.kind in "iu" and (rows.astype(dtype) == rows).all()  # as MultiBinary has int8
    if not whole and not np.can_cast(rows.dtype, dtype, "same_kind"):
        raise DataError(f"{takes} as {dtype}, and {rows.dtype} was given: hand in what the environment shows, unscaled.")
    return rows.astype(dtype)
