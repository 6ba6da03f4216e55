"""The definition of an algorithm: a config, networks, a schedule, losses, and how it acts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from torch import Tensor, nn

from ..data.config import in_present_words
from ..data.errors import ConfigError, did_you_mean
from ..data.sampling_settings import PrioritizedSampling, StreamSampling
from ..data.seeds import checked_seed
from ..data.spec import Spec
from .config import Preset, TrainedConfig
from .devices import AnyDevice
from .former import in_present_arguments
from .nets import Axes as Axes
from .nets import Hyper as Hyper
from .nets import Loss as Loss
from .nets import LossValue as LossValue
from .nets import Nets as Nets
from .nets import Verbs as Verbs
from .nets import due as due
from .nets import loss as loss
from .nets import precomputed as precomputed
from .networks.q_functions import losses_as_written
from .optimizers import ADAM, Group, Optimizer
from .ports import Ports, Tensors
from .recurrence import check_recurrence
from .wants import Opens, Transitions, Wants

if TYPE_CHECKING:
    from ..data.dataset import Dataset

COMPILED_FROM = 100_000
"""Steps of a training that is done earlier when its gradient steps are compiled."""

RUN = ("seed", "device", "dtype", "compile_graph", "data_parallel")
"""Arguments of an algorithm beside its settings: they belong to a run."""


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

    def parts(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Names of parameters by the prefix of the group that steps them; "" is of the rest, or of all."""
        found: dict[str, list[str]] = {"": []} | {group.prefix: [] for group in self.groups}
        for name in names:
            found[next((group.prefix for group in self.groups if name.startswith(group.prefix)), "")].append(name)
        return found


def transitions(config: TrainedConfig, **more: Any) -> Transitions:
    """Single transitions as the settings say; `more` as `Transitions`'."""
    members = getattr(config, "n_critics", 0) if getattr(config, "bootstrap", False) else 0
    return Transitions(config.batch_size, getattr(config, "td_steps", 1), members=members, **more)


class _Unwritten:
    """An attribute that the class of an algorithm has to write: read where it has none, it says so."""

    def __init__(self, example: str) -> None:
        self._example = example

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, algorithm: Any, owner: type[Any]) -> Any:
        raise AttributeError(
            f"{owner.__name__} has no {self._name!r}: write `{self._name}: ClassVar = {self._example}` in the class."
        )


class Definition:
    """The methods that an algorithm's page writes, and settings as scikit-learn wants them; `base.Algorithm` is for users.

    Args:
        **settings: Fields of `Config`. Stored untouched; checked when `fit` derives `config_`.
        seed: Root of every random number of this run, from 0 to 2**63 - 1.
        device: Where training runs: a name such as "cuda:0" or the number of an accelerator; None takes the first accelerator, else
            the CPU. As in d3rlpy False is the CPU and True the first accelerator, which is refused where there is none. A `Device`
            is one by its number too, and copies spread over several within `d3ray.context.parallel()`.
        dtype: "float32" or "float64".
        compile_graph: Whether gradient steps are compiled for this machine at the first one, which takes some tens of seconds and
            makes the others faster; d3rlpy's word. None: where that pays, in a training of 100,000 steps and more. It changes
            results by rounding only.
        data_parallel: Whether the processes of torch.distributed's group train one model together, each on its shard of every
            batch. It changes results by rounding only.
    """

    Config: ClassVar[type[TrainedConfig]] = cast("Any", _Unwritten("MyConfig"))
    presets: ClassVar[Mapping[str, Preset]] = {}
    actions: ClassVar[Literal["continuous", "discrete"] | tuple[Literal["continuous", "discrete"], ...]] = cast(
        "Any", _Unwritten('"continuous"` or `"discrete"')
    )
    has_td_errors: ClassVar[bool] = True  # whether a loss gives `td_error`, by which transitions can be drawn
    models_dynamics: ClassVar[bool] = False  # whether it is a model of the dynamics, which `model()` gives
    goal_conditioned: ClassVar[bool] = False  # whether observations have a goal, which data without one are given
    warm_up: ClassVar[str | None] = None  # the setting that counts first gradient steps in which the policy sees no critic
    averages: ClassVar[tuple[str, ...]] = ()  # networks of which the target acts, a slow average of them
    holds: ClassVar[tuple[str, ...]] = ()  # networks that a kind of update may hold, see `Verbs.hold`
    recurrent: ClassVar[tuple[str, ...]] = ()  # networks that act, where encoders may be recurrent; empty: none may
    compiled_from: ClassVar[int | None] = COMPILED_FROM  # steps from which that pays on a CPU; None: never
    reads_values: ClassVar[str | None] = None  # why an update waits for the device, which no program of tensors can
    exemptions: ClassVar[Mapping[str, str]] = {}  # settings without effect and checks of the contract not kept, and why

    seed: int
    device: AnyDevice
    dtype: str
    compile_graph: bool | None
    data_parallel: bool

    @property
    def config_(self) -> Any:
        raise NotImplementedError

    # ---- what an algorithm's file writes

    def networks(self, spec: Spec, config: Any) -> dict[str, Network]:
        """Modules of one seed, the setting that holds each one's learning rate, and which have a target."""
        raise self.unwritten(
            "networks(spec, config)", "gives {'policy': Network(module, 'learning_rate')}, an entry for each network"
        )

    def guests(self, config: Any, row: int) -> Mapping[str, nn.Module]:
        """Networks of others that losses read as `nets.NAME`: a policy that is judged, a model that was learnt elsewhere.

        They are copied, with all that hangs on them, when training is set up; they are at rest, and keep their precision. Nothing
        trains, rates or saves them: who goes on from a saved state is asked for them again.

        Args:
            config: The checked settings, scalers fitted. Losses see scaled numbers.
            row: Of a stack the row that they are for, which may have others than the next one; 0 of a seed alone. They are of one
                structure in all rows: what rows differ in is in parameters and buffers.
        """
        return {}

    def schedule(self, step: int) -> tuple[str, ...]:
        """Kinds of update due at gradient step `step` (from 0), in order; each is a method of (verbs, batch)."""
        raise self.unwritten("schedule(step)", "gives the kinds of update that are due, as due(step, critic=1, actor=2)")

    def wants(self, config: Any) -> Wants:
        """Declares how batches are drawn, and what they carry."""
        return transitions(config)

    def ports(self, spec: Spec, config: Any) -> Ports:
        """Declares the inputs of `act` beside the observation, by name: memory, and random numbers."""
        return {}

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
        """The action at scaled observations [B, ...], and what the memory becomes; scaled floats [B, A], or int64 [B].

        `state` has the memory and `noise` the random numbers that its ports name, [B, *shape] each. It is greedy with the noise
        that is always drawn, and explores with all. Coefficients are `nets.h.NAME`.
        """
        raise ConfigError(f"{self.name} has no policy.")

    def acts_by(self, spec: Spec) -> Any:
        """The policy that acts for it, where it judges another's; None: its own, `act`.

        It takes raw observations: see `acting.policy.Policy`.
        """
        return None

    def log_prob(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Log density of scaled actions [B, A] at scaled observations, [B]."""
        raise ConfigError(f"The policy of {self.name} has no density of actions.")

    def values(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Q_i(s, a) of each critic i at scaled observations and actions, [members, B]."""
        raise ConfigError(f"{self.name} learns no values, so there is nothing to predict.")

    def value(self, nets: Nets, observation: Any, action: Tensor) -> Tensor:
        """Q(s, a), the mean over critics, [B]."""
        return self.values(nets, observation, action).mean(0)

    def unwritten(self, method: str, does: str) -> NotImplementedError:
        """What a method raises that the page has to write: `does` says what it would do."""
        return NotImplementedError(f"{self.name} has no method {method}, which {does}.")

    @classmethod
    def acts(cls) -> bool:
        """Tells whether there is a policy; an evaluation of another's has none."""
        return cls.act is not Definition.act

    @classmethod
    def learns_values(cls) -> bool:
        return cls.values is not Definition.values

    def completed(self, config: Any, dataset: Dataset) -> Any:
        """The checked settings, scalers fitted, with what else of them follows from the first data that they meet.

        Coefficients and what networks are made from stay as they are: networks may be there already.
        """
        return config

    def completed_online(self, config: Any, spec: Spec, environment: str) -> Any:
        """Completes the settings without data, by an environment's raw spaces and its id."""
        return config

    @classmethod
    def action_kinds(cls) -> tuple[str, ...]:
        return (cls.actions,) if isinstance(cls.actions, str) else cls.actions

    # ---- settings, as scikit-learn asks

    @classmethod
    def read_config(cls, written: Mapping[str, Any]) -> TrainedConfig:
        """The config that was written with what was trained, as it was meant then. Raises ConfigError as `Config.checked`."""
        config = cls.Config.checked(written, title=cls.__name__)
        return losses_as_written(config, written) if cls.actions == "discrete" else config

    def __init__(
        self,
        *,
        seed: int = 0,
        device: AnyDevice = None,
        dtype: str = "float32",
        compile_graph: bool | None = None,
        data_parallel: bool = False,
        **settings: Any,
    ) -> None:
        settings, fields = in_present_words(self.Config, settings), self.Config.model_fields
        for name in settings:
            if name not in fields:
                raise ConfigError(f"{self.name} has no setting {name!r}{did_you_mean(name, fields)}")
        self.seed, self.device, self.dtype = checked_seed(seed), device, dtype
        self.compile_graph, self.data_parallel = compile_graph, data_parallel
        for name, field in fields.items():
            setattr(self, name, settings.get(name, field.default))

    def __init_subclass__(cls) -> None:
        """The constructor's signature is made from the config, so a default stands in one place."""
        super().__init_subclass__()
        if "__init__" in cls.__dict__:  # settings alone make copies, rows of stacks and what is loaded
            raise TypeError(
                f"{cls.__name__} has an __init__ of its own, and an algorithm is made from its settings alone: make what it takes "
                "fields of its Config, and what follows from them in networks or completed."
            )
        if "Config" not in cls.__dict__:
            return

        def __init__(self: Definition, **settings: Any) -> None:  # noqa: N807
            Definition.__init__(self, **in_present_arguments(self.name, settings))

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [
            inspect.Parameter(n, keyword, default=f.default, annotation=f.annotation) for n, f in cls.Config.model_fields.items()
        ]
        rest = [p for p in inspect.signature(Definition.__init__).parameters.values() if p.name in RUN]
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([first, *own, *rest])  # pyright: ignore[reportFunctionMemberAccess]
        cls.__init__ = __init__

    @property
    def name(self) -> str:
        return type(self).__name__

    @classmethod
    def from_preset(cls, preset: str, **settings: Any) -> Self:
        """An algorithm with a preset's values, and `settings` above them. Raises ConfigError for an unknown preset."""
        if preset not in cls.presets:
            raise ConfigError(f"{cls.__name__} has no preset {preset!r}{did_you_mean(preset, cls.presets)}")
        return cls(**{**cls.presets[preset].settings, **settings})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.Config.model_fields, *RUN)}

    def check_settings(self) -> TrainedConfig:
        """The config that the settings make. Raises ConfigError in one sentence."""
        for name, known in {"compile_graph": (None, True, False), "data_parallel": (True, False)}.items():
            if not any((given := getattr(self, name)) is one for one in known):  # it may come from a file
                raise ConfigError(f"{self.name}: {name} is {given!r}; choose {' or '.join(map(str, known[-2:]))}.")
        if self.dtype not in ("float32", "float64"):
            raise ConfigError(f"{self.name}: dtype is {self.dtype!r}; choose 'float32' or 'float64'.")
        config = self.Config.checked({name: getattr(self, name) for name in self.Config.model_fields}, title=self.name)
        sampler = getattr(config, "sampler", None)
        if isinstance(sampler, PrioritizedSampling) and not self.has_td_errors:
            raise ConfigError(
                f"{self.name} has no TD error for sampler 'prioritized' to draw by: choose uniform, epoch or weighted."
            )
        if isinstance(sampler, StreamSampling) and isinstance(self.wants(config), Opens):
            raise ConfigError(f"{self.name} looks at its data in an order of its own, which cannot stream: leave sampler out.")
        if config.matmul_precision != "float32" and self.dtype != "float32":
            given = f"matmul_precision is {config.matmul_precision!r}, beside which all else is float32"
            raise ConfigError(f"{self.name}: {given}, and dtype is {self.dtype!r}: choose one.")
        check_recurrence(self, config)
        return config

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults.get(name) or name == "seed"}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
