"""A model of the dynamics that answers through onnxruntime, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.spec import Spec
from .inputs import action_dtype, as_batch, named_inputs, raw_actions, raw_inputs
from .onnx_policy import as_type, opened_graph
from .plain import plain_array

MEMBERS = "members/"
OUTPUTS = ("next_observation", "reward", "terminated")
"""What every member says, [B, members, …] each, and the mean of it, [B, …]: of the probability that the MDP ends, in the last."""
VARIANCE = "variance"
NOISE = "noise"
ANSWERS = (*OUTPUTS, VARIANCE, *(MEMBERS + name for name in OUTPUTS))
"""The graph's outputs, in their order."""


class OnnxModel:
    """A model of the dynamics: raw observations and actions in, what follows out.

    `graph` is `model.onnx` of a package and `about` its `model.json`. Raises StorageError where onnxruntime cannot read the graph,
    or it takes other inputs than `about` names.
    """

    def __init__(self, graph: bytes, about: Mapping[str, Any], threads: int = 1) -> None:
        self.about = dict(about)
        self.spec = Spec.checked(about["spaces"], title="model.json")
        self._session = opened_graph(graph, about, threads, "model")
        self._seen = np.dtype(named_inputs(self.spec)["observation"].dtype)
        self._noise = next(port for port in about["noise_inputs"] if port["name"] == NOISE)

    def predict(self, x: Any, action: Any, with_variance: bool = False) -> tuple[np.ndarray, ...]:
        """Give means over members of next observation and reward, and their variance where asked, as the ensemble's predict."""
        inputs, single = self.inputs(x, action)
        found = self.run(inputs)
        names = (*OUTPUTS[:2], *((VARIANCE,) if with_variance else ()))
        return tuple(found[name][0 if single else slice(None)] for name in names)

    def step(self, x: Any, action: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw what follows, each row from a member drawn anew, as rollouts are.

        Takes observations [B, D] and actions [B, A], or int64 [B]; gives next observations, rewards, and whether the MDP ended.
        Raises DataError where a shape is wrong or a number is not finite.
        """
        inputs, single = self.inputs(x, action)
        noise = inputs[NOISE]
        found = self.run({**inputs, NOISE: rng.standard_normal(noise.shape).astype(noise.dtype)})
        rows = np.arange(len(noise)), rng.integers(found[MEMBERS + "reward"].shape[1], size=len(noise))
        following, reward, chance = (found[MEMBERS + name][rows] for name in OUTPUTS)
        told = following, reward, rng.random(len(noise)) < chance
        return tuple(part[0] if single else part for part in told)  # pyright: ignore[reportReturnType]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Give all outputs by name, at inputs by name in the graph's own types."""
        found: Any = self._session.run(list(ANSWERS), dict(inputs))
        return dict(zip(ANSWERS, found, strict=True))

    def inputs(self, x: Any, action: Any) -> tuple[dict[str, np.ndarray], bool]:
        """The graph's inputs, without noise; and whether they are of a single observation."""
        shown, single = as_batch(self.spec, x)
        seen = as_type("The model takes observations", raw_inputs(self.spec, shown)["observation"], self._seen)
        taken = raw_actions(self.spec.action, plain_array(action, "Actions")[None] if single else action, len(seen))
        noise = np.zeros((len(seen), *self._noise["shape"][1:]), self._noise["dtype"])
        return {"observation": seen, "action": taken.astype(action_dtype(self.spec)), NOISE: noise}, single
