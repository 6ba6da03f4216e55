"""Uniform transitions with n-step returns and frame stacks, as batches for one seed or a stack of seeds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ..batch import BLOCK, Batch, unbound
from ..errors import ConfigError
from ..frames import Padding, frame_stacks
from ..scalers import ActionScaler, ObservationScaler, RewardScaler
from .base import FreeMemory, Sampler, free_memory
from .experience import Experience, needed_columns
from .gather import Gather, Where, as_tensors
from .permutation import permute
from .returns import RETURNS, ReturnsToGo
from .windows import Place, Until

_BLOCK_BYTES = 1 << 20  # what the observations of a block may take: they stay in the cache


class TransitionSampler(Sampler):
    """Uniform draws of transitions from a dataset or a replay buffer, for one seed or several.

    A batch is a function of (what the source holds, seed, step). From a buffer an n-step window is drawn only when it is complete:
    followed by the row of its next observation, or closed by the end of its episode; `index` of a batch is then the row in the
    buffer's flat columns, which names the same transition until that is overwritten.

    Args:
        source: Where from; a buffer may grow between draws.
        batch_size: Transitions in a batch, B.
        seed: One seed: tensors of a batch are [B, ...]. A sequence of S seeds: [S, B, ...], each row drawn by its own seed.
        gamma: Discount of one step; a tensor of shape () or (S,) is read at every draw.
        as_indices: See `Gather`.
        td_steps: n of the n-step return. Windows stop at an episode's end and never reach over it.
        observation_scaler, action_scaler, reward_scaler: Fitted scalers, applied to what is drawn.
        bootstrap: See `Windows`. From a buffer what cannot be bootstrapped from is never drawn.
        next_action, dtype: See `Gather`.
        until: What must be known of what follows a window; from a buffer with "end" only finished episodes are drawn from.
        extra: Names of further columns that the batch carries in `extra`. "return_to_go" is no column, but the discounted sum of
            the scaled rewards from here to the episode's end; it makes `until` "end".
        endless: See `ReturnsToGo`.
        ahead: See `Gather`; of the steps after each window, for returns that look further than n steps. It makes `until` "end".
        frames: Images that make one observation, the newest last, stacked along their channels; see `FrameStack`. None comes from
            another episode. Stacks that a ring has begun to overwrite are not drawn any more.
        frame_padding: What stands for frames from before the episode began, "zero" or "repeat".
        unique: Whether the transitions of a batch differ, as PFRL's buffers draw them; otherwise each is drawn from all.
        device, free_memory: See `Sampler`.

    Raises:
        DataError: nothing can be drawn, or a column is missing.
        ConfigError: a count is below 1, or frames are to be stacked of what is no image.
    """

    def __init__(
        self,
        source: Experience,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        gamma: float | Tensor = 0.99,
        as_indices: bool = False,
        td_steps: int = 1,
        observation_scaler: ObservationScaler | None = None,
        action_scaler: ActionScaler | None = None,
        reward_scaler: RewardScaler | None = None,
        bootstrap: bool = True,
        next_action: bool = True,
        until: Until = "observation",
        extra: Sequence[str] = (),
        endless: bool = False,
        ahead: int = 0,
        frames: int = 1,
        frame_padding: Padding = "zero",
        unique: bool = False,
        device: torch.device | str = "cpu",
        free_memory: FreeMemory = free_memory,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        columns_of = tuple(name for name in extra if name != RETURNS)
        columns = needed_columns(source, columns_of)
        super().__init__(source, batch_size, seed, device, columns, free_memory)
        if td_steps < 1:
            raise ConfigError(f"td_steps is {td_steps}; it must be at least 1.")
        self.frames, self.unique = frames, unique
        stacks = frame_stacks(source.spec, frames, frame_padding)
        if ahead and until == "action" and self.grows:
            raise ConfigError("A buffer tells what lies ahead of steps whose episode has ended: until='end' goes with ahead.")
        if (ahead or RETURNS in extra) and until == "observation":
            until = "end"
        self.windows = self._open_windows(td_steps, bootstrap, frames, until, ahead)
        self._gamma = gamma if isinstance(gamma, Tensor) else torch.tensor(gamma, dtype=dtype, device=self.columns_device)
        returns = None
        if RETURNS in extra:
            transform = reward_scaler.reward_transform() if reward_scaler else None
            returns = ReturnsToGo(source, self.windows, self._gamma, transform, endless, dtype, self.columns_device)
        self._gather = Gather(
            as_tensors(columns, self.columns_device),
            source.spec,
            gamma=self._discount(),
            as_indices=as_indices,
            td_steps=td_steps,
            observation_scaler=observation_scaler,
            action_scaler=action_scaler,
            reward_scaler=reward_scaler,
            dtype=dtype,
            next_action=next_action,
            extra=columns_of,
            ahead=ahead,
            returns=returns,
            stacks=stacks,
        )
        entries = sum(c[:1].size * (frames if n in stacks else 1) for n, c in columns.items() if n.startswith("observation"))
        fits = _BLOCK_BYTES // max(1, (2 + ahead) * entries * dtype.itemsize * batch_size * self.n_seeds)
        self._block_steps = 1 << min(BLOCK, max(1, fits)).bit_length() - 1
        self._block: tuple[int, int] | None = None
        self._drawn: list[Batch]
        self._located: tuple[int, int] | None = None
        self._place: Place
        self._where: Where
        self._plain: list[Batch]

    def sample(self, step: int | None = None, size: int | None = None) -> Batch:
        """The batch of a step; without one, of the step after the last call without one.

        Args:
            step: The gradient step.
            size: Only the first so many transitions of it; None: all.

        Raises:
            DataError: a buffer has nothing yet that can be drawn.
        """
        step = self._step(None) if step is None else step
        if self.grows or size is not None:
            return self._moved(self._batch(self.numbers(step)[..., :size].contiguous()))
        block, at = divmod(step, self._block_steps)
        wanted = (block, self._gamma._version)  # a γ that was written in place since counts at once
        if wanted != self._block:
            self._block, self._drawn = wanted, self._draw_block(block * self._block_steps)
        return self._drawn[at]

    def along(self, steps: Tensor) -> list[Batch] | None:
        if self.grows or self.unique or self.columns_device != self.device:
            return None  # what there is changes, a permutation walks as far as values say, or columns lie elsewhere
        batch = self._batch(self._draw(steps) % self._size())
        return batch.unbind()

    @property
    def fixed(self) -> Hashable:
        return None if self._gather.returns is None else self._gamma._version  # a table of returns follows γ

    def at(self, numbers: Tensor) -> Batch:
        """The transitions of these numbers, [..., B] int64 from 0 to `n_windows` - 1, in the order of the source."""
        return self._moved(self._batch(numbers))

    def _draw_block(self, first: int) -> list[Batch]:
        """The batches of as many steps as their observations may take memory; all else is drawn for more steps at once.

        What is gathered on the host for an accelerator is copied there for all of these steps together.
        """
        chunk, at = divmod(first, BLOCK)
        wanted = (chunk, self._gamma._version)
        if wanted != self._located:
            steps = torch.arange(chunk * BLOCK, (chunk + 1) * BLOCK, device=self._key.device)
            place = self.windows.locate(self._draw(steps) % self._size(), before=self.frames > 1)
            self._gather.gamma = self._discount()
            plain = self._moved(self._gather.plain(place))
            self._place, self._where, self._plain = place, self._gather.where(place), plain.unbind()
            self._located = wanted
        part = slice(at, at + self._block_steps)
        where = {name: (rows[part], None if more is None else more[part]) for name, (rows, more) in self._where.items()}
        here, there = (unbound(seen, self._block_steps) for seen in self._moved(self._gather.seen(where)))
        batches = [plain.with_observations(*pair) for *pair, plain in zip(here, there, self._plain[part], strict=True)]
        if not self._gather.ahead:
            return batches
        before = None if self._place.before is None else self._place.before[part]
        place = Place(self._place.index[part], self._place.rows[part], self._place.left[part], before)
        more = self._moved(self._gather.following(place))
        return [batch.with_extra(**{name: column[k] for name, column in more.items()}) for k, batch in enumerate(batches)]

    def numbers(self, step: int) -> Tensor:
        if self.unique and self.grows:  # what is drawn depends on how much there is, so blocks would be stale
            return self._draw(torch.tensor([step]))[0]
        return super().numbers(step)

    def _draw(self, steps: Tensor) -> Tensor:
        if not self.unique:
            return super()._draw(steps)
        if (n := self._size()) < self.batch_size:
            raise ConfigError(f"A batch of {self.batch_size} different transitions needs as many; {n} can be drawn.")
        return permute(self._keys(steps)[..., None], torch.arange(self.batch_size, device=self._key.device), n)

    def _batch(self, numbers: Tensor) -> Batch:
        return self._gathered(self.windows.locate(numbers, before=self.frames > 1))

    def _gathered(self, place: Place, weight: Tensor | None = None) -> Batch:
        """The batch of transitions that lie at `place`, scaled, where the columns are."""
        self._gather.gamma = self._discount()
        return self._gather(place, weight)
