"""Values of a dataset's steps beside those that are asked for episode by episode, at every kind of end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray import BC, FQE, Dataset
from d3ray.algos.judging.decisions import decisions, policy_of
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.values import policy_values

GAMMA = 0.9


@pytest.mark.parametrize("recorded", [False, True])
def test_values_are_those_of_the_policy_and_of_what_comes_after_the_end_as_far_as_it_is_known(recorded: bool) -> None:
    rng = np.random.default_rng(0)
    seen, action, reward = rng.normal(size=(30, 2)).astype(np.float32), rng.uniform(-3, 2, size=(30, 1)), rng.normal(size=30)
    ends = {"terminated": np.isin(np.arange(30), (4, 19)), "truncated": np.isin(np.arange(30), (5, 29))}
    final = rng.normal(size=(4, 2)).astype(np.float32) if recorded else None
    data = Dataset.from_arrays(seen, action, reward, **ends, final_observations=final, name="ends")
    settings: Any = {"observation_scaler": "standard", "action_scaler": "min_max"}
    judged = BC(**settings).fit(data, 10, 10)
    fqe = FQE(algo=judged, gamma=GAMMA, **settings).fit(data, 20, 20)
    found = policy_values(fqe, data, decisions(policy_of(judged, data.spec), data))
    q_value = fqe.predict_value(seen, action)
    np.testing.assert_allclose(found.q_value, q_value, atol=1e-5)
    np.testing.assert_allclose(found.value, fqe.predict_value(seen, judged.predict(seen)), atol=1e-5)
    np.testing.assert_allclose(found.initial, found.value[[0, 5, 6, 20]])
    after = np.zeros(4)
    for episode, last in ((1, 5), (3, 29)):  # those that were cut
        if final is None:
            after[episode] = (q_value[last] - reward[last]) / GAMMA
        else:
            after[episode] = fqe.predict_value(final[episode, None], judged.predict(final[episode, None]))[0]
    np.testing.assert_allclose(found.final_value, after, atol=1e-5)
    values: Any = {"q_value": found.q_value, "value": found.value, "final_value": found.final_value}
    surprise = Logs.of(data, None, gamma=GAMMA, **values).surprise
    assert (np.abs(surprise[[5, 29]]) < 1e-5).all() == (not recorded)
