"""The estimator that users hold: every algorithm with what can be done with it.

An algorithm's file declares what `definition.Definition` asks for; all else is here and in the modules that this hands on to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..data.errors import ConfigError
from .definition import Definition
from .fit import Fit

if TYPE_CHECKING:
    from ..data.batch import Batch
    from ..data.dataset import Dataset
    from ..data.spec import Spec
    from .policy import Policy

Evaluator = Callable[["Algorithm", int], Mapping[str, float]]  # (algorithm, epoch) to named numbers
Callback = Callable[["Algorithm", int, Mapping[str, float]], None]  # (algorithm, epoch, metrics)


class Epoch(NamedTuple):
    """One epoch of training: its number, from 1, and its metrics by name."""

    epoch: int
    metrics: dict[str, float]


class Algorithm(Definition):
    """Base of every algorithm; its arguments are `Definition`'s.

    Attributes:
        config_: The checked settings, once fitted.
        spec_: The spaces of the data it was fitted on.
        fit_: Learner, scalers and step count.
    """

    fit_: Fit

    @property
    def config_(self) -> Any:
        """The checked settings of the fit."""
        return self._fitted.config

    @property
    def spec_(self) -> Spec:
        """The spaces of the data."""
        return self._fitted.spec

    @property
    def step(self) -> int:
        """Gradient steps done."""
        return self.fit_.learner.step if hasattr(self, "fit_") else 0

    @property
    def _fitted(self) -> Fit:
        if not hasattr(self, "fit_"):
            raise ConfigError(f"This {self.name} has not been trained yet: call fit, or load a saved one.")
        return self.fit_

    # ---- training

    def fit(
        self,
        dataset: Dataset,
        n_steps: int = 500_000,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Trains for `n_steps` gradient steps more; a second call goes on from the first. Arguments as `fitter`'s."""
        for _ in self.fitter(dataset, n_steps, n_steps_per_epoch, evaluators, callbacks):
            pass
        return self

    def fitter(
        self,
        dataset: Dataset,
        n_steps: int = 500_000,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Iterator[Epoch]:
        """The one training loop, an epoch at a time.

        Args:
            dataset: Where transitions come from.
            n_steps: Gradient steps to do.
            n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples.
            evaluators: By name; each is called after an epoch with (algorithm, epoch) and gives named numbers. One that is called
                `evaluation` and gives `return` makes the metric `evaluation/return`.
            callbacks: Called after an epoch with (algorithm, epoch, metrics).

        Yields:
            Epoch: number and metrics: `step`, `train/…` means over the epoch, `time/updates_per_second`, and the evaluators'.

        Raises:
            ConfigError: a setting cannot be used.
            DataError: the data are of the wrong kind for this algorithm.
        """
        if not hasattr(self, "fit_"):
            self.fit_ = Fit.start(self, dataset, (self.seed,))
        for epoch, (metrics,) in self.fit_.epochs(dataset, n_steps, n_steps_per_epoch):
            yield self.finish_epoch(epoch, metrics, evaluators, callbacks)

    def finish_epoch(
        self, epoch: int, metrics: dict[str, float], evaluators: Mapping[str, Evaluator] | None, callbacks: Sequence[Callback]
    ) -> Epoch:
        """What follows an epoch's updates, offline and online: evaluators add their metrics, callbacks see them all."""
        for name, evaluator in (evaluators or {}).items():
            metrics |= {f"{name}/{key}": float(value) for key, value in evaluator(self, epoch).items()}
        for callback in callbacks:
            callback(self, epoch, metrics)
        return Epoch(epoch, metrics)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step on a batch; the losses and metrics of that step by name."""
        learner = self._fitted.learner
        learner.update(batch)
        return learner.read_metrics()[0]

    def fit_online(self, env: Any, **arguments: Any) -> Self:
        """Trains while acting in an environment; arguments as `d3ray.algos.online.fit_online`'s."""
        from .online import fit_online

        fit_online(self, env, **arguments)
        return self

    def collect(self, env: Any, **arguments: Any) -> Dataset:
        """A dataset of this policy acting; arguments as `d3ray.algos.environments.collect.collect`'s."""
        from .environments.collect import collect

        return collect(env, self.policy() if hasattr(self, "fit_") else None, **arguments)

    # ---- acting

    def policy(self) -> Policy:
        """The greedy policy: raw observations in, raw actions out."""
        return self._fitted.policy()

    def policy_module(self) -> nn.Module:
        """The greedy policy as a module: raw observations [B, ...] to raw actions [B, A] or [B], scalers inside."""
        return self._fitted.policy_module()

    def predict(self, x: Any) -> np.ndarray:
        """Greedy actions at raw observations [B, ...]: floats [B, A] in the environment's units, or int64 [B]."""
        return self.policy().predict(x)

    def sample_action(self, x: Any) -> np.ndarray:
        """A draw from the policy at raw observations; a deterministic policy's draw is `predict`."""
        return self.predict(x)

    def predict_value(self, x: Any, action: Any) -> np.ndarray:
        """Q(s, a) at raw observations [B, ...] and raw actions, [B], in the units of scaled rewards.

        Raises ConfigError where an algorithm learns no values.
        """
        fit = self._fitted
        with torch.no_grad():
            values = self.value(fit.nets(), fit.scale_observation(x), fit.scale_action(action))
        return values.cpu().numpy()

    # ---- keeping

    def save(self, path: str | Path) -> None:
        """Writes everything that training goes on from: a folder that `d3ray.load` opens."""
        from .saving import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Self:
        """What `save` wrote. Raises StorageError when it is not whole, ConfigError when it is another algorithm's."""
        from .saving import load

        algorithm = load(path, device)
        if not isinstance(algorithm, cls):
            raise ConfigError(f"{path} holds a {algorithm.name}, not a {cls.__name__}.")
        return algorithm

    def save_policy(self, path: str | Path) -> None:
        """The greedy policy for use without d3ray; the ending chooses.

        `.onnx`, `.pt` (TorchScript) and `.pt2` (torch.export) are one file each; without an ending, a policy package.
        """
        from .export import save_policy

        save_policy(self, path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that training goes on from, bit for bit: tensors, and JSON."""
        return self._fitted.state()

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """Goes on from what `state` gave."""
        self.fit_ = Fit.restore(self, tensors, meta)
        return self
