"""The vocabulary of losses and kinds of update: networks of one seed, hyper-parameters, addressed noise, the verbs."""

from __future__ import annotations

import functools
import inspect
import math
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from ..data.batch import Batch, Drawn
from ..data.errors import ConfigError, did_you_mean
from ..data.random import fold, normal, uniform
from .networks.training import Pass, drawn_whole, under_way

Parameters = dict[str, Tensor]


class Hyper:
    """Hyper-parameters as tensors of shape (): `h.alpha`. The learner owns them and writes them in place."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(
            f"There is no hyper-parameter {name!r}; floats of the algorithm's config are: {', '.join(self.__dict__)}."
        )


class Nets:
    """Networks of one seed by name: `nets.policy(observation)`, `nets.target.critic(observation, action)`.

    A network is called, or asked for a method of its own: `nets.critic.distribution(observation, action)`.

    Args:
        modules: The networks. Where `tensors` has an entry of the same name, the module is run with those parameters and buffers.
        tensors: Parameters and buffers by network, as `torch.func` hands them in; empty when the modules hold their own.
        target: The same for target networks; None for the target itself, and at rest.
        key: int64 (), the address of this loss; None at rest, where nothing is drawn.
        dtype: Type of the noise.
        minimised: Networks whose batch statistics are kept.
        resting: Whether live networks are at rest too, as where a loss is only read.
        h: The hyper-parameters that go with them, for what acts and values: `nets.h.action_std`.
        guests: Networks of others, which are at rest.
        ahead: Noise at `key`, drawn together with that of other steps, and which of them this is.
    """

    target: Nets
    h: Hyper

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        tensors: Mapping[str, Parameters],
        target: Nets | None,
        key: Tensor | None,
        dtype: torch.dtype,
        minimised: Iterable[str] = (),
        *,
        resting: bool = False,
        h: Hyper | None = None,
        guests: Nets | None = None,
        ahead: tuple[Ahead, int] | None = None,
    ) -> None:
        self._modules, self._tensors, self._dtype = modules, tensors, dtype
        self._training, self._is_target = target is not None and not resting, target is None
        self._loss_key, self._own_key = key, key if target is not None else None  # a target's is folded when it is asked for
        self._calls, self._guests, self._ahead = 0, guests, ahead
        self.statistics: dict[str, dict[str, Tensor]] = {name: {} for name in minimised}
        if target is not None:
            self.target = target
        if h is not None:
            self.h = h

    def __getattr__(self, name: str) -> NetworkCall:
        modules: Mapping[str, nn.Module] = self.__dict__["_modules"]
        if name not in modules:
            guests: Nets | None = self.__dict__["_guests"]
            if guests is not None:
                return getattr(guests, name)
            raise AttributeError(f"There is no network {name!r} here; there are: {', '.join(modules)}.")
        return NetworkCall(self, name, modules[name])

    def has(self, name: str) -> bool:
        return name in self._modules

    def network(self, name: str) -> nn.Module:
        return self._modules[name]

    def run(self, name: str, function: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A function of a network, with the tensors and the address that the network has here."""
        module, tensors = self._modules[name], self._tensors.get(name)
        if self._loss_key is not None and _wants_pass(module, training=self._training):
            self._calls += 1
            key = fold(self._key, (zlib.crc32(name.encode()) << 16) + self._calls)
            with under_way(Pass(key, self._dtype, self._training, self.statistics.get(name), self._is_target)):
                return _held(module, tensors, function, inputs, named)
        return _held(module, tensors, function, inputs, named)

    def noise(self, name: str, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """Standard normal numbers at the address (seed, loss, step, `name`)."""
        return drawn_whole(tuple(shape), lambda whole: self._normal(name, whole))

    def _normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if self._ahead is not None:
            ahead, at = self._ahead
            return ahead.noise(at, name, shape, self._dtype)
        return normal(fold(self._key, name), shape, self._dtype)

    def uniform(self, name: str, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """Uniform numbers on (0, 1) at the address (seed, loss, step, `name`)."""
        return drawn_whole(tuple(shape), lambda whole: uniform(fold(self._key, name), whole, self._dtype))

    @property
    def _key(self) -> Tensor:
        if self._own_key is None:
            if self._loss_key is None:
                raise RuntimeError("Networks at rest have no address to draw at: a policy that draws takes its noise as an input.")
            self._own_key = fold(self._loss_key, "target network")
        return self._own_key


class Ahead:
    """Noise of one loss for many steps at once: on a CPU its cost is in the number of calls, and the numbers are those of each key.

    Args:
        keys: int64 [steps], the address of the loss at each step.
    """

    LARGEST = 2**20  # numbers held at once for one name

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys
        self._made: dict[tuple[str, tuple[int, ...], torch.dtype], Tensor] = {}

    def noise(self, at: int, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Gives the numbers of `normal` at the address of the step number `at` of these."""
        if math.prod(shape) * len(self._keys) > self.LARGEST:
            return normal(fold(self._keys[at], name), shape, dtype)
        key = (name, shape, dtype)
        if key not in self._made:
            self._made[key] = normal(fold(self._keys, name), shape, dtype)
        return self._made[key][at]


class NetworkCall:
    """A network where it is used: called, or asked for a method of its module, which runs in the same way."""

    __slots__ = ("_module", "_name", "_nets")

    def __init__(self, nets: Nets, name: str, module: nn.Module) -> None:
        self._nets, self._name, self._module = nets, name, module

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._nets.run(self._name, self._module, inputs, named)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        function = getattr(self._module, method)
        return lambda *inputs, **named: self._nets.run(self._name, function, inputs, named)


def _held(
    module: nn.Module, tensors: Parameters | None, function: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    if tensors is None:
        return function(*inputs, **named)
    with _holding(module, tensors):
        return function(*inputs, **named)


@contextmanager
def _holding(module: nn.Module, tensors: Parameters) -> Generator[None]:
    """Within it the module has these parameters and buffers: `torch.func.functional_call` without its costly checks."""
    slots: list[tuple[dict[str, Any], str, str]] | None = module.__dict__.get("_d3ray_slots")
    if slots is None:  # where each tensor lies, and its dotted name; remembered, for it is asked at every call
        slots = [
            (held, key, f"{path}.{key}" if path else key)
            for path, layer in module.named_modules()
            for held in cast("tuple[dict[str, Any], ...]", (layer._parameters, layer._buffers))  # pyright: ignore[reportPrivateUsage]
            for key in held
            if held[key] is not None
        ]
        module.__dict__["_d3ray_slots"] = slots
    own = [held[key] for held, key, _ in slots]
    try:
        for held, key, name in slots:
            held[key] = tensors[name]
        yield
    finally:
        for (held, key, _), tensor in zip(slots, own, strict=True):
            held[key] = tensor


def _wants_pass(module: nn.Module, *, training: bool) -> bool:
    """Tells whether a layer inside draws or keeps statistics; kept on the module, for it is asked at every call."""
    known: tuple[bool, bool] | None = module.__dict__.get("_d3ray_pass")
    if known is None:
        layers = list(module.modules())
        draws = any(getattr(layer, "draws", False) for layer in layers)
        trains = any(getattr(layer, "trains", False) for layer in layers)
        known = (draws or trains, draws)
        module.__dict__["_d3ray_pass"] = known
    return known[not training]


# ---- losses

# What `loss` says, and metrics: one value a sample, or one.
LossValue = tuple[Tensor, dict[str, Tensor]]
Loss = Callable[[Nets, Any, Hyper], LossValue]
Method = TypeVar("Method", bound=Callable[..., Any])
Axes = Literal["sample", "member sample", "sample step", "batch"]
_SHAPES: dict[Axes, tuple[str, ...]] = {"sample": ("B",), "member sample": ("members", "B"), "sample step": ("B", "T"), "batch": ()}


def loss(axes: Axes) -> Callable[[Method], Method]:
    """Says what a loss gives, of which the learner takes the mean, importance weights applied.

    Args:
        axes: "sample": one value each, [B]. "member sample": one for each member of an ensemble too, [members, B], which are
            summed. "sample step": [B, T], the last T steps of stretches, where the batch's mask has them. "batch": one for the
            whole batch, (), which is a mean already.

    Raises:
        ConfigError: it is none of these.
    """
    if axes not in _SHAPES:
        said: Any = axes
        word = str(getattr(said, "__name__", said))  # of @loss without brackets the method's
        raise ConfigError(
            f"A loss is marked with what it gives, as @loss('sample'), and not with {word!r}{did_you_mean(word, _SHAPES)}"
        )

    def say(method: Method) -> Method:
        method.axes = axes  # pyright: ignore[reportFunctionMemberAccess]
        return method

    return say


def axes_said(loss: Loss) -> Axes:
    """The axes that a loss says it has. Raises TypeError where it says none."""
    axes: Axes | None = getattr(loss, "axes", None)
    if axes is None:
        raise TypeError(
            f"The loss {loss.__qualname__} does not say what it gives: mark it {' or '.join(_mark(known) for known in _SHAPES)}."
        )
    return axes


def asked(loss: Loss, nets: Nets, batch: Any, h: Hyper) -> tuple[Tensor, dict[str, Tensor], Axes]:
    """The values and metrics that a loss gives, and the axes that it says they have.

    Raises TypeError where it says none, or gives something else.
    """
    axes, given = axes_said(loss), cast("Any", loss(nets, batch, h))
    if not (isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2 and isinstance(given[1], dict)):
        raise TypeError(
            f"The loss {loss.__qualname__} gives values and a dict of metrics, `return values, {{}}` where it has none, and gave a "
            f"{type(given).__name__}."
        )
    values, metrics = cast("LossValue", given)
    if values.ndim != len(_SHAPES[axes]):
        fit = " or ".join(_mark(other) for other, shape in _SHAPES.items() if len(shape) == values.ndim)
        gave = f"and gave the shape {tuple(values.shape)}{fit and f': mark it {fit}'}"
        raise TypeError(f"The loss {loss.__qualname__} is marked {_mark(axes)}, {gave}.")
    told = cast("dict[str, Any]", metrics)
    if other := next(((name, metric) for name, metric in told.items() if not isinstance(metric, Tensor)), None):
        name, kind = other[0], type(other[1]).__name__
        raise TypeError(f"The loss {loss.__qualname__} gives tensors as metrics, and gave the metric {name!r} as a {kind}.")
    return values, metrics, axes


def _mark(axes: Axes) -> str:
    shape = f"[{', '.join(_SHAPES[axes])}]" if _SHAPES[axes] else "one number, ()"
    return f"@loss({axes!r}) for {shape}"


def precomputed(method: Callable[[Any, Nets, Batch, Hyper], Tensor]) -> Callable[[Any, Nets, Batch, Hyper], Tensor]:
    """A method of an algorithm that several losses of a kind read: after `Verbs.precompute` they find it worked out."""

    @functools.wraps(method)
    def read(self: Any, nets: Nets, batch: Batch, h: Hyper) -> Tensor:
        known = batch.extra.get(method.__name__)
        return method(self, nets, batch, h) if known is None else known

    return read


# ---- kinds of update


class Verbs(Protocol):
    """The learner as a kind of update sees it, which is a method of (verbs, batch) that calls these."""

    def minimise(self, loss: Loss, network: str | tuple[str, ...], batch: Drawn) -> None:
        """One optimiser step of the named networks down the gradient of the mean loss; no other network gets a gradient."""
        ...

    def constrain(
        self, loss: Loss, divergence: Callable[[Nets, Any, Hyper], Tensor], network: str, batch: Drawn, limits: Any
    ) -> None:
        """One step of the network down the mean loss, as far as a mean divergence allows; `limits` is `trust_region.Limits`."""
        ...

    def precompute(self, part: Callable[[Nets, Batch, Hyper], Tensor], batch: Batch) -> Batch:
        """The batch with what a `precomputed` method gives now: for losses of networks that it does not depend on."""
        ...

    def track(self, network: str, rate: str = "tau") -> None:
        """The target moves towards the network by the share `h.RATE`: θ' ← τ θ + (1 - τ) θ'. Batch statistics are copied."""
        ...

    def copy(self, network: str) -> None:
        """The target becomes equal to the network."""
        ...

    def hold(self, test: Callable[[Nets, Any, Hyper], Tensor], network: str, batch: Drawn) -> None:
        """From here on `minimise` leaves the network as it is where `test` is true now, a bool () of one seed, until `release`.

        Parameters stay, and what the optimiser remembers, its count of steps included. No value is read: of a stack each row is
        held for itself. The network is one that `Definition.holds` names.
        """
        ...

    def release(self, network: str) -> None:
        """The network is held no longer."""
        ...


def due(step: int, **every: int) -> tuple[str, ...]:
    """Gives the kinds that are due at gradient step `step` (from 0), in the order given: each at every n-th step.

    `due(step, critic=1, actor=2, targets=2)` is ("critic",) at step 0 and ("critic", "actor", "targets") at step 1.
    """
    return tuple(kind for kind, n in every.items() if (step + 1) % n == 0)


def kind_of_update(algorithm: Any, kind: str) -> Callable[[Any, Drawn], None]:
    """The method of an algorithm that is this kind, which its schedule names. Raises ConfigError where there is none."""
    method: Callable[[Any, Drawn], None] | None = getattr(algorithm, kind, None)
    if method is not None:
        return method
    members = inspect.getmembers_static(type(algorithm), inspect.isfunction)
    known = [name for name, member in members if [*inspect.signature(member).parameters][2:] == ["batch"]]
    raise ConfigError(
        f"The schedule of {algorithm.name} is a tuple of kinds of update, methods of (learner, batch), and {kind!r} is none"
        f"{did_you_mean(kind, known)}"
    )
