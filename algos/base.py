"""What every algorithm is: a config, networks, a schedule and losses; and the estimator that users hold.

An algorithm's file declares the first four; everything else is here and in the modules that this one hands on to.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..data.config import Config, setting
from ..data.errors import ConfigError, did_you_mean
from ..data.scalers import ActionScaler, ObservationScaler
from .fit import Fit
from .learner import Network

if TYPE_CHECKING:
    from ..data.batch import Batch
    from ..data.dataset import Dataset
    from ..data.spec import Spec
    from .nets import Nets
    from .policy import Policy

Evaluator = Callable[["Algorithm", int], Mapping[str, float]]  # (algorithm, epoch) to named numbers
Callback = Callable[["Algorithm", int, Mapping[str, float]], None]  # (algorithm, epoch, metrics)


class Epoch(NamedTuple):
    """One epoch of training: its number, from 1, and its metrics by name."""

    epoch: int
    metrics: dict[str, float]


class AlgorithmConfig(Config):
    """Settings that every algorithm has. Floats are coefficients: tensors while training runs, one a seed."""

    batch_size: int = setting(256, "transitions in a gradient step", gt=0)
    gamma: float = setting(0.99, "γ: discount of one step", ge=0, le=1)
    td_steps: int = setting(1, "n of the n-step return", gt=0)
    observation_scaler: ObservationScaler | None = setting(None, "how observations are scaled: standard, min_max or pixel")


class ContinuousConfig(AlgorithmConfig):
    """Settings of algorithms with continuous actions."""

    action_scaler: ActionScaler | None = setting(None, "how actions are brought to [-1, 1]: min_max; None: they are there already")


@dataclass(frozen=True)
class Preset:
    """A named set of values, and the paper, table or file that they come from."""

    source: str
    settings: Mapping[str, Any]


class Algorithm:
    """Base of every algorithm.

    Args:
        **settings: Fields of `Config`. Stored untouched; checked when `fit` derives `config_`.
        seed: Root of every random number of this run.
        device: Where training runs; None takes the first accelerator, else the CPU.
        dtype: "float32" or "float64".

    Attributes:
        config_: The checked settings, once fitted.
        spec_: The spaces of the data it was fitted on.
        fit_: Learner, scalers and step count.
    """

    Config: ClassVar[type[AlgorithmConfig]]
    presets: ClassVar[Mapping[str, Preset]] = {}
    actions: ClassVar[Literal["continuous", "discrete"]]
    bootstraps: ClassVar[bool] = True  # whether losses look at the next observation
    needs_next_action: ClassVar[bool] = False
    extra_columns: ClassVar[tuple[str, ...]] = ()

    seed: int
    device: str | None
    dtype: str
    fit_: Fit

    # ---- what an algorithm's file writes

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        """Modules of one seed, the setting that holds each one's learning rate, and which have a target."""
        raise NotImplementedError

    def schedule(self, step: int) -> tuple[str, ...]:
        """Kinds of update due at gradient step `step` (from 0), in order; each is a method of (learner, batch)."""
        raise NotImplementedError

    def act(self, nets: Nets, observation: Any) -> Tensor:
        """The greedy action at scaled observations [B, ...]: scaled floats [B, A], or int64 [B]."""
        raise NotImplementedError

    def value(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Q(s, a) at scaled observations and actions, [B]."""
        raise ConfigError(f"{self.name} learns no values, so there is nothing to predict; FQE can value its policy.")

    # ---- settings, as scikit-learn asks

    def __init__(self, *, seed: int = 0, device: str | None = None, dtype: str = "float32", **settings: Any) -> None:
        if "n_steps" in settings:
            warnings.warn(
                "n_steps is the number of gradient steps here; the n-step return is td_steps, which is set.", stacklevel=2
            )
            settings["td_steps"] = settings.pop("n_steps")
        fields = self.Config.model_fields
        for name in settings:
            if name not in fields:
                raise ConfigError(f"{self.name} has no setting {name!r}{did_you_mean(name, fields)}")
        self.seed, self.device, self.dtype = seed, device, dtype
        for name, field in fields.items():
            setattr(self, name, settings.get(name, field.default))

    def __init_subclass__(cls) -> None:
        """The constructor's signature is made from the config, so a default stands in one place."""
        super().__init_subclass__()
        if "Config" not in cls.__dict__:
            return

        def __init__(self: Algorithm, **settings: Any) -> None:  # noqa: N807
            Algorithm.__init__(self, **settings)

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [
            inspect.Parameter(n, keyword, default=f.default, annotation=f.annotation) for n, f in cls.Config.model_fields.items()
        ]
        rest = [p for p in inspect.signature(Algorithm.__init__).parameters.values() if p.name in ("seed", "device", "dtype")]
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([first, *own, *rest])  # pyright: ignore[reportFunctionMemberAccess]
        cls.__init__ = __init__

    @property
    def name(self) -> str:
        """The registered name: the class's."""
        return type(self).__name__

    @classmethod
    def from_preset(cls, preset: str, **settings: Any) -> Self:
        """An algorithm with a preset's values, and `settings` above them. Raises ConfigError for an unknown preset."""
        if preset not in cls.presets:
            raise ConfigError(f"{cls.__name__} has no preset {preset!r}{did_you_mean(preset, cls.presets)}")
        return cls(**{**cls.presets[preset].settings, **settings})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every constructor argument and its value."""
        return {name: getattr(self, name) for name in (*self.Config.model_fields, "seed", "device", "dtype")}

    def set_params(self, **params: Any) -> Self:
        """Sets constructor arguments. Raises ConfigError for one that there is not."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ConfigError(f"{self.name} has no setting {name!r}{did_you_mean(name, known)}")
            setattr(self, name, value)
        return self

    def check_settings(self) -> AlgorithmConfig:
        """The config that the settings make. Raises ConfigError in one sentence."""
        if self.dtype not in ("float32", "float64"):
            raise ConfigError(f"{self.name}: dtype is {self.dtype!r}; choose 'float32' or 'float64'.")
        return self.Config.check({name: getattr(self, name) for name in self.Config.model_fields}, title=self.name)

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

    def __repr__(self) -> str:
        defaults = {name: field.default for name, field in self.Config.model_fields.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults.get(name) or name == "seed"}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

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
        """Q(s, a) at raw observations [B, ...] and raw actions, [B]. Raises ConfigError where an algorithm learns no values."""
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
