"""Models of the dynamics: members side by side beside one after the other, and generation beside a bare loop over its networks.

`python benchmarks/dynamics.py` takes a minute or two, wants a quiet core, and writes `results/dynamics.json` and `.md`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from tasks import hopper_like
from workers import control, keep, machine, page, table

from d3ray import MOPO, ProbabilisticEnsemble

MEMBERS, ELITES, STEPS = 7, 5, 100
STARTS, HORIZON = 10_000, 5
ASKED = {64: 2.0, 256: 1.0}  # at least so many times as fast, by width of the two layers
SHARE = 0.8  # of the bare loop's speed


def layers(width: int) -> dict[str, Any]:
    return {"name": "vector", "hidden_units": [width, width], "activation": "silu"}


def turns(label: str, asked: float, first: Callable[[], None], second: Callable[[], None], rounds: int) -> dict[str, Any]:
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
    told = {"label": label, "asked": asked, "seconds": seconds, "ratio": statistics.median(ratios)}
    return {**told, "range": [min(ratios), max(ratios)], "control": [min(controls), max(controls)], "load": os.getloadavg()[0]}


def ensembles(width: int, rounds: int) -> dict[str, Any]:
    """Gradient steps of all members in one network, and of as many models of one member, one after the other."""
    data = hopper_like(50_000)
    common: dict[str, Any] = {"encoder": layers(width), "device": "cpu", "patience": None}
    together = ProbabilisticEnsemble(n_members=MEMBERS, n_elites=ELITES, **common)
    alone = [ProbabilisticEnsemble(n_members=1, n_elites=1, seed=seed, **common) for seed in range(MEMBERS)]

    def trained(models: list[ProbabilisticEnsemble]) -> None:
        for model in models:
            model.fit(data, STEPS, STEPS, show_progress=False)

    label = f"{MEMBERS} members of {width}×{width}"
    return turns(label, ASKED[width], lambda: trained([together]), lambda: trained(alone), rounds)


def generation(width: int, rounds: int) -> dict[str, Any]:
    """A round of rollouts, and a bare loop over the same policy and members that draws and keeps as much."""
    data = hopper_like(50_000)
    plain: dict[str, Any] = {"device": "cpu", "observation_scaler": None, "reward_scaler": None}
    model = ProbabilisticEnsemble(n_members=MEMBERS, n_elites=ELITES, encoder=layers(width), **plain)
    model.fit(data, 10, 10, show_progress=False)
    rollouts = {"horizon": HORIZON, "n_transitions": STARTS, "interval": 1}
    sizes: dict[str, Any] = {name: {"hidden_units": [256, 256]} for name in ("actor_encoder", "critic_encoder")}
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

    label = f"{STARTS:,} rollouts of {HORIZON} steps, members of {width}×{width}"
    return turns(label, SHARE, ours, bare, rounds)


def markdown(found: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for one in found["rows"]:
        (low, high), (quiet, loud) = one["range"], one["control"]
        met = f"{one['asked']:g}: {'met' if one['ratio'] >= one['asked'] else 'NOT met'}"
        control_loop = f"{quiet:.3f} to {loud:.3f}, load {one['load']:.1f}"
        seconds = [f"{value:.3f}" for value in one["seconds"]]
        rows.append([one["label"], *seconds, f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})", met, control_loop])
    header = ["", "seconds", "beside", "ratio", "at least", "control loop, s"]
    return page("dynamics", cpu=found["machine"]["cpu"], steps=STEPS, table=table(header, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of the timings")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    rows = [ensembles(width, rounds) for width in ASKED] + [generation(width, rounds) for width in (64, 200)]
    found = {"machine": machine(), "rows": rows}
    keep("dynamics", found, markdown(found))
    print(markdown(found))


if __name__ == "__main__":
    main()
