"""What a check raises, and what it leaves out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..base import Algorithm

Make = Callable[..., Algorithm]  # (**run) -> an algorithm with the settings under test
Check = Callable[..., None]  # (make): one sentence about an algorithm, which is its docstring


class ContractError(AssertionError):
    """An algorithm breaks the contract; the message says which part, by how much, and where to look."""


def check(function: Check) -> Check:
    """Makes a function a check: an algorithm whose `exemptions` name it, with a reason, is let off."""
    name = check_name(function)

    @functools.wraps(function)
    def checked(make: Make, **options: Any) -> None:
        if name not in make().exemptions:
            function(make, **options)

    return checked


def check_name(function: Check) -> str:
    return function.__name__.removeprefix("check_")


def largest_difference(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> tuple[str, float]:
    """The tensor where two states differ most, and by how much, relative to its largest entry where that is more than 1.

    Infinite where one has other names or a value is NaN.
    """
    if a.keys() != b.keys():
        return min(a.keys() ^ b.keys()), float("inf")
    gaps = {name: _gap(a[name].double(), b[name].double()) for name in a if a[name].numel()}
    worst = max(gaps, key=gaps.__getitem__)
    return worst, gaps[worst]


def _gap(a: Tensor, b: Tensor) -> float:
    gap = (a - b).abs().nan_to_num(nan=float("inf")).max()
    return float(gap / a.abs().nan_to_num(nan=0.0).max().clamp(min=1.0))


def live(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith("live/")}


def wanted(algorithm: Algorithm) -> Any:
    return algorithm.wants(algorithm.check_settings())
