"""What acts where a policy may not: a constant action, a function of a user's, or an older policy."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algos.acting.inputs import raw_actions, taken
from ...data.errors import ConfigError, DataError, did_you_mean, reason
from ...data.masks import ACTION_MASK
from ...data.spec import Spec, from_columns
from .memory import Flat
from .versions import Version, check_beside, opened

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Fallback:
    """Gives an action for one observation, by itself: it remembers nothing, so it may act at any step."""

    label = "rule"

    def act(self, columns: Flat) -> np.ndarray:
        """A raw action [1, ...] at an observation by input name, [1, ...]. Raises DataError where a user's function gives none."""
        raise NotImplementedError


class Constant(Fallback):
    def __init__(self, action: np.ndarray) -> None:
        self._action = action

    def act(self, columns: Flat) -> np.ndarray:
        return self._action


class Rule(Fallback):
    """A function of an observation, as a policy sees it, and of the legal actions, bool [n] or None."""

    def __init__(self, function: Any, spec: Spec, name: str) -> None:
        self._function, self._spec, self.label = function, spec, name

    def act(self, columns: Flat) -> np.ndarray:
        seen: Mapping[str, np.ndarray] = {name: part[0] for name, part in columns.items() if name != ACTION_MASK}
        legal = columns[ACTION_MASK][0] if ACTION_MASK in columns else None
        try:
            given = self._function(from_columns(seen), legal)
        except Exception as error:
            raise DataError(f"The fallback {self.label} failed: {reason(error)}.") from error
        return _action(given, self._spec, f"The fallback {self.label} gave")


class Older(Fallback):
    def __init__(self, version: Version) -> None:
        self._version, self.label = version, version.label

    def act(self, columns: Flat) -> np.ndarray:
        return self._version.step(columns, [{}], [0])[1]


def opened_fallback(said: str, champion: Version, *, tracking: str | None, storage: str) -> Fallback:
    """What a setting names. Raises ConfigError where it is neither an action, a function nor a policy that fits; StorageError."""
    spec = champion.spec
    try:
        given = json.loads(said)
    except ValueError:
        given = None
    if given is not None:
        return Constant(_action(given, spec, "fallback is"))
    if _FUNCTION.fullmatch(said) and not said.startswith("models:"):
        return Rule(_function(said), spec, said)
    version = opened(said, tracking=tracking, storage=storage, stacked=champion.stacked)
    check_beside(champion, version, "fallback")
    if version.start() or version.draws:
        raise ConfigError(
            f"The fallback {said} remembers what came before or draws: one that acts on one observation alone can jump in."
        )
    return Older(version)


def _function(said: str) -> Any:
    module, _, name = said.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"fallback is {said!r}, and {module} cannot be imported: {reason(error)}.") from None
    if not callable(function := getattr(found, name, None)):
        raise ConfigError(f"fallback is {said!r}, and {module} has no function {name!r}{did_you_mean(name, vars(found))}")
    return function


def _action(given: Any, spec: Spec, what: str) -> np.ndarray:
    try:
        return taken(spec, raw_actions(spec.action, [given], 1))
    except (DataError, ValueError, TypeError) as error:
        raise ConfigError(f"{what} {given!r}, which is no action here: {reason(error)}.") from None
