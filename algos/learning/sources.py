"""Where the batches of a fit come from: samplers over a dataset or a replay buffer, or what the algorithm opens itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...data.augmentation import AugmentationPipeline, AugmentedSource
from ...data.batch import Source
from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.sampling import PrioritizedSampler
from ...data.sampling_settings import RecurrentSampling, UniformSampling
from ...data.spec import Spec
from ..definition import Definition
from ..dynamics.generated import Generated, all_real, generated
from ..environments.spaces import check_spaces
from ..wants import Material, Opens, Stretches, Transitions, Wants
from .learner import Learner
from .resolution import check_resolution
from .setup import aimed, check_range, sampling, seen_spec


class Sources:
    """Makes the sources of a fit, and keeps the one that it is trained on.

    Args:
        algorithm: What learns.
        config: Its checked settings; scalers in it are fitted.
        spec: The spaces as networks see them.
        learner: Whose batches they are.

    Attributes:
        wants: What the algorithm learns from, with a share that is generated where its settings say so.
        data: Name and fingerprint of the dataset that was trained on last; empty before, and of what is no dataset.
    """

    def __init__(self, algorithm: Definition, config: Any, spec: Spec, learner: Learner) -> None:
        self.wants = generated(algorithm, config, algorithm.wants(config))
        self.data: dict[str, Any] = {}
        self._algorithm, self._name, self._config, self._spec, self._learner = algorithm, algorithm.name, config, spec, learner
        self._seeds: Any = learner.seeds if learner.stacked else learner.seeds[0]
        self._common: dict[str, Any] = {
            "gamma": learner.hyper.get("gamma", 1.0),
            "as_indices": True,
            "observation_scaler": config.observation_scaler,
            "action_scaler": getattr(config, "action_scaler", None),
            "reward_scaler": getattr(config, "reward_scaler", None),
            "device": learner.device,
            "dtype": learner.dtype,
        }
        self._kept: tuple[Any, Any] | None = None  # what is trained on, and the source over it
        self._waiting: Mapping[str, Tensor] = {}  # state of a fit that was restored, until it has its source

    def of(self, given: Any) -> Any:
        """The source over a dataset, or what else is opened; kept while that is the same.

        Raises:
            DataError: its spaces are others, or its actions leave [-1, 1].
        """
        given = aimed(self._algorithm, given)
        if self._kept is None or self._kept[0] is not given:
            data = self._checked(given) if isinstance(given, Dataset) else {}
            known = self.state() if data.get("fingerprint") == self.data.get("fingerprint") else {}
            source = self.over(given)
            if known:  # the same data once more, whatever object holds them
                _load(source, {name: tensor.to(self._learner.device) for name, tensor in known.items()})
            self._waiting, self._kept, self.data = {}, (given, source), data
        return self._kept[1]

    def _checked(self, dataset: Dataset) -> dict[str, Any]:
        spec = seen_spec(self._config, dataset.spec)
        check_spaces(spec, self._spec, dataset.name, f"this {self._name}", fewer_actions="shown")
        check_range(self._name, getattr(self._config, "action_scaler", None), dataset)
        check_resolution(self._algorithm, self._config, dataset)
        self._warn_of_padding(dataset)
        returns = dataset.statistics.return_
        return {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "n_transitions": dataset.n_transitions,
            "n_episodes": dataset.n_episodes,
            "environment": dataset.environment.id if dataset.environment else None,
            "return_mean": returns.mean,
            "return_std": returns.std,
        }

    def _warn_of_padding(self, dataset: Dataset) -> None:
        """Says where a stack is longer than an episode, all of whose observations are then partly padding."""
        chosen, seen = sampling(self._config), dataset.episodes.steps + 1
        if chosen.frames > 1 and (short := int((seen < chosen.frames).sum())):
            pads = "black images" if chosen.frame_padding == "zero" else "their first image"
            warnings.warn(
                f"{self._name}: stacks of {chosen.frames} frames are longer than {short} of the {len(seen)} episodes of "
                f"{dataset.name!r}, of which the shortest shows {int(seen.min())} images: {pads} stand for what is missing.",
                stacklevel=2,
            )

    @property
    def given(self) -> Any:
        """The dataset, replay buffer, or other thing that is trained on; None where there is none yet."""
        return self._kept and self._kept[0]

    @property
    def opened(self) -> Any:
        """The source that is trained on; None where there is none yet."""
        return self._kept and self._kept[1]

    def over(self, source: Any) -> Any:
        """A new source over a dataset, a replay buffer, or what else is opened."""
        return self._over(self.wants, source, lambda wants: self._open(wants, source))

    def _over(self, wants: Wants, source: Any, ordinary: Callable[[Transitions | Stretches], Any]) -> Any:
        return wants.open(Material(source, ordinary), self._learner) if isinstance(wants, Opens) else ordinary(wants)

    def fixed(self, dataset: Dataset, size: int) -> Any:
        """Transitions, or stretches, of a dataset as losses see them, drawn uniformly: the same at every call, for every seed.

        Raises ConfigError where losses see what no dataset has.
        """
        if isinstance(self.wants, Opens) and not self.wants.reads_data:
            raise ConfigError(f"{self._name} makes what it learns from, so its losses cannot be read on {dataset.name!r}.")
        dataset, chosen = aimed(self._algorithm, dataset), sampling(self._config)
        same = isinstance(chosen, RecurrentSampling)
        uniform = chosen if same else UniformSampling(frames=chosen.frames, frame_padding=chosen.frame_padding)
        wants = self.wants.transitions if isinstance(self.wants, Generated) else self.wants
        drawn = self._over(wants, dataset, lambda asked: self._open(replace(asked, size=size), dataset, uniform, 0)).sample(0)
        return drawn if wants is self.wants else all_real(drawn)

    def _open(self, wants: Transitions | Stretches, source: Any, kind: Any = None, seeds: Any = None) -> Any:
        kind, seeds = kind or sampling(self._config), self._seeds if seeds is None else seeds
        common = {**self._common, "bootstrap": wants.following, "extra": wants.extra}
        match wants:
            case Stretches(size=size, length=length, burn_in=burn_in, anchor=anchor):
                return kind.stretches(source, size, burn_in + length, seeds, anchor=anchor, return_to_go=True, **common)
            case Transitions():
                return kind.build(
                    source,
                    wants.size,
                    seeds,
                    td_steps=wants.td_steps,
                    next_action=wants.next_action,
                    until="action" if wants.next_action else "observation",
                    endless=wants.endless,
                    ahead=wants.ahead,
                    **common,
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
            following=getattr(self.wants, "following", True),
            device=self._common["device"],
        )

    def state(self) -> dict[str, Tensor]:
        """Priorities, where there are any, and what a source keeps that the algorithm opened itself."""
        return dict(self._waiting) if self._kept is None else _state(self._kept[1])

    def row_state(self, k: int) -> dict[str, Tensor]:
        """The k-th row's part of what `state` gives."""
        state = self.state()
        if not isinstance(self.wants, Opens):  # priorities have an axis of rows always
            return {name: tensor if name == "next" else tensor[k : k + 1] for name, tensor in state.items()}
        return {name: tensor[k] if self._learner.stacked else tensor for name, tensor in state.items()}

    def load_state(self, tensors: Mapping[str, Tensor], data: dict[str, Any]) -> None:
        """Goes on from what `state` gave, once there is the dataset `data` again."""
        self._waiting, self.data = tensors, data


def _state(source: Any) -> dict[str, Tensor]:
    if isinstance(source, PrioritizedSampler):
        return {name: torch.from_numpy(array) for name, array in source.state().items()}
    opened: Mapping[str, Tensor] = source.state() if hasattr(source, "state") else {}
    return {name: tensor.detach().cpu().clone() for name, tensor in opened.items()}


def _load(source: Any, tensors: Mapping[str, Tensor]) -> None:
    if isinstance(source, PrioritizedSampler):
        source.load_state({name: tensor.cpu().numpy() for name, tensor in tensors.items()})
    elif hasattr(source, "load_state"):
        source.load_state(tensors)
