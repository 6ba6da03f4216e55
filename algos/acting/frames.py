"""Policies that act on stacks of frames, in environments that show single ones. Imports no torch."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...data.frames import Padding, frame_stacks, stacked_spec
from ...data.masks import bare, mask_of, masked
from ...data.spec import Spec, shapes_of, space_columns, value_columns
from ...data.storage.checks import as_array

Frames = dict[str, Any]


class Stacked(Protocol):
    """A policy that may act on stacks of frames, as those that it was trained on were stacked; `frames` 1: they were not."""

    spec: Spec
    frames: int
    frame_padding: Padding

    def start(self, n: int) -> Any: ...

    def step(self, state: Any, observation: Any) -> tuple[Any, np.ndarray]: ...


def facing(policy: Stacked, shown: Spec) -> Any:
    """A policy for an environment of the spaces `shown`: where that shows single frames, one that remembers the latest."""
    stacks = policy.frames > 1 and shapes_of(shown) != shapes_of(policy.spec)
    return FramePolicy(policy, shown) if stacks else policy


class FramePolicy:
    """Remembers the latest frames of each environment, so that a policy acts on their stack: what a sampler draws at the same step.

    `shown` are the spaces of the environment, with single frames.
    """

    def __init__(self, policy: Any, shown: Spec) -> None:
        self.policy, self.spec = policy, stacked_spec(shown, policy.frames)
        self._stacks = frame_stacks(shown, policy.frames, policy.frame_padding)
        self._leaves = {name: leaf for name, leaf in space_columns(shown.observation).items() if name in self._stacks}

    def start(self, n: int) -> Frames:
        """Black frames [n, frames, *shape] by column, whether an environment has shown one yet, and what the policy remembers."""
        empty = {name: np.zeros((n, self._stacks[name].frames, *leaf.shape), leaf.dtype) for name, leaf in self._leaves.items()}
        return self._with({"begun": np.zeros(n, bool), **empty}, self.policy.start(n))

    def step(self, state: Frames, observation: Any) -> tuple[Frames, np.ndarray]:
        memory, stacked = self._remember(state, observation)
        inner, action = self.policy.step(state.get("policy"), stacked)
        return self._with(memory, inner), action

    def propose(self, what: str, state: Frames, observation: Any, *, step: int, seed: int) -> tuple[Frames, np.ndarray]:
        memory, stacked = self._remember(state, observation)
        inner, action = self.policy.propose(what, state.get("policy"), stacked, step=step, seed=seed)
        return self._with(memory, inner), action

    def check_departs(self, what: str) -> None:
        self.policy.check_departs(what)

    def log_prob(self, observation: Any, action: np.ndarray) -> np.ndarray:
        return self.policy.log_prob(observation, action)

    @staticmethod
    def _with(frames: Frames, inner: Any) -> Frames:
        return frames if inner is None else {**frames, "policy": inner}

    def _remember(self, memory: Frames, observation: Any) -> tuple[Frames, Any]:
        shown, begun = value_columns(bare(observation)), memory["begun"]
        new: Frames = {"begun": np.ones_like(begun)}
        for name, stack in self._stacks.items():
            frame = as_array(name, shown[name])[:, None]
            before = memory[name][:, 1:]
            if stack.padding == "repeat":
                before = np.where(begun.reshape(-1, *[1] * (before.ndim - 1)), before, frame)
            new[name] = np.concatenate([before, frame], 1)
        joined = shown | {name: stack.join(new[name], 1) for name, stack in self._stacks.items()}
        if "observation" in joined:
            return new, masked(joined["observation"], mask_of(observation))
        return new, masked({name.partition("/")[2]: part for name, part in joined.items()}, mask_of(observation))
