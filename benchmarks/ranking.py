"""How FQE ranks policies: 20 of CartPole and 20 of Pendulum, by their values from logs alone and by what they returned when played.

    python benchmarks/ranking.py [--only cartpole|pendulum] [--again]

A policy is trained on the shipped logs for 20 to 8,000 steps, so some are bad; FQE judges it by the same logs, and 50 episodes are
played. Every policy is a cell of `benchmarks/results/ranking.json`; those that are there are not done again. `ranking.md` has rank
correlation with a 95 % interval over policies, and the shortfall at k. FQE has its defaults, and `value_bounds` as
`d3ray judge` sets them. Without these it was seen to diverge for four of the first five policies, which chose this default.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from workers import keep, kept, page, table

from d3ray.algos.environments.collect import collect
from d3ray.algos.judging.decisions import decisions, policy_of
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.selection import select
from d3ray.algos.judging.values import policy_values
from d3ray.algos.registry import make_algorithm
from d3ray.data.dataset import Dataset

GAMMA, EPISODES, SEEDS = 0.99, 50, 1
FQE: dict[str, Any] = {"observation_scaler": "standard", "gamma": GAMMA, "value_bounds": "rewards"}
N_STEPS = 20_000
SCALED = {"action_scaler": "min_max"}
CQL = {"name": "DiscreteCQL", "learning_rate": 1e-3, "target_update_interval": 100}
STUDIES: dict[str, dict[str, Any]] = {
    "cartpole": {
        "environment": "CartPole-v1",
        "dataset": "d3ray/cartpole-replay",
        "algorithms": [{"name": "DQN", "preset": "small"}, CQL],
        "also": {"name": "DiscreteBC"},
        "judge": {"name": "DiscreteFQE"},
    },
    "pendulum": {
        "environment": "Pendulum-v1",
        "dataset": "d3ray/pendulum-replay",
        "algorithms": [{"name": "TD3PlusBC", **SCALED}, {"name": "IQL", **SCALED}],
        "also": {"name": "BC", **SCALED},
        "judge": {"name": "FQE", **SCALED},
    },
}
STEPS = (50, 150, 300, 600, 1000, 2000, 3000, 5000, 8000)


def policies(study: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Twenty: a name, an algorithm and gradient steps each."""
    for algorithm in study["algorithms"]:
        yield from ((f"{algorithm['name']}, {n} steps", algorithm, n) for n in STEPS)
    yield from ((f"{study['also']['name']}, {n} steps", study["also"], n) for n in (20, 2000))


def cell(study: dict[str, Any], algorithm: dict[str, Any], n_steps: int) -> dict[str, float]:
    """What FQE says of a policy, and what it returned."""
    data = Dataset.open(study["dataset"])
    policy = make_algorithm(algorithm, seed=0, device="cpu").fit(data, n_steps, n_steps)
    judged = decisions(policy_of(policy, data.spec), data)
    fqe = make_algorithm({**study["judge"], **FQE, "algo": policy}, seed=0, device="cpu").fit(data, N_STEPS, N_STEPS)
    played = collect(study["environment"], policy.policy(), n_episodes=EPISODES, n_envs=10, seed=1)
    returns = Logs.of(played, None, gamma=GAMMA).returns
    return {
        "estimate": float(policy_values(fqe, data, judged).initial.mean()),
        "played": float(returns.mean()),
        "standard_error": float(returns.std(ddof=1) / np.sqrt(len(returns))),
    }


def summary(cells: dict[str, dict[str, dict[str, float]]]) -> str:
    """The page."""
    header = [
        "environment",
        "policies",
        "rank correlation (95 %)",
        "correlation",
        "shortfall at 1, 3, 5",
        "spread of what was played",
    ]
    rows, parts = list[list[str]](), list[str]()
    for name, found in cells.items():
        estimate, true = (np.array([one[key] for one in found.values()]) for key in ("estimate", "played"))
        chosen, environment = select(estimate, true), STUDIES[name]["environment"]
        low, high = chosen.interval or (np.nan, np.nan)
        ranks = f"{chosen.rank_correlation:.2f} ({low:.2f} to {high:.2f})"
        lost = ", ".join(f"{value:.3g}" for value in chosen.shortfall.values())
        pearson, spread = f"{np.corrcoef(estimate, true)[0, 1]:.2f}", f"{true.min():.4g} to {true.max():.4g}"
        rows.append([environment, f"{len(found)}", ranks, pearson, lost, spread])
        lines = [
            [policy, f"{one['estimate']:.4g}", f"{one['played']:.4g} ± {one['standard_error']:.2g}"]
            for policy, one in sorted(found.items(), key=lambda item: -item[1]["played"])
        ]
        parts.append(f"## {environment}\n\n{table(['policy', 'FQE', 'played'], lines)}")
    settings = ", ".join(f"{key} = {value}" for key, value in FQE.items())
    return page("ranking", n_steps=N_STEPS, settings=settings, table=table(header, rows), studies="\n\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=STUDIES)
    parser.add_argument("--again", action="store_true", help="do cells again that are there")
    told = parser.parse_args()
    cells: dict[str, dict[str, dict[str, float]]] = kept("ranking", {})
    for name, study in STUDIES.items():
        if told.only in (None, name):
            there = cells.setdefault(name, {})
            for label, algorithm, n_steps in policies(study):
                if label not in there or told.again:
                    there[label] = cell(study, algorithm, n_steps)
                    print(f"{name}: {label}: {there[label]}", flush=True)
                    keep("ranking", cells)
    keep("ranking", cells, summary(cells))
    print(summary(cells))


if __name__ == "__main__":
    main()
