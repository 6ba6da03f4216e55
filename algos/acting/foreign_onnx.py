"""An ONNX file of anyone's as a policy, through onnxruntime. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...data.errors import ConfigError, StorageError
from ...data.frames import Padding
from ...data.spec import Spec, space_columns
from ...data.storage.json_text import parse_json
from .inputs import raw_inputs
from .onnx_policy import session_of

_FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}


class ForeignOnnxPolicy:
    """A graph with one input, raw observations [B, ...], whose first output is the action, as others write.

    Of discrete actions the first output is their numbers, int [B] or [B, 1], or a score for each, floats [B, n], of which the
    largest counts. `name` is for messages. Raises ConfigError where the graph takes several inputs, or observations of another
    shape than those of `spec`, or these have parts; StorageError where onnxruntime cannot read it.
    """

    frames: int = 1
    frame_padding: Padding = "zero"

    def __init__(self, model: bytes, spec: Spec, name: str = "the ONNX file") -> None:
        self.spec, self.name = spec, name
        self._session = session_of(model, 1, name)
        taken = self._session.get_inputs()
        if len(taken) != 1 or "observation" not in space_columns(spec.observation):
            ports = ", ".join(port.name for port in taken)
            raise ConfigError(
                f"{name} takes {ports}; of a graph alone the one input is the observation: give the folder of its policy package."
            )
        self._input, self._dtype = taken[0].name, _FLOATS.get(taken[0].type, np.float32)
        self._check_shape(taken[0].shape, space_columns(spec.observation)["observation"].shape)
        self._output = self._session.get_outputs()[0].name

    def _check_shape(self, batched: list[Any], shown: tuple[int, ...]) -> None:
        """Raises ConfigError where the graph takes other observations; what it does not say of its shape is no matter."""
        taken = [n if isinstance(n, int) else None for n in batched[1:]]
        if not batched or (len(taken) == len(shown) and all(n in (m, None) for n, m in zip(taken, shown, strict=True))):
            return
        told = self._session.get_modelmeta().custom_metadata_map.get("d3ray.environment")
        made = "" if told is None else f" ({parse_json(told).get('id')})"
        raise ConfigError(
            f"{self.name} takes observations of {_entries(taken)}, and here they have {_entries(shown)}: it was made for another "
            f"environment{made}."
        )

    @classmethod
    def read(cls, path: Path, spec: Spec) -> Self:
        try:
            return cls(path.read_bytes(), spec, str(path))
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error

    def start(self, n: int) -> None:
        return

    def step(self, state: None, observation: Any, action_mask: Any = None) -> tuple[None, np.ndarray]:
        return state, self.predict(observation)

    def predict(self, observation: Any) -> np.ndarray:
        """Actions at raw observations [B, ...]: [B, A], or int64 [B]. Raises ConfigError where the graph gives something else."""
        rows = raw_inputs(self.spec.model_copy(update={"action_mask": False}), observation)["observation"]
        try:
            found: Any = self._session.run([self._output], {self._input: rows.astype(self._dtype, copy=False)})[0]
        except Exception as error:  # onnxruntime raises classes of its own, below Exception
            said = str(error).splitlines()[0].rstrip(".")
            raise ConfigError(f"{self.name} does not act on these observations: {said}.") from error
        if self.spec.discrete:
            found = (
                found.argmax(-1)
                if found.ndim == 2 and found.shape[1] == self.spec.n_actions > 1
                else found.reshape(len(rows), -1)[:, 0]
            )
            if not np.equal(np.mod(found, 1), 0).all():
                what = f"a number each, such as {float(found[0]):.4g}, which is no action"
                raise ConfigError(
                    f"{self.name} gives {what}: of discrete ones it gives whole numbers, or {self.spec.n_actions} scores."
                )
            found = found.astype(np.int64)
        wanted = (len(rows), *self.spec.action.shape)
        if found.shape != wanted:
            raise ConfigError(f"{self.name} gives {self._output} of the shape {found.shape}; actions are {wanted} here.")
        return found


def _entries(shape: Sequence[Any]) -> str:
    """A shape of observations in words: of vectors so many entries."""
    return f"{shape[0]} entries" if len(shape) == 1 else f"the shape {list(shape)}"
