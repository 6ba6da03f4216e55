"""What RLlib's algorithms can act on here."""

from __future__ import annotations

from ...data.errors import ConfigError
from ...data.spec import Box, Discrete, ObservationSpace, Spec
from .names import PREFIX


def check_spaces(name: str, spec: Spec) -> None:
    """Raises ConfigError for spaces that RLlib's default networks are not given here."""
    kind = name.removeprefix(PREFIX)
    observation: ObservationSpace = spec.observation
    if not isinstance(observation, Box):
        raise ConfigError(f"{name} takes observations that are arrays of numbers; these are {observation.kind}.")
    if not isinstance(spec.action, Box | Discrete):
        raise ConfigError(f"{name} takes continuous or discrete actions; these are {spec.action.kind}.")
    if "action" in spec.starts():
        raise ConfigError(f"{name}: these actions are counted from {spec.starts()['action']}; RLlib counts from 0.")
    if kind == "DQN" and not spec.discrete:
        raise ConfigError(f"{name} takes discrete actions; these are continuous.")
    if kind in ("CQL", "IQL") and spec.discrete:
        raise ConfigError(f"{name} takes continuous actions; these are discrete.")
