"""PFRL's other five replay buffers by their names: the one buffer, with what each of them draws or where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..batch import Batch, Sequences
from ..errors import ConfigError
from ..sampling import PrioritizedEpisodeSampler, PrioritizedSampler
from ..spec import Spec
from .buffer import ReplayBuffer
from .disk import DiskColumns, read_plan
from .saving import describe, described, saved

_PRIORITIES = "priorities/"


@saved
class EpisodicReplayBuffer(ReplayBuffer):
    """A replay buffer whose `sample` draws finished episodes, of which `len` counts those that are all there."""

    def sample(self, batch_size: int, step: int, seed: int = 0, **options: Any) -> Sequences:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw whole episodes, or with `max_length` random subsequences; options are `EpisodeSampler`'s."""
        return self.sample_episodes(batch_size, step=step, seed=seed, **options)

    def __len__(self) -> int:
        return self.n_episodes


@saved
class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that keeps priorities; `weight` of what is drawn has the importance weights.

    Args:
        capacity, spec, n_envs, extra: As `ReplayBuffer`'s.
        **options: As `PrioritizedSampler`'s: alpha, beta0, betasteps, eps, normalize_by_max, error_min, error_max, and td_steps,
            frames, gamma and scalers, which are the same in all draws.

    Attributes:
        options: These.
    """

    _kind: type[Any] = PrioritizedSampler

    def __init__(
        self, capacity: int, spec: Spec, n_envs: int = 1, *, extra: Mapping[str, tuple[int, ...]] | None = None, **options: Any
    ) -> None:
        super().__init__(capacity, spec, n_envs, extra=extra)
        self.options: Mapping[str, Any] = options
        self._prioritized, self._last = dict[tuple[int, int], Any](), None

    def sample(self, batch_size: int, step: int, seed: int = 0) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Draw what a gradient step learns from, a `Batch`; of episodes `Sequences`."""
        sampler = self._known(batch_size, seed)
        drawn: Batch | Sequences = sampler.sample(step)
        self._last = sampler, drawn.index
        return drawn

    def _known(self, batch_size: int, seed: int) -> Any:
        known = self._prioritized
        if (batch_size, seed) not in known:
            sampler = self._kind(self, batch_size, seed, **self.options)
            for other in known.values():
                sampler.priorities = other.priorities  # one set, whatever is drawn
            known[batch_size, seed] = sampler
        return known[batch_size, seed]

    def update_errors(self, errors: Any) -> None:
        """Set the errors [B] with which the last draw was learned from. Raises ConfigError without a draw since the last call."""
        if self._last is None:
            raise ConfigError("Errors are those of what was drawn last: sample first.")
        (sampler, index), self._last = self._last, None
        sampler.update(index, torch.as_tensor(errors))

    def state(self) -> dict[str, np.ndarray]:
        """Return the state with the priorities, where anything was drawn; that errors are awaited is not kept."""
        state = super().state()
        for sampler in list(self._prioritized.values())[:1]:
            sampler.priorities.follow()
            state |= {f"{_PRIORITIES}{name}": array for name, array in sampler.priorities.state().items()}
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a state; without priorities everything is new."""
        kept = {name.removeprefix(_PRIORITIES): array for name, array in state.items() if name.startswith(_PRIORITIES)}
        super().load_state({name: array for name, array in state.items() if not name.startswith(_PRIORITIES)})
        self._prioritized.clear()
        self._last = None
        if kept:
            self._known(1, 0).priorities.load_state(kept)  # of one size, and so of all


@saved
class PrioritizedEpisodicReplayBuffer(PrioritizedReplayBuffer):
    """A replay buffer whose `sample` draws finished episodes by their priorities.

    Args:
        capacity, spec, n_envs, extra: As `ReplayBuffer`'s.
        **options: As `PrioritizedEpisodeSampler`'s: max_length, the settings of priorities, default_priority_func, uniform_ratio,
            wait_priority_after_sampling, return_sample_weights.
    """

    _kind = PrioritizedEpisodeSampler

    def __len__(self) -> int:
        return self.n_episodes


class PersistentReplayBuffer(ReplayBuffer):
    """A replay buffer in a folder, whose rows lie in mapped files: training goes on with it after any end of the process.

    What `append` has returned from is there when the folder is opened again, also after SIGKILL, and of what it had not returned
    from there are whole rows or nothing. An episode that was unfinished then is still open: `cut_episodes` ends it. Against a
    power cut there is `flush`, which waits for the disk (fsync); what was written since the last one may then be lost or mixed.
    Nothing else waits for the disk. The whole capacity is reserved at first. One process at a time has the folder.

    Args:
        dirname: The folder: new, or of such a buffer, whose capacity, spec, n_envs and extra columns it then has.
        capacity: As `ReplayBuffer`'s; None: what is there.
        spec: As `ReplayBuffer`'s; None: what is there.
        n_envs: As `ReplayBuffer`'s; None: what is there, or 1.
        extra: As `ReplayBuffer`'s; None: what is there, or none.
        ancestor: The folder of a buffer that was made before, which is opened and written instead of `dirname`, as PFRL has it.

    Raises:
        ConfigError: a new buffer lacks its capacity or spec.
        StorageError: there is no ancestor, the folder is in use or cannot be written, or its disk has no room.
        DataError: what is there is of another capacity, spec or number of environments, or damaged.
    """

    def __init__(
        self,
        dirname: str | Path,
        capacity: int | None = None,
        spec: Spec | None = None,
        n_envs: int | None = None,
        *,
        extra: Mapping[str, tuple[int, ...]] | None = None,
        ancestor: str | Path | None = None,
    ) -> None:
        folder = Path(dirname if ancestor is None else ancestor)
        if ancestor is not None or (folder / "buffer.json").is_file():
            was = described(read_plan(folder), folder)
            capacity, spec = was.capacity if capacity is None else capacity, spec or was.spec
            n_envs, extra = n_envs or was.n_envs, was.extra if extra is None else extra
        if capacity is None or spec is None:
            raise ConfigError(f"There is no replay buffer in {folder} yet: a new one needs its capacity and spec.")
        n_envs = n_envs or 1
        told = describe(capacity // max(n_envs, 1) * n_envs, spec, n_envs, extra or {})
        self._disk = DiskColumns(folder, told)
        try:
            super().__init__(capacity, spec, n_envs, extra=extra, allocate=self._disk.allocate)
            self._disk.finish(told)
        except BaseException:
            self._disk.close()
            raise
        for e in range(self.n_envs):  # killed between the last row of an episode and its closing row
            last = self._rings.last(e)
            if self._rings.is_open(e) and (self.columns["terminated"][last] or self.columns["truncated"][last]):
                self._close(e, None)

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        self._disk.flush()

    def close(self) -> None:
        """Flush, and give the folder to others; the buffer is not to be used any more."""
        self._disk.close()


class PersistentEpisodicReplayBuffer(PersistentReplayBuffer, EpisodicReplayBuffer):
    """A replay buffer in a folder whose `sample` draws finished episodes; arguments as `PersistentReplayBuffer`'s."""
