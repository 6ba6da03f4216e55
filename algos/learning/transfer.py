"""Networks and the state of optimisers from one algorithm to another, as when a policy learnt offline is tuned online.

Networks are known by their role: `policy`, and `critic` for Q-functions, in every algorithm.
"""

from __future__ import annotations

import warnings

from torch import Tensor

from ...data.errors import ConfigError
from .fit import Fit
from .learner import Learner

Tensors = dict[str, Tensor]


def copy_network(fit: Fit, other: Fit, role: str) -> None:
    """The network of a role becomes equal to another algorithm's, and its target, where there is one, equal to it.

    Raises:
        ConfigError: one of the two has no such network, or theirs are built otherwise; what differs is named.
    """
    ours, theirs = _network(fit, role), _network(other, role)
    _check_alike(fit, other, role, ours, theirs)
    if _layers(fit, role) != _layers(other, role):
        raise ConfigError(
            f"The {role} of {fit.algorithm.name} has other layers than that of the {other.algorithm.name}, of the same shapes."
        )
    for name in ("observation_scaler", "action_scaler"):
        if getattr(fit.config, name, None) != getattr(other.config, name, None):
            warnings.warn(
                f"The two have different values of {name}, so the {role} sees other numbers than it was trained on; make "
                f"{fit.algorithm.name} with {name}=other.config_.{name}.",
                stacklevel=3,
            )
    targets = {f"target/{name.partition('/')[2]}": tensor for name, tensor in theirs.items()}
    has_target = role in fit.learner.target
    _put(fit.learner, {**theirs, **(targets if has_target else {})}, drop=())


def copy_optimizer(fit: Fit, other: Fit, role: str) -> None:
    """Copies the state of the optimiser of a role's network from another algorithm. The learning rate stays.

    Raises:
        ConfigError: one of the two has no such network, or their optimisers remember different things; what differs is named.
    """
    for one in (fit, other):
        _network(one, role)
    prefixes = (f"optimizer/{role}/", f"optimizer/{role}:")
    theirs = {name: tensor for name, tensor in other.state()[0].items() if name.startswith(prefixes)}
    ours = {name: tensor for name, tensor in fit.state()[0].items() if name.startswith(prefixes)}
    if ours and theirs:
        _check_alike(fit, other, f"optimizer of the {role}", ours, theirs)
    try:
        _put(fit.learner, theirs, drop=prefixes)
    except (KeyError, RuntimeError):
        _put(fit.learner, ours, drop=prefixes)
        raise ConfigError(
            f"The optimizer of the {role} of {fit.algorithm.name} is another than that of the {other.algorithm.name}, or steps "
            "another network."
        ) from None


def reset_optimizers(learner: Learner) -> None:
    """Every optimiser forgets what it remembers; learning rates stay."""
    _put(learner, {}, drop=("optimizer/",))


def _network(fit: Fit, role: str) -> Tensors:
    tensors, there = fit.state()[0], fit.learner.networks
    if role not in there:
        raise ConfigError(f"{fit.algorithm.name} has no network {role!r} to copy; it has {', '.join(there)}.")
    return {name: tensor for name, tensor in tensors.items() if name.startswith(f"live/{role}/")}


def _layers(fit: Fit, role: str) -> tuple[tuple[str, ...], str]:
    """The kind of actions, and what the network is made of: its own class only says what comes of its last layer."""
    return fit.algorithm.action_kinds(), str(fit.learner.modules[role]).partition("(")[2]


def _check_alike(fit: Fit, other: Fit, what: str, ours: Tensors, theirs: Tensors) -> None:
    for name in sorted({*ours, *theirs}):
        have, found = (tuple(tensors[name].shape) if name in tensors else "absent" for tensors in (ours, theirs))
        if have != found:
            raise ConfigError(
                f"The {what} of {fit.algorithm.name} is built otherwise than that of the {other.algorithm.name}: "
                f"{name.split('/', 2)[2]!r} is {have} here and {found} there."
            )


def _put(learner: Learner, tensors: Tensors, drop: tuple[str, ...]) -> None:
    """Writes tensors of the state in place; those whose names begin with `drop` and are not given begin anew."""
    kept = {name: tensor for name, tensor in learner.state().items() if not drop or not name.startswith(drop)}
    learner.load_state({**kept, **tensors}, learner.step)
