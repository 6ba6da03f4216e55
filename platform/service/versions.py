"""One version of a policy, ready to act: out of a package, a registered model's or a folder's, checked as it is read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...algos.acting.frames import FramePolicy
from ...algos.acting.inputs import as_batch, named_inputs, raw_inputs
from ...algos.acting.onnx_policy import OnnxValues, as_type
from ...algos.acting.remembering import DECISIONS, KEYS, RETURN_TO_GO, REWARD, Remembering
from ...algos.export.package import is_package, read_package, read_values
from ...data.errors import ConfigError, DataError, StorageError
from ...data.frames import stacked_spec
from ...data.masks import ACTION_MASK
from ...data.spec import Box, Dict, Spec, as_recorded, flat_space, from_columns, shapes_of, space_columns
from ..tracking.registered import is_registered, pinned, registered_package
from .memory import Flat, flat, joined, nested, split

_FETCHING = threading.Lock()  # MLflow's resolver looks at a global address while it fetches


@dataclass(frozen=True)
class Version:
    """A policy that acts.

    Attributes:
        label: The registry's number of it; of a folder the first letters of its fingerprint.
        source: Where it was read, with the number in place of an alias.
        fingerprint: SHA-256 of its graph.
        policy: Of a package.
        stacked: Whether clients send whole stacks of frames, of a policy that was trained on such.
        critic: Its values; None: the package has none.
    """

    label: str
    source: str
    fingerprint: str
    policy: Any
    stacked: bool = False
    critic: OnnxValues | None = None

    @cached_property
    def spec(self) -> Spec:
        """The spaces that clients see: of a policy on stacks of frames with single ones, unless it is `stacked`."""
        return self.policy.spec if self.stacked or self.policy.frames == 1 else single_frames(self.policy.spec, self.policy.frames)

    @property
    def name(self) -> str:
        """The algorithm that made it."""
        return str(self.policy.about["algorithm"])

    @property
    def draws(self) -> bool:
        """Whether it always draws its actions, with probabilities that are not known."""
        return bool(getattr(self.policy, "noises", ()))

    @property
    def for_return(self) -> bool:
        """Whether it acts for a return that is asked for."""
        return isinstance(self.policy, Remembering) and any(state.name == RETURN_TO_GO for state in self.policy.states)

    @cached_property
    def _acting(self) -> Any:
        return self.policy if self.spec is self.policy.spec else self.policy.facing(self.spec)

    @property
    def _framed(self) -> bool:
        return isinstance(self._acting, FramePolicy)

    def start(self, target_return: float | None = None) -> Flat:
        """Give the memory of an episode at its start; empty where none is handed on. Raises ConfigError as `Remembering`."""
        if target_return is None:
            memory = flat(self._acting.start(1))
        elif isinstance(self._acting, Remembering):
            memory = flat(self._acting.start(1, target_return))
        else:
            raise ConfigError(f"{self.name} acts for no return that is asked for: leave target_return out.")
        return {name: part for name, part in memory.items() if not name.endswith(DECISIONS)}

    def shown(self, observation: Any, action_mask: Any = None) -> Flat:
        """One observation, as JSON has it, and its mask by input name, [1, ...] each, in the types of the spaces.

        Raises DataError where a shape, a type or a key is wrong, a number is not finite, or no action is legal.
        """
        batch, single = as_batch(self.spec, observation, action_mask)
        rows = raw_inputs(self.spec, batch)
        if not single:
            raise DataError(f"An observation has no axis for a batch here: send one, or several as {_SEVERAL}.")
        with np.errstate(over="ignore"):  # which is said below
            found = {name: as_type(f"The policy takes {name}", part, np.dtype(self._types[name])) for name, part in rows.items()}
        for name, part in found.items():
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                raise DataError(f"{name} has a number beyond those of {part.dtype}.")
        return found

    @cached_property
    def _types(self) -> dict[str, str]:
        return {name: leaf.dtype for name, leaf in named_inputs(self.spec).items()}

    def step(self, rows: Mapping[str, np.ndarray], memories: Sequence[Flat], keys: Sequence[int]) -> tuple[list[Flat], np.ndarray]:
        """What is remembered of each row next, and raw actions [n, ...], as the environment has them.

        `rows` are observations by name, [n, ...]; `keys` those of each row's noise.
        """
        n, memory = len(keys), joined(memories)
        before = nested(memory | self._keys(keys), inner=self._framed)
        after, action = self._acting.step(before, from_columns(rows))
        kept = {name: part for name, part in flat(after).items() if not name.endswith((DECISIONS, KEYS))}
        return (split(kept, n) if kept else [{} for _ in range(n)]), action

    def _keys(self, keys: Sequence[int]) -> Flat:
        """Whose noise a step draws: the decisions that a policy counts tell nothing in a batch that is put together by chance."""
        if not self.draws:
            return {}
        prefix = "policy/" if self._framed else ""
        return {f"{prefix}{KEYS}": np.array(keys, np.uint64), f"{prefix}{DECISIONS}": np.zeros(len(keys), np.int64)}

    def told(self, memory: Flat, reward: float | None, executed: Any) -> Flat:
        """The memory of a row once it knows how the last step was rewarded, and what was done there instead of what was answered.

        Raises DataError where that is no action.
        """
        policy = self.policy
        if not memory or not isinstance(policy, Remembering):
            return memory
        prefix = "policy/" if self._framed else ""
        own = {name.removeprefix(prefix): part for name, part in memory.items() if name.startswith(prefix)}
        if reward is not None and REWARD in own:
            own = policy.rewarded(own, [reward])
        if executed is not None:
            try:
                own = policy.executed(own, [executed])
            except ValueError:
                raise DataError(f"executed is no action of this policy, whose shape is {list(self.spec.action.shape)}.") from None
        return memory | {f"{prefix}{name}": part for name, part in own.items()}

    @property
    def has_values(self) -> bool:
        """Whether its package has values, of what clients send: of single frames there are none."""
        return self.critic is not None and not self._framed

    def values(self, rows: Mapping[str, np.ndarray], action: np.ndarray | None = None) -> np.ndarray:
        """Q(s, a) at observations by name: of every discrete action [n, actions], else of raw actions [n, ...], [n]."""
        assert self.critic is not None
        inputs = {name: part.astype(self._types[name], copy=False) for name, part in rows.items()}
        return self.critic.run(inputs if self.spec.discrete or action is None else {**inputs, "action": self.recorded(action)})

    def recorded(self, action: np.ndarray) -> np.ndarray:
        """Actions as data have them: vectors, floats of a box."""
        return as_recorded(self.spec.action, action)


_SEVERAL = '{"decisions": [{"observation": …}, …]}'


def single_frames(spec: Spec, frames: int) -> Spec:
    """The spaces of single frames, of those of stacks of `frames`. Bounds that differ by pixel were dropped by stacking.

    A frame of bytes keeps its axis of channels. Raises ConfigError where no frame makes such a stack.
    """
    space = flat_space(spec.observation)
    leaves = {name.removeprefix("observation/"): leaf for name, leaf in space_columns(space).items()}
    found = {key: _single(leaf, frames) for key, leaf in leaves.items()}
    shown = spec.model_copy(update={"observation": Dict(spaces=found) if isinstance(space, Dict) else found["observation"]})
    if shapes_of(stacked_spec(shown, frames)) != shapes_of(spec):
        raise ConfigError(f"Stacks of {frames} frames cannot be taken apart here: say stacked=true, and send stacks.")
    return shown


def _single(leaf: Any, frames: int) -> Any:
    if not (isinstance(leaf, Box) and leaf.is_image):
        return leaf
    last = leaf.channels == "last" and leaf.shape[-1] % frames == 0
    shape = (*leaf.shape[:-1], leaf.shape[-1] // frames) if last else (leaf.shape[0] // frames, *leaf.shape[1:])
    return leaf.model_copy(update={"shape": shape})


def opened(source: str, *, tracking: str | None, storage: str, stacked: bool = False) -> Version:
    """A version of a source: `models:/NAME@ALIAS`, `models:/NAME/VERSION`, or the folder of a policy package.

    Raises:
        ConfigError: there is no such model, or it is no policy package.
        StorageError: it is damaged, acts otherwise than when it was written, or cannot be fetched.
    """
    if not is_registered(source) and not is_package(source):
        if not Path(source).exists():
            raise ConfigError(f"{source!r} is neither models:/NAME@champion nor the folder of a policy package: nothing is there.")
        raise ConfigError(f"{source} is no policy package: make one with d3ray export {source} FOLDER.")
    with _FETCHING if is_registered(source) else nullcontext():
        place = pinned(source, tracking, storage) if is_registered(source) else source
        with registered_package(place, tracking, storage) if is_registered(place) else nullcontext(Path(place)) as folder:
            if not is_package(folder):
                raise ConfigError(f"{source} is a model of the dynamics, which acts in no way: name a policy.")
            try:
                policy, critic = read_package(folder), read_values(folder)
            except StorageError as error:  # which names the folder that it was fetched to
                raise StorageError(str(error).replace(str(folder), place)) from None
            fingerprint = hashlib.sha256((folder / "policy.onnx").read_bytes()).hexdigest()
    label = place.rpartition("/")[2] if is_registered(place) else fingerprint[:12]
    return Version(label, place, fingerprint, policy, stacked, critic)


def same_spaces(one: Version, other: Version) -> bool:
    """Tell whether two versions see and do the same."""
    return shapes_of(one.spec) == shapes_of(other.spec) and one.spec.action_mask == other.spec.action_mask


def check_beside(one: Version, other: Version, role: str) -> None:
    """Raises ConfigError where what acts in a role sees or does something else than the champion."""
    if not same_spaces(one, other):
        raise ConfigError(f"The {role} {other.source} has other spaces than {one.source}: it cannot act in its place.")


def mask_of_row(columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The legal actions of observations, [n, actions], or None."""
    return columns.get(ACTION_MASK)


def unreadable(error: Exception) -> str:
    """Say why a version could not be read: a sentence of d3ray's, or what it was."""
    known = isinstance(error, ConfigError | StorageError | DataError)
    return str(error) if known else f"{type(error).__name__}: {error}"
