"""Observations and actions in whatever form a caller has them: what NumPy can convert is taken, the rest refused in a sentence."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d3ray
from d3ray.algos.acting.plain import plain_array
from d3ray.algos.export.package import read_package
from d3ray.data.errors import DataError

RNG = np.random.default_rng(0)
SEEN = RNG.normal(size=(6, 3)).astype(np.float32)
DONE = RNG.uniform(-1, 1, (6, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def trained() -> d3ray.TD3PlusBC:
    encoder = {"hidden_units": (8,)}
    settings: Any = {"actor_encoder": encoder, "critic_encoder": encoder}
    data = d3ray.Dataset.from_arrays(SEEN.repeat(5, 0), DONE.repeat(5, 0), np.ones(30), np.arange(30) % 10 == 9)
    return d3ray.TD3PlusBC(seed=0, batch_size=4, **settings).fit(data, n_steps=2)


def as_objects(array: np.ndarray) -> np.ndarray:
    rows = np.empty(len(array), object)
    rows[:] = list(array)
    return rows


FORMS: dict[str, Any] = {
    "negative strides": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "big-endian": lambda x: x.astype(">f4"),
    "objects": lambda x: x.astype(object),
    "arrays as objects": as_objects,
    "float128": lambda x: x.astype(np.longdouble),
    "Fortran": np.asfortranarray,
    "lists": lambda x: x.tolist(),
    "tensor with a gradient": lambda x: torch.tensor(x, requires_grad=True),
    "masked nowhere": lambda x: np.ma.MaskedArray(x, mask=False),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_numbers_act_alike(trained: d3ray.TD3PlusBC, form: str, tmp_path: Path) -> None:
    other = FORMS[form]
    action = trained.predict(SEEN)
    np.testing.assert_array_equal(trained.predict(other(SEEN)), action)
    np.testing.assert_array_equal(trained.predict(other(SEEN)[0]), trained.predict(SEEN[0]))
    assert trained.sample_action(other(SEEN)).shape == (6, 2)
    np.testing.assert_array_equal(trained.predict_value(other(SEEN), other(DONE)), trained.predict_value(SEEN, DONE))
    trained.save_policy(tmp_path / "policy")
    np.testing.assert_allclose(read_package(tmp_path / "policy").predict(other(SEEN)), action, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (SEEN.astype(str), "Observations are of the type <U32, which are no numbers: give floats or integers."),
        (SEEN.astype(complex), "Observations are of the type complex128, which are no numbers"),
        (np.full((6, 3), "2020-01-01", "datetime64[D]"), "Observations are of the type datetime64"),
        (np.array([[None, 1, 2]] * 6), "observation is NaN or infinite in 6 of 6 rows"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], "Observations are no array of numbers"),
        (
            np.ma.masked_greater(SEEN, 0.5),
            r"Observations have \d+ masked entries, first in row \d+, and what is masked is no value",
        ),
        ({"a": SEEN}, r"Observations hold objects \(dict\) that are no array of numbers"),
    ],
)
def test_what_is_no_number_is_refused_in_a_sentence(trained: d3ray.TD3PlusBC, given: Any, said: str) -> None:
    for act in (trained.predict, trained.sample_action, lambda x: trained.predict_value(x, DONE)):
        with pytest.raises(DataError, match=said):
            act(given)


def test_actions_are_read_alike_and_refused_alike(trained: d3ray.TD3PlusBC) -> None:
    with pytest.raises(DataError, match="Actions are of the type <U32"):
        trained.predict_value(SEEN, DONE.astype(str))
    with pytest.raises(DataError, match=r"Actions are NaN or infinite in 1 of 6 rows, first in row 2\."):
        trained.predict_value(SEEN, np.where(np.arange(6)[:, None] == 2, np.nan, DONE))


def test_numbers_keep_their_kind() -> None:
    assert plain_array(np.arange(3, dtype=np.uint16), "These").dtype == np.int64
    assert plain_array(np.array([2**64 - 1], np.uint64), "These").dtype == np.float64
    assert plain_array(np.zeros(3, np.uint8), "These").dtype == np.uint8
    assert plain_array(np.array([Decimal("1.5")]), "These").tolist() == [1.5]
    same = np.zeros((3, 2), np.float32)
    assert plain_array(same, "These") is same
