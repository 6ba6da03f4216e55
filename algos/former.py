"""Names that d3ray's documents once showed. They work until the next minor version, and say what to write."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar, cast

from ..data.errors import ConfigError

Class = TypeVar("Class", bound=type[Any])


def warn_of(former: str, now: str, stacklevel: int = 3) -> None:
    warnings.warn(f"{former} is deprecated: write {now}.", DeprecationWarning, stacklevel=stacklevel)


# ---- d3rlpy's words, which d3ray's own classes once had

METHODS: dict[str, tuple[str, Any]] = {  # what to write, and what it does
    "copy_policy_from": ('copy_from(other, "policy")', lambda ours, other: ours.copy_from(other, "policy")),
    "copy_policy_optim_from": (
        'copy_optimizer_from(other, "policy")',
        lambda ours, other: ours.copy_optimizer_from(other, "policy"),
    ),
    "copy_q_function_from": ('copy_from(other, "critic")', lambda ours, other: ours.copy_from(other, "critic")),
    "copy_q_function_optim_from": (
        'copy_optimizer_from(other, "critic")',
        lambda ours, other: ours.copy_optimizer_from(other, "critic"),
    ),
    "create_impl": ("build_with_shapes", lambda ours, *shapes, **named: ours.build_with_shapes(*shapes, **named)),
    "from_json": ("from_params", classmethod(lambda cls, path, device=None: cast("Any", cls).from_params(path, device))),
    "grad_step": ("step", property(lambda ours: ours.step)),
    "load_model": ("restore", lambda ours, path: ours.restore(path)),
    "reset_optimizer_states": ("reset_optimizers", lambda ours: ours.reset_optimizers()),
    "save_model": ("save", lambda ours, path, *, overwrite=False: ours.save(path, overwrite=overwrite)),
    "set_grad_step": ("step = …", lambda ours, grad_step: setattr(ours, "step", grad_step)),
}
SCORING = ("scorers", "eval_episodes")  # of fit
ARGUMENTS = {"n_steps": "td_steps", "use_gpu": "device"}  # of constructors


class _Former:
    """A method by its former name."""

    def __init__(self, name: str, now: str, does: Any) -> None:
        self._name, self._now, self._does = name, now, does

    def __get__(self, algorithm: Any, owner: type[Any]) -> Any:
        if algorithm is not None or isinstance(self._does, classmethod):
            warn_of(f"{owner.__name__}.{self._name}", self._now)
        return self._does.__get__(algorithm, owner)


def with_former_methods(algorithm: Class) -> Class:
    """Gives a class of algorithms the methods by their former names; a class decorator."""
    for name, (now, does) in METHODS.items():
        setattr(algorithm, name, _Former(name, now, does))
    return algorithm


def in_present_arguments(name: str, given: dict[str, Any], *, warn: bool = True) -> dict[str, Any]:
    """Arguments of the constructor of algorithm `name`. Raises ConfigError where one is told by both of its names."""
    from .devices import Device

    for former, now in ARGUMENTS.items():
        if former not in given:
            continue
        value = given[former]
        if given.get(now) is not None:
            raise ConfigError(f"{name}: {now} is {given[now]!r} and {former} {value!r}; say one of them.")
        if warn:
            warn_of(f"{former} of {name}", now, stacklevel=4)
        given = {key: one for key, one in given.items() if key != former} | {now: value}
        if former == "use_gpu" and value is True:
            given[now] = Device()
    return given
