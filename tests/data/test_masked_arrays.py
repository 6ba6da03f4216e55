"""numpy's masked arrays: an entry that is masked is a missing value, so none of what lies under a mask is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray import MDPDataset
from d3ray.algos.acting.inputs import as_batch, raw_actions, raw_inputs
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.spec import Box, Discrete, Spec

SEEN, ENDS = np.array([[0.1], [-9999.0], [0.3], [0.2]], np.float32), np.arange(4) == 3
HIDDEN = np.ma.masked_equal(SEEN, np.float32(-9999.0))
SPEC = Spec(observation=Box(shape=(1,)), action=Discrete(n=2))


def arrays(**change: Any) -> dict[str, Any]:
    return {"observations": SEEN, "actions": [0, 1, 0, 1], "rewards": np.ones(4), "terminated": ENDS} | change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observations": HIDDEN},
            r"observations has 1 masked entry, first in row 1, .* with \.filled\(NUMBER\)",
        ),
        ({"observations": list(HIDDEN)}, "observations has 1 masked entry, first in row 1"),
        ({"observations": {"a": SEEN, "b": HIDDEN}}, r"observations\['b'\] has 1 masked entry"),
        ({"actions": np.ma.array([0, 1, 0, 1], mask=np.arange(4) % 2 == 0)}, "actions has 2 masked entries, first in row 0"),
        ({"rewards": np.ma.array(np.ones(4), mask=ENDS)}, "rewards has 1 masked entry, first in row 3"),
        ({"terminated": np.ma.array(ENDS, mask=ENDS)}, "terminated has 1 masked entry"),
        ({"next_observations": HIDDEN}, "next_observations has 1 masked entry"),
        ({"final_observations": HIDDEN[1:2]}, "final_observations has 1 masked entry, first in row 0"),
        ({"extra": {"log_prob": np.ma.array(np.ones(4), mask=ENDS)}}, "log_prob has 1 masked entry"),
        (
            {"action_mask": np.ma.array(np.ones((4, 2), bool), mask=[[0, 1]] * 4)},
            "action_mask has 4 masked entries",
        ),
    ],
)
def test_masked_entries_are_refused_with_their_number_and_row(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        Dataset.from_arrays(**arrays(**change))
    assert "\n" not in str(refused.value)


def test_an_array_without_masked_entries_is_its_numbers() -> None:
    whole = np.ma.masked_equal(np.abs(SEEN), -1.0)
    assert (
        Dataset.from_arrays(**arrays(observations=whole)).fingerprint
        == Dataset.from_arrays(**arrays(observations=np.abs(SEEN))).fingerprint
    )


def test_datasets_that_grow_replay_and_derived_columns_refuse_them_too() -> None:
    with pytest.raises(DataError, match="actions has 1 masked entry"):
        MDPDataset(SEEN, np.ma.array([0, 1, 0, 1], mask=ENDS), np.ones(4), ENDS)
    with pytest.raises(DataError, match="observation has 1 masked entry"):
        ReplayBuffer(8, SPEC).append(HIDDEN[1:2], [0], [1.0], [False], [False])
    data = Dataset.from_arrays(**arrays())
    with pytest.raises(DataError, match="'observation' has 1 masked entry"):
        _ = data.map_batches(lambda batch: {"observation": np.ma.masked_less(batch["observation"], -1)}).columns["observation"]


def test_policies_refuse_them() -> None:
    with pytest.raises(DataError, match="Observations have 1 masked entry, first in row 1"):
        raw_inputs(SPEC, HIDDEN)
    with pytest.raises(DataError, match="have 1 masked entry"):
        as_batch(SPEC, HIDDEN[1])
    with pytest.raises(DataError, match="Actions have 1 masked entry, first in row 3"):
        raw_actions(SPEC.action, np.ma.array([0, 1, 0, 1], mask=ENDS), 4)
