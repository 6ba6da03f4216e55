"""The number of a configuration, worked by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from d3ray.data.errors import ConfigError
from d3ray.platform.settings.objective import Objective

SEEDS = {0: {"evaluation/return": 1.0}, 1: {"evaluation/return": 2.0}, 2: {"evaluation/return": 6.0}}


def test_the_mean_leaves_out_what_failed_and_what_is_no_number() -> None:
    objective = Objective()
    assert objective.of(SEEDS) == 3.0
    assert objective.of(SEEDS, failed=[2]) == 1.5
    assert objective.of({**SEEDS, 3: {"evaluation/return": math.nan}, 4: {}, 5: {"evaluation/return": math.inf}}) == 3.0
    assert objective.of({0: {"other": 1.0}}) is None
    assert objective.of(SEEDS, failed=[0, 1, 2]) is None


def test_the_interquartile_mean() -> None:
    objective = Objective(seeds="iqm")
    assert objective.aggregate([100, 1, 2, 3]) == 2.5  # without 1 and 100
    assert objective.aggregate([0, 1, 2, 3, 4, 5, 60, 80]) == 3.5  # without 0, 1, 60 and 80
    assert objective.aggregate([1, 2, 9]) == 4.0  # too few to leave any out
    values = [0.3, 8.0, -4.0, 2.0, 2.5, 7.0, 1.0, 1.5, 11.0, -2.0]
    assert objective.aggregate(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_the_lower_bound() -> None:
    objective = Objective(seeds="lower_bound")
    # mean 2, s = 1, n = 3, t(0.95, 2) = 2.919986
    assert objective.aggregate([1, 2, 3]) == pytest.approx(2 - 2.919986 / math.sqrt(3), abs=1e-6)
    interval = stats.t.interval(0.90, 4, loc=3.0, scale=stats.sem([1, 2, 3, 4, 5]))  # its lower end has 5 % below it
    assert objective.aggregate([1, 2, 3, 4, 5]) == pytest.approx(interval[0])
    assert objective.aggregate([1.0]) is None
    costs = Objective(metric="holdout/td_error", seeds="lower_bound")
    assert costs.aggregate([1, 2, 3]) == pytest.approx(2 + 2.919986 / math.sqrt(3), abs=1e-6)


def test_which_way_is_better() -> None:
    assert Objective().direction == "max"
    assert Objective(metric="holdout/action_error").direction == "min"
    assert Objective(metric="holdout/action_error", mode="max").direction == "max"
    assert Objective().is_better(2, 1)
    assert Objective(metric="train/critic_loss").is_better(1, 2)


def test_short_form_and_errors() -> None:
    assert Objective.model_validate("holdout/td_error").metric == "holdout/td_error"
    with pytest.raises(ConfigError, match="objective has no setting 'modus'; did you mean 'mode'"):
        Objective.checked({"modus": "max"})


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("evaluation/return", ""),
        ("evaluation/normalized_return", ""),
        ("holdout/td_error", "how well something learned fits the data"),
        ("train/critic_loss", "how well something learned fits the data"),
        ("holdout/action_error", "how alike a policy acts to whoever made the logs"),
        ("scorers/initial_state_value_estimation", "what an algorithm takes its policy to be worth"),
    ],
)
def test_what_ranks_no_policies_says_so(metric: str, says: str) -> None:
    said = Objective(metric=metric).caution
    assert (says in said, bool(said), "does not rank policies" in said) == (True, bool(says), bool(says))
