"""The table of estimates: which there are, what is refused with which sentence, what is warned of."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from d3ray.algos.judging.estimates import BANDITS, CRITIC, EPISODES, estimate
from d3ray.algos.judging.logs import Logs
from d3ray.data.errors import ConfigError

from .slow_estimates import random_logs


def bandit(n: int = 400, *, judged: float = 0.7, behaviour: float = 0.5, known: bool = True) -> Logs:
    """Two actions, of which the first pays 1; the judged policy takes it with the probability `judged`."""
    rng = np.random.default_rng(0)
    first = rng.uniform(size=n) < behaviour
    probability = np.where(first, [[behaviour], [judged]], [[1 - behaviour], [1 - judged]])
    with np.errstate(divide="ignore"):
        log_prob, policy_log_prob = np.log(probability)
    values = {"q_value": first + 0.0, "value": np.full(n, judged)} if known else {}
    return Logs(first + 0.0, np.ones(n, int), log_prob, policy_log_prob, **values)


def test_a_table_of_every_estimator_of_one_step() -> None:
    found = estimate(bandit())
    assert tuple(found) == tuple(BANDITS)
    for name in found:
        row = found[name]
        assert row.refused is None
        assert row.value == pytest.approx(0.7, abs=0.06), name
        assert row.interval is not None
        assert row.interval[0] - 1e-9 <= row.value <= row.interval[1] + 1e-9
    weighted = found["SNIPS"]
    # E[w²] = 0.7² / 0.5 + 0.3² / 0.5 = 1.16, so of 400 episodes 345 count
    assert weighted.ess == pytest.approx(400 / 1.16, rel=0.03)
    assert found.data.value == pytest.approx(0.5, abs=0.08)
    assert found.warnings == ()
    assert (found.n_episodes, found.n_steps, found.unsupported) == (400, 400, 0)
    assert json.loads(json.dumps(found.to_dict()))["rows"]["SNIPS"]["value"] == weighted.value
    longer = estimate(random_logs(2, [3] * 200), interval="student", level=0.5)
    assert tuple(longer) == tuple(EPISODES)
    assert longer["DM"].ess is None
    assert longer["DM"].caveat == longer["MAGIC"].caveat == CRITIC
    assert longer["WDR"].caveat is None  # some 130 of 200 episodes count
    assert "longer tails than resamples" in (longer["WIS"].caveat or "")
    uneven = estimate(random_logs(0, [10] * 200))["WPDIS"]
    assert uneven.ess is not None
    assert 30 < uneven.ess < 100
    assert "Less than half of the episodes count effectively" in (uneven.caveat or "")


def test_what_is_missing_is_said() -> None:
    without = estimate(bandit(known=False))
    assert without["DR"].refused == "There is no estimate of the judged policy's values; train FQE for it."
    assert without["IPS"].value is not None
    logs = replace(bandit(), log_prob=None)
    assert "have no 'log_prob'" in (estimate(logs)["IPS"].refused or "")
    assert estimate(logs)["DM"].value == pytest.approx(0.7)
    point = estimate(replace(bandit(), policy_log_prob=None, discrete=False))
    assert point["SNIPS"].refused == (
        "The judged policy takes one action in each state and so never exactly the logged one (100 % of the steps)."
    )
    assert point["SNIPS"].value is point["SNIPS"].interval is None
    assert point.unsupported is None


def test_what_no_rewards_of_the_logs_could_come_to_is_refused() -> None:
    logs = Logs(
        reward=np.array([0.0, 1.0, 1.0, 0.0]),
        steps=np.array([2, 2]),
        log_prob=np.log([0.01, 0.5, 0.5, 0.5]),
        policy_log_prob=np.log([1.0, 1.0, 0.5, 0.5]),
        gamma=0.9,
    )
    found = estimate(logs, ["PDIS", "WPDIS"], least_ess=0)
    # (100 · 2 · 0.9 · 1 + 1) / 2 = 90.5, where 1 / (1 - 0.9) = 10 is the most that rewards of 0 and 1 come to
    assert found["PDIS"].refused == "It comes to 90.5, and rewards like those logged allow 0 to 10."
    assert found["WPDIS"].refused is None
    assert replace(logs, gamma=1.0).possible == (0.0, np.inf)  # others may go on for longer than what was logged
    once = replace(logs, gamma=1.0, steps=np.ones(4, int))
    assert once.possible == (0.0, 1.0)
    last = replace(logs, gamma=1.0, q_value=np.zeros(4), value=np.zeros(4), final_value=np.ones(2))
    assert last.possible == (0.0, np.inf)  # who knows for how long it goes on


def test_a_policy_outside_the_support_is_refused_with_the_share() -> None:
    nowhere = estimate(bandit(judged=0.0, behaviour=1.0))
    assert nowhere["IPS"].refused == (
        "The weights come to 0.0 effective episodes of 400, fewer than 30: in 100.0% of the steps the judged policy never takes "
        "the logged action."
    )
    assert nowhere["DM"].value == pytest.approx(0.0)  # what leans on values is not refused, but nothing says how wrong these are
    assert nowhere["DM"].interval is None
    assert (nowhere["DM"].caveat or "").startswith(
        "Ratios of probabilities average 0 in place of 1, as the judged policy does what"
    )
    assert (
        "From step 0 on, 100.0% of what is discounted, no episode is one that the judged policy could have made."
        in nowhere.warnings
    )


def test_few_effective_episodes_are_refused_and_the_floor_can_be_set() -> None:
    logs = random_logs(1, [40] * 100)
    refused = estimate(logs)
    assert {name for name in refused if refused[name].refused} == {"IS", "WIS", "PDIS", "WPDIS", "DR", "WDR"}
    assert "effective episodes of 100, fewer than 30: the judged policy acts too differently" in (refused["WIS"].refused or "")
    assert refused["WIS"].ess is not None
    assert estimate(logs, ["WIS"], least_ess=0)["WIS"].value is not None
    few = estimate(bandit(20), ["IPS"])["IPS"].refused
    assert few == "The logs hold 20 episodes, fewer than 30, from which weights say too little."


def test_probabilities_that_are_not_those_that_acted_are_warned_of() -> None:
    logs = bandit(4000)
    assert logs.log_prob is not None
    assert estimate(logs, ["DM"]).warnings == ()
    wrong = estimate(replace(logs, log_prob=logs.log_prob - 0.5), ["IPS"]).warnings
    assert "Ratios of probabilities average 1.6" in wrong[0]
    assert "the behaviour's probabilities are too small" in wrong[0]
    # The judged policy takes the second action half of the time, and the data never do.
    narrow = Logs(np.ones(4000), np.ones(4000, int), np.zeros(4000), np.full(4000, np.log(0.5)))
    assert (
        "average 0.5 ± 0 over the steps, where 1 is expected: the judged policy does what the data never show"
        in (estimate(narrow, ["IPS"]).warnings[0])
    )
    assert "were estimated from the data" in estimate(replace(logs, estimated=True), ["IPS"]).warnings[0]


def test_weights_beyond_numbers_are_refused_where_they_are_not_normalised() -> None:
    n = 50
    logs = Logs(np.ones(2000 * n), np.full(n, 2000), np.full(2000 * n, -1.0), np.full(2000 * n, -0.5), gamma=1.0)
    found = estimate(logs, ["IS", "PDIS", "WIS", "WPDIS"])
    assert found["IS"].refused == "Weights are too large for a number; take an estimator that normalises them."
    assert found["WIS"].value == found["WPDIS"].value == pytest.approx(2000)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"There is no estimator 'MAGIK'; did you mean 'MAGIC'\?"):
        estimate(bandit(), ["MAGIK"])
    with pytest.raises(ConfigError, match=r"There is no interval 'hoefding'; did you mean 'hoeffding'\?"):
        estimate(bandit(), interval="hoefding")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="level is 95; it is a number between 0 and 1"):
        estimate(bandit(), level=95)
