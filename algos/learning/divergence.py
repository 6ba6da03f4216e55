"""How a losing run shows itself in the last update of an epoch: what the policy and critics make of its batch.

train/action_saturation       share of the policy's action entries at the end of their range, |a| ≥ 0.99 of [-1, 1]
train/q_value_max             largest Q(s, a) of the batch
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch, Sequences
from ...data.histories import steps_there
from ...data.random import root_key
from ..definition import Definition
from ..nets import Hyper, Nets, Parameters
from ..ports import Noise, Ports, drawn, memories, started
from ..recurrence import acted
from .learner import Learner

SATURATED = 0.99
_FEW = 32  # observations that a policy is looked at which draws many actions for each: more would take as long as an epoch
_BEYOND = 10.0  # how far beyond every possible return the mean Q-value must lie before it is called divergence


class DivergenceWarning(UserWarning):
    """Q-values are larger than any return can be, or losses or weights are no longer finite."""


class Divergence:
    """Looks at the last update of each epoch, and warns once of every row whose values diverge or whose numbers are not finite."""

    def __init__(self, learner: Learner, ports: Ports) -> None:
        self._learner, self._ports = learner, ports
        self._largest_reward: float | None = None
        self._seen: list[dict[str, float]] = [{} for _ in learner.seeds]
        self._warned: dict[int, str] = {}  # by row
        self._lost: set[int] = set()  # rows that are no longer finite

    @property
    def warned(self) -> dict[int, str]:
        return {self._learner.seeds[k]: wrong for k, wrong in self._warned.items()}

    def bound(self, rewards: np.ndarray) -> None:
        """Takes the least and the largest reward of the data, as losses see them."""
        self._largest_reward = float(np.abs(rewards).max())

    def look(self, batch: Batch) -> None:
        """Keeps what each seed's policy and critics make of its batch, by its own coefficients. Waits for the device."""
        self._seen = [snapshot(self._learner, self._ports, batch, k) for k in range(len(self._learner.seeds))]

    def judged(self, rows: list[dict[str, float]]) -> list[dict[str, float]]:
        """The metrics of an epoch, one dictionary a seed, with what was looked at.

        A row whose weights the last step made NaN gets `first_bad_step` too: the step that comes would find it.
        """
        rows = [row | seen for row, seen in zip(rows, self._seen, strict=True)]
        self._seen = [{} for _ in rows]
        for k, (row, finite) in enumerate(zip(rows, finite_rows(self._learner), strict=True)):
            if not finite:
                row.setdefault("first_bad_step", float(self._learner.step))
            self._judge(k, row)
        return rows

    def _judge(self, k: int, row: dict[str, float]) -> None:
        learner = self._learner
        if "first_bad_step" in row and k not in self._lost:
            self._lost.add(k)
            who, step = f"{learner.algorithm.name}, seed {learner.seeds[k]}", int(row["first_bad_step"])
            sentence = "losses are not finite from there on, and nothing is learned: try a smaller learning rate or clip gradients"
            warnings.warn(f"{who}, step {step}: {sentence}.", DivergenceWarning, 4)
        if self._largest_reward is None or k in self._warned:
            return
        if wrong := divergence(row, self._largest_reward, learner.discounts[k]):
            self._warned[k] = f"step {learner.step}: {wrong}"
            warnings.warn(f"{learner.algorithm.name}, seed {learner.seeds[k]}, {self._warned[k]}.", DivergenceWarning, 4)


@torch.no_grad()
def finite_rows(learner: Learner) -> list[bool]:
    """Tells of each row whether all trained weights are finite. Waits for the device."""
    n = len(learner.seeds)
    weights = [weight for network in learner.live.values() for weight in network.values() if weight.is_floating_point()]
    found = [torch.isfinite(weight.reshape(n, -1)).all(1) for weight in weights if weight.numel()]
    return torch.stack(found).all(0).tolist() if found else [True] * n


@torch.no_grad()
def snapshot(learner: Learner, ports: Ports, batch: Batch, k: int) -> dict[str, float]:
    """Measures the present policy and critics of the k-th seed on its batch. Waits for the device."""
    algorithm, tensors, action = learner.algorithm, dict[str, Parameters](), batch.action
    steps = bool(memories(ports)) and isinstance(batch, Sequences)  # of stretches, of which the first is acted on
    observation: Any = batch.observation if steps else batch.seen
    if learner.stacked:
        live = learner.acting_tensors()
        tensors, observation, action = pytree.tree_map(lambda part: part[k], (live, observation, action))
    h: Any = Hyper(cast("dict[str, Tensor]", {name: rows[k] for name, rows in learner.values.items()}))
    nets, found = Nets(learner.acting, tensors, None, None, learner.dtype, h=h), dict[str, float]()
    if type(algorithm).acts() and action.is_floating_point():
        first = pytree.tree_map(lambda part: part[:, 0], observation) if steps else observation
        if any(isinstance(port, Noise) and port.always and len(port.shape) > 1 for port in ports.values()):
            first = pytree.tree_map(lambda part: part[:_FEW], first)  # each draws many actions
        done = _acted(algorithm, nets, ports, first)
        found["action_saturation"] = float((done.abs() >= SATURATED).double().mean())
    if type(algorithm).learns_values():
        values, there = algorithm.value(nets, observation, action), steps_there(observation)
        found["q_value_max"] = float((values if there is None else values[there]).max())
    return found


def _acted(algorithm: Definition, nets: Nets, ports: Ports, observation: Any) -> Tensor:
    """Greedy actions; of a policy with a memory those at an episode's first step."""
    if steps_there(observation) is not None:
        return acted(algorithm, nets, observation, {}, {})[0]
    like = pytree.tree_leaves(observation)[0]
    dtype = like.dtype if like.is_floating_point() else torch.float32
    noise = drawn(ports, root_key(0, like.device), len(like), dtype)
    return acted(algorithm, nets, observation, started(ports, len(like), dtype, like.device), noise)[0]


def divergence(metrics: Mapping[str, float], largest_reward: float, gamma: float) -> str | None:
    """Says in one sentence what is wrong with the Q-values of an epoch; None: nothing that shows.

    No policy's value exceeds max |r| / (1 - γ), where the temperature's share of the entropy counts as reward too. A mean beyond
    ten times that is called divergence.

    Args:
        metrics: `q_value`, `step`, and where there are such `temperature` and `entropy`.
        largest_reward: max |r|, after the reward scaler.
        gamma: γ.
    """
    value = metrics.get("q_value")
    if value is None or not math.isfinite(value) or gamma >= 1:
        return None
    limit = (largest_reward + abs(metrics.get("temperature", 0.0) * metrics.get("entropy", 0.0))) / (1 - gamma)
    if limit == 0 or abs(value) <= _BEYOND * limit:
        return None
    return f"values diverge: the mean Q-value is {value:.3g}, and with these rewards no return can exceed {limit:.3g}"
