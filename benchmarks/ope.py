"""Estimates from logs: beside peers on the same logs, how often intervals hold the truth, and what fewer effective episodes do.

    python benchmarks/ope.py                   all that is not in results/ope.json yet: some five minutes of a core
    python benchmarks/ope.py coverage/bandit   the cells whose names begin so, anew

The peers (SCOPE-RL, Open Bandit Pipeline, offline_rl_ope) live in an environment of their own, whose interpreter
`D3RAY_OPE_PEER_PYTHON` names; README.md says how it is made. Without it their cells are left out. A cell is kept once it is done.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ope_problems import Bandit, CartPole, Chain
from workers import HERE, keep, kept, page, table

from d3ray.algos.judging import importance
from d3ray.algos.judging.estimates import BANDITS, EPISODES, Estimator
from d3ray.algos.judging.intervals import KINDS, interval_of
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.selection import select

PEER = "D3RAY_OPE_PEER_PYTHON"
DRAWS = 1000  # recordings: the standard error of a coverage of 95 % is 0.7 %
UNAIDED = ("IS", "WIS", "PDIS", "WPDIS", "DR", "WDR")  # which need no values, or bear wrong ones
SHOWN, WIDTHS = ("bootstrap", "bca", "student", "bernstein", "hoeffding"), ("bootstrap", "bernstein", "hoeffding")
WHAT = {
    "bandit": "Bandit: twenty kinds of user, four items, clicks of 0 or 1, values off by 0.1 (standard deviation)",
    "cartpole": "CartPole-v1: its first 50 steps, γ = 0.97, values of 20 wherever it is, the truth from 200,000 episodes",
    "mdp": "MDP: six states, two actions, episodes of 6.7 steps on average, γ = 0.97, values off by 0.3",
}
TAU, LAMBDA, CLIP = 1.5, 2.0, 2.0  # for peers, that choose them otherwise


# ---- beside the peers


def peers(name: str) -> dict[str, Any]:
    """Largest relative difference of each estimate from a peer's, over three recordings of equal lengths."""
    python = os.environ.get(PEER)
    if python is None:
        sys.exit(f"{PEER} names no interpreter: `python benchmarks/ope.py coverage` does without.")
    worst: dict[str, float] = {}
    for seed in range(3):
        arrays = bandit_arrays(seed) if name == "obp" else episode_arrays(seed)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "logs.npz", **arrays)
            command = [python, str(HERE / "ope_peers.py"), name, str(Path(folder) / "logs.npz")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        theirs: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        ours = here(arrays)
        for estimator, value in theirs["estimates"].items():
            apart = abs(ours[estimator] - value) / abs(value)
            worst[estimator] = max(worst.get(estimator, 0.0), apart)
    return {"version": theirs["version"], "worst": worst}


def bandit_arrays(seed: int) -> dict[str, np.ndarray]:
    """Logs of a bandit as peers take them: with both policies and values for every item."""
    problem, rng, n = Bandit(1.5), np.random.default_rng(seed), 1000
    user = rng.integers(20, size=n)
    item = (rng.uniform(size=(n, 1)) > problem.behaviour[user].cumsum(1)).sum(1).clip(0, 3)
    reward = (rng.uniform(size=n) < problem.click[user, item]).astype(float)
    return {
        **{"action": item, "reward": reward, "behaviour": problem.behaviour[user], "judged": problem.judged[user]},
        **{"guess": problem.guess[user], "gamma": np.array(1.0), "length": np.array(1)},
    }


def episode_arrays(seed: int) -> dict[str, np.ndarray]:
    """The first five steps of episodes of the MDP that are as long, since SCOPE-RL's all have one length."""
    problem, length = Chain(0.75), 5
    state, action, reward, steps = problem.walk(np.random.default_rng(seed), 600)
    first = (np.cumsum(steps) - steps)[steps >= length]
    rows = (first[:, None] + np.arange(length)).ravel()
    return {
        **{"action": action[rows], "reward": reward[rows], "behaviour": problem.behaviour[state[rows]]},
        **{"judged": problem.judged[state[rows]], "guess": problem.guess[state[rows]]},
        **{"gamma": np.array(problem.gamma), "length": np.array(length)},
    }


def here(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Our estimates from the same arrays."""
    taken = arrays["action"][:, None]
    picked = {name: np.take_along_axis(arrays[name], taken, 1)[:, 0] for name in ("behaviour", "judged", "guess")}
    length = int(arrays["length"])
    logs = Logs(
        arrays["reward"],
        np.full(len(taken) // length, length),
        np.log(picked["behaviour"]),
        np.log(picked["judged"]),
        gamma=float(arrays["gamma"]),
        q_value=picked["guess"],
        value=(arrays["judged"] * arrays["guess"]).sum(1),
    )
    found = {name: estimator.estimate(logs).value for name, estimator in (EPISODES | BANDITS).items()}
    return found | {
        "Switch-DR": importance.switch_doubly_robust(logs, TAU).value,
        "DRos": importance.doubly_robust_with_optimistic_shrinkage(logs, LAMBDA).value,
        "CIPS": importance.clipped_importance_sampling(logs, CLIP).value,
    }


# ---- how often intervals hold the truth


def coverage(problem: Any, estimators: dict[str, Estimator], n: int, draws: int = DRAWS) -> dict[str, Any]:
    """Of each estimator and kind of interval, how often the truth was within, the mean width, and the estimate's bias and error."""
    errors: dict[str, list[float]] = {name: [] for name in estimators}
    sizes: dict[str, list[float]] = {name: [] for name in estimators}
    inside: dict[tuple[str, str], list[bool]] = {}
    widths: dict[tuple[str, str], list[float]] = {}
    for seed in range(draws):
        logs = problem.draw(np.random.default_rng(seed), n)
        for name, estimator in estimators.items():
            statistic = estimator.estimate(logs)
            errors[name].append(statistic.value - problem.truth)
            sizes[name].append(np.nan if statistic.ess is None else statistic.ess)
            for kind in KINDS:
                if kind in ("hoeffding", "bernstein") and not (name in ("IPS", "DM") and problem.bounds is not None):
                    continue
                bounds = None if problem.bounds is None else (problem.bounds if name == "IPS" else (-0.5, 1.5))
                low, high = interval_of(statistic, kind, bounds=bounds) or (np.nan, np.nan)
                inside.setdefault((name, kind), []).append(low <= problem.truth <= high)
                widths.setdefault((name, kind), []).append(high - low)
    found: dict[str, Any] = {}
    for name, off in errors.items():
        found[name] = {
            "bias": float(np.mean(off)),
            "rmse": float(np.sqrt(np.square(off).mean())),
            "ess": None if np.isnan(sizes[name]).any() else float(np.mean(sizes[name])),
            "coverage": {kind: float(np.mean(inside[name, kind])) for kind in KINDS if (name, kind) in inside},
            "width": {kind: float(np.mean(widths[name, kind])) for kind in KINDS if (name, kind) in widths},
        }
    return {"truth": problem.truth, "n": n, "draws": draws, "estimators": found}


def floor(apart: float) -> dict[str, Any]:
    """The same of three estimators from 100 episodes of the MDP, with a policy so far away."""
    names = ("PDIS", "WPDIS", "WDR")
    return coverage(Chain(apart), {name: EPISODES[name] for name in names}, 100, 500)


# ---- whether a marginalised estimator earns a place


def marginalised(n: int = 100, draws: int = 200) -> dict[str, Any]:
    """Errors of a tabular DualDICE beside fitted Q evaluation with the same table, and estimators that weigh by step.

    DualDICE with ν and ζ from one linear class has the closed form Σ D(s, a) ζ(s, a) r, where ζ solves the transposed system of
    FQE's fixed point (Nachum et al. 2019; Uehara, Huang, Jiang 2020). Here both are solved, each for itself.
    """
    problem = Chain(0.75)
    errors: dict[str, list[float]] = {name: [] for name in ("DualDICE, tabular", "FQE, tabular (DM)", "WPDIS", "WDR with that FQE")}
    apart = 0.0
    for seed in range(draws):
        state, action, reward, steps = problem.walk(np.random.default_rng(seed), n)
        pair, last = 2 * state + action, np.cumsum(steps) - 1
        after = np.zeros((len(state), 12))  # what comes next, by pairs of the judged policy; nothing after the end
        goes_on = np.ones(len(state), bool)
        goes_on[last] = False
        rows = np.flatnonzero(goes_on)
        for k in range(2):
            after[rows, 2 * state[rows + 1] + k] = problem.judged[state[rows + 1], k]
        here_ = np.eye(12)[pair]
        system = here_.T @ (here_ - problem.gamma * after) + 1e-9 * np.eye(12)
        begin = np.zeros(12)
        for k in range(2):
            np.add.at(begin, 2 * state[np.cumsum(steps) - steps] + k, problem.judged[state[np.cumsum(steps) - steps], k] / n)
        values_ = np.linalg.solve(system, here_.T @ reward)
        ratio = np.linalg.solve(system.T, begin)  # ζ of each pair
        dice = float(ratio[pair] @ reward)
        logs = problem.logs(state, action, reward, steps, values_.reshape(6, 2))
        values = {
            "DualDICE, tabular": dice,
            "FQE, tabular (DM)": importance.direct_method(logs).value,
            "WPDIS": importance.weighted_per_decision(logs).value,
            "WDR with that FQE": importance.weighted_doubly_robust(logs).value,
        }
        apart = max(apart, abs(dice - values["FQE, tabular (DM)"]))
        for name, value in values.items():
            errors[name].append(value - problem.truth)
    rmse = {name: float(np.sqrt(np.square(found).mean())) for name, found in errors.items()}
    return {"truth": problem.truth, "n": n, "draws": draws, "rmse": rmse, "largest_difference": apart}


# ---- choosing


def choosing(draws: int = 20) -> dict[str, Any]:
    """Rank correlation of estimates with true values over 20 policies of the MDP, from 200 episodes."""
    aparts = np.linspace(-1.5, 1.5, 20)
    truth = np.array([Chain(apart).truth for apart in aparts])
    found: dict[str, list[float]] = {name: [] for name in EPISODES}
    for seed in range(draws):
        drawn_from = Chain(0.0).walk(np.random.default_rng(seed), 200)
        for name, estimator in EPISODES.items():
            values = np.array([estimator.estimate(Chain(apart).logs(*drawn_from)).value for apart in aparts])
            found[name].append(select(values, truth).rank_correlation or np.nan)
    return {name: {"mean": float(np.mean(values)), "least": float(np.min(values))} for name, values in found.items()}


CELLS: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"peers/{name}": (lambda name=name: peers(name)) for name in ("scope-rl", "obp", "offline_rl_ope")},
    **{f"coverage/bandit/{n}": (lambda n=n: coverage(Bandit(1.0), BANDITS, n)) for n in (100, 400)},
    **{f"coverage/mdp/{n}": (lambda n=n: coverage(Chain(0.5), EPISODES, n)) for n in (100, 400)},
    "coverage/cartpole/200": lambda: coverage(CartPole(), {name: EPISODES[name] for name in UNAIDED}, 200),
    **{f"floor/{apart}": (lambda apart=apart: floor(apart)) for apart in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)},
    "marginalised": marginalised,
    "choosing": choosing,
}


# ---- the page


def tiny(number: float | None) -> str:
    return "" if number is None else f"{number:.0e}" if number else "0"


def share(found: float | None) -> str:
    """In percent; in brackets outside 93 to 97 %."""
    if found is None:
        return ""
    return f"{100 * found:.1f}" if 0.93 <= found <= 0.97 else f"({100 * found:.1f})"


def coverage_of(name: str, cell: dict[str, Any]) -> str:
    """A part of the page."""
    rows: list[list[str]] = []
    for estimator, found in cell["estimators"].items():
        shares = [share(found["coverage"].get(kind)) for kind in SHOWN]
        widths = [f"{found['width'][kind]:.3g}" if kind in found["width"] else "" for kind in WIDTHS]
        ess = "" if found["ess"] is None else f"{found['ess']:.0f}"
        rows.append([estimator, f"{found['bias']:+.4f}", f"{found['rmse']:.4f}", ess, *shares, *widths])
    what = WHAT[name.split("/")[1]]
    header = ["", "bias", "RMSE", "ESS", *SHOWN, "width: bootstrap", "bernstein", "hoeffding"]
    title = f"### {what.partition(':')[0]}, {cell['n']} episodes"
    return f"{title}\n\n{what}. The truth is {cell['truth']:.4f}.\n\n{table(header, rows)}"


def markdown(cells: dict[str, Any]) -> str:
    """The page, of cells that are all there but for those beside peers."""
    beside = {name.partition("/")[2]: cell for name, cell in cells.items() if name.startswith("peers/")}
    names = dict.fromkeys(name for cell in beside.values() for name in cell["worst"])
    far = [cell for name, cell in cells.items() if name.startswith("floor/")]
    pairs = [(name, kind) for name in far[0]["estimators"] for kind in ("bootstrap", "student")]
    floors: list[list[str]] = []
    for cell in far:
        of, ess = cell["estimators"], next(iter(cell["estimators"].values()))["ess"]
        floors.append([f"{cell['n']}", f"{ess:.0f}", *(share(of[name]["coverage"][kind]) for name, kind in pairs)])
    dice, chosen = cells["marginalised"], cells["choosing"]
    return page(
        "ope",
        peers=table(
            ["", *(f"{name} {cell['version']}" for name, cell in beside.items())],
            [[name, *(tiny(cell["worst"].get(name)) for cell in beside.values())] for name in names],
        ),
        draws=DRAWS,
        error=f"{100 * (0.95 * 0.05 / DRAWS) ** 0.5:.1f}",
        coverages="\n\n".join(coverage_of(name, cell) for name, cell in cells.items() if name.startswith("coverage/")),
        far=far[0]["draws"],
        floors=table(["episodes", "ESS", *(f"{name}, {kind}" for name, kind in pairs)], floors),
        dice=dice,
        rmse=table(["", "RMSE"], [[name, f"{value:.4f}"] for name, value in dice["rmse"].items()]),
        chosen=table(["", "mean", "smallest"], [[k, f"{v['mean']:.3f}", f"{v['least']:.3f}"] for k, v in chosen.items()]),
    )


def main(begin: str | None) -> None:
    """Works through the cells that are missing, or begin so."""
    found: dict[str, Any] = kept("ope", {})
    for name, work in CELLS.items():
        if (name in found) if begin is None else not name.startswith(begin):
            continue
        if name.startswith("peers/") and PEER not in os.environ and begin is None:
            print(f"{name}: left out, {PEER} names no interpreter")
            continue
        found[name] = work()
        keep("ope", found)
        print(name, json.dumps(found[name]))
    keep("ope", found, markdown({name: found[name] for name in CELLS if name in found}))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
