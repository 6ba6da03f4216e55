"""Policies that were trained on stacks of frames, where an environment shows one frame at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...data.sampling.frames import Padding, frame_stacks, stacked_spec
from ...data.spec import Spec, space_columns, value_columns
from .policy import Policy, PolicyModule

Memory = dict[str, np.ndarray]


class FramePolicy(Policy):
    """Remembers the latest frames of each environment and acts on their stack, which is what a sampler draws at the same step.

    Args:
        module: What acts on stacks.
        shown: The spaces of the environment, with single frames.
        device: Where the module lies.
        frames, frame_padding: As the sampler's.
    """

    def __init__(self, module: PolicyModule, shown: Spec, device: torch.device, *, frames: int, frame_padding: Padding) -> None:
        super().__init__(module, stacked_spec(shown, frames), device)
        self._stacks = frame_stacks(shown, frames, frame_padding)
        self._leaves = {name: leaf for name, leaf in space_columns(shown.observation).items() if name in self._stacks}

    def start(self, n: int) -> Memory:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Black frames [n, frames, *shape] by column, and whether an environment has shown one yet."""
        empty = {name: np.zeros((n, self._stacks[name].frames, *leaf.shape), leaf.dtype) for name, leaf in self._leaves.items()}
        return {"begun": np.zeros(n, bool), **empty}

    def step(self, state: Any, observation: Any) -> tuple[Any, np.ndarray]:
        memory, stacked = self._remember(state, observation)
        return memory, self.predict(stacked)

    def propose(self, what: str, state: Any, observation: Any, *, step: int, seed: int) -> tuple[Any, np.ndarray]:
        memory, stacked = self._remember(state, observation)
        return memory, super().propose(what, None, stacked, step=step, seed=seed)[1]

    def _remember(self, memory: Memory, observation: Any) -> tuple[Memory, Any]:
        shown, begun = value_columns(observation), memory["begun"]
        new: Memory = {"begun": np.ones_like(begun)}
        for name, stack in self._stacks.items():
            frame = np.asarray(shown[name])[:, None]
            before = memory[name][:, 1:]
            if stack.padding == "repeat":
                before = np.where(begun.reshape(-1, *[1] * (before.ndim - 1)), before, frame)
            new[name] = np.concatenate([before, frame], 1)
        joined = shown | {name: stack.join(torch.from_numpy(new[name]), 1).numpy() for name, stack in self._stacks.items()}
        if "observation" in joined:
            return new, joined["observation"]
        return new, {name.partition("/")[2]: part for name, part in joined.items()}
