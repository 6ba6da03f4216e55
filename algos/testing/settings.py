"""Checks of settings: described, kept, and each with an effect."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ...data.errors import ConfigError, DataError
from ..base import Algorithm
from .alternatives import alternatives, unchecked_alternatives
from .errors import ContractError, Make, check, live
from .tiny import answers, data_for, maker, shown, tiny_dataset, values_alone

TRIED = 12  # other values of a setting before it is taken to have no effect
MENDS = {  # by setting what its page may lack; of others that they are read
    "tau": "It is a rate of learner.track: is `targets` in the schedule, and does a loss read nets.target?",
}


@check
def check_settings_are_described(make: Make) -> None:
    """Every setting has a description, every preset a source and settings that are accepted; the signature shows the defaults."""
    algorithm = make()
    for name, field in algorithm.Config.model_fields.items():
        if not field.description:
            raise ContractError(f"{algorithm.name}: the setting {name!r} has no description.")
    for name, preset in algorithm.presets.items():
        if not preset.source:
            raise ContractError(f"{algorithm.name}: the preset {name!r} does not say where its values come from.")
    shown = inspect.signature(type(algorithm).__init__).parameters
    if missing := [name for name in algorithm.Config.model_fields if name not in shown]:
        raise ContractError(f"{algorithm.name}: the constructor's signature lacks {missing}; is Config set in the class?")
    if reasonless := [name for name, reason in algorithm.exemptions.items() if not reason]:
        raise ContractError(f"{algorithm.name}: the exemption of {reasonless[0]!r} has no reason.")


@check
def check_settings_round_trip(make: Make) -> None:
    """Settings, presets too, come back from JSON and from get_params as they went; unknown ones are refused."""
    algorithm = make(seed=3)
    cls = type(algorithm)
    for made in (algorithm, *(cls.from_preset(name) for name in cls.presets)):
        config = made.check_settings()
        if type(config).model_validate_json(config.model_dump_json()) != config:
            raise ContractError(f"{algorithm.name}: its config does not come back from JSON as it went.")
        twin = cls(**made.get_params())
        if twin.get_params() != made.get_params() or twin.check_settings() != config:
            raise ContractError(f"{algorithm.name}: a clone made from get_params() differs.")
    config = algorithm.check_settings()
    for name in algorithm.Config.model_fields:
        for other in islice(alternatives(make, name), 3):
            changed = config.model_copy(update={name: other})
            if type(config).model_validate_json(changed.model_dump_json()) != changed:
                raise ContractError(f"{algorithm.name}: {name} does not come back from JSON as it went, which was {other!r}.")
    for attempt in (lambda: make(no_such_setting=1), lambda: algorithm.set_params(no_such_setting=1)):
        try:
            attempt()
        except ConfigError:
            continue
        raise ContractError(f"{algorithm.name} accepts a setting that it does not have.")


@check
def check_refuses_other_actions(make: Make) -> None:
    """Data with the other kind of actions are refused before anything is trained."""
    algorithm = make()
    if len(algorithm.action_kinds()) > 1:
        return
    try:
        algorithm.fit(tiny_dataset(discrete=algorithm.actions == "continuous"), n_steps=1)
    except DataError:
        return
    raise ContractError(f"{algorithm.name} trains on actions of the wrong kind.")


@check
def check_settings_matter(make: Make, names: Iterable[str] | None = None) -> None:
    """Every setting (or those of `names`) changes what is learned or predicted, alone or with others, or is an exemption.

    What those that were given switch off, or refuse, has to do so without them.
    """
    algorithm, effects, without = make(), Effects(make), Effects(maker(type(make())))
    given = algorithm.get_params() != maker(type(algorithm))().get_params()
    of_models = {"dynamics"} if getattr(algorithm, "dynamics", None) else {"dynamics", "rollouts"}  # these have tests of their own
    for name in [n for n in names or algorithm.Config.model_fields if n not in of_models]:
        values = effects.values(name)
        exempt = name in algorithm.exemptions
        if not values and not exempt:
            raise ContractError(f"{algorithm.name}: {name!r} has no other value to try; list it in `exemptions`, with the reason.")
        matters = effects.of({}, name, values)
        if exempt and matters:
            raise ContractError(f"{algorithm.name}: {name!r} is listed in `exemptions`, and changes what is learned.")
        if exempt or matters or effects.in_company(name, values) or (given and without.matters(name)):
            continue
        mend = MENDS.get(name, "Use it, or list it in `exemptions` with the reason.")
        raise ContractError(f"{algorithm.name}: {name!r} changes nothing (tried {', '.join(map(repr, values[:4]))}). {mend}")


class Effects:
    """Effects of settings in a short run on the tiny data: on its networks, predictions and draws."""

    def __init__(self, make: Make) -> None:
        self._make, self._dataset = make, data_for(make)
        self._known: dict[str, dict[str, Tensor] | None] = {}

    def values(self, name: str) -> list[Any]:
        """Other values of a setting to try: those that are accepted, or where none is, those that may be in other company."""
        return list(islice(alternatives(self._make, name), TRIED)) or list(islice(unchecked_alternatives(self._make, name), TRIED))

    def matters(self, name: str) -> bool:
        """Tell whether a setting has an effect, alone or beside others."""
        values = self.values(name)
        return self.of({}, name, values) or self.in_company(name, values)

    def of(self, switched: Mapping[str, Any], name: str, values: Iterable[Any], tries: Sequence[int] = (2, 10)) -> bool:
        """Tell whether some value of a setting leads elsewhere than the one that it has, with other settings `switched`.

        Most do within two updates; what acts now and then, or through a target, needs more.
        """
        if self._outcome(switched, tries[0]) is None:
            return False
        return any(
            self._differ(self._outcome(switched, updates), self._outcome({**switched, name: value}, updates, keep=False))
            for updates in tries
            for value in values
        )

    def in_company(self, name: str, values: Sequence[Any]) -> bool:
        """Tell whether a setting has an effect beside others that are switched: one alike, all that go together, or any."""
        alike = [other for other in self._make().Config.model_fields if other != name and (other in name or name in other)]
        if any(self.of({other: value}, name, values[:2], (10,)) for other in alike for value in self._other(other)):
            return True
        if self.of({other: value for other, value in self._together.items() if other != name}, name, values):
            return True
        return any(self.of({other: value}, name, values[:2], (10,)) for other, value in self._switched.items() if other != name)

    def _outcome(self, settings: Mapping[str, Any], updates: int, *, keep: bool = True) -> dict[str, Tensor] | None:
        """Run with settings, and give what came of it; None where they do not go with the tiny data."""
        key = f"{updates} {sorted(settings.items())}"
        if key in self._known:
            return self._known[key]
        algorithm = self._make(**settings)
        try:
            algorithm.fit(self._dataset, updates, updates)
            found = live(algorithm.state()[0]) | self._answers(algorithm)
        except (ConfigError, DataError):
            found = None
        if keep:
            self._known[key] = found
        return found

    def _answers(self, algorithm: Algorithm) -> dict[str, Tensor]:
        observation, action = (self._dataset.columns[column][:8] for column in ("observation", "action"))
        found = {name: answer(observation) for name, answer in answers(algorithm).items()}
        if values_alone(algorithm):
            found["predict_value"] = algorithm.predict_value(shown(algorithm, observation), action)
        return {name: torch.as_tensor(array) for name, array in found.items()}

    @staticmethod
    def _differ(a: Mapping[str, Tensor] | None, b: Mapping[str, Tensor] | None) -> bool:
        return a is not None and b is not None and (a.keys() != b.keys() or any(not torch.equal(a[name], b[name]) for name in a))

    def _other(self, name: str) -> list[Any]:
        """The first other value of a setting that goes with the data, if there is one: what is off is on, what is one is two."""
        values = islice(alternatives(self._make, name), TRIED)
        return list(islice((value for value in values if self._outcome({name: value}, 2) is not None), 1))

    @cached_property
    def _switched(self) -> dict[str, Any]:
        return {name: value for name in self._make().Config.model_fields for value in self._other(name)}

    @cached_property
    def _together(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in self._switched.items():
            if self._outcome({**found, name: value}, 2) is not None:
                found[name] = value
        return found
