"""What a policy would have done in a dataset: its actions at every observation there, whoever made it and whatever runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.frames import stacked_spec
from ...data.masks import ACTION_MASK, Masked
from ...data.sampling import TransitionSampler
from ...data.spec import Spec, as_recorded, space_columns
from ...data.storage.claims import scratch_names
from ...data.storage.files import Place, storage_errors
from ...data.uris import is_remote
from ..acting.foreign_onnx import ForeignOnnxPolicy
from ..acting.inputs import raw_actions
from ..base import Algorithm
from ..environments.spaces import check_spaces
from ..export.package import is_package, read_package
from ..saving.saving import load

_ROWS = 8192  # observations that a policy is shown at once
_EPISODES = 512  # episodes that a policy with a memory goes through side by side


@dataclass(frozen=True)
class Decisions:
    """Raw actions of a policy in a dataset of N steps and E episodes of `steps` [E]: [A] floats each, or int64.

    `taken` [N, ...] are those at each step's observation, `closing` [E, ...] those at the observation that an episode ended with.
    """

    taken: np.ndarray
    closing: np.ndarray
    steps: np.ndarray

    def following(self, drawable: np.ndarray | None = None) -> np.ndarray:
        """At each step's next observation, [N, ...].

        Args:
            drawable: How many first steps of each episode are wanted, [E]; None: all.
        """
        after, ends = np.roll(self.taken, -1, 0), np.cumsum(self.steps)
        after[ends - 1] = self.closing
        if drawable is None:
            return after
        step = np.arange(len(after)) - np.repeat(ends - self.steps, self.steps)
        return after[step < np.repeat(drawable, self.steps)]


def policy_of(given: Any, spec: Spec, name: str = "the data") -> Any:
    """Open what acts on the spaces of `spec`, which `name` has: of an algorithm its greedy policy, of a path or URI what is there.

    `given` is a trained algorithm, what `Algorithm.policy()` gives, or the place of a saved algorithm, a policy package or an ONNX
    file (see `ForeignOnnxPolicy`). Raises ConfigError where it is none of these, or has no policy; DataError where it acts on other
    spaces; StorageError where a file is missing or damaged.
    """
    policy = _opened(given, spec)
    if not hasattr(policy, "step"):
        kinds = "an algorithm, its policy(), or the path of a saved algorithm, a policy package or an ONNX file"
        raise ConfigError(f"{type(given).__name__} is no policy that could be judged: give {kinds}.")
    check_spaces(stacked_spec(spec, getattr(policy, "frames", 1)), policy.spec, name, "the policy", fewer_actions="fitted")
    return policy


def _opened(given: Any, spec: Spec) -> Any:
    if isinstance(given, Algorithm):
        return given.policy()
    if not isinstance(given, str | Path):
        return given
    if not is_remote(given):
        return _read(Path(given), spec)
    if not str(given).partition("?")[0].endswith(".onnx"):
        with Place(given).as_local() as folder:
            return _read(folder, spec)
    above, name = Place.of_file(given)
    with tempfile.TemporaryDirectory(prefix=scratch_names("decisions")) as scratch:
        with storage_errors("read", given):
            above.fetch(name, file := Path(scratch) / name)
        return _read(file, spec)


def _read(path: Path, spec: Spec) -> Any:
    if path.suffix == ".onnx":
        return ForeignOnnxPolicy.read(path, spec)
    return read_package(path) if is_package(path) else load(path, device="cpu").policy()


def decisions(policy: Any, dataset: Dataset) -> Decisions:
    """Ask a policy, as `policy_of` gives it, for its action at every observation of a dataset.

    One with a memory is led along the episodes as they were recorded: it is told what was done and the rewards that came. Raises
    DataError where an action is no finite number, there is none of its number, or it was not legal.
    """
    steps = np.asarray(dataset.episodes.steps, np.int64)
    sampler = TransitionSampler(
        dataset,
        1,
        bootstrap=False,
        next_action=False,
        frames=getattr(policy, "frames", 1),
        frame_padding=getattr(policy, "frame_padding", "zero"),
        dtype=torch.float64 if _has_float64(dataset.spec) else torch.float32,
    )
    walk = _led if policy.start(1) is not None else _shown
    found: list[tuple[np.ndarray, np.ndarray]] = list(walk(policy, sampler, steps))
    numbers, actions = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if actions.dtype.kind == "f" and not np.isfinite(actions).all():
        raise DataError(f"The policy that is judged gives actions in {dataset.name!r} that are no finite numbers.")
    try:
        actions = as_recorded(dataset.spec.action, raw_actions(dataset.spec.action, actions, len(actions)))
    except DataError as error:
        raise DataError(f"The policy that is judged acts as nobody can in {dataset.name!r}: {error}") from error
    every = np.empty_like(actions)
    every[numbers] = actions
    if dataset.spec.action_mask and (wrong := _illegal(every, dataset)):
        share = f"{wrong} of {len(every)} observations of {dataset.name!r}"
        raise DataError(f"The policy that is judged chooses an illegal action at {share}.")
    return Decisions(every[: steps.sum()], every[steps.sum() :], steps)


def _shown(policy: Any, sampler: TransitionSampler, steps: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of decisions and the actions there; those at the ends of episodes are numbered after all steps."""
    total, kinds = int(steps.sum()), _kinds(policy.spec)
    for at in np.split(np.arange(total), range(_ROWS, total, _ROWS)):
        yield at, policy.predict(_raw(sampler.at(torch.from_numpy(at)).observation, kinds))
    last = np.cumsum(steps) - 1
    for at in np.split(np.arange(len(last)), range(_ROWS, len(last), _ROWS)):
        yield total + at, policy.predict(_raw(sampler.at(torch.from_numpy(last[at])).next_observation, kinds))


def _led(policy: Any, sampler: TransitionSampler, steps: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Lead a policy with a memory along episodes; long ones come first, so that those which go on are the first rows of it."""
    total, first = int(steps.sum()), np.cumsum(steps) - steps
    longest, kinds = np.argsort(-steps, kind="stable"), _kinds(policy.spec)
    for group in np.split(longest, range(_EPISODES, len(longest), _EPISODES)):
        memory, goes_on = policy.start(len(group)), group
        for t in range(int(steps[group[0]]) + 1):
            ends = steps[goes_on] == t
            batch = sampler.at(torch.from_numpy(first[goes_on] + t - ends))
            seen = _where(ends, _raw(batch.next_observation, kinds), _raw(batch.observation, kinds))
            memory, action = policy.step(memory, seen)
            yield np.where(ends, total + goes_on, first[goes_on] + t), action
            n = int((~ends).sum())
            goes_on, memory = goes_on[:n], {name: part[:n] for name, part in memory.items()}
            memory = policy.rewarded(policy.executed(memory, batch.action.numpy()[:n]), batch.reward.numpy()[:n])


def _illegal(every: np.ndarray, dataset: Dataset) -> int:
    """Count the decisions, numbered as those of `_shown`, that were not legal."""
    first, steps = np.asarray(dataset.episodes.first_row, np.int64), np.asarray(dataset.episodes.steps, np.int64)
    within = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
    rows = np.concatenate((np.repeat(first, steps) + within, first + steps))
    place = every - getattr(dataset.spec.action, "start", 0)
    return int((~np.take_along_axis(np.asarray(dataset.columns[ACTION_MASK])[rows].astype(bool), place[:, None], 1)).sum())


def _kinds(spec: Spec) -> dict[str, str]:
    return {name: leaf.dtype for name, leaf in space_columns(spec.observation).items()}


def _raw(observation: Any, kinds: Mapping[str, str]) -> Any:
    """Observations in the types that they were recorded in; samplers give images as floats."""
    if isinstance(observation, Masked):
        return Masked(_raw(observation.observation, kinds), observation.action_mask.numpy())
    if isinstance(observation, Mapping):
        return {key: part.numpy().astype(kinds[f"observation/{key}"]) for key, part in observation.items()}
    return observation.numpy().astype(kinds["observation"])


def _where(ends: np.ndarray, there: Any, here: Any) -> Any:
    """Take what is `there` for the episodes that end, and what is `here` for the others."""
    if isinstance(here, Masked):
        return Masked(_where(ends, there.observation, here.observation), _where(ends, there.action_mask, here.action_mask))
    if isinstance(here, dict):
        return {key: _where(ends, there[key], here[key]) for key in here}
    return np.where(ends.reshape(-1, *[1] * (here.ndim - 1)), there, here)


def _has_float64(spec: Spec) -> bool:
    return any(leaf.dtype == "float64" for leaf in (*space_columns(spec.observation).values(), spec.action))
