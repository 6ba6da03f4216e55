"""The estimator: an algorithm with its fit, trained offline, built, copied from, kept."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from torch import Tensor

from ...data.batch import Drawn
from ...data.config import in_present_words
from ...data.errors import ConfigError, did_you_mean
from ...data.seeds import checked_seed
from ...data.spec import Box, Dict, Discrete, ObservationSpace, Spec, Tuple, space_columns
from ..definition import Definition
from ..former import SCORING
from ..ports import Ports, noises
from ..recurrence import remembers
from ..wants import Wants
from .callbacks import (
    Callback,
    Epoch,
    Evaluator,
    Logger,
    StepCallback,
    Training,
    Watching,
    check_arguments,
    stops,
    watching,
    with_scorers,
)

if TYPE_CHECKING:
    from ...data.dataset import Dataset
    from ...data.episodes import Episode
    from .fit import Fit
    from .history import History

N_STEPS, N_STEPS_PER_EPOCH = 500_000, 10_000  # d3rlpy's, its paper's training and its fit's default


def steps_to_do(name: str, n_steps: int | None) -> int:
    """Gradient steps of a fit; where none are given, 500,000, which is said."""
    if n_steps is not None:
        return n_steps
    warnings.warn(
        f"{name}: n_steps is not given, so it trains for {N_STEPS:,} gradient steps, hours on a CPU; stop it with Ctrl-C.",
        stacklevel=4,
    )
    return N_STEPS


class Estimator(Definition):
    """An algorithm that trains on data; `base.Algorithm` adds acting, environments and files.

    Attributes:
        config_: The checked settings, once fitted.
        spec_: The spaces of the data it was fitted on.
        fit_: Learner, scalers, sources and step count.
        history_: The metrics of all epochs as a table, see `history.History`; a loaded algorithm begins a new one.
        eval_results_: What evaluators gave, by metric, epoch after epoch; of this object, not of a saved one.
    """

    fit_: Fit
    eval_results_: dict[str, list[float]]

    @property
    def config_(self) -> Any:
        return self.fitted.config

    @property
    def spec_(self) -> Spec:
        return self.fitted.spec

    @property
    def history_(self) -> History:
        from .history import History

        return History.of(self.fitted)

    @property
    def step(self) -> int:
        """Gradient steps done."""
        return self.fit_.learner.step if hasattr(self, "fit_") else 0

    @step.setter
    def step(self, step: int) -> None:
        """Counts on from another number of gradient steps; schedules and random numbers follow it.

        Raises ConfigError where it is no whole number, or below 0.
        """
        if not isinstance(step, Integral) or step < 0:
            raise ConfigError(f"step is {step!r}; it counts gradient steps.")
        self.fitted.learner.step = int(step)

    @property
    def observation_shape(self) -> Any:
        """Shape of one observation; a dict of them where observations are named."""
        from ...data.episodes import observation_shape

        return observation_shape({name: leaf.shape for name, leaf in space_columns(self.spec_.observation).items()})

    @property
    def action_size(self) -> int:
        """Entries of an action, or how many discrete actions there are."""
        from ...data.episodes import action_size

        return action_size(self.spec_)

    @property
    def wants_(self) -> Wants:
        """The declaration of what it learns from."""
        return self.fitted.sources.wants

    @property
    def ports_(self) -> Ports:
        """Inputs of its policy beside observations."""
        return self.fitted.ports

    @property
    def stochastic(self) -> bool:
        """True if the policy can draw its actions; online it then explores by itself."""
        return bool(noises(self.ports_, exploring=True))

    @property
    def fitted(self) -> Fit:
        if not hasattr(self, "fit_"):
            raise ConfigError(f"This {self.name} has not been trained yet: call fit, or load a saved one.")
        return self.fit_

    # ---- training

    def fit(
        self,
        dataset: Dataset | Sequence[Episode] | str | Path,
        n_steps: int | None = None,
        n_steps_per_epoch: int | None = None,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        **more: Unpack[Training],
    ) -> Self:
        """Trains for `n_steps` gradient steps more; a second call goes on from the first. Arguments and errors as `fitter`'s."""
        check_arguments("fit", more, (*signature(Estimator.fitter).parameters, *SCORING))
        for _ in self.fitter(dataset, n_steps, n_steps_per_epoch, evaluators, callbacks, **more):
            pass
        return self

    def fitter(
        self,
        dataset: Dataset | Sequence[Episode] | str | Path,
        n_steps: int | None = None,
        n_steps_per_epoch: int | None = None,
        evaluators: Mapping[str, Evaluator] | None = None,
        callbacks: Sequence[Callback] = (),
        *,
        callback: StepCallback | None = None,
        epoch_callback: StepCallback | None = None,
        logger: Logger | Sequence[Logger] | None = None,
        show_progress: bool | None = None,
        n_epochs: int | None = None,
        **former: Any,
    ) -> Iterator[Epoch]:
        """The one training loop, an epoch at a time.

        Args:
            dataset: Where transitions come from, or the path, URI or name that `Dataset.open` takes; a list of episodes, as
                scikit-learn's splitters make, is copied into one.
            n_steps: Gradient steps to do; None: 500,000, unless `n_epochs` says how many.
            n_steps_per_epoch: Gradient steps between two yields; epochs end at its multiples. None: 10,000, or with `n_epochs` as
                many as there are batches in the data.
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
            n_epochs: Epochs to do, in place of `n_steps`.
            **former: Arguments of former versions, see `former`.

        Yields:
            Epoch: number and metrics: `step`, `train/…` means over the epoch, `time/updates_per_second`, and the evaluators'.

        Raises:
            ConfigError: a setting cannot be used.
            DataError: the data are of the wrong kind for this algorithm.
            StorageError: a logger cannot write.
        """
        from .fit import Fit, check_steps
        from .setup import trained_on

        dataset = trained_on(self, dataset)
        n_steps, n_steps_per_epoch = self._steps(dataset, n_steps, n_steps_per_epoch, n_epochs)
        check_steps(n_steps, n_steps_per_epoch, least=0)
        evaluators = with_scorers(evaluators, dataset, former)
        if not hasattr(self, "fit_"):
            self.fit_ = Fit.start(self, dataset, (self.seed,))
        self.fit_.sampler(dataset)  # before anyone looks on: they ask what it is trained on
        watch: Watching = {
            "callback": callback,
            "epoch_callback": epoch_callback,
            "logger": logger,
            "show_progress": show_progress,
        }
        with watching(self, [("", lambda: self)], callbacks, n_steps, n_steps_per_epoch, **watch) as (called,):
            for epoch, (metrics,) in self.fit_.epochs(dataset, n_steps, n_steps_per_epoch):
                yield self.finish_epoch(epoch, metrics, evaluators, called)

    def _steps(self, dataset: Any, n_steps: int | None, n_steps_per_epoch: int | None, n_epochs: int | None) -> tuple[int, int]:
        if n_epochs is None:
            each = N_STEPS_PER_EPOCH if n_steps_per_epoch is None else n_steps_per_epoch
            return steps_to_do(self.name, n_steps), each
        if n_steps is not None:
            raise ConfigError(f"n_epochs is {n_epochs} and n_steps {n_steps}: say how long to train by one of them.")
        if n_steps_per_epoch is None:
            from ...data.dataset import Dataset

            if not isinstance(dataset, Dataset):
                raise ConfigError(f"n_epochs counts passes over a dataset, which {self.name} is not trained on: say n_steps.")
            n_steps_per_epoch = max(1, dataset.n_transitions // self.check_settings().batch_size)
        return n_epochs * n_steps_per_epoch, n_steps_per_epoch

    def finish_epoch(
        self, epoch: int, metrics: dict[str, float], evaluators: Mapping[str, Evaluator] | None, callbacks: Sequence[Callback]
    ) -> Epoch:
        """Finishes an epoch: evaluators add their metrics, the history keeps all, callbacks see them."""
        results = self.__dict__.setdefault("eval_results_", {})
        for name, evaluator in (evaluators or {}).items():
            found = {f"{name}/{key}": float(value) for key, value in evaluator(self, epoch).items()}
            metrics |= found
            for key, value in found.items():
                results.setdefault(key, []).append(value)
        self.fit_.measured[0].append({"epoch": epoch, **metrics})
        for callback in callbacks:
            self.fit_.stopped |= stops(callback, self, epoch, metrics)
        return Epoch(epoch, metrics)

    def update(self, batch: Drawn) -> dict[str, float]:
        """One gradient step on a batch; the losses and metrics of that step by name.

        Raises DataError where the batch is empty, lacks something, has other shapes than what was fitted, or NaN.
        """
        from .batch_checks import check_batch

        check_batch(batch, self.spec_, self.wants_, self.name, remembers=remembers(self.config_))
        learner = self.fitted.learner
        learner.update(batch)
        return learner.read_metrics()[0]

    # ---- setting up before training, and handing on

    def build_with_dataset(self, dataset: Dataset) -> Self:
        """Checks settings and data, fits the scalers and builds the networks, as `fit` does first."""
        from .fit import Fit

        self._warn_if_built()
        self.fit_ = Fit.start(self, dataset, (self.seed,))
        return self

    def build_with_shapes(self, observation_shape: Any, action_size: int) -> Self:
        """Builds the networks for shapes alone; scalers need numbers, as `observation_scaler=other.config_.observation_scaler` has.

        Args:
            observation_shape: Of one observation as networks see it, with its frames stacked (`observation_shape` of another
                algorithm); three axes are an image of uint8. A mapping or a sequence of shapes where observations have parts.
            action_size: Entries of an action, or how many discrete actions there are.
        """
        from .fit import Fit

        if not isinstance(observation_shape, Iterable) or isinstance(observation_shape, str):
            raise ConfigError(
                f"observation_shape is {observation_shape!r}; it is a shape, as (4,), or a mapping or sequence of shapes."
            )
        self._warn_if_built()
        action = Discrete(n=action_size) if "discrete" in self.action_kinds() else Box(shape=(action_size,))
        self.fit_ = Fit.start_online(self, Spec(observation=_space(observation_shape), action=action), "these shapes", as_seen=True)
        return self

    def _warn_if_built(self) -> None:
        if hasattr(self, "fit_"):
            warnings.warn(f"This {self.name} was set up already; its networks begin anew.", stacklevel=3)

    def copy_from(self, other: Estimator, network: Literal["policy", "critic"]) -> None:
        """The network, and its target, become equal to another algorithm's; `critic` is all critics.

        Raises ConfigError where one has none, or they are built otherwise; warns where scalers differ.
        """
        from .transfer import copy_network

        copy_network(self.fitted, other.fitted, network)

    def copy_optimizer_from(self, other: Estimator, network: Literal["policy", "critic"]) -> None:
        """Copies the state of a network's optimiser from another algorithm; the learning rate stays."""
        from .transfer import copy_optimizer

        copy_optimizer(self.fitted, other.fitted, network)

    def reset_optimizers(self) -> None:
        from .transfer import reset_optimizers

        reset_optimizers(self.fitted.learner)

    # ---- settings, once there are networks

    def set_params(self, **params: Any) -> Self:
        """Sets constructor arguments; once there are networks, coefficients (floats) alone, which act from the next step on.

        Raises:
            ConfigError: there is no such argument; or, once there are networks, it would change and is no coefficient, or a value
                is out of range. Nothing is set then.
        """
        params, known = in_present_words(self.Config, params), self.get_params()
        for name in params:
            if name not in known:
                raise ConfigError(f"{self.name} has no setting {name!r}{did_you_mean(name, known)}")
        fit = vars(self).get("fit_")
        if fit is not None:
            fit.set_coefficients(self._coefficients_among(params, fit))
        for name, value in params.items():
            setattr(self, name, checked_seed(value) if name == "seed" else value)
        return self

    def _coefficients_among(self, params: Mapping[str, Any], fit: Fit) -> dict[str, float]:
        """Of new settings those that are coefficients, checked. Raises ConfigError where another one would change."""
        before, known = self.check_settings(), self.get_params()
        now = self.Config.checked({n: {**known, **params}[n] for n in self.Config.model_fields}, title=self.name)
        coefficients = {n: v for n, v in now.coefficients().items() if n in params and n in fit.learner.values}
        for name, value in params.items():
            new, old = (getattr(now, name), getattr(before, name)) if name in self.Config.model_fields else (value, known[name])
            if name not in coefficients and new != old and new != getattr(fit.config, name, old):
                raise ConfigError(
                    f"This {self.name} is built, so its {name} cannot change: make a new algorithm, or set coefficients alone, "
                    f"which are {', '.join(fit.learner.values)}."
                )
        return coefficients

    # ---- keeping

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that training goes on from, bit for bit: tensors, and JSON."""
        return self.fitted.state()

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        """Goes on from what `state` gave."""
        from .fit import Fit

        self.fit_ = Fit.restore(self, tensors, meta)
        return self

    def unfitted(self) -> Self:
        """One with the same settings, and what else it was given, as networks of others."""
        fresh, known = type(self)(**self.get_params()), self.get_params()
        given = {name: value for name, value in vars(self).items() if name not in known and name.strip("_") == name}
        vars(fresh).update(given)
        return fresh

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and joblib: a fitted algorithm is its settings and its state; the data stay where they are."""
        if not hasattr(self, "fit_"):
            return dict(vars(self))
        return {**vars(self), "fit_": self.state(), "measured": self.fit_.measured}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name not in ("fit_", "measured")})
        if "fit_" in state:
            self.load_state(*state["fit_"])
            self.fit_.measured = [list(epochs) for epochs in state["measured"]]

    def __sklearn_tags__(self) -> Any:
        """Tells scikit-learn that it takes no targets, and data of any form."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=InputTags(two_d_array=False))


def _space(shape: Any) -> ObservationSpace:
    if isinstance(shape, Mapping):
        return Dict(spaces={key: _space(part) for key, part in cast("Mapping[str, Any]", shape).items()})
    if any(isinstance(part, Sequence | Mapping) for part in shape):
        return Tuple(spaces=tuple(map(_space, shape)))
    return Box(shape=tuple(shape), dtype="uint8" if len(shape) == 3 else "float32")
