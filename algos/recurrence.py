"""Recurrent encoders in algorithms: which may have some, the memory of a policy that has, and how it acts.

Losses see them through the batch: its observations are `Histories`, of which networks make features as of any others. So a page
says which of its networks act, in `Definition.recurrent`, and nothing else. How those that learn from rollouts begin a stretch with
what was remembered there: `on_policy/sequences.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, cast

from torch import Tensor, nn

from ..data.errors import ConfigError
from ..data.sampling_settings import RecurrentSampling
from .nets import Nets
from .networks.encoding import EncoderConfig
from .networks.recurrent import RecurrentNetwork, recalling
from .ports import Memory, Ports, Tensors
from .registry import algorithm_class, algorithm_names, online_names


class Acts(Protocol):
    recurrent: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str: ...

    @classmethod
    def action_kinds(cls) -> tuple[str, ...]: ...

    def ports(self, spec: Any, config: Any) -> Ports: ...

    def act(self, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]: ...


def remembers(config: Any) -> bool:
    return any(encoder.remembers for _, encoder in config if isinstance(encoder, EncoderConfig))


def take_them(kinds: Iterable[str]) -> list[str]:
    """The names of d3ray's algorithms that take recurrent encoders, for any of these kinds of actions; imports every page."""
    known = ((name, algorithm_class(name)) for name in (*algorithm_names(), *online_names()))
    return [name for name, algorithm in known if algorithm.recurrent and not {*kinds}.isdisjoint(algorithm.action_kinds())]


def check_recurrence(algorithm: Acts, config: Any) -> None:
    """Compares recurrent encoders with the other settings.

    Raises:
        ConfigError: the algorithm takes none, or what else is set does not go with them.
    """
    name = algorithm.name
    found = [(field, encoder.label) for field, encoder in config if isinstance(encoder, EncoderConfig) and encoder.remembers]
    sampler = getattr(config, "sampler", None)
    if not found:
        if isinstance(sampler, RecurrentSampling):
            raise ConfigError(
                f"{name}: sampler 'recurrent' is for recurrent encoders, and no encoder is one: choose gru or lstm, or "
                "leave sampler out."
            )
        return
    field, label = found[0]
    if not algorithm.recurrent:
        others = ", ".join(take_them(algorithm.action_kinds()))
        raise ConfigError(f"{name}: {field} is {label}, and it takes no recurrent encoder; those who do are {others}.")
    if sampler is not None and not isinstance(sampler, RecurrentSampling):
        raise ConfigError(
            f"{name}: {field} is {label}, which learns from sub-sequences of episodes, and sampler {sampler.name!r} draws "
            "transitions: leave sampler out, or choose recurrent."
        )
    if getattr(config, "td_steps", 1) != 1:
        raise ConfigError(
            f"{name}: td_steps is {config.td_steps}, and with {field} {label} a step learns from the next one: set td_steps to 1."
        )
    if config.augmentation:
        raise ConfigError(
            f"{name}: augmentation changes each observation for itself, and {field} {label} reads them one after the other: leave "
            "augmentation out."
        )
    if getattr(config, "bootstrap", False):
        raise ConfigError(
            f"{name}: bootstrap halves the data by transitions, and {field} {label} learns from sub-sequences: leave bootstrap out."
        )


def ports_of(algorithm: Acts, networks: Mapping[str, nn.Module], spec: Any, config: Any) -> Ports:
    """Gives the inputs of `act` beside the observation: its page's, and the memory of the recurrent networks that act."""
    found = _recurrent(algorithm, networks)
    return {**algorithm.ports(spec, config), **{name: Memory(network.memory_shape) for name, network in found.items()}}


def acted(algorithm: Acts, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
    """Calls `act`, recurrent networks going on from the memories in `state`; without, each observation is an episode's first."""
    if not state or not (found := _remembering(algorithm, nets)):
        return _acted(algorithm, nets, observation, state, noise)
    own = {name: tensor for name, tensor in state.items() if name not in found}
    with recalling({network: state[name] for name, network in found.items()}) as recall:
        action, after = _acted(algorithm, nets, observation, own, noise)
    return action, {**after, **{name: recall.left[network] for name, network in found.items()}}


def _acted(algorithm: Acts, nets: Nets, observation: Any, state: Tensors, noise: Tensors) -> tuple[Tensor, Tensors]:
    given: Any = algorithm.act(nets, observation, state, noise)
    if not (isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2):
        raise TypeError(
            f"{algorithm.name}.act gives an action and what the memory becomes, `return action, state` where it has none, and gave "
            f"a {type(given).__name__}."
        )
    return cast("tuple[Tensor, Tensors]", given)


def remembered(algorithm: Acts, nets: Nets, state: Tensors) -> AbstractContextManager[Any]:
    """Within it recurrent networks that act go on from the memories in `state`, whatever they are asked."""
    return recalling({network: state[name] for name, network in _remembering(algorithm, nets).items()})


def _remembering(algorithm: Acts, nets: Nets) -> dict[str, RecurrentNetwork]:
    """The recurrent networks that act, of those that are there; an export has only what acts."""
    return _recurrent(algorithm, {name: nets.network(name) for name in algorithm.recurrent if nets.has(name)})


def _recurrent(algorithm: Acts, networks: Mapping[str, nn.Module]) -> dict[str, RecurrentNetwork]:
    """The recurrent networks that act, each by the name of the network that it is in, with a number where that has several."""
    found = dict[str, RecurrentNetwork]()
    for name in algorithm.recurrent:
        found |= recurrent_parts(name, networks[name]) if name in networks else {}
    return found


def recurrent_parts(name: str, network: nn.Module) -> dict[str, RecurrentNetwork]:
    """The recurrent networks in one, by its name, with a number where it has several."""
    layers = _layers(network)
    return {name if len(layers) == 1 else f"{name}_{k}": layer for k, layer in enumerate(layers)}


def _layers(network: nn.Module) -> list[RecurrentNetwork]:
    """The recurrent ones inside; remembered on the module, for it is asked at every decision."""
    known: list[RecurrentNetwork] | None = network.__dict__.get("_d3ray_recurrent")
    if known is None:
        known = [layer for layer in network.modules() if isinstance(layer, RecurrentNetwork)]
        network.__dict__["_d3ray_recurrent"] = known
    return known
