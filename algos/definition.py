"""What an algorithm is: a config, networks, a schedule, losses, and how it acts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor, nn

from ..data.errors import ConfigError, did_you_mean
from ..data.sampling import PrioritizedSampling
from ..data.seeds import checked_seed
from .config import AlgorithmConfig, Preset
from .optimizers import Adam, Optimizer

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..data.spec import Spec
    from .learning.fit import Fit
    from .nets import Nets


ADAM = Adam()


@dataclass(frozen=True)
class Group:
    """Parameters of a network that an optimiser of their own steps.

    Attributes:
        prefix: What their names begin with.
        rate: Learning rate.
        optimizer: What steps them.
    """

    prefix: str
    rate: float
    optimizer: Optimizer = ADAM


@dataclass(frozen=True)
class Network:
    """A network of one seed, as an algorithm declares it.

    Attributes:
        module: The network, freshly initialised.
        rate: Name of the setting that holds its learning rate.
        target: Whether it has a target network, which begins equal to it.
        optimizer: What steps it.
        groups: Parameters that have an optimiser of their own.
    """

    module: nn.Module
    rate: str
    target: bool = False
    optimizer: Optimizer = ADAM
    groups: tuple[Group, ...] = ()


class Definition:
    """What an algorithm's file writes, and its settings as scikit-learn wants them; `base.Algorithm` adds what users do with it.

    Args:
        **settings: Fields of `Config`. Stored untouched; checked when `fit` derives `config_`.
        seed: Root of every random number of this run, from 0 to 2**63 - 1.
        device: Where training runs: a name such as "cuda:0" or the number of an accelerator; None takes the first accelerator, else
            the CPU. As in d3rlpy False is the CPU and True the first accelerator, which is refused where there is none.
        dtype: "float32" or "float64".
    """

    Config: ClassVar[type[AlgorithmConfig]]
    presets: ClassVar[Mapping[str, Preset]] = {}
    actions: ClassVar[Literal["continuous", "discrete"]]
    bootstraps: ClassVar[bool] = True  # whether losses look at the next observation
    has_td_errors: ClassVar[bool] = True  # whether a loss gives `td_error`, by which transitions can be drawn
    sequences: ClassVar[bool] = False  # whether they read `Sequences` of `context` steps, and `act` a `Context` (`sequence.py`)
    needs_next_action: ClassVar[bool] = False
    extra_columns: ClassVar[tuple[str, ...]] = ()
    warm_up: ClassVar[str | None] = None  # the setting that counts first gradient steps in which the policy sees no critic
    exemptions: ClassVar[Mapping[str, str]] = {}  # settings without effect and checks of the contract not kept, and why

    seed: int
    device: str | int | None
    dtype: str

    @property
    def config_(self) -> Any:
        """The checked settings, once fitted."""
        raise NotImplementedError

    # ---- what an algorithm's file writes

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        """Modules of one seed, the setting that holds each one's learning rate, and which have a target."""
        raise NotImplementedError

    def schedule(self, step: int) -> tuple[str, ...]:
        """Kinds of update due at gradient step `step` (from 0), in order; each is a method of (learner, batch)."""
        raise NotImplementedError

    def warming_up(self, step: int) -> bool:
        """Whether at gradient step `step` (from 0) no critic is trained yet, so that there are no errors to draw transitions by."""
        return False

    def act(self, nets: Nets, observation: Any) -> Tensor:
        """The greedy action at scaled observations [B, ...]: scaled floats [B, A], or int64 [B]."""
        raise NotImplementedError

    def choice(self, nets: Nets, observation: Any) -> Tensor | None:
        """Of a policy that acts by the best of some actions the number of that one, int64 [B]; None: it acts otherwise.

        An export is compared with the policy where rounding cannot change it.
        """
        return None

    def sample(self, nets: Nets, observation: Any) -> Tensor:
        """An action drawn from the policy with numbers of `nets.noise`; what has no `sample` of its own is deterministic."""
        return self.act(nets, observation)

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Log density of scaled actions [B, A] at scaled observations, [B]."""
        raise ConfigError(f"The policy of {self.name} has no density of actions.")

    @property
    def stochastic(self) -> bool:
        """Whether the policy draws its actions; online it then explores by itself. A setting `policy_type` decides it."""
        return type(self).sample is not Definition.sample and getattr(self, "policy_type", "stochastic") == "stochastic"

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Q_i(s, a) of each critic i at scaled observations and actions, [members, B]."""
        raise ConfigError(f"{self.name} learns no values, so there is nothing to predict.")

    def value(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Q(s, a), the mean over critics, [B]."""
        return self.values(nets, observation, action).mean(0)

    @classmethod
    def learns_values(cls) -> bool:
        """Whether there is a Q(s, a) to predict."""
        return cls.values is not Definition.values

    def fitted(self, config: Any, dataset: Dataset) -> Any:
        """The checked settings, scalers fitted, with what else of them follows from the first data that they meet.

        Coefficients and what networks are made from stay as they are: networks may be there already.
        """
        return config

    # ---- settings, as scikit-learn asks

    def __init__(self, *, seed: int = 0, device: str | int | None = None, dtype: str = "float32", **settings: Any) -> None:
        if "n_steps" in settings:
            warnings.warn(
                "n_steps is the number of gradient steps here; the n-step return is td_steps, which is set.", stacklevel=2
            )
            settings["td_steps"] = settings.pop("n_steps")
        fields = self.Config.model_fields
        for name in settings:
            if name not in fields:
                raise ConfigError(f"{self.name} has no setting {name!r}{did_you_mean(name, fields)}")
        self.seed, self.device, self.dtype = checked_seed(seed), device, dtype
        for name, field in fields.items():
            setattr(self, name, settings.get(name, field.default))

    def __init_subclass__(cls) -> None:
        """The constructor's signature is made from the config, so a default stands in one place."""
        super().__init_subclass__()
        if "Config" not in cls.__dict__:
            return

        def __init__(self: Definition, **settings: Any) -> None:  # noqa: N807
            Definition.__init__(self, **settings)

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [
            inspect.Parameter(n, keyword, default=f.default, annotation=f.annotation) for n, f in cls.Config.model_fields.items()
        ]
        rest = [p for p in inspect.signature(Definition.__init__).parameters.values() if p.name in ("seed", "device", "dtype")]
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
        """Sets constructor arguments; once there are networks, coefficients (floats) alone, which act from the next step on.

        Raises:
            ConfigError: there is no such argument; or, once there are networks, it would change and is no coefficient, or a value
                is out of range. Nothing is set then.
        """
        known = self.get_params()
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

    def check_settings(self) -> AlgorithmConfig:
        """The config that the settings make. Raises ConfigError in one sentence."""
        if self.dtype not in ("float32", "float64"):
            raise ConfigError(f"{self.name}: dtype is {self.dtype!r}; choose 'float32' or 'float64'.")
        config = self.Config.checked({name: getattr(self, name) for name in self.Config.model_fields}, title=self.name)
        if isinstance(config.sampler, PrioritizedSampling) and not self.has_td_errors:
            raise ConfigError(
                f"{self.name} has no TD error for sampler 'prioritized' to draw by: choose uniform, epoch or weighted."
            )
        if config.mixed_precision and self.dtype != "float32":
            raise ConfigError(f"{self.name}: mixed_precision is of bfloat16 and float32, and dtype is {self.dtype!r}: choose one.")
        return config

    def __repr__(self) -> str:
        defaults = {name: field.default for name, field in self.Config.model_fields.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults.get(name) or name == "seed"}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
