"""The estimator that users hold: every algorithm with what can be done with it.

An algorithm's file declares what `definition.Definition` asks for; all else is here and in the modules that this hands on to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn

from ..data.dataset import Dataset
from ..data.episodes import action_size, observation_shape
from ..data.errors import ConfigError
from ..data.mdp_dataset import MDPDataset
from ..data.spec import space_columns
from .acting.inputs import raw_actions, raw_inputs
from .acting.policy import module_input
from .definition import Definition
from .learning.batch_checks import check_batch
from .learning.building import build_with_dataset, build_with_env, build_with_shapes
from .learning.callbacks import Callback, Epoch, Evaluator, Logger, StepCallback, Watching, stops, watching
from .learning.fit import Fit
from .learning.transfer import copy_network, copy_optimizer, reset_optimizers

if TYPE_CHECKING:
    from ..data.batch import Drawn
    from ..data.episodes import Episode
    from ..data.replay import ReplayBuffer
    from ..data.spec import Spec
    from .acting.policy import Policy

__all__ = ["Algorithm", "Callback", "Epoch", "Evaluator"]


class Algorithm(Definition):
    """Base of every algorithm; its arguments are `Definition`'s.

    Attributes:
        config_: The checked settings, once fitted.
        spec_: The spaces of the data it was fitted on.
        fit_: Learner, scalers and step count.
        eval_results_: What evaluators gave, by metric, epoch after epoch; of this object, not of a saved one.
    """

    fit_: Fit
    eval_results_: dict[str, list[float]]

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
    def grad_step(self) -> int:
        """Gradient steps done; d3rlpy's name of `step`."""
        return self.step

    def set_grad_step(self, grad_step: int) -> None:
        """Counts on from another number of gradient steps; schedules and random numbers follow it.

        Raises ConfigError where it is no whole number, or below 0.
        """
        if not isinstance(grad_step, Integral) or grad_step < 0:
            raise ConfigError(f"grad_step is {grad_step!r}; it counts gradient steps.")
        self._fitted.learner.step = int(grad_step)

    @property
    def observation_shape(self) -> Any:
        """Shape of one observation; a dict of them where observations are named."""
        return observation_shape({name: leaf.shape for name, leaf in space_columns(self.spec_.observation).items()})

    @property
    def action_size(self) -> int:
        """Entries of an action, or how many discrete actions there are."""
        return action_size(self.spec_)

    @property
    def _fitted(self) -> Fit:
        if not hasattr(self, "fit_"):
            raise ConfigError(f"This {self.name} has not been trained yet: call fit, or load a saved one.")
        return self.fit_

    # ---- training

    def fit(
        self,
        dataset: Dataset | Sequence[Episode],
        n_steps: int = 500_000,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        **watching: Unpack[Watching],
    ) -> Self:
        """Trains for `n_steps` gradient steps more; a second call goes on from the first. Arguments as `fitter`'s."""
        for _ in self.fitter(dataset, n_steps, n_steps_per_epoch, evaluators, callbacks, **watching):
            pass
        return self

    def fitter(
        self,
        dataset: Dataset | Sequence[Episode],
        n_steps: int = 500_000,
        n_steps_per_epoch: int = 10_000,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        *,
        callback: StepCallback | None = None,
        epoch_callback: StepCallback | None = None,
        logger: Logger | Sequence[Logger] | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Epoch]:
        """The one training loop, an epoch at a time.

        Args:
            dataset: Where transitions come from; a list of episodes, as scikit-learn's splitters make, is copied into one.
            n_steps: Gradient steps to do.
            n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples.
            evaluators: By name; each is called after an epoch with (algorithm, epoch) and gives named numbers. One that is called
                `evaluation` and gives `return` makes the metric `evaluation/return`.
            callbacks: Called after an epoch with (algorithm, epoch, metrics). One that raises `callbacks.StopTraining` ends the
                training, once all that is due after the epoch is done.
            callback: Called after a gradient step with (algorithm, epoch, gradient steps done). One that raises `StopTraining`
                ends the epoch there, and the training.
            epoch_callback: Called after an epoch with the same three.
            logger: Keeps metrics, or several do; see `loggers.CSVLogger` and `loggers.TensorBoardLogger`.
            show_progress: Shows how far it is, how fast, and the losses, on stderr: a bar on a terminal, elsewhere a line now and
                then. None: only where a bar can be drawn.

        Yields:
            Epoch: number and metrics: `step`, `train/…` means over the epoch, `time/updates_per_second`, and the evaluators'.

        Raises:
            ConfigError: a setting cannot be used.
            DataError: the data are of the wrong kind for this algorithm.
            StorageError: a logger cannot write.
        """
        if not isinstance(dataset, Dataset):
            dataset = MDPDataset.from_episodes(dataset)
        if not hasattr(self, "fit_"):
            self.fit_ = Fit.start(self, dataset, (self.seed,))
        watch: Watching = {
            "callback": callback,
            "epoch_callback": epoch_callback,
            "logger": logger,
            "show_progress": show_progress,
        }
        with watching(self, [("", lambda: self)], callbacks, n_steps, n_steps_per_epoch, **watch) as (called,):
            for epoch, (metrics,) in self.fit_.epochs(dataset, n_steps, n_steps_per_epoch):
                yield self.finish_epoch(epoch, metrics, evaluators, called)

    def finish_epoch(
        self, epoch: int, metrics: dict[str, float], evaluators: Mapping[str, Evaluator] | None, callbacks: Sequence[Callback]
    ) -> Epoch:
        """What follows an epoch's updates, offline and online: evaluators add their metrics, callbacks see them all."""
        results = self.__dict__.setdefault("eval_results_", {})
        for name, evaluator in (evaluators or {}).items():
            found = {f"{name}/{key}": float(value) for key, value in evaluator(self, epoch).items()}
            metrics |= found
            for key, value in found.items():
                results.setdefault(key, []).append(value)
        for callback in callbacks:
            self.fit_.stopped |= stops(callback, self, epoch, metrics)
        return Epoch(epoch, metrics)

    def update(self, batch: Drawn) -> dict[str, float]:
        """One gradient step on a batch; the losses and metrics of that step by name.

        Raises DataError where the batch is empty, lacks something, has other shapes than what was fitted, or NaN.
        """
        check_batch(batch, self.spec_, self)
        learner = self._fitted.learner
        learner.update(batch)
        return learner.read_metrics()[0]

    def fit_online(self, env: Any, buffer: ReplayBuffer | None = None, explorer: Any = None, **arguments: Any) -> Self:
        """Trains while acting in an environment; arguments as `fitter_online`'s."""
        for _ in self.fitter_online(env, buffer, explorer, **arguments):
            pass
        return self

    def fitter_online(
        self, env: Any, buffer: ReplayBuffer | None = None, explorer: Any = None, **arguments: Any
    ) -> Iterator[Epoch]:
        """The same, an epoch at a time; arguments as `d3ray.algos.online.training.fitter_online`'s, which says them all."""
        from .online.training import fitter_online

        return fitter_online(self, env, buffer, explorer, **arguments)

    def collect(
        self,
        env: Any,
        buffer: ReplayBuffer | None = None,
        explorer: Any = None,
        deterministic: bool = False,
        n_steps: int | None = None,
        **arguments: Any,
    ) -> Dataset | ReplayBuffer:
        """What this policy does in an environment.

        Args:
            env: As for `d3ray.algos.environments.make.make`.
            buffer: Gets the transitions, and is returned; its unfinished episodes are ended. None: they become a dataset.
            explorer: As `fit_online`'s. None: a stochastic policy draws its actions, others take the greedy ones.
            deterministic: Whether a stochastic policy takes the greedy ones too.
            n_steps: Transitions; with a buffer each of n environments makes n_steps / n of them, rounded up.
            **arguments: `n_envs`, `seed`, `show_progress` (as `fitter`'s), and without a buffer `n_episodes` and `name`: see
                `d3ray.algos.environments.collect.collect`. With a buffer and no `seed`, it follows from the algorithm's, the
                gradient steps done and the rows that the buffer was ever given, so that a second call gives other experience;
                `record`, as `Rollout`'s, gives the buffer's extra columns.

        Returns:
            A dataset, or the buffer. Before training actions are uniform.
        """
        from .online.training import collect

        return collect(self, env, buffer, explorer, deterministic, n_steps, **arguments)

    # ---- setting up before training, and handing on

    def build_with_dataset(self, dataset: Dataset) -> Self:
        """Checks settings and data, fits the scalers and builds the networks, as `fit` does first."""
        build_with_dataset(self, dataset)
        return self

    def build_with_env(self, env: Any) -> Self:
        """The same for an environment: a gymnasium id, a config, a factory or an object, which is left open."""
        build_with_env(self, env)
        return self

    def create_impl(self, observation_shape: Any, action_size: int) -> Self:
        """The same for shapes alone; scalers need numbers then, as `observation_scaler=other.config_.observation_scaler` has.

        Args:
            observation_shape: Of one observation as networks see it, with its frames stacked (`observation_shape` of another
                algorithm); three axes are an image of uint8. A mapping or a sequence of shapes where observations have parts.
            action_size: Entries of an action, or how many discrete actions there are.
        """
        build_with_shapes(self, observation_shape, action_size)
        return self

    def copy_policy_from(self, other: Algorithm) -> None:
        """The policy network, and its target, become equal to another algorithm's.

        Raises ConfigError where one has none, or they are built otherwise; warns where scalers differ.
        """
        copy_network(self, other, "policy")

    def copy_q_function_from(self, other: Algorithm) -> None:
        """The critics, and their targets, become equal to another algorithm's; as `copy_policy_from`."""
        copy_network(self, other, "critic")

    def copy_policy_optim_from(self, other: Algorithm) -> None:
        """What the policy's optimiser remembers becomes equal to another algorithm's; the learning rate stays."""
        copy_optimizer(self, other, "policy")

    def copy_q_function_optim_from(self, other: Algorithm) -> None:
        """What the critics' optimiser remembers becomes equal to another algorithm's; the learning rate stays."""
        copy_optimizer(self, other, "critic")

    def reset_optimizer_states(self) -> None:
        """Every optimiser forgets what it remembers, as before fine-tuning; learning rates stay."""
        reset_optimizers(self._fitted.learner)

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
        """A draw from the policy at raw observations, another one at every call; a deterministic policy's is `predict`."""
        self._drawn = getattr(self, "_drawn", 0) + 1
        return self.policy().draw(x, step=self._drawn, seed=self.seed)

    @overload
    def predict_value(self, x: Any, action: Any, with_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict_value(self, x: Any, action: Any, with_std: bool) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...

    def predict_value(self, x: Any, action: Any, with_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Q(s, a) at raw observations [B, ...] and raw actions, [B], in the units of scaled rewards: the mean over critics.

        `with_std` adds their standard deviation, [B], a measure of what the data leave open: 0 for a critic alone, and more telling
        of larger ensembles with `bootstrap`.

        Raises ConfigError where an algorithm learns no values, DataError where a shape is wrong.
        """
        fit = self._fitted
        inputs = {name: torch.as_tensor(rows) for name, rows in raw_inputs(fit.spec.observation, x).items()}
        raw = raw_actions(fit.spec.action, action, len(next(iter(inputs.values()))))
        with torch.no_grad():
            values = self.values(
                fit.nets(), fit.scale_observation(module_input(fit.spec.observation, inputs)), fit.scale_action(raw)
            )
        mean = values.mean(0).cpu().numpy()
        return (mean, values.std(0, correction=0).cpu().numpy()) if with_std else mean

    # ---- keeping

    def save(self, path: str | Path) -> None:
        """Writes everything that training goes on from: a folder that `d3ray.load` opens."""
        from .saving.saving import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path, device: str | int | None = None) -> Self:
        """What `save` wrote. Raises StorageError when it is not whole, ConfigError when it is another algorithm's."""
        from .saving.saving import load

        return cls._checked(load(path, device), path)

    def save_model(self, path: str | Path) -> None:
        """d3rlpy's name of `save`."""
        self.save(path)

    def load_model(self, path: str | Path) -> None:
        """Goes on from what `save` wrote: this object has its networks, optimisers, step and settings then.

        Raises ConfigError where that is another algorithm's, or has other networks than this one has already; else as `load`.
        """
        from .saving.saving import load_into

        load_into(self, path)

    @classmethod
    def from_json(cls, path: str | Path, device: str | int | None = None) -> Self:
        """The algorithm of a `params.json`, as a `CSVLogger` leaves one: set up, with fresh networks.

        Raises StorageError where it is not what a fit writes, ConfigError when it is another algorithm's.
        """
        from .saving.saving import read_params

        return cls._checked(read_params(path, device), path)

    @classmethod
    def _checked(cls, algorithm: Algorithm, path: str | Path) -> Self:
        if not isinstance(algorithm, cls):
            raise ConfigError(f"{path} holds a {algorithm.name}, not a {cls.__name__}.")
        return algorithm

    def save_policy(self, path: str | Path) -> None:
        """The greedy policy for use without d3ray; the ending chooses.

        `.onnx`, `.pt` (TorchScript) and `.pt2` (torch.export) are one file each; without an ending, a policy package.
        """
        from .export.export import save_policy

        save_policy(self, path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that training goes on from, bit for bit: tensors, and JSON."""
        return self._fitted.state()

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """Goes on from what `state` gave."""
        self.fit_ = Fit.restore(self, tensors, meta)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and joblib: a fitted algorithm is its settings and its state; the data stay where they are."""
        return {**vars(self), "fit_": self.state()} if hasattr(self, "fit_") else dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name != "fit_"})
        if "fit_" in state:
            self.load_state(*state["fit_"])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator: no targets, and data of any form."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags(two_d_array=False))
