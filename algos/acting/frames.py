"""Policies without a memory, and what makes stacks of frames for them where an environment shows single ones. Imports no torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.frames import Padding, frame_stacks, stacked_spec
from ...data.masks import bare, mask_of, masked
from ...data.spec import Spec, shapes_of, space_columns, value_columns
from ...data.storage.checks import as_array
from .inputs import as_batch, taken, with_mask

Frames = dict[str, Any]


class Memoryless:
    """Base of policies whose actions follow from one observation, a stack of frames among them; how, is for subclasses to say.

    `frames` and `frame_padding` tell how the observations that it was trained on were stacked; 1: they were not.
    """

    spec: Spec
    frames: int = 1
    frame_padding: Padding = "zero"

    def _acted(self, observation: Any) -> np.ndarray:
        """Give raw actions [n, ...] at raw observations, which may be `Masked`."""
        raise NotImplementedError

    def facing(self, shown: Spec) -> Any:
        """Give what acts in an environment of the spaces `shown`: where that shows single frames, one that remembers the latest."""
        stacks = self.frames > 1 and shapes_of(shown) != shapes_of(self.spec)
        return FramePolicy(self, shown) if stacks else self

    def start(self, n: int) -> None:
        return

    def step(self, state: None, observation: Any, action_mask: Any = None) -> tuple[None, np.ndarray]:
        """Act at raw observations [n, ...], by a mask of legal actions [n, n_actions] or none."""
        return state, self._acted(with_mask(self.spec, observation, action_mask))

    def predict(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Greedy actions at raw observations [B, ...], an array or a dict of them; the action at a single one [...].

        Args:
            observation: As `raw_inputs` takes it.
            action_mask: Bool [B, n_actions], of a policy fitted on data that have one: which actions are legal. None: that of the
                observations, or all.

        Returns:
            [B, A] in the environment's units, or int64 [B].

        Raises:
            DataError: a shape is wrong, a number is not finite or of another kind, no action is legal, or the policy knows no mask.
        """
        shown, single = as_batch(self.spec, observation, action_mask)
        action = taken(self.spec, self._acted(shown))
        return action[0] if single else action


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
