"""Loops that are compiled when they are first called, for the few that neither NumPy nor torch has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """A function of arrays and numbers, compiled once for each of their types and kept beside its file for later processes.

    Where nothing can be kept, as in an image that is read-only, each process compiles anew, in a second or two. Indices are not
    checked: a function looks at those that come from outside. Other threads run meanwhile.
    """

    @functools.cache
    def made() -> Callable[..., Any]:
        import numba  # takes half a second, and few processes come to it

        try:
            return numba.njit(function, cache=True, nogil=True)
        except RuntimeError:  # "no locator available": neither the file's folder nor the user's cache can be written
            return numba.njit(function, nogil=True)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return made()(*arguments)

    return call  # pyright: ignore[reportReturnType]
