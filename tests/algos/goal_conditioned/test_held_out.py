"""Data that are held out, of what is told a goal: its losses, and no comparison with actions whose goals nobody knows."""

import pytest

from d3ray.algos.goal_conditioned.gciql import GCIQL
from d3ray.algos.goal_conditioned.hiql import HIQL
from d3ray.algos.goal_conditioned.sharsa import SHARSA
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.testing import maker, tiny_dataset


@pytest.mark.parametrize("algorithm", [GCIQL, HIQL, SHARSA])
@pytest.mark.parametrize("aimed", [True, False])
def test_losses_are_read_on_data_with_goals_and_without(algorithm, aimed):
    data = tiny_dataset(discrete=False)
    made = maker(algorithm)(seed=1).fit(data, 3, 3)
    found = HeldOut(data.with_goals() if aimed else data)(made, 1)
    assert {name for name in found if name.endswith("_loss")} == {
        name.split("/")[-1] for name in made.fit_.measured[0][-1] if name.endswith("_loss")
    }
    assert "action_error" not in found
