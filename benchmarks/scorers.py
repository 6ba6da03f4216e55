"""Scorers beside d3rlpy 2.8.1's evaluators, number by number, and all eleven over a million transitions.

    make peer && python benchmarks/scorers.py [--transitions 1000000]

Both sides have the same weights and the same transitions: 20,000 of noise, whose episodes terminate or are cut with their final
observation recorded. The standard deviation of an ensemble and playing in an environment have no row: d3rlpy 2.8.1 has no
evaluator of the first, and its episodes begin anywhere. The eleven are timed one by one, as `scorer(algorithm, dataset)`, with two
threads: those of discrete actions and of an environment with DQN (256 × 256), the others with TD3 (two critics, 256 × 256). The
result goes to `benchmarks/results/scorers.md` and `scorers.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once: on a busy machine a thread that waits would take a core to spin

import numpy as np
import torch
from fidelity import perturb, weights
from tasks import cartpole_like, for_peer, hopper_like
from workers import Worker, keep, machine, page, table, today

from d3ray import MDPDataset
from d3ray.algos.judging.evaluators import Scores
from d3ray.algos.judging.scorers import (
    SCORERS,
    compare_continuous_action_diff,
    compare_discrete_action_match,
    evaluate_on_environment,
    soft_opc_scorer,
)
from d3ray.algos.registry import make_algorithm
from d3ray.data.dataset import Dataset

BOUND, LIMIT = 1e-5, 60.0  # of differences, and of seconds
BESIDE, THREADS = 20_000, 2
NETS = {"hidden_units": [64, 64]}
TWO: dict[str, Any] = {"actor_encoder": NETS, "critic_encoder": NETS}
TIMES: dict[str, Any] = {"name": "multiply", "multiplier": 0.1}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("DQN, two critics", {"name": "DQN", "encoder": NETS, "n_critics": 2}, {"name": "DQN", "n_critics": 2}),
    (
        "DQN, QR, rewards times 0.1",
        {"name": "DQN", "encoder": NETS, "q_function": "qr", "reward_scaler": TIMES},
        {"name": "DQN", "q_function": {"name": "qr"}, "reward_scaler": TIMES},
    ),
    ("TD3", {"name": "TD3", **TWO}, {"name": "TD3"}),
    (
        "SAC, actions scaled, rewards times 0.1",
        {"name": "SAC", **TWO, "action_scaler": "min_max", "reward_scaler": TIMES},
        {"name": "SAC", "action_scaler": "min_max", "reward_scaler": TIMES},
    ),
]
KINDS = {True: "discrete_action_match", False: "continuous_action_diff"}
COMPARERS: dict[bool, Any] = {True: compare_discrete_action_match, False: compare_continuous_action_diff}


def doubled(data: Dataset) -> Dataset:
    """The same with actions twice as large, of which nobody knows the bounds."""
    steps, finals = MDPDataset.of(data), np.stack([episode.observations[-1] for episode in data.episodes])
    arrays = steps.observations, 2 * steps.actions, steps.rewards, steps.terminals, steps.timeouts
    return Dataset.from_arrays(*arrays, final_observations=finals, name="doubled")


def between(data: Dataset) -> float:
    """A return that no episode has: halfway between the two in the middle."""
    returns = sorted(episode.compute_return() for episode in data.episodes)
    return float(np.mean(returns[len(returns) // 2 - 1 :][:2]))


def trained(settings: dict[str, Any], data: Dataset, seed: int) -> Any:
    """An algorithm whose weights are noise on what it begins with."""
    made = make_algorithm(dict(settings), seed=seed, device="cpu").fit(data, n_steps=0)
    perturb(made.fit_.learner)
    return made


def ours(algorithm: Any, base: Any, data: Dataset, threshold: float) -> dict[str, tuple[float, float]]:
    """By name the number and the seconds, of every scorer that suits the actions."""
    discrete = data.spec.discrete
    known = {name: scorer for name, scorer in SCORERS.items() if name != KINDS[not discrete]}
    known |= {"soft_opc": soft_opc_scorer(threshold)}
    compare = COMPARERS[discrete](base)
    found: dict[str, tuple[float, float]] = {}
    for name, scorer in {**known, compare.name: compare}.items():
        begin = time.perf_counter()
        found[name] = scorer.sign * scorer(algorithm, data), time.perf_counter() - begin
    return found


def beside(folder: Path) -> list[dict[str, Any]]:
    """Each case here and there. A difference is relative to the number, or to the mean value where that is larger."""
    found: list[dict[str, Any]] = []
    with Worker("d3rlpy_side.py", THREADS, folder / "worker.log") as peer:
        for label, settings, theirs in CASES:
            data = cartpole_like(BESIDE) if settings["name"] == "DQN" else hopper_like(BESIDE)
            data = doubled(data) if "action_scaler" in settings else data
            for_peer(data, folder / f"{data.name}.npz")
            algorithms = [trained(settings, data, seed) for seed in (0, 1)]
            files = [folder / f"{label}-{seed}.npz" for seed in (0, 1)]
            for algorithm, file in zip(algorithms, files, strict=True):
                np.savez(file, **weights(algorithm.fit_.learner))
            threshold = between(data)
            mine = ours(*algorithms, data, threshold)
            place = {"weights": str(files[0]), "base": str(files[1]), "dataset": str(folder / f"{data.name}.npz")}
            try:
                answer = peer("score", **place, settings={**theirs, **NETS}, threshold=threshold)
            except RuntimeError as error:
                sys.exit(f"{label}: {error}\n{(folder / 'worker.log').read_text()[-3_000:]}")
            scale = abs(answer["average_value_estimation"][0])
            for name, (number, seconds) in answer.items():
                far = abs(mine[name][0] - number) / max(abs(number), scale if name == "soft_opc" else 0.0)
                row = {"algorithm": label, "scorer": name, "ours": mine[name][0], "theirs": number, "difference": far}
                found.append({**row, "met": far <= BOUND, "seconds": mine[name][1], "their_seconds": seconds})
    return found


def eleven(n: int) -> dict[str, dict[str, float]]:
    """Seconds of each over n transitions, of the wall and of processors; and of those of TD3 but the comparer in one walk."""
    seconds: dict[str, dict[str, float]] = {}
    for settings in ({"name": "TD3"}, {"name": "DQN", "encoder": {"hidden_units": [256, 256]}}):
        data = cartpole_like(n) if settings["name"] == "DQN" else hopper_like(n)
        algorithm, base = (trained(settings, data, seed) for seed in (0, 1))
        if settings["name"] == "DQN":
            compare = compare_discrete_action_match(base)
            todo: dict[str, Any] = {"discrete_action_match": SCORERS["discrete_action_match"], compare.name: compare}
            todo["evaluate_on_environment"] = evaluate_on_environment("CartPole-v1")
        else:
            threshold = between(data)
            walked = [SCORERS[name] for name in SCORERS if name != "discrete_action_match"] + [soft_opc_scorer(threshold)]
            compare = compare_continuous_action_diff(base)
            todo = {**{scorer.name: scorer for scorer in walked}, compare.name: compare, "walk": Scores(walked, data)}
        for name, scorer in todo.items():
            begin, spent = time.perf_counter(), time.process_time()
            scorer(algorithm, 1 if name == "walk" else data)
            seconds[name] = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - spent}
            print(f"{name}: {seconds[name]['seconds']:.1f} s", flush=True)
    return seconds


def markdown(report: dict[str, Any]) -> str:
    rows = [
        [
            one["algorithm"],
            f"`{one['scorer']}`",
            f"{one['ours']:.6g}",
            f"{one['theirs']:.6g}",
            f"{one['difference']:.1e}",
            "met" if one["met"] else "NOT met",
            f"{one['their_seconds'] / one['seconds']:.0f}",
        ]
        for one in report["rows"]
    ]
    took = dict(report["seconds"])
    walk = took.pop("walk")["seconds"]
    total, spent = (sum(one[kind] for one in took.values()) for kind in ("seconds", "cpu_seconds"))
    timed = [[f"`{name}`", f"{one['seconds']:.1f}", f"{one['cpu_seconds']:.1f}"] for name, one in took.items()]
    header = ["algorithm", "scorer", "d3ray", "d3rlpy 2.8.1", "difference", f"≤ {BOUND:.0e}", "times as fast"]
    about, over = report["machine"], f"over {report['transitions']:,} transitions"
    together = ["**together**", f"**{total:.1f}**", f"{spent:.1f}"]
    return page(
        "scorers",
        table=table(header, rows),
        beside=f"{BESIDE:,}",
        threads=THREADS,
        timed=table([over, "seconds", "of processors"], [*timed, together]),
        limit=f"{LIMIT:.0f} s was {'met' if total <= LIMIT else 'NOT met'}",
        walk=f"{walk:.1f}",
        where=f"{report['date']}; {about['cpu']}, {about['cores']} cores; load {about['load_average']} before",
        after=report["load_after"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Scorers beside d3rlpy 2.8.1's evaluators, and their time.")
    parser.add_argument("--transitions", type=int, default=1_000_000, help="that the eleven are timed over")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    report: dict[str, Any] = {"date": today(), "machine": machine(), "transitions": options.transitions}
    with tempfile.TemporaryDirectory(prefix="d3ray-scorers-") as name:
        report["rows"] = beside(Path(name))
    report["seconds"] = eleven(options.transitions)
    report["load_after"] = round(os.getloadavg()[0], 2)
    print(markdown(report))
    if options.transitions >= 1_000_000:
        keep("scorers", report, markdown(report))


if __name__ == "__main__":
    main()
