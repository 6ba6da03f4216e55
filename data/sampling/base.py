"""What all samplers share: where they draw from, their seeds, and that a batch is a function of the step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree  # it has no public name yet

from ..batch import BLOCK
from ..devices import find_device
from ..episodes import Episode
from ..errors import ConfigError, DataError
from ..random import bits, fold, root_keys, shift_right
from ..recording import Recording
from ..spec import Spec, is_shown
from .windows import Until, Windows


class Growing(Protocol):
    """Experience that is still being gathered, as in a `ReplayBuffer`: it knows itself what of it may be drawn."""

    spec: Spec
    n_envs: int

    @property
    def columns(self) -> Mapping[str, np.ndarray]: ...

    def windows(self, td_steps: int = 1, frames: int = 1, until: Until = "observation", ahead: int = 0) -> Any:
        """Return the transitions that may be drawn now, alike to `Windows` in what samplers use."""
        ...

    def whole(self, bootstrap: bool = False) -> Any:
        """Return the finished episodes that may be drawn now, alike to `Runs`."""
        ...

    def episode(self, slot: int) -> Episode: ...

    def finished_rows(self, env: int = 0, since: int = 0) -> tuple[np.ndarray, int]: ...


Experience = Recording | Growing


def needed_columns(source: Experience, extra: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return the columns that a batch is made of. Raises DataError where an extra one is missing."""
    columns = source.columns
    return {name: columns[name] for name in needed_names(columns, extra)}


def needed_names(there: Iterable[str], extra: Sequence[str]) -> list[str]:
    """Name those of the columns that a batch is made of. Raises DataError as `needed_columns`."""
    names = list(there)
    for name in extra:
        if name not in names:
            raise DataError(f"This algorithm needs the column {name!r}, which the data do not have.")
    return [name for name in names if name in ("action", "reward", "terminated", *extra) or is_shown(name)]


FreeMemory = Callable[[torch.device], int | None]
_SHARE = 0.5  # of what is free on a device, for columns: networks, activations and other trials of the device need the rest


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process may still take on a device, of its share of it; None where that is not known."""
    if device.type != "cuda":
        return None
    device = find_device(device)  # the share of a device without an index is refused
    free, total = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device)
    kept = torch.cuda.memory_reserved(device) - taken  # for later tensors
    return min(free + kept, int(torch.cuda.get_per_process_memory_fraction(device) * total) - taken)


def columns_fit(n_bytes: int, free: int | None) -> bool:
    """Decide whether columns are copied to a device: they take at most half of what is free there, or that is not known."""
    return free is None or n_bytes <= _SHARE * free


class Sampler:
    """Base of the samplers.

    A stack of S seeds draws S batches at once, each row by its own seed: tensors of what is drawn have the shape [S, B, ...], and
    without a stack [B, ...].

    Args:
        source: A dataset, or a replay buffer, which may grow between draws.
        batch_size: B.
        seed: One seed, or a sequence of S seeds.
        device: Where a batch lies. The columns of a dataset are copied there where they fit; else, and those of a buffer always,
            they stay on the host, and what is gathered from them is copied.
        columns: What a batch is made of.
        free_memory: Tells the bytes that are free on a device.

    Attributes:
        grows: Whether the source is a replay buffer.
        columns_device: Where rows are gathered.
    """

    windows: Any  # of a dataset `Windows` or `Runs`, of a buffer its `Starts`: alike in what samplers use

    _gamma: Tensor

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int],
        device: torch.device | str,
        columns: Mapping[str, np.ndarray],
        free_memory: FreeMemory = free_memory,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1.")
        self.source: Any = source
        self.batch_size, self.device = batch_size, find_device(device)
        self.grows = not isinstance(source, Recording)
        host, n_bytes = torch.device("cpu"), sum(column.nbytes for column in columns.values())
        fit = self.device == host or (not self.grows and columns_fit(n_bytes, free_memory(self.device)))
        self.columns_device = self.device if fit else host
        self._key = fold(root_keys(seed, self.columns_device), "sample")
        self.n_seeds = self._key.numel()
        self._hashes: tuple[int, Tensor] | None = None
        self._copied: tuple[int, Tensor] | None = None
        self._next = 0

    @property
    def n_windows(self) -> int:
        """How many transitions (of an `EpisodeSampler`, episodes) may be drawn now."""
        return self.windows.n

    def _open_windows(
        self, td_steps: int = 1, bootstrap: bool = True, frames: int = 1, until: Until = "observation", ahead: int = 0
    ) -> Any:
        if self.grows:
            return self.source.windows(td_steps, frames, until, ahead)
        return Windows(self.source, td_steps, bootstrap=bootstrap, until=until, device=self.columns_device)

    def between_epochs(self, epoch: int) -> None:
        """Do nothing: a dataset does not change, and a buffer renews itself as steps are appended."""

    def along(self, steps: Tensor) -> list[Any] | None:
        """The batches of gradient steps [K] that lie on the columns' device, as a program of tensors.

        None: they cannot be told so, for the host has a part in them.
        """
        return None

    @property
    def fixed(self) -> Hashable:
        """Constants of the program that `along` makes: where they are others, so is the program."""
        return None

    def numbers(self, step: int) -> Tensor:
        """Draw numbers below `n_windows`, [(S,) B] int64; hashes of a block of steps are made at once. Raises DataError."""
        return self._drawn_at(step) % self._size()

    def _drawn_at(self, step: int) -> Tensor:
        block, at = divmod(step, BLOCK)
        if self._hashes is None or self._hashes[0] != block:
            steps = torch.arange(block * BLOCK, (block + 1) * BLOCK, device=self._key.device)
            self._hashes = block, self._draw(steps)
        return self._hashes[1][at]

    def _draw(self, steps: Tensor) -> Tensor:
        """Draw [len(steps), (S,) B] int64, not negative; their remainders are what the batches of `steps` have."""
        return shift_right(bits(self._keys(steps), self.batch_size), 1)

    def _keys(self, steps: Tensor) -> Tensor:
        return fold(self._key, steps if self._key.ndim == 0 else steps[:, None])

    def _size(self) -> int:
        n = self.n_windows
        if n == 0:
            raise DataError("The replay buffer holds no window that is complete yet: collect more before training.")
        return n

    def _step(self, step: int | None) -> int:
        """Return the step that is asked for; None: the one after the last that was drawn without being named."""
        if step is None:
            step, self._next = self._next, self._next + 1
        return step

    def _discount(self) -> Tensor:
        """Return γ where the columns are, copied when it was written: a copy at every draw would wait for the device."""
        if self._gamma.device == self.columns_device:
            return self._gamma
        if self._copied is None or self._copied[0] != self._gamma._version:
            self._copied = self._gamma._version, self._gamma.to(self.columns_device)
        return self._copied[1]

    def _moved(self, batch: Any) -> Any:
        """Move what was gathered on the host to the batch's device."""
        if self.columns_device == self.device:
            return batch
        return pytree.tree_map(lambda part: part.to(self.device) if isinstance(part, Tensor) else part, batch)
