"""Where the batches of a fit come from: samplers over a dataset or a replay buffer, as the algorithm wants and the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.augmentation import AugmentationPipeline, AugmentedSource
from ...data.dataset import Dataset
from ...data.replay import ReplayBuffer
from ...data.sampling import PrioritizedSampler, SequenceSampler, Source, TransitionSampler, UniformSampling
from ...data.spec import Spec
from ..definition import Definition
from ..environments.spaces import check_spaces
from ..wants import Stretches, Transitions
from .setup import check_range, sampling, seen_spec


class Sources:
    """Makes the samplers of a fit, and keeps the one over its dataset.

    Args:
        algorithm: What learns.
        config: Its checked settings; scalers in it are fitted.
        spec: The spaces as networks see them.
        seeds: One for each row.
        gamma: γ, () or one a row [S]; written in place while training runs.
        dtype, device: Of the batches.

    Attributes:
        wants: What the algorithm learns from.
        data: Name and fingerprint of the dataset that was trained on last; empty before.
    """

    def __init__(
        self,
        algorithm: Definition,
        config: Any,
        spec: Spec,
        seeds: Sequence[int],
        *,
        gamma: Tensor,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.wants = algorithm.wants(config)
        self.data: dict[str, Any] = {}
        self._name, self._config, self._spec = algorithm.name, config, spec
        self._seeds: Any = tuple(seeds) if len(seeds) > 1 else seeds[0]
        self._common: dict[str, Any] = {
            "gamma": gamma,
            "observation_scaler": config.observation_scaler,
            "action_scaler": getattr(config, "action_scaler", None),
            "reward_scaler": config.reward_scaler,
            "bootstrap": self.wants.following,
            "extra": self.wants.extra,
            "device": device,
            "dtype": dtype,
        }
        self._kept: tuple[Dataset, TransitionSampler] | None = None
        self._priorities: dict[str, np.ndarray] = {}  # of a fit that was restored, until it has its sampler

    def of(self, dataset: Dataset) -> TransitionSampler:
        """The sampler over a dataset; kept while the dataset is the same.

        Raises:
            DataError: its spaces are others, or its actions leave [-1, 1].
        """
        if self._kept is None or self._kept[0] is not dataset:
            spec = seen_spec(self._config, dataset.spec)
            check_spaces(spec, self._spec, dataset.name, f"this {self._name}", fewer_actions="shown")
            check_range(self._name, getattr(self._config, "action_scaler", None), dataset)
            known = self.state() if dataset.fingerprint == self.data.get("fingerprint") else None
            sampler = self.over(dataset)
            if known and isinstance(sampler, PrioritizedSampler):  # the same data once more, whatever object holds them
                sampler.load_state(known)
            self._priorities, self._kept = {}, (dataset, sampler)
            self.data = {"name": dataset.name, "fingerprint": dataset.fingerprint}
        return self._kept[1]

    def over(self, source: Dataset | ReplayBuffer) -> TransitionSampler:
        """A new sampler over a dataset or a replay buffer."""
        return self._open(source, sampling(self._config), self.wants.size, self._seeds)

    def fixed(self, dataset: Dataset, size: int) -> Any:
        """Transitions, or stretches, of a dataset as losses see them, drawn uniformly: the same at every call, for every seed."""
        chosen = sampling(self._config)
        uniform = UniformSampling(frames=chosen.frames, frame_padding=chosen.frame_padding)
        return self._open(dataset, uniform, size, 0).sample(0)

    def _open(self, source: Dataset | ReplayBuffer, kind: Any, size: int, seeds: Any) -> Any:
        match self.wants:
            case Stretches(length=length, burn_in=burn_in, anchor=anchor):
                return SequenceSampler(source, size, burn_in + length, seeds, anchor=anchor, return_to_go=True, **self._common)
            case Transitions() as wants:
                return kind.build(
                    source,
                    size,
                    seeds,
                    td_steps=wants.td_steps,
                    next_action=wants.next_action,
                    until="action" if wants.next_action else "observation",
                    endless=wants.endless,
                    ahead=wants.ahead,
                    **self._common,
                )

    def augmented(self, source: Source) -> Source:
        """The source with the augmentation of the settings, which only training sees."""
        if not self._config.augmentation:
            return source
        scaler = self._config.observation_scaler
        return AugmentedSource(
            source,
            AugmentationPipeline(augmentations=self._config.augmentation),
            self._seeds,
            self._spec.observation,
            copies=self._config.n_augmentations,
            scaled=frozenset(scaler.affines(self._common["dtype"], self._common["device"]) if scaler else ()),
            following=self.wants.following,
            device=self._common["device"],
        )

    def state(self) -> dict[str, np.ndarray]:
        """Priorities, where there are any."""
        if self._kept is not None and isinstance(self._kept[1], PrioritizedSampler):
            return self._kept[1].state()
        return self._priorities

    def load_state(self, arrays: dict[str, np.ndarray], data: dict[str, Any]) -> None:
        """Goes on from what `state` gave, once there is the dataset `data` again."""
        self._priorities, self.data = arrays, data
