"""Every algorithm keeps the contract, plain and in combinations that cover every pair of its settings' kinds.

What the contract catches is in test_contract_broken.py.
"""

from __future__ import annotations

from functools import partial

import pytest

from d3ray.algos import testing
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.testing import Check, check_export_acts_as_predict, check_name

CELLS = [(name, check) for name in algorithm_names() for check in testing.CHECKS]


@pytest.mark.parametrize(("name", "check"), CELLS, ids=[f"{name}-{check_name(check)}" for name, check in CELLS])
def test_contract(name: str, check: Check) -> None:
    quick = {check_export_acts_as_predict: partial(check, onnx=False)}  # ONNX takes seconds, and test_export.py has it
    quick.get(check, check)(testing.maker(algorithm_class(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithm_names())
def test_long_runs_and_exports_keep_the_contract(name: str) -> None:
    make = testing.maker(algorithm_class(name))
    testing.check_row_equals_single_run(make, n_steps=300)
    check_export_acts_as_predict(make)
