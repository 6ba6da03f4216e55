"""Models of the dynamics: members side by side beside one after the other, and generation beside a bare loop over its networks.

`python benchmarks/dynamics.py` takes a minute or two, wants a quiet core, and writes `results/dynamics.json` and `.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tasks import hopper_like
from workers import control, machine

from d3ray import MOPO, ProbabilisticEnsemble

RESULTS = Path(__file__).parent / "results"
MEMBERS, ELITES, STEPS = 7, 5, 100
STARTS, HORIZON = 10_000, 5
ASKED = {64: 2.0, 256: 1.0}  # at least so many times as fast, by width of the two layers
SHARE = 0.8  # of the bare loop's speed


def layers(width: int) -> dict[str, Any]:
    return {"name": "vector", "hidden_units": [width, width], "activation": "silu"}


def turns(first: Callable[[], None], second: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Seconds of both in turn, and how many times as long the second takes: the median of pairs, and their range."""
    pairs, controls = list[tuple[float, float]](), list[float]()
    for k in range(rounds + 1):
        begun = time.perf_counter()
        first()
        middle = time.perf_counter()
        second()
        if k:  # the first is to warm up
            pairs.append((middle - begun, time.perf_counter() - middle))
            controls.append(control())
    ratios = [b / a for a, b in pairs]
    seconds = [statistics.median(side) for side in zip(*pairs, strict=True)]
    told = {"seconds": seconds, "ratio": statistics.median(ratios), "range": [min(ratios), max(ratios)]}
    return {**told, "control": [min(controls), max(controls)], "load": os.getloadavg()[0]}


def ensembles(width: int, rounds: int) -> dict[str, Any]:
    """Gradient steps of all members in one network, and of as many models of one member, one after the other."""
    data = hopper_like(50_000)
    common: dict[str, Any] = {"encoder": layers(width), "device": "cpu", "patience": None}
    together = ProbabilisticEnsemble(n_members=MEMBERS, n_elites=ELITES, **common)
    alone = [ProbabilisticEnsemble(n_members=1, n_elites=1, seed=seed, **common) for seed in range(MEMBERS)]

    def trained(models: list[ProbabilisticEnsemble]) -> None:
        for model in models:
            model.fit(data, STEPS, STEPS, show_progress=False)

    found = turns(lambda: trained([together]), lambda: trained(alone), rounds)
    return {"label": f"{MEMBERS} members of {width}×{width}", "asked": ASKED[width], **found}


def generation(width: int, rounds: int) -> dict[str, Any]:
    """A round of rollouts, and a bare loop over the same policy and members that draws and keeps as much."""
    data = hopper_like(50_000)
    model = ProbabilisticEnsemble(
        n_members=MEMBERS, n_elites=ELITES, encoder=layers(width), device="cpu", observation_scaler=None, reward_scaler=None
    ).fit(data, 10, 10, show_progress=False)
    rollouts = {"horizon": HORIZON, "n_transitions": STARTS, "interval": 1}
    policy = {"hidden_units": [256, 256]}
    sizes: dict[str, Any] = dict.fromkeys(("actor_encoder", "critic_encoder"), policy)
    mopo = MOPO(dynamics=model, rollouts=rollouts, **sizes, device="cpu").build_with_dataset(data)
    source = mopo.fit_.sampler(data)
    network, actor = model.model().network, mopo.fit_.learner.modules["policy"]
    starts = mopo.fit_.sampler(data)._starts.sample(0).observation[:STARTS]
    at = [0]

    def ours() -> None:
        at[0] += 1
        source._generate(at[0])

    @torch.no_grad()
    def bare() -> None:
        state, kept, rows = starts, [], torch.arange(STARTS)
        for _ in range(HORIZON):
            action = actor(state).sample(torch.randn(STARTS, 3))
            found = network(state, action)
            member = torch.randint(ELITES, (STARTS,))
            mean, deviation = found.mean[member, rows], (0.5 * found.log_variance[member, rows]).exp()
            drawn = mean + torch.randn_like(mean) * deviation
            following = state + drawn[:, :-1]
            penalty = (0.5 * found.log_variance).exp().norm(dim=-1).amax(0)
            kept.append((state, action, drawn[:, -1] - penalty, following))
            state = following
        [torch.cat(parts) for parts in zip(*kept, strict=True)]

    found = turns(ours, bare, rounds)
    return {"label": f"{STARTS:,} rollouts of {HORIZON} steps, members of {width}×{width}", "asked": SHARE, **found}


def page(found: dict[str, Any]) -> str:
    """The results as a page."""
    lines = ["# Models of the dynamics", "", "<!-- Written by benchmarks/dynamics.py. -->", ""]
    lines += [
        f"{found['machine']['cpu']}, one thread. Ratios are medians of pairs in turn, with their range; above 1 it is faster.",
        "",
        f"Members side by side, {STEPS} gradient steps of batches of 256 each, beside models of one member, one after the other;",
        "and a round of rollouts beside a bare loop over the same networks that draws and keeps as much.",
        "",
        "| | seconds | beside | ratio | at least | control loop, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        first, second = row["seconds"]
        low, high = row["range"]
        met = "met" if row["ratio"] >= row["asked"] else "NOT met"
        noise = f"{row['control'][0]:.3f} to {row['control'][1]:.3f}, load {row['load']:.1f}"
        ratio = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| {row['label']} | {first:.3f} | {second:.3f} | {ratio} | {row['asked']:g}: {met} | {noise} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of the timings")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [ensembles(width, given.rounds) for width in ASKED] + [generation(width, given.rounds) for width in (64, 200)]
    found = {"machine": machine(), "rows": rows}
    (RESULTS / "dynamics.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "dynamics.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
