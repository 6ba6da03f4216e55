"""The statistics that the learning table is judged by, against cases that were computed by hand."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "significance.py"


@pytest.fixture(scope="module")
def significance() -> ModuleType:
    spec = importlib.util.spec_from_file_location("significance", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_welch_one_sided(significance: ModuleType):
    # means 3 and 6, variances 2.5 and 10: t = -3 / √(2.5/5 + 10/5) = -1.8974, 2.5² / (0.5²/4 + 2²/4) = 5.8824 degrees of freedom
    a, b = [1, 2, 3, 4, 5], [2, 4, 6, 8, 10]
    assert significance.below(a, b) == pytest.approx(0.1075 / 2, abs=5e-5)
    assert significance.below(b, a) == pytest.approx(1 - 0.1075 / 2, abs=5e-5)


def test_difference(significance: ModuleType):
    # as above: the standard error is √2.5, and Student's t for 5.8824 degrees of freedom lies between 2.4469 (6) and 2.5706 (5)
    apart, half = significance.difference([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert apart == -3
    assert 2.4469 * 2.5**0.5 < half < 2.5706 * 2.5**0.5
    assert half == pytest.approx(2.4587 * 2.5**0.5, abs=2e-3)
    assert significance.difference([2.0, 2.0], [5.0, 5.0]) == (-3, 0)
    assert math.isnan(significance.difference([2.0], [5.0, 6.0])[1])


def test_scores_without_spread_are_compared_as_they_are(significance: ModuleType):
    assert significance.below([1.0, 1.0], [2.0, 2.0]) == 0
    assert significance.below([2.0, 2.0], [2.0, 2.0]) == 1


def test_holm(significance: ModuleType):
    # 3 × 0.01, 2 × 0.03, then 1 × 0.04, which may not lie below the one before it
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([0.5, 0.9]) == [1.0, 1.0]


def test_interval(significance: ModuleType):
    mean, half = significance.interval([1, 2, 3, 4, 5])
    assert (mean, half) == (3, pytest.approx(2.7764 * 2.5**0.5 / 5**0.5, abs=1e-4))  # Student's t for 4 degrees of freedom
