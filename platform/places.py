"""What a config's `dataset` may be: a dataset, or for algorithms that learn in an environment, that environment alone."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from ..data.dataset import Dataset
from ..data.spec import Environment, Spec
from ..data.storage.json_text import parse_json

_ALONE = "environment:"  # what the place of an environment begins with


class Playground:
    """An environment in a dataset's place: nothing was recorded, everything is collected while training."""

    n_transitions = n_episodes = 0

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    @property
    def name(self) -> str:
        return self.environment.id

    @property
    def kinds(self) -> dict[str, Any]:
        """It has no columns."""
        return {}

    @property
    def columns(self) -> dict[str, Any]:
        """It has none."""
        return {}

    @property
    def fingerprint(self) -> str:
        """A hash of the id and its arguments, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.environment.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    @cached_property
    def spec(self) -> Spec:
        from ..algos.environments.make import make

        with make(self.environment) as vector:
            return vector.spec

    def prepare(self) -> None:
        """There is nothing to prepare."""


Data = Dataset | Playground


def environment_place(environment: str | Environment) -> str:
    """How an environment alone is written where a dataset's place stands."""
    if isinstance(environment, str):
        environment = Environment(id=environment)
    return _ALONE + json.dumps(environment.model_dump(mode="json"), sort_keys=True)


def is_environment_place(place: str) -> bool:
    return place.startswith(_ALONE)


def open_place(place: str) -> Data:
    """The dataset or the environment of a place. Raises DataError and StorageError as `Dataset.open` does."""
    if is_environment_place(place):
        return Playground(Environment.checked(parse_json(place.removeprefix(_ALONE)), title="environment"))
    return Dataset.open(place)
