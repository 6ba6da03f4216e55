"""d3rlpy's `dynamics` of its first versions: MOPO is the model there, which an algorithm is given: `CQL(dynamics=mopo)`."""

from __future__ import annotations

from typing import Any, Self

from d3ray.algos.definition import RUN
from d3ray.algos.dynamics.settings import ModelRollouts
from d3ray.algos.model_based.probabilistic_ensemble import ProbabilisticEnsemble
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.optimizers import Adam
from d3ray.data.errors import ConfigError, did_you_mean

from .constants import drawn_seed
from .learnable import Learnable

_ROLLOUTS = {"n_transitions": 400, "horizon": 5, "lam": 1.0}
_OURS = {"n_ensembles": "n_members", "scaler": "observation_scaler"}
_OPTIMIZER = {"eps": "epsilon", "weight_decay": "weight_decay"}
_UNSAID = ("n_frames", "discrete_action", "impl", "augmentation", "use_batch_norm")


class _InTheirWords(type):
    """Makes a model from the keyword arguments of d3rlpy's MOPO."""

    def __call__(cls, **given: Any) -> Any:
        run = {name: given.pop(name) for name in (*RUN, "use_gpu") if name in given}
        fields = ProbabilisticEnsemble.Config.model_fields
        known = (*_ROLLOUTS, *_OURS, *_OPTIMIZER, *_UNSAID, *fields)
        if wrong := [name for name in given if name not in known]:
            raise ConfigError(f"MOPO has no argument {wrong[0]!r}{did_you_mean(wrong[0], known)}")
        settings = dict(ProbabilisticEnsemble.presets["d3rlpy-2020"].settings)
        settings |= {_OURS.get(name, name): value for name, value in given.items() if name in _OURS or name in fields}
        settings["n_elites"] = given.get("n_elites", settings["n_members"])
        optimizer: dict[str, Any] = {word: given[name] for name, word in _OPTIMIZER.items() if name in given}
        settings["optimizer"] = (
            Adam.checked({"weight_decay": 1e-4, **optimizer}) if "optimizer" not in given else given["optimizer"]
        )
        if given.get("use_batch_norm"):
            settings["encoder"] = VectorEncoder(normalization="batch")
        run.setdefault("seed", drawn_seed())
        made = super().__call__(**settings, **run)
        made.__dict__.update({name: given.get(name, default) for name, default in _ROLLOUTS.items()})
        return made


class MOPO(Learnable, ProbabilisticEnsemble, metaclass=_InTheirWords):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A `ProbabilisticEnsemble` with the arguments and defaults of d3rlpy's MOPO, which may change at any time.

    Attributes:
        n_transitions: Rollouts that begin in a round.
        horizon: Steps of each.
        lam: λ: rewards are r - λ u.
    """

    n_transitions: int = _ROLLOUTS["n_transitions"]  # pyright: ignore
    horizon: int = _ROLLOUTS["horizon"]  # pyright: ignore
    lam: float = _ROLLOUTS["lam"]

    @property
    def name(self) -> str:
        """What it is saved as."""
        return ProbabilisticEnsemble.__name__

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every argument and its value."""
        return {**super().get_params(deep), **{name: getattr(self, name) for name in _ROLLOUTS}}

    def set_params(self, **params: Any) -> Self:
        """Sets arguments; once there are networks, how it generates and coefficients alone."""
        vars(self).update({name: params.pop(name) for name in _ROLLOUTS if name in params})
        return super().set_params(**params) if params else self

    @classmethod
    def _class_called(cls, name: str) -> type[Self]:
        return cls if name == ProbabilisticEnsemble.__name__ else super()._class_called(name)

    @property
    def rollouts(self) -> ModelRollouts:
        """How it generates for an algorithm that it is given to."""
        return ModelRollouts(**{name: getattr(self, name) for name in _ROLLOUTS})

    def generate(self, algorithm: Any, transitions: Any, **arguments: Any) -> Any:  # pyright: ignore
        """As `ProbabilisticEnsemble.generate`, by the present attributes."""
        return super().generate(algorithm, transitions, **{name: getattr(self, name) for name in _ROLLOUTS} | arguments)
