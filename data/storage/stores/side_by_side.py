"""Requests side by side: a store answers many at once, and each takes as long as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_AT_ONCE = 32

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], at_once: int = _AT_ONCE) -> list[Result]:
    """Call a function with each item, in threads; results are in order, and the first error that one raises is raised."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(at_once, len(items)), "side by side") as pool:
        return list(pool.map(function, items))
