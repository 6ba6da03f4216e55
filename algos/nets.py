"""What a loss sees: named networks of one seed, its hyper-parameters, and random numbers with addresses."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..data.random import fold, normal, uniform
from .networks.training import Training, training

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
    """Networks of one seed, called by name: `nets.policy(observation)`, `nets.target.critic(observation, action)`.

    Args:
        modules: The networks. Where `tensors` has an entry of the same name, the module is run with those parameters and buffers.
        tensors: Parameters and buffers by network, as `torch.func` hands them in; empty when the modules hold their own.
        target: The same for target networks; None for the target itself.
        key: int64 (), the address of this loss.
        dtype: Type of the noise.
        minimised: Networks whose batch statistics are kept.
    """

    target: Nets

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        tensors: Mapping[str, Parameters],
        target: Nets | None,
        key: Tensor,
        dtype: torch.dtype,
        minimised: tuple[str, ...] = (),
    ) -> None:
        self._modules, self._tensors, self._key, self._dtype = modules, tensors, key, dtype
        self._live = target is not None
        self._calls = 0
        self.statistics: dict[str, dict[str, Tensor]] = {name: {} for name in minimised}
        if target is not None:
            self.target = target

    def __getattr__(self, name: str) -> Callable[..., Any]:
        modules: Mapping[str, nn.Module] = self.__dict__["_modules"]
        if name not in modules:
            raise AttributeError(f"There is no network {name!r} here; there are: {', '.join(modules)}.")
        module = modules[name]
        tensors = self._tensors.get(name)

        def call(*inputs: Any) -> Any:
            if tensors is None:
                return module(*inputs)
            with _holding(module, tensors):
                return module(*inputs)

        if not self._live:
            return call

        def call_in_training(*inputs: Any) -> Any:
            self._calls += 1
            address = Training(
                fold(self._key, (zlib.crc32(name.encode()) << 16) + self._calls), self._dtype, self.statistics.get(name)
            )
            with training(address):
                return call(*inputs)

        return call_in_training if _has_training_layers(module) else call

    def noise(self, name: str, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """Standard normal numbers at the address (seed, loss, step, `name`)."""
        return normal(fold(self._key, name), tuple(shape), self._dtype)

    def uniform(self, name: str, shape: tuple[int, ...] | torch.Size) -> Tensor:
        """Uniform numbers on (0, 1) at the address (seed, loss, step, `name`)."""
        return uniform(fold(self._key, name), tuple(shape), self._dtype)


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


def _has_training_layers(module: nn.Module) -> bool:
    """Whether a layer inside behaves otherwise in training; remembered on the module, for it is asked at every call."""
    known = module.__dict__.get("_d3ray_trains")
    if known is None:
        known = any(getattr(layer, "rate", 0) or hasattr(layer, "running_mean") for layer in module.modules())
        module.__dict__["_d3ray_trains"] = known
    return known
