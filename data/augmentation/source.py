"""A source whose batches are augmented: what training reads from, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..masks import Masked
from ..random import fold, root_keys
from .pipeline import AugmentationPipeline, layouts

if TYPE_CHECKING:
    from ..batch import Batch, Source
    from ..spec import ObservationSpace


class AugmentedSource:
    """Batches of another source with their observations augmented; a function of the batch, the seed and the step.

    With `copies` = n a batch of B becomes one of n · B, copy after copy, each augmented for itself. The mean of a loss of
    one value a sample over n · B is the mean over the copies of its means over B: DrQ's average, in one pass. What a
    loss takes over a whole batch, as TD3+BC's λ or batch normalisation, is taken over all copies.

    `observation` and `next_observation` draw for themselves, as in DrQ.

    Args:
        source: Where batches come from.
        pipeline: What is done to them.
        seed: One, or S of them for batches [S, B, ...].
        space: Of the observations.
        copies: n.
        scaled: Columns that an observation scaler acts on.
        following: Whether next observations are augmented too; False where no loss looks at them.
        device: Where batches lie.
    """

    def __init__(
        self,
        source: Source,
        pipeline: AugmentationPipeline,
        seed: int | Sequence[int],
        space: ObservationSpace,
        *,
        copies: int = 1,
        scaled: frozenset[str] = frozenset(),
        following: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.source, self.pipeline, self.copies, self.following = source, pipeline, copies, following
        self._layouts = layouts(space, scaled)
        keys = root_keys(seed, device)
        self._key = fold(keys, "augmentation")

    def sample(self, step: int) -> Batch:
        return self._of(self.source.sample(step), fold(self._key, step))

    def along(self, steps: Tensor) -> list[Batch] | None:
        """Return the batches of gradient steps [K] as a program of tensors, where the source can."""
        batches = getattr(self.source, "along", lambda _: None)(steps)
        return batches and [self._of(batch, fold(self._key, steps[k])) for k, batch in enumerate(batches)]

    @property
    def fixed(self) -> Hashable:
        return getattr(self.source, "fixed", None)

    def _of(self, batch: Batch, key: Tensor) -> Batch:
        if self.copies > 1:
            batch = pytree.tree_map(self._repeated, batch)
        observation, following = self._augmented(batch.observation, fold(key, "observation")), batch.next_observation
        if self.following:
            following = self._augmented(following, fold(key, "next_observation"))
        return replace(batch, observation=observation, next_observation=following)

    @property
    def update(self) -> Callable[[Tensor, Tensor], None] | None:
        """How a prioritised source is told errors (of copies their mean); None: it keeps no priorities."""
        tell = getattr(self.source, "update", None)
        if tell is None or self.copies == 1:
            return tell

        def tell_means(index: Tensor, errors: Tensor) -> None:
            drawn = index.shape[-1] // self.copies
            tell(index[..., :drawn], errors.unflatten(-1, (self.copies, drawn)).mean(-2))

        return tell_means

    def between_epochs(self, epoch: int) -> None:
        self.source.between_epochs(epoch)

    def _repeated(self, part: Tensor) -> Tensor:
        return torch.cat([part] * self.copies, self._key.ndim)

    def _augmented(self, observation: Any, key: Tensor) -> Any:
        if isinstance(observation, Masked):
            return Masked(self._augmented(observation.observation, key), observation.action_mask)
        if isinstance(observation, dict):
            return {name: self._one(f"observation/{name}", part, fold(key, name)) for name, part in observation.items()}
        return self._one("observation", observation, key)

    def _one(self, column: str, part: Tensor, key: Tensor) -> Tensor:
        layout = self._layouts.get(column)
        if layout is None:
            return part
        return self.pipeline.transform(part, key, channels=layout.channels, top=layout.top, wants=layout.wants)
