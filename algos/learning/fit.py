"""A fit: S seeds of one algorithm set up on data, and the one training loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from ...data.augmentation import AugmentationPipeline, AugmentedSource
from ...data.errors import ConfigError, DataError, StorageError
from ...data.sampling import PrioritizedSampler, SequenceSampler, Source, TransitionSampler, UniformSampling, stacked_spec
from ...data.scalers import Affine
from ...data.spec import Box, Spec
from ..acting.context import ContextModule, ContextPolicy
from ..acting.policy import Policy, PolicyModule, left_bounds
from ..environments.spaces import check_spaces
from ..nets import Hyper, Nets
from .diagnostics import DivergenceWarning, divergence, snapshot
from .fitted import check_actions, check_range, fitted_config, met, sampling
from .learner import Learner

if TYPE_CHECKING:
    from ...data.batch import Batch
    from ...data.dataset import Dataset
    from ...data.replay import ReplayBuffer
    from ..definition import Definition

STATE_VERSION = 1


def pick_device(device: str | int | None) -> torch.device:
    """The device that `Definition` describes. Raises ConfigError for one that there is not."""
    try:
        if device is None or isinstance(device, bool):
            accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            if device is True and accelerator is None:
                raise ConfigError("There is no device True here: torch finds no accelerator.")
            return torch.device("cpu") if device is False else accelerator or torch.device("cpu")
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(f"There is no device {device!r} here: {str(error).splitlines()[0]}") from None


class Fit:
    """S seeds of an algorithm with their learner and fitted scalers.

    Attributes:
        config: The checked settings; scalers in it are fitted.
        spec: The spaces of the data.
        seeds: One for each row.
        learner: Parameters, optimisers, step count.
    """

    def __init__(
        self, algorithm: Definition, config: Any, spec: Spec, seeds: Sequence[int], rows: Sequence[Mapping[str, float]] | None
    ) -> None:
        self.algorithm, self.config, self.spec, self.seeds = algorithm, config, spec, tuple(seeds)
        self.dtype: torch.dtype = getattr(torch, algorithm.dtype)
        self.device = pick_device(algorithm.device)
        self.learner = Learner(
            algorithm,
            config,
            lambda: algorithm.networks(spec, config),
            self.seeds,
            rows=rows,
            device=self.device,
            dtype=self.dtype,
        )
        scaler, action_scaler = config.observation_scaler, getattr(config, "action_scaler", None)
        self.observation_affines: dict[str, Affine] = scaler.affines(self.dtype, self.device) if scaler else {}  # by column
        self.action_affine = action_scaler and action_scaler.affine(self.dtype, self.device)
        exact = action_scaler and action_scaler.affine(torch.float64)
        self._bounds = left_bounds(spec.action, exact, self.dtype, self.device)  # once: a policy is made at every prediction
        self.stopped = False  # whether a callback has asked to end the training
        self.after_update: Callable[[], None] | None = None  # what looks on step by step, while there is someone
        self._sampler: tuple[Any, TransitionSampler] | None = None
        self._priorities: dict[str, np.ndarray] | None = None  # of a restored fit, until it has its sampler
        self.met = False  # whether the settings have met data, as they do once
        self.told_of_warm_up = False  # whether it was said that a training ends too early, which is said once
        self.told_of_rates = False  # whether it was said that a learning rate is 0, which is said once
        self.data: dict[str, Any] = {}  # name and fingerprint of what it was trained on
        self.largest_reward: float | None = None  # max |r| of the data as losses see it
        self._warned: dict[int, str] = {}  # rows whose values diverge, and since when
        self._snapshot: list[dict[str, float]] = [{} for _ in self.seeds]
        self._row = 0  # of a stack the row that is looked at

    @classmethod
    def start(
        cls, algorithm: Definition, dataset: Dataset, seeds: Sequence[int], rows: Sequence[Mapping[str, float]] | None = None
    ) -> Self:
        """A fresh fit: checks the settings and the data, fits the scalers, builds the networks."""
        config = fitted_config(algorithm, dataset)
        fit = cls(algorithm, config, stacked_spec(dataset.spec, sampling(config).frames), seeds, rows)
        fit.met = True
        return fit

    @classmethod
    def start_online(cls, algorithm: Definition, spec: Spec, name: str, *, as_seen: bool = False) -> Self:
        """A fresh fit without data: actions are scaled by their space, all else by the numbers that the scalers were given.

        `as_seen`: observations of `spec` are what networks see, with their frames stacked already.
        """
        config = algorithm.check_settings()
        check_actions(algorithm, spec, name)
        stacked = spec if as_seen else stacked_spec(spec, sampling(config).frames)
        AugmentationPipeline(augmentations=config.augmentation).check_space(stacked.observation, name)
        if config.observation_scaler is not None:
            config = config.model_copy(update={"observation_scaler": config.observation_scaler.for_space(spec.observation, name)})
        action_scaler = getattr(config, "action_scaler", None)
        if action_scaler is not None and isinstance(spec.action, Box):
            config = config.model_copy(update={"action_scaler": action_scaler.fit_space(spec.action)})
        elif isinstance(spec.action, Box) and (bounds := spec.action.bounds()) is not None and np.abs(bounds).max() > 1 + 1e-3:
            reach = f"{np.abs(bounds).max():.3g}"
            raise DataError(
                f"{algorithm.name} acts in [-1, 1], and actions of {name!r} reach {reach}: set action_scaler='min_max'."
            )
        return cls(algorithm, config, stacked, (algorithm.seed,), None)

    # ---- training

    def sampler(self, dataset: Dataset) -> TransitionSampler:
        """Where batches of a dataset come from; kept while the dataset is the same. The first one meets the settings."""
        if self._sampler is None or self._sampler[0] is not dataset:
            spec = stacked_spec(dataset.spec, sampling(self.config).frames)
            check_spaces(spec, self.spec, dataset.name, f"this {self.algorithm.name}", fewer_actions="shown")
            check_range(self.algorithm.name, getattr(self.config, "action_scaler", None), dataset)
            if not self.met:  # the networks were there before any data were
                self.config, self.met = met(self.algorithm, self.config, dataset), True
            kept = self._sampler_state() if dataset.fingerprint == self.data.get("fingerprint") else None
            sampler = self.sampler_of(dataset)
            if kept and isinstance(sampler, PrioritizedSampler):  # the same data once more, whatever object holds them
                sampler.load_state(kept)
            self._priorities, self._sampler = None, (dataset, sampler)
            self.data = {"name": dataset.name, "fingerprint": dataset.fingerprint}
            rewards = dataset.statistics.reward
            self.largest_reward = float(np.abs(self.scale_reward(np.asarray([rewards.min, rewards.max]))).max())
        return self._sampler[1]

    def sampler_of(self, source: Dataset | ReplayBuffer) -> TransitionSampler:
        """A sampler over a dataset or a replay buffer, as the settings name it."""
        seeds = self.seeds if len(self.seeds) > 1 else self.seeds[0]  # pyright: ignore[reportGeneralTypeIssues]
        return self._sampler_over(source, sampling(self.config), self.config.batch_size, seeds)

    def fixed_batch(self, dataset: Dataset, size: int) -> Batch:
        """Transitions of a dataset as losses see them, drawn uniformly: the same at every call and for every seed."""
        kind = sampling(self.config)
        uniform = UniformSampling(frames=kind.frames, frame_padding=kind.frame_padding)
        return self._sampler_over(dataset, uniform, size, 0).sample(0)

    def _sampler_over(self, source: Dataset | ReplayBuffer, kind: Any, batch_size: int, seeds: Any) -> Any:
        common: dict[str, Any] = {
            "gamma": self.learner.hyper["gamma"],
            "observation_scaler": self.config.observation_scaler,
            "action_scaler": getattr(self.config, "action_scaler", None),
            "reward_scaler": self.config.reward_scaler,
            "bootstrap": self.algorithm.bootstraps,
            "extra": self.algorithm.extra_columns,
            "device": self.device,
            "dtype": self.dtype,
        }
        if self.algorithm.sequences:
            length, anchor = self.config.context, self.config.anchor
            return SequenceSampler(source, batch_size, length, seeds, anchor=anchor, return_to_go=True, **common)
        return kind.build(
            source,
            batch_size,
            seeds,
            td_steps=self.config.td_steps,
            next_action=self.algorithm.needs_next_action,
            until="action" if self.algorithm.needs_next_action else "observation",
            endless=getattr(self.config, "endless", False),
            ahead=getattr(self.config, "horizon", None) or 0,
            **common,
        )

    def augmented(self, source: Source) -> Source:
        """The source with the augmentation of the settings, which only training sees."""
        if not self.config.augmentation:
            return source
        return AugmentedSource(
            source,
            AugmentationPipeline(augmentations=self.config.augmentation),
            self.seeds if len(self.seeds) > 1 else self.seeds[0],  # pyright: ignore[reportGeneralTypeIssues]
            self.spec.observation,
            copies=self.config.n_augmentations,
            scaled=frozenset(self.observation_affines),
            following=self.algorithm.bootstraps,
            device=self.device,
        )

    def epochs(self, dataset: Dataset, n_steps: int, n_steps_per_epoch: int) -> Iterator[tuple[int, list[dict[str, float]]]]:
        """Trains `n_steps` more; yields after each epoch its number and one dictionary of metrics a seed."""
        if n_steps < 0 or n_steps_per_epoch < 1:
            raise ConfigError(
                f"n_steps is {n_steps} and n_steps_per_epoch {n_steps_per_epoch}; both count gradient steps and must be positive."
            )
        source = self.augmented(self.sampler(dataset))
        end = self.learner.step + n_steps
        while self.learner.step < end and not self.stopped:
            metrics = self.advance(source, min(end, (self.learner.step // n_steps_per_epoch + 1) * n_steps_per_epoch))
            epoch = -(-self.learner.step // n_steps_per_epoch)
            source.between_epochs(epoch)
            yield epoch, metrics

    def advance(self, source: Source, stop: int) -> list[dict[str, float]]:
        """Gradient steps until the learner's step is `stop`, or a callback stops them; the means over them."""
        learner, begin, first = self.learner, time.perf_counter(), self.learner.step
        while learner.step < stop and not self.stopped:
            self.update(source, watch=learner.step == stop - 1)
        speed = len(self.seeds) * (learner.step - first) / (time.perf_counter() - begin)
        return [{**row, "time/updates_per_second": speed} for row in self.metrics()]

    def update(self, source: Source, *, watch: bool = False) -> None:
        """One gradient step; a prioritised source is told the errors. With `watch` it is looked at for signs of trouble."""
        learner, batch = self.learner, source.sample(self.learner.step)
        learner.watching = watch
        learner.update(batch)
        learner.watching = False
        if watch:
            self._snapshot = self._snapshots(batch)
        tell: Any = getattr(source, "update", None)
        if tell is not None and not self.algorithm.warming_up(learner.step - 1):
            if learner.errors is None:
                raise ConfigError(
                    f"No loss of {self.algorithm.name} gives td_error, by which transitions would be drawn: use another sampler."
                )
            tell(batch.index, learner.errors)
        if self.after_update is not None:
            self.after_update()

    def _snapshots(self, batch: Batch) -> list[dict[str, float]]:
        """What each seed's policy and critics make of its batch, by its own coefficients."""
        found = list[dict[str, float]]()
        for k in range(len(self.seeds)):
            self._row = k
            found.append(snapshot(self.learner, batch, k))
        self._row = 0
        return found

    def metrics(self) -> list[dict[str, float]]:
        """Means since the last call by the names they are logged under, one dictionary a seed."""
        rows = [row | more for row, more in zip(self.learner.read_metrics(), self._snapshot, strict=True)]
        self._snapshot = [{} for _ in self.seeds]
        for k, row in enumerate(rows):
            self._look_for_divergence(k, row)
        return [{"step": float(self.learner.step), **_named(row)} for row in rows]

    @property
    def warned(self) -> dict[int, str]:
        """What is wrong with the values of seeds that diverge, and since which step."""
        return {self.seeds[k]: wrong for k, wrong in self._warned.items()}

    def _look_for_divergence(self, k: int, row: dict[str, float]) -> None:
        if self.largest_reward is None or k in self._warned:
            return
        if wrong := divergence(row, self.largest_reward, self.learner.values["gamma"][k]):
            self._warned[k] = f"step {self.learner.step}: {wrong}"
            warnings.warn(f"{self.algorithm.name}, seed {self.seeds[k]}, {self._warned[k]}.", DivergenceWarning, 3)

    def set_coefficients(self, values: Mapping[str, float]) -> None:
        """Writes coefficients in place, the same for every row: losses, acting and what is saved have them from here on."""
        for name, value in values.items():
            self.learner.set_hyper(name, [value] * len(self.seeds))
        self.config = self.config.model_copy(update=values)

    # ---- acting

    def nets(self) -> Nets:
        """The networks at rest. One seed only: `row` takes one out of a stack."""
        if len(self.seeds) > 1:
            raise ConfigError("A stack holds several policies: take one with .seed(k).")
        return Nets(self.learner.modules, {}, None, None, self.dtype)

    def coefficients(self) -> Hyper:
        """Settings of one seed that are floats, as they are now, as `h` for what acts: numbers, for any device and type.

        Those of `config` are what all rows of a stack began with.
        """
        return Hyper(cast("dict[str, Tensor]", {name: rows[self._row] for name, rows in self.learner.values.items()}))

    def policy_module(self) -> PolicyModule:
        """Raw observations to raw actions, scalers inside; of a policy that looks back, with its memory: see `ContextModule`."""
        self.nets()
        scalers = self.observation_affines | ({"action": self.action_affine} if self.action_affine else {})
        arguments = (self.algorithm, self.learner.modules, scalers, self.dtype, self._bounds)
        if not self.algorithm.sequences:
            return PolicyModule(*arguments)
        scale = self.config.reward_scaler.reward_transform().scale if self.config.reward_scaler else 1.0
        return ContextModule(*arguments, spec=self.spec, context=self.config.context, return_scale=scale)

    def policy(self) -> Policy:
        """The greedy policy over NumPy arrays."""
        module = self.policy_module()
        if isinstance(module, ContextModule):
            return ContextPolicy(module, self.device, self.config.target_returns or ())
        chosen = sampling(self.config)
        return Policy(module, self.spec, self.device, frames=chosen.frames, frame_padding=chosen.frame_padding)

    def scale_observation(self, x: Any) -> Any:
        """Raw observations, arrays or a dict of them, as the networks see them."""
        if isinstance(x, Mapping):
            return {key: self._scaled(f"observation/{key}", part) for key, part in x.items()}
        return self._scaled("observation", x)

    def _scaled(self, column: str, x: Any) -> Tensor:
        raw, affine = torch.as_tensor(np.asarray(x), device=self.device), self.observation_affines.get(column)
        return affine.transform(raw) if affine else raw.to(self.dtype)

    def scale_action(self, action: Any) -> Tensor:
        """Raw actions as the networks see them."""
        raw = torch.as_tensor(np.asarray(action), device=self.device)
        if self.spec.discrete:
            return raw.to(torch.int64)
        return self.action_affine.transform(raw) if self.action_affine else raw.to(self.dtype)

    def scale_reward(self, reward: np.ndarray) -> np.ndarray:
        """Raw rewards as losses see them."""
        scaler = self.config.reward_scaler
        return scaler.transform(reward).numpy() if scaler else reward

    # ---- state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that training goes on from, bit for bit."""
        meta = {
            "state_version": STATE_VERSION,
            "algorithm": self.algorithm.name,
            "config": self.config.model_dump(mode="json"),
            "spec": self.spec.model_dump(mode="json"),
            "seeds": list(self.seeds),
            "dtype": self.algorithm.dtype,
            "step": self.learner.step,
            "data": self.data,
        }
        return {
            **self.learner.state(),
            **{f"sampler/{name}": torch.from_numpy(a) for name, a in self._sampler_state().items()},
        }, meta

    def _sampler_state(self) -> dict[str, np.ndarray]:
        """Priorities, where there are any."""
        if self._sampler is not None and isinstance(self._sampler[1], PrioritizedSampler):
            return self._sampler[1].state()
        return self._priorities or {}

    @classmethod
    def restore(cls, algorithm: Definition, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """The fit that `state` described.

        Raises:
            ConfigError: it is of another algorithm.
            StorageError: it is of another version, or a tensor is missing or has another shape.
        """
        if meta["algorithm"] != algorithm.name:
            raise ConfigError(f"This state is of {meta['algorithm']}, not of {algorithm.name}.")
        if meta["state_version"] != STATE_VERSION:
            raise StorageError(f"The state has the version {meta['state_version']}; this d3ray reads {STATE_VERSION}.")
        config = algorithm.Config.checked(meta["config"], title=algorithm.name)
        algorithm.dtype = meta["dtype"]
        vars(algorithm).update(config.coefficients())  # they may have been changed on the way
        fit = cls(algorithm, config, Spec.checked(meta["spec"]), meta["seeds"], None)
        for name, tensor in fit.learner.state().items():  # what optimisers remember is not among them yet
            if (found := tensors.get(name)) is None or found.shape != tensor.shape:
                was = "lacks it" if found is None else f"has {tuple(found.shape)}"
                raise StorageError(f"{algorithm.name} has a tensor {name!r} of {tuple(tensor.shape)}, and the state {was}.")
        try:
            fit.learner.load_state(tensors, int(meta["step"]))
        except KeyError as error:
            raise StorageError(f"The state lacks {error} of an optimizer of {algorithm.name}.") from None
        kept = {n.removeprefix("sampler/"): t.cpu().numpy() for n, t in tensors.items() if n.startswith("sampler/")}
        fit._priorities, fit.data, fit.met = kept or None, dict(meta["data"]), bool(meta["data"])
        return fit

    def row(self, k: int, algorithm: Definition) -> Fit:
        """The k-th seed as a fit of its own, on tensors of its own."""
        fit = Fit(algorithm, self.config, self.spec, (self.seeds[k],), None)
        fit.learner.load_state(self.learner.row(self.learner.state(), k), self.learner.step)
        fit.config = self.config.model_copy(update={name: value for name, (value,) in fit.learner.values.items()})
        vars(algorithm).update(fit.config.coefficients())
        fit.data, fit.met = self.data, self.met
        if kept := self._sampler_state():
            fit._priorities = {name: array if name == "next" else array[k : k + 1] for name, array in kept.items()}
        return fit


def _named(row: dict[str, float]) -> dict[str, float]:
    return {f"train/{name}" if name != "first_bad_step" else name: value for name, value in row.items()}
