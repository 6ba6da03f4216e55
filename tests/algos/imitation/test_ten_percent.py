"""10 % BC: the preset, from Python and YAML, learns from the episodes that a view of the best tenth has; so can any algorithm."""

import numpy as np
import pytest
import yaml

from d3ray.algos.registry import make_algorithm
from d3ray.algos.testing import tiny_dataset

YAML = """
name: IQL
batch_size: 16
sampler: {name: weighted, by: top, share: 0.1, share_of: transitions}
"""


@pytest.mark.parametrize("choice", ["BC", "DiscreteBC", "IQL"])
def test_the_best_tenth_is_what_is_learned_from(choice):
    data = tiny_dataset(discrete=choice == "DiscreteBC")
    settings = yaml.safe_load(YAML) if choice == "IQL" else {"name": choice, "preset": "10-percent", "batch_size": 16}
    made = make_algorithm(settings).fit(data, n_steps=2)
    order = sorted(range(data.n_episodes), key=lambda e: -data.episodes.returns[e])
    chosen, steps = order[:1], int(data.episodes.steps[order[0]])
    while steps + data.episodes.steps[order[len(chosen)]] <= int(0.1 * data.n_transitions):  # as Chen et al. 2021 count
        chosen.append(order[len(chosen)])
        steps += int(data.episodes.steps[chosen[-1]])
    assert data.n_transitions * 0.05 < steps <= data.n_transitions * 0.1
    assert len(chosen) > 1
    sampler, ends = made.fit_.sampler(data), np.cumsum(data.episodes.steps)
    drawn = {int(np.searchsorted(ends, k, side="right")) for step in range(40) for k in sampler.sample(step).index.tolist()}
    assert drawn == set(chosen)
    kept = data.top(0.1, by="transitions")
    assert sorted(kept.episodes.first_row.tolist()) == sorted(data.episodes.first_row[e] for e in chosen)


def test_it_imitates_the_better_of_two_policies():
    """One episode in ten acts 0.8 and earns 1 a step; the others act -0.8 and earn nothing. BC of all would act -0.64."""
    from d3ray import BC, Dataset

    n = 400
    good = (np.arange(n) // 20) % 10 == 3
    last = np.arange(n) % 20 == 19
    action = np.where(good, 0.8, -0.8).astype("f4")[:, None]
    data = Dataset.from_arrays(np.ones((n, 1), "f4"), action, good.astype("f4"), last, np.zeros(n, bool))
    made = BC.from_preset("10-percent", encoder={"hidden_units": [16]}, learning_rate=1e-2).fit(data, n_steps=200)
    assert made.predict(np.ones((1, 1), "f4"))[0, 0] == pytest.approx(0.8, abs=0.05)
