"""Compiled loops where nothing can be kept beside their file."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from d3ray.data.sampling.sum_tree import compiled


def total(x: Any) -> Any:
    found = 0.0
    for k in range(len(x)):
        found += x[k]
    return found


def test_a_loop_is_compiled_anew_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    njit = numba.njit

    def without_cache(function: Any, **options: Any) -> Any:
        if function is total:  # numba compiles others on the way
            made.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    call = compiled(total)
    assert [call(np.arange(5.0)), call(np.arange(3.0))] == [10.0, 3.0]
    assert made == [{"cache": True, "nogil": True}, {"nogil": True}]  # once for both calls
