"""Other values of settings, found from their types: numbers, choices, and every config that a union offers by name."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from ...data.errors import ConfigError
from ..base import Algorithm
from .errors import Make
from .tiny import TinyPolicy

_NUMBERS: dict[type, tuple[Any, ...]] = {float: (0.5, 0.1, 0.01, 1.0, 2.0), int: (2, 3, 1, 5)}


def alternatives(make: Make, name: str) -> Iterator[Any]:
    """Other values of a setting that pass its config's checks, the likeliest to matter first."""
    algorithm = make()
    seen = [getattr(algorithm.check_settings(), name)]
    for other in others(algorithm.Config.model_fields[name].annotation, seen[0]):
        try:
            checked = getattr(_with(algorithm, {name: other}).check_settings(), name)
        except ConfigError:
            continue
        if checked not in seen:
            seen.append(checked)
            yield checked


def unchecked_alternatives(make: Make, name: str) -> Iterator[Any]:
    """Other values of a setting, of which some may be allowed beside other values of other settings only."""
    algorithm = make()
    return others(algorithm.Config.model_fields[name].annotation, getattr(algorithm.check_settings(), name))


def accepted(algorithm: Algorithm, settings: dict[str, Any]) -> bool:
    try:
        _with(algorithm, settings).check_settings()
    except ConfigError:
        return False
    return True


def _with(algorithm: Algorithm, settings: dict[str, Any]) -> Algorithm:
    return type(algorithm)(**{**algorithm.get_params(), **settings})


def other_floats(make: Make) -> dict[str, float]:
    """Another value for each coefficient (a setting that is a float), such that all of them together are accepted."""
    algorithm, found = make(), dict[str, float]()
    for name, field in algorithm.Config.model_fields.items():
        if field.annotation is float:
            for other in alternatives(make, name):
                if accepted(algorithm, {**found, name: other}):
                    found[name] = other
                    break
    return found


def others(annotation: Any, value: Any) -> Iterator[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from others(arguments[0], value)
    elif origin in (Union, types.UnionType):
        for member in sorted(arguments, key=lambda member: not _holds(member, value)):
            yield from others(member, value)
    elif origin is Literal:
        yield from (choice for choice in arguments if choice != value)
    elif origin is tuple:
        yield from _other_tuples(arguments, value)
    elif annotation is bool:
        yield from (choice for choice in (True, False) if choice != value)
    elif annotation in (int, float):
        yield from _other_numbers(annotation, value)
    elif annotation is types.NoneType:
        yield from () if value is None else (None,)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _other_models(annotation, value)
    elif isinstance(value, TinyPolicy):
        yield TinyPolicy(discrete=value.spec.discrete, first=1)


def _holds(annotation: Any, value: Any) -> bool:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_holds(member, value) for member in get_args(annotation))
    return isinstance(annotation, type) and isinstance(value, annotation)


def _other_numbers(kind: type, value: Any) -> Iterator[Any]:
    if not isinstance(value, kind) or isinstance(value, bool):
        yield from _NUMBERS[kind]
    elif kind is int:
        yield from dict.fromkeys((value + 1, value // 2, 2 * value, *_NUMBERS[int]))
    else:
        yield from dict.fromkeys((value / 2, 2 * value, (1 + value) / 2, value - 0.5, *_NUMBERS[float], 0.0))


def _other_tuples(arguments: tuple[Any, ...], value: Any) -> Iterator[Any]:
    entry = arguments[0]
    if not value and arguments[1:] == (float,):  # from where to where
        yield (-0.1, 0.1)
    elif not value:
        yield from ((other,) for other in others(entry, None))
    else:
        yield from ((other, *value[1:]) for other in others(entry, value[0]))


def _other_models(model: type[BaseModel], value: Any) -> Iterator[Any]:
    """Another value of one field of a config, and the names of the other configs of this kind."""
    if type(value) is model or ("name" not in model.model_fields and isinstance(value, model)):
        for name, field in type(value).model_fields.items():
            for other in others(field.annotation, getattr(value, name)):
                yield {**value.model_dump(), name: other}
    for kind in (model, *_descendants(model)):
        if "name" in kind.model_fields and type(value) is not kind:
            yield kind.model_fields["name"].default


def _descendants(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in model.__subclasses__():
        yield child
        yield from _descendants(child)
