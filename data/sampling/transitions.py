"""Draws of transitions with n-step returns and frame stacks, for one seed or a stack: uniform, once an epoch, or by weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import BLOCK, Batch, unbound
from ..errors import ConfigError, DataError
from ..frames import Padding, frame_stacks
from ..random import bits, fold, permute, shift_right, uniform
from ..recording import Recording
from ..scalers import ActionScaler, ObservationScaler, RewardScaler
from ..storage.episode_table import best_episodes
from .base import Experience, FreeMemory, Sampler, free_memory, needed_columns
from .gather import Gather, Where, as_tensors
from .returns import INITIAL, MADE, RETURNS, WINDOW, ReturnsToGo
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
            the scaled rewards from here to the episode's end; it makes `until` "end". "window_action" is none either, but the
            actions of the window, beside which comes "window_mask": see `Gather`. "cost" is the discounted sum of the column over
            the window, and "initial" what a transition counts as the first of its episode: 0 for others, and 1 in the mean over
            all, so that the mean of what it weighs is that over first steps; of a buffer it is not to be had.
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
        columns_of = tuple(name for name in extra if name not in MADE)
        columns = needed_columns(source, columns_of)
        super().__init__(source, batch_size, seed, device, columns, free_memory)
        if td_steps < 1:
            raise ConfigError(f"td_steps is {td_steps}; it must be at least 1.")
        self.frames, self.unique = frames, unique
        self._looks_back = frames > 1 or INITIAL in extra
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
            window_actions=WINDOW in extra,
            initial=self._initial() if INITIAL in extra else None,
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

    def _initial(self) -> float:
        if self.grows:
            raise DataError(
                "A replay buffer has no share of first steps: its episodes go on. Use to_dataset() for the finished ones."
            )
        return self.windows.n / int(np.count_nonzero(self.windows.drawable))

    def sample(self, step: int | None = None, size: int | None = None) -> Batch:
        """Draw the batch of a step (None: of the step after the last call without one), or only its first `size` transitions."""
        step = self._step(None) if step is None else step
        if self.grows or size is not None:
            return self._moved(self._batch(self.numbers(step)[..., :size].contiguous()))
        block, at = divmod(step, self._block_steps)
        wanted = (block, self._gamma._version)  # a γ that was written in place since counts at once
        if wanted != self._block:
            self._block, self._drawn = wanted, self._draw_block(block * self._block_steps)
        return self._drawn[at]

    def along(self, steps: Tensor) -> list[Batch] | None:
        numbers = self.numbers_along(steps)
        return None if numbers is None else self._batch(numbers).unbind()

    def numbers_along(self, steps: Tensor) -> Tensor | None:
        """Draw the numbers of the transitions of gradient steps [K], as `along` gathers them; None where it gives none."""
        if self.grows or self.unique or self.columns_device != self.device:
            return None  # what there is changes, a permutation walks as far as values say, or columns lie elsewhere
        return self._draw(steps) % self._size()

    @property
    def fixed(self) -> Hashable:
        return None if self._gather.returns is None else self._gamma._version  # a table of returns follows γ

    def at(self, numbers: Tensor) -> Batch:
        """Gather the transitions of these numbers, [..., B] int64 from 0 to `n_windows` - 1, in the order of the source."""
        return self._moved(self._batch(numbers))

    def shown_at(self, numbers: Tensor, key: str) -> Tensor:
        """Gather what the transitions of these numbers show of a key of their observations, as `at` has it, and nothing else."""
        place = self.windows.locate(numbers, before=self.frames > 1)
        return self._moved(self._gather.shown(f"observation/{key}", place))

    def _draw_block(self, first: int) -> list[Batch]:
        """The batches of as many steps as their observations may take memory; all else is drawn for more steps at once.

        What is gathered on the host for an accelerator is copied there for all of these steps together.
        """
        chunk, at = divmod(first, BLOCK)
        wanted = (chunk, self._gamma._version)
        if wanted != self._located:
            steps = torch.arange(chunk * BLOCK, (chunk + 1) * BLOCK, device=self._key.device)
            place = self.windows.locate(self._draw(steps) % self._size(), before=self._looks_back)
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
        return self._gathered(self.windows.locate(numbers, before=self._looks_back))

    def _gathered(self, place: Place, weight: Tensor | None = None) -> Batch:
        self._gather.gamma = self._discount()
        return self._gather(place, weight)


class EpochSampler(TransitionSampler):
    """Transitions of a dataset without replacement.

    The transitions of epoch after epoch, each epoch in an order of its own, make one stream, and step k takes numbers
    k B … k B + B - 1 of it. So no transition is left out and all batches have B of them: the batch in which an epoch ends begins
    the next one. (That batch may hold a transition twice.)

    Args:
        dataset: Where from. A replay buffer, which changes while it is drawn from, has no epochs.
        batch_size: B.
        seed: One, or a sequence of S seeds; each has orders of its own.
        **options: As `TransitionSampler`'s.
    """

    def __init__(self, dataset: Recording, batch_size: int, seed: int | Sequence[int] = 0, **options: Any) -> None:
        super().__init__(dataset, batch_size, seed, **options)
        if self.grows:
            raise ConfigError("Epochs are those of a dataset: a replay buffer changes while it is drawn from.")

    def numbers_along(self, steps: Tensor) -> None:
        """Return None: how far an order's walk goes is read from values."""
        return

    def _draw(self, steps: Tensor) -> Tensor:
        n = self.n_windows
        place = steps[:, None] * self.batch_size + torch.arange(self.batch_size, device=steps.device)
        if self._key.ndim:
            place = place[:, None]
        return permute(fold(self._key[..., None], place // n), place % n, n)


class WeightedSampler(TransitionSampler):
    """Transitions of a dataset, with replacement, those of some episodes more often. What it keeps is O(episodes).

    Args:
        dataset: Where from; a replay buffer is not.
        batch_size: B.
        seed: One, or a sequence of S seeds.
        weights: [E], not negative: how often each transition of an episode is drawn, relative to those of others.
        by_episode: The weights are the episodes' own: each is drawn in proportion, whatever its length, and then one of its
            transitions.
        **options: As `TransitionSampler`'s.

    Raises:
        DataError: a weight is negative, NaN or infinite, there is not one an episode, or nothing with a weight can be drawn.
    """

    def __init__(
        self,
        dataset: Recording,
        batch_size: int,
        seed: int | Sequence[int] = 0,
        *,
        weights: Any,
        by_episode: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_size, seed, **options)
        if self.grows:
            raise ConfigError("Weights are those of a dataset's episodes: a replay buffer has none.")
        given = np.asarray(weights, np.float64)
        if given.shape != (dataset.n_episodes,):
            raise DataError(f"There are {dataset.n_episodes} episodes, and weights of shape {list(given.shape)}.")
        if not (np.isfinite(given) & (given >= 0)).all():
            k = int((~(np.isfinite(given) & (given >= 0))).argmax())
            raise DataError(f"The weight of episode {k} is {given[k]}; it must be a number that is not negative.")
        drawable = self.windows.drawable
        given = given / given.max(initial=1e-300)  # so that no sum overflows
        shares = np.where(drawable > 0, given if by_episode else given * drawable, 0.0)
        chosen = np.flatnonzero(shares)  # only those, so that rounding can reach no other
        if not len(chosen):
            raise DataError(f"No episode of {dataset.name!r} that has a weight has a transition that can be drawn.")
        starts = np.cumsum(drawable) - drawable
        self._ends, self._starts, self._lengths = (
            torch.from_numpy(part).to(self.columns_device) for part in (np.cumsum(shares[chosen]), starts[chosen], drawable[chosen])
        )

    def _draw(self, steps: Tensor) -> Tensor:
        keys = self._keys(steps)
        share = uniform(keys, (self.batch_size,), torch.float64) * self._ends[-1]
        episode = torch.searchsorted(self._ends, share, right=True).clamp(max=len(self._ends) - 1)
        within = shift_right(bits(fold(keys, "within"), self.batch_size), 1) % self._lengths[episode]
        return self._starts[episode] + within


def exponential_weights(returns: Any, temperature: float) -> np.ndarray:
    """Weigh episodes by their returns [E]: exp((R - max R) / temperature); a small temperature draws the best only."""
    if not temperature > 0:
        raise ConfigError(f"temperature is {temperature}; it must be positive.")
    values = np.asarray(returns, np.float64)
    return np.exp((values - values.max()) / temperature)


def top_weights(returns: Any, share: float, steps: Any | None = None) -> np.ndarray:
    """Weigh the best `share` of the episodes with 1 and the others with 0, by returns [E]; see `best_episodes`.

    With `steps` [E] it is a share of the transitions: a tenth makes imitation the "10 % BC" of Chen et al. 2021 (Decision
    Transformer, section 5).
    """
    if not 0 < share <= 1:
        raise ConfigError(f"The share of the best episodes is {share}; it must be above 0, and at most 1.")
    values = np.asarray(returns, np.float64)
    of = np.ones(len(values)) if steps is None else np.asarray(steps)
    weights = np.zeros(len(values))
    weights[best_episodes(values, of, share, "episodes" if steps is None else "transitions")] = 1.0
    return weights
