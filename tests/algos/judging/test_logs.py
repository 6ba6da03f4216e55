"""What estimates are made from: which arrays are refused, and by what sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.algos.judging.logs import Logs
from d3ray.data.errors import ConfigError, DataError

HALF = np.log(0.5)
GOOD: dict[str, Any] = {"reward": [1.0, 2, 3], "steps": [1, 2], "log_prob": [HALF] * 3, "policy_log_prob": [HALF] * 3}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"log_prob": [HALF, HALF]}, r"log_prob has the shape \[2\]; it takes 3 numbers, one a step"),
        (
            {"final_value": [0.0] * 3, "value": [0.0] * 3, "q_value": [0.0] * 3},
            r"final_value .* it takes 2 numbers, one an episode",
        ),
        ({"reward": [1.0, np.nan, 3]}, "reward is nan in row 1"),
        ({"policy_log_prob": [HALF, HALF, np.nan]}, "policy_log_prob is nan in row 2"),
        ({"log_prob": [HALF, -np.inf, HALF]}, "log_prob is -inf in row 1: the behaviour has a probability of 0 for the action"),
        ({"log_prob": [HALF, 0.5, HALF]}, "log_prob is 0.5 in row 1, a probability of 1.649, above 1; it takes natural logarithms"),
        ({"policy_log_prob": [0.1, HALF, HALF]}, "policy_log_prob is 0.1 in row 0, a probability of 1.105, above 1"),
        ({"policy_log_prob": [np.inf] * 3, "discrete": False}, "a deterministic policy of continuous actions has no density"),
        ({"steps": [3]}, "The logs hold one episode, which does not tell how far others would differ; give two or more"),
        ({"steps": [3, 0]}, "steps are whole numbers, one an episode and each at least 1"),
        ({"steps": [1.0, 2.0]}, "steps are whole numbers"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Logs(**{**GOOD, **more})


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gamma is 1.1; it is a number from 0 to 1"):
        Logs(**GOOD, gamma=1.1)
    with pytest.raises(ConfigError, match="There is value and no q_value; estimates need both or neither"):
        Logs(**GOOD, value=[0.0] * 3)


def test_of_continuous_actions_densities_may_be_large_and_of_the_judged_policy_zero() -> None:
    logs = Logs(**{**GOOD, "log_prob": [3.0, HALF, HALF], "policy_log_prob": [4.0, -np.inf, HALF]}, discrete=False)
    assert logs.unsupported == pytest.approx(1 / 3)
    assert logs.log_weight.tolist() == [1.0, -np.inf, -np.inf]


def test_a_dataset_gives_its_steps_and_the_behaviours_probabilities() -> None:
    extra = {"log_prob": np.log([0.25, 0.5, 0.75, 1.0])}
    dataset = Dataset.from_arrays(np.ones((4, 2)), [0, 1, 1, 0], [1, 2, 3, 4], [0, 1, 0, 1], extra=extra)
    logs = Logs.of(dataset, np.full(4, HALF), gamma=0.5)
    assert logs.reward.tolist() == [1, 2, 3, 4]
    assert logs.steps.tolist() == [2, 2]
    assert logs.returns.tolist() == [2, 5]
    assert logs.discrete
    np.testing.assert_allclose(np.exp(logs.log_ratio), [2, 1, 2 / 3, 0.5], rtol=1e-6)
    assert Logs.of(dataset.take([1]).concat([dataset.take([1]), dataset.take([0])]), None).reward.tolist() == [3, 4, 1, 2]
    given = Logs.of(dataset, np.full(4, HALF), log_prob=np.full(4, HALF), estimated=True)
    assert given.log_weight.tolist() == [0] * 4
    bare = Dataset.from_arrays(np.ones((4, 2)), np.ones((4, 1)), [1, 2, 3, 4], [0, 1, 0, 1])
    assert Logs.of(bare, None).log_prob is None
    assert not Logs.of(bare, None).discrete
    with pytest.raises(DataError, match="The data have no 'log_prob'"):
        _ = Logs.of(bare, None).log_weight
