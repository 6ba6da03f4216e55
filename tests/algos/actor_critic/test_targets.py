"""When targets move, and by how much."""

import pytest
import torch

from d3ray.algos.actor_critic.ddpg import DDPG
from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.definition import due
from d3ray.algos.in_sample.iql import IQL
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.algos.values.dqn import DQN


def test_kinds_are_due_at_every_so_manieth_step_in_the_order_given():
    assert [due(step, critic=1, actor=2, targets=3) for step in range(6)] == [
        ("critic",),
        ("critic", "actor"),
        ("critic", "targets"),
        ("critic", "actor"),
        ("critic",),
        ("critic", "actor", "targets"),
    ]


@pytest.mark.parametrize(
    ("algorithm", "settings", "moves"),
    [
        (TD3, {}, [2, 4, 6]),  # with the actor, as the paper has it
        (TD3, {"update_actor_interval": 3}, [3, 6]),
        (TD3, {"target_update_interval": 1}, [1, 2, 3, 4, 5, 6]),
        (TD3, {"target_update_interval": 4, "tau": 1.0}, [4]),
        (DDPG, {}, [1, 2, 3, 4, 5, 6]),
        *[(algorithm, {"target_update_interval": 3}, [3, 6]) for algorithm in (DDPG, SAC, IQL)],
        (DQN, {"target_update_interval": 3}, [3, 6]),
        (DQN, {"target_update_interval": 2, "tau": 0.25}, [2, 4, 6]),
    ],
)
def test_targets_move_by_tau_every_so_many_steps(algorithm, settings, moves):
    made, dataset = maker(algorithm, **settings)(dtype="float64"), tiny_dataset(discrete=algorithm is DQN)
    made.fit(dataset, 0)
    tau = made.config_.tau
    for step in range(1, 7):
        before = made.state()[0]
        made.fit(dataset, 1)
        after = made.state()[0]
        for name in (n for n in after if n.startswith("target/")):
            live = after[name.replace("target/", "live/")]
            expected = tau * live + (1 - tau) * before[name] if step in moves else before[name]
            torch.testing.assert_close(after[name], expected, rtol=0, atol=0 if tau == 1 else 1e-15)
