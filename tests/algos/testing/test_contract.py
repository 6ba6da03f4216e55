"""Every algorithm keeps the contract, plain and in combinations that cover every pair of its settings' kinds.

What the contract catches is in test_contract_broken.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
from torch import Tensor

from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.definition import loss
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.testing import Check, check_export_acts_as_predict, check_name
from d3ray.algos.values.dqn import DQN, DQNConfig
from d3ray.data.config import setting

from .contract_cells import cell_settings, cells
from .pairwise import Cell

MOST, OF_ANOTHER, OF_AN_HEIR = 4, 2, 1  # cells of SAC and DQN, of others, and of heirs to a page; the slow test has them all
CELLS = [(name, check) for name in algorithm_names() for check in testing.CHECKS]


@pytest.mark.parametrize(("name", "check"), CELLS, ids=[f"{name}-{check_name(check)}" for name, check in CELLS])
def test_contract(name: str, check: Check) -> None:
    quick: dict[Check, Check] = {check_export_acts_as_predict: partial(check, onnx=False)}  # ONNX takes seconds: test_export.py
    quick[testing.check_settings_matter] = partial(check, names=own_settings(name))
    quick.get(check, check)(testing.maker(algorithm_class(name)))


def heir_to(name: str) -> type[Algorithm] | None:
    """The page that an algorithm's page inherits."""
    pages = set(map(algorithm_class, algorithm_names()))
    return next((cls for cls in algorithm_class(name).__mro__[1:] if cls in pages), None)


def own_settings(name: str) -> list[str]:
    """Those that an heir adds, gives another default, or says to have no effect; all of one that has none, or is no heir."""
    algorithm, above = algorithm_class(name), heir_to(name)
    fields, known = algorithm.Config.model_fields, above.Config.model_fields if above else {}
    own = [n for n, field in fields.items() if n not in known or field.default != known[n].default or n in algorithm.exemptions]
    return own or list(fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in algorithm_names() if heir_to(name)])
def test_settings_that_are_inherited_matter(name: str) -> None:
    testing.check_settings_matter(testing.maker(algorithm_class(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", algorithm_names())
def test_long_runs_and_exports_keep_the_contract(name: str) -> None:
    make = testing.maker(algorithm_class(name))
    testing.check_row_equals_single_run(make, n_steps=300)
    check_export_acts_as_predict(make)


@pytest.mark.long
@pytest.mark.parametrize("name", algorithm_names())
def test_settings_keep_the_contract_together(name: str) -> None:
    for cell in cells(name, OF_AN_HEIR if heir_to(name) else MOST if name in ("SAC", "DQN") else OF_ANOTHER):
        keeps_the_contract(name, cell)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", algorithm_names())
def test_every_pair_of_settings_keeps_the_contract(name: str) -> None:
    for cell in cells(name):
        keeps_the_contract(name, cell)


def keeps_the_contract(name: str, cell: Cell) -> None:
    """What can go wrong where settings meet: shapes, stacks, state, exports."""
    settings = cell_settings(name, cell)
    make = testing.maker(algorithm_class(name), **settings)
    exact = testing.maker(algorithm_class(name), **{**settings, "matmul_precision": "float32"})  # the first check is of float64
    try:
        # A bias before batch norm has a gradient of zero, and of rounding; optimisers that norm gradients make steps of it.
        testing.check_row_equals_single_run(exact, n_steps=5, tolerance=1e-7, seeds=(3, 4))
        testing.check_resumes_bit_for_bit(make, n_steps=3)
        testing.check_update_reads_no_value(make, stacks=[(3, 4)])
        testing.check_predictions(make)
        check_export_acts_as_predict(make, onnx=False)
    except Exception as error:
        error.add_note(f"{name} with {', '.join(f'{n}={v!r}' for n, v in settings.items())}")
        raise


class WithDeltaConfig(DQNConfig):
    delta: float = setting(2.0, "weight of the loss", gt=0)


WAYS = {"times": lambda d: 0.5 * d, "by": lambda d: d / 2, "under": lambda d: 1 / d, "mixed": lambda d: (1 - d).exp() * 2 + 3}


@pytest.mark.parametrize("weigh", WAYS.values(), ids=WAYS)
def test_python_numbers_may_meet_coefficients(weigh: Callable[[Tensor], Tensor]) -> None:
    class Weighs(DQN):
        Config: ClassVar = WithDeltaConfig

        @loss("member sample")
        def critic_loss(self, nets: Any, batch: Any, h: Any) -> Any:
            values, metrics = super().critic_loss(nets, batch, h)
            return values * weigh(h.delta), metrics

    testing.check_update_reads_no_value(testing.maker(Weighs))
