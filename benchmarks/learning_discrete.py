"""The learning table's studies of discrete actions: CartPole, from a replay buffer, from half-random data, and online."""

from __future__ import annotations

from typing import Any

import catch  # noqa: F401  # makes Catch-v0 known
from learning_study import FIVE, Comparison, Study

CARTPOLE = "d3rlpy/cartpole_replay.h5"
BY_HAND = "the same of PFRL's, whose replay buffer is filled with the data and whose `update` is called on what it draws"
ATOMS = {"v_min": 0.0, "v_max": 100.0}
FAST = {"learning_rate": 1e-3, "target_update_interval": 100}
FAST_ACTOR = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}


def _cartpole(name: str, algorithm: str, ours: dict[str, Any], theirs: dict[str, Any] | None = None) -> Study:
    """Discrete actions, learned from a replay buffer of DQN's; beside d3rlpy's, or beside PFRL's where `theirs` has C51's atoms."""
    rival = "pfrl" if theirs and "atoms" in theirs else "d3rlpy"
    both = {"d3rlpy": "the same of d3rlpy's", "pfrl": BY_HAND}[rival] if theirs is not None else "d3rlpy has none"
    preset = theirs is not None and rival == "d3rlpy" and algorithm != "DoubleDQN"
    return Study(
        name=f"cartpole-{name}",
        data=CARTPOLE,
        environment="CartPole-v1",
        algorithm={"name": algorithm, **({"preset": "d3rlpy"} if preset else {}), **ours},
        peer=None if theirs is None else (algorithm, theirs),
        n_steps=15_000,
        every=3_000,
        at_least=None,
        note=f"Rates and copies as cartpole-dqn's where there are some, else defaults; {both}.",
        seeds=FIVE,
        rival=rival,
        stacked=True,
    )


def _half_random(name: str, algorithm: dict[str, Any]) -> Study:
    """Discrete actions, of which the data has half at random."""
    return Study(
        name=f"half-random-{name}",
        data="half-random",
        environment="CartPole-v1",
        algorithm=algorithm,
        peer=None,
        n_steps=3_000,
        every=1_000,
        at_least=None,
        note="1,500 steps of CartPole with half of the actions random and the others of a policy that balances for ever "
        "(`half_random` in `benchmarks/arrays.py`). τ, α and how many steps there are were chosen with seeds 1000 to 1002: with "
        "two actions an unlikely one has a third of the likely one's probability, which BCQ's default τ of 0.3 lets pass. Before, "
        "with 5,000 steps and 6,000 gradient steps, DQN's seeds had ended at 500.0, 500.0, 234.6, 43.6 and 179.9.",
        seeds=FIVE,
        episodes=20,
        stacked=True,
    )


def _online(name: str, algorithm: dict[str, Any], explorer: Any = None) -> Study:
    """Discrete actions, learned while acting, within 50,000 steps of the environments."""
    n_steps = 64 * 382  # after every 128 steps of the environments from the 1,024th on: 49,792 steps
    falling = {"name": "adam", "schedule": {"name": "linear", "duration": n_steps}}
    return Study(
        name=f"online-{name}",
        data=None,
        environment="CartPole-v1",
        algorithm={**ONLINE, "optimizer": falling, **algorithm},
        peer=None,
        n_steps=n_steps,
        every=n_steps // 8,
        at_least=475.0,
        note=ONLINE_NOTE,
        seeds=FIVE,
        episodes=20,
        online={
            "n_envs": 16,
            "update_interval": 8,
            "n_updates": 64,
            "update_start_step": 64,
            "explorer": explorer or {"name": "epsilon_greedy", "start": 1.0, "end": 0.04, "duration": 500},
        },
        stacked=True,
        counts="best",
    )


ONLINE: dict[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "target_update_interval": 128,
    "encoder": {"hidden_units": [256, 256]},
}
ONLINE_NOTE = (
    "Sixteen environments side by side, fewer than 50,000 steps of theirs together, 64 updates after every 128; ε falls from 1 to "
    "0.04 over 8,000, and the rate to 0. Settings are RL Baselines3 Zoo's of DQN but for the rate's fall, and were tried with "
    "seeds 1000 to 1002: all three stood at 500. They are the same for all of these studies but for what an algorithm has of its "
    "own. With a rate of 1e-3, 64 units, returns of three steps and 48 updates three of five seeds of DQN had come to 475, and "
    "none of PAL, C51, IQN and Rainbow."
)
ONLINE_ATOMS = {"name": "categorical", **ATOMS}

DISCRETE = (
    Study(
        name="cartpole-dqn",
        data=CARTPOLE,
        environment="CartPole-v1",
        algorithm={"name": "DQN", "learning_rate": 1e-3, "target_update_interval": 100},
        peer=("DQN", {"learning_rate": 1e-3, "target_update_interval": 100, "epsilon": 1.5e-4}),
        n_steps=15_000,
        every=3_000,
        at_least="data",
        note="With its defaults (6.25e-5, a copy every 8,000 steps) DQN learns nothing so soon; with these it does, and swings.",
        seeds=FIVE,
        stacked=True,
    ),
    Study(
        name="cartpole-bc",
        data=CARTPOLE,
        environment="CartPole-v1",
        algorithm={"name": "DiscreteBC"},
        peer=("DiscreteBC", {}),
        n_steps=15_000,
        every=3_000,
        at_least=400.0,
        note="Defaults of both sides.",
        seeds=FIVE,
        stacked=True,
    ),
    _cartpole("double-dqn", "DoubleDQN", FAST, FAST),
    _cartpole("discrete-cql", "DiscreteCQL", FAST, FAST),
    _cartpole("discrete-bcq", "DiscreteBCQ", FAST, FAST),
    _cartpole(
        "discrete-sac", "DiscreteSAC", {**FAST_ACTOR, "target_update_interval": 100}, {**FAST_ACTOR, "target_update_interval": 100}
    ),
    _cartpole(
        "c51",
        "CategoricalDQN",
        {**FAST, "q_function": {"name": "categorical", **ATOMS}},
        {**FAST, "atoms": {**ATOMS, "n_atoms": 51}, "batch_size": 32, "epsilon": 1.5e-4},
    ),
    _cartpole("iqn", "IQN", FAST),
    _cartpole("discrete-iql", "DiscreteIQL", {}),
    Study(
        name="catch-dqn",
        data=None,
        environment="Catch-v0",
        algorithm={
            "name": "DQN",
            "encoder": {"name": "pixel", "filters": [[16, 8, 4], [32, 4, 2]], "feature_size": 128},
            "observation_scaler": "pixel",
            "sampler": {"name": "uniform", "frames": 4},
            "learning_rate": 5e-4,
            "target_update_interval": 100,
            "gamma": 0.95,
        },
        peer=None,
        n_steps=3_000,
        every=500,
        at_least=0.8,
        note="84×84 frames of `benchmarks/catch.py`, four to an observation; 1 is a ball caught, -1 one missed, -0.5 what random "
        "actions get. Four environments, an update after a step of each.",
        seeds=FIVE,
        episodes=100,
        online={
            "n_envs": 4,
            "random_steps": 250,
            "capacity": 20_000,
            "explorer": {"name": "epsilon_greedy", "end": 0.05, "duration": 1_500},
        },
    ),
    _half_random("dqn", {"name": "DQN", **FAST}),
    _half_random("discrete-cql", {"name": "DiscreteCQL", **FAST, "alpha": 10.0}),
    _half_random("discrete-bcq", {"name": "DiscreteBCQ", "preset": "paper-vectors", "action_flexibility": 0.5}),
    _half_random("discrete-iql", {"name": "DiscreteIQL", "batch_size": 64}),
    _online("dqn", {"name": "DQN"}),
    _online("pal", {"name": "PAL"}),
    _online("c51", {"name": "CategoricalDQN", "q_function": ONLINE_ATOMS}),
    _online(
        "iqn", {"name": "IQN", "q_function": {"name": "iqn", "n_quantiles": 16, "n_target_quantiles": 16, "n_greedy_quantiles": 16}}
    ),
    _online("rainbow", {"name": "Rainbow", "q_function": {**ONLINE_ATOMS, "dueling": True, "noisy": 0.5}}, explorer="policy"),
)
BESIDE, POOR = "discrete actions, ours beside d3rlpy's or PFRL's", "half-random data, DQN beside what keeps to the data"
DISCRETE_COMPARISONS = (
    *(
        Comparison(BESIDE, (f"cartpole-{name}", "d3ray"), (f"cartpole-{name}", "pfrl" if name == "c51" else "d3rlpy"))
        for name in ("dqn", "bc", "double-dqn", "discrete-cql", "discrete-bcq", "discrete-sac", "c51")
    ),
    *(
        Comparison(POOR, ("half-random-dqn", "d3ray"), (f"half-random-{name}", "d3ray"))
        for name in ("discrete-cql", "discrete-bcq", "discrete-iql")
    ),
)
