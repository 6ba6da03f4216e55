"""d3rlpy's `algos`: a config and a class for each algorithm, by its names."""

from __future__ import annotations

from typing import Any, ClassVar

from d3ray.algos.definition import RUN
from d3ray.algos.former import in_present_arguments
from d3ray.algos.registry import algorithm_class
from d3ray.data.config import in_present_words
from d3ray.data.errors import ConfigError, did_you_mean

from . import models, preprocessing
from .constants import device_of, drawn_seed
from .distributed import agreed_seed
from .explorers import ConstantEpsilonGreedy as ConstantEpsilonGreedy
from .explorers import Explorer as Explorer
from .explorers import LinearDecayEpsilonGreedy as LinearDecayEpsilonGreedy
from .explorers import NormalNoise as NormalNoise
from .learnable import Learnable
from .parts import described
from .random_policy import DiscreteRandomPolicyConfig as DiscreteRandomPolicyConfig
from .random_policy import RandomPolicyConfig as RandomPolicyConfig
from .settings import ALGORITHMS, settings_for

QLearningAlgoBase = Learnable
_BY_NAME = {
    "observation_scaler": preprocessing.OBSERVATION,
    "action_scaler": preprocessing.ACTION,
    "reward_scaler": preprocessing.REWARD,
    "q_func_factory": models.Q_FUNCTIONS,
}
_FIRST = {"scaler": "observation_scaler", "q_func_type": "q_func_factory"}  # words of d3rlpy's first versions
_KINDS = {name: kind for kind, name in ALGORITHMS.items()} | {"FQE": "fqe", "DiscreteFQE": "fqe"}


def settings_in_d3rlpys_words(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a config of d3rlpy's as the settings of d3ray's algorithm of a name; what is d3ray's already stays.

    Raises ConfigError where there is no such setting, or a part is not here; the sentence names it.
    """
    config = algorithm_class(name).Config
    theirs, ours, fields = dict[str, Any](), dict[str, Any](), config.model_fields
    for key, value in in_present_words(config, given).items():
        word = _FIRST.get(key, key)
        own = models.own_encoder(value)
        if own is not None:
            ours[word.removesuffix("_factory")] = own
        elif word == "n_frames" and value != 1:
            ours["sampler"] = {"name": "uniform", "frames": value}
        elif value is None and word in _BY_NAME:
            theirs[word] = {"type": "none", "params": {}}
        elif isinstance(value, str) and word in _BY_NAME:
            known = _BY_NAME[word]
            if value not in known:
                raise ConfigError(f"{word} is {value!r}, which d3rlpy has not{did_you_mean(value, known)}")
            theirs[word] = described(known[value]())
        elif word in fields and isinstance(value, str | dict) and not word.endswith("_type"):
            ours[word] = value  # d3ray's own words
        elif word in ("dynamics", "rollouts"):
            ours[word] = value
        elif word not in ("n_frames", "impl", "verbose"):
            theirs[word] = described(value)
    return settings_for(_KINDS[name], name, theirs) | ours


class LearnableConfig:
    """Settings of an algorithm of d3rlpy's, by its names; what is not given is d3rlpy 2.8.1's default."""

    name: ClassVar[str]

    def __init__(self, **params: Any) -> None:
        self.__dict__.update(params)
        self.params = params
        settings_in_d3rlpys_words(self.name, params)

    def create(self, device: Any = False, enable_ddp: bool = False) -> Learnable:
        """The algorithm.

        Args:
            device: False: the CPU; True: the first GPU; a number or a name.
            enable_ddp: Whether the processes of `distributed` train it together, each on its shard of every batch.

        Raises ConfigError.
        """
        settings = settings_in_d3rlpys_words(self.name, self.params)
        seed = agreed_seed(drawn_seed()) if enable_ddp else drawn_seed()
        made = algorithm_of(self.name)(**settings, device=device_of(device), seed=seed, data_parallel=enable_ddp)
        made.config = self
        return made

    @classmethod
    def get_type(cls) -> str:
        """What d3rlpy calls it in files."""
        return _KINDS[cls.name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"


class _InAllWords(type):
    """Makes an algorithm from the keyword arguments of d3rlpy's first versions too: `DQN(scaler="standard", use_gpu=False)`."""

    def __call__(cls, **given: Any) -> Any:
        given = in_present_arguments(cls.__name__, given, warn=False)
        run = {name: given.pop(name) for name in (*RUN, "td_steps") if name in given}
        if (rollouts := getattr(given.get("dynamics"), "rollouts", None)) is not None:  # its `MOPO` says how it generates
            given.setdefault("rollouts", rollouts)
        config = cls.Config  # pyright: ignore[reportAttributeAccessIssue]
        given, fields = in_present_words(config, given), config.model_fields
        if not any(name in _FIRST or name.endswith("_factory") or name not in fields for name in given):
            return super().__call__(**given, **run)  # d3ray's own words, as copies are made with
        run.setdefault("seed", drawn_seed())
        return super().__call__(**settings_in_d3rlpys_words(cls.__name__, given), **run)


_classes: dict[str, Any] = {}


def algorithm_of(name: str) -> Any:
    """The class of d3ray's algorithm of a name as d3rlpy's users know it."""
    if name not in _classes:
        base = algorithm_class(name)
        _classes[name] = _InAllWords(name, (Learnable, base), {"__module__": __name__, "__doc__": base.__doc__})
    return _classes[name]


def config_of(name: str) -> type[LearnableConfig]:
    """The config of d3ray's algorithm of a name."""
    return type(f"{name}Config", (LearnableConfig,), {"name": name, "__module__": __name__})


def __getattr__(name: str) -> Any:
    known = [*ALGORITHMS.values()]
    if name in known:
        return algorithm_of(name)
    if name.removesuffix("Config") in known:
        globals()[name] = config_of(name.removesuffix("Config"))
        return globals()[name]
    raise AttributeError(f"d3ray.d3rlpy.algos has no {name!r}: docs/migrating.md says what is not here")  # Python adds the nearest


def __dir__() -> list[str]:
    return sorted([*globals(), *ALGORITHMS.values(), *(f"{name}Config" for name in ALGORITHMS.values())])
