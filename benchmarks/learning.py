"""The learning table: what is learned from recorded data, beside d3rlpy 2.8.1 where it can be fed the same.

    make peer && D3RAY_TEST_DATA=… make benchmark-learning        or: python benchmarks/learning.py [--threads 2] [--only NAME …]

`D3RAY_TEST_DATA` is the folder of recorded data that the tests use too. A cell is one seed of one side of a study: it trains,
evaluates the greedy policy every so many gradient steps in the same ten episodes, and is written to
`benchmarks/results/learning/` when it is done. Cells that are there are not run again (delete one to repeat it), so a run that
was stopped goes on. Scores are mean returns: the *last* evaluation is what counts, the *best* is shown because some of these
scores swing. Both sides are reset with the same seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arrays import for_peer
from ours import open_dataset
from workers import HERE, Worker, machine, table

from d3ray.algos.environments.evaluate import episode_seeds

RESULTS = HERE / "results"
CELLS = RESULTS / "learning"
EPISODES = 10
EVALUATION_SEED = 0


@dataclass(frozen=True)
class Study:
    """One dataset, one algorithm, some seeds.

    Attributes:
        name: of its cells.
        data: file below the folder of recorded data.
        environment: gymnasium id to evaluate in.
        algorithm: name, preset and settings of ours.
        peer: name and settings of d3rlpy's; None: it is not run.
        n_steps: gradient steps.
        every: gradient steps between evaluations.
        at_least: score that the last evaluation of every seed must reach; "data": the data's own mean return.
        note: what a reader should know.
    """

    name: str
    data: str
    environment: str
    algorithm: dict[str, Any]
    peer: tuple[str, dict[str, Any]] | None
    n_steps: int
    every: int
    at_least: float | str | None
    note: str
    seeds: tuple[int, ...] = field(default=(0, 1, 2))

    def sides(self) -> list[str]:
        return ["d3ray", "d3rlpy"] if self.peer else ["d3ray"]


CARTPOLE, PENDULUM = "d3rlpy/cartpole_replay.h5", "d3rlpy/pendulum_replay.h5"
STUDIES = (
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
    ),
    Study(
        name="hopper-bc",
        data="cs285/expert_data_Hopper-v4.pkl",
        environment="Hopper-v4",
        algorithm={"name": "BC", "observation_scaler": "standard"},
        peer=None,
        n_steps=10_000,
        every=2_000,
        at_least=0.9 * 3_717,
        note="Two expert episodes of 1,000 steps, mean return 3,717. Actions are clipped to [-1, 1], as the simulator does.",
    ),
    Study(
        name="hopper-bc-unscaled",
        data="cs285/expert_data_Hopper-v4.pkl",
        environment="Hopper-v4",
        algorithm={"name": "BC"},
        peer=None,
        n_steps=10_000,
        every=2_000,
        at_least=None,
        note="The same without the observation scaler, to show what it is worth.",
    ),
    Study(
        name="pendulum-td3+bc",
        data=PENDULUM,
        environment="Pendulum-v1",
        algorithm={"name": "TD3PlusBC", "action_scaler": "min_max"},
        peer=("TD3PlusBC", {"action_scaler": "min_max"}),
        n_steps=5_000,
        every=1_000,
        at_least=None,
        note="Actions lie in [-2, 2] and both sides scale them to [-1, 1]; all else are the defaults, which are equal.",
    ),
)


def cell_file(study: Study, side: str, seed: int) -> Path:
    return CELLS / f"{study.name}-{side}-seed{seed}.json"


def finished(study: Study, side: str, seed: int) -> dict[str, Any] | None:
    """The cell if it is there and of this protocol."""
    path = cell_file(study, side, seed)
    cell = json.loads(path.read_text()) if path.is_file() else None
    return cell if cell and cell["protocol"] == protocol(study, side) else None


def protocol(study: Study, side: str) -> dict[str, Any]:
    """What a cell depends on besides its seed; a cell of another protocol is run anew."""
    choice = study.algorithm if side == "d3ray" else {"name": study.peer[0], **study.peer[1]} if study.peer else {}
    return {
        "data": study.data,
        "algorithm": choice,
        "n_steps": study.n_steps,
        "every": study.every,
        "environment": study.environment,
        "episodes": EPISODES,
        "evaluation_seed": EVALUATION_SEED,
    }


def run(study: Study, side: str, seed: int, data: Path, worker: Worker, folder: Path) -> dict[str, Any]:
    """Trains and evaluates one cell and keeps it."""
    path = str(data / study.data)
    common = {"seed": seed, "n_steps": study.n_steps, "every": study.every, "environment": study.environment}
    if side == "d3ray":
        choice = {"algorithm": study.algorithm, "episodes": EPISODES, "evaluation_seed": EVALUATION_SEED}
        found = worker("learn", dataset=path, **choice, **common)
    else:
        arrays = folder / f"{study.name}.npz"
        if not arrays.exists():
            for_peer(open_dataset(path), arrays)
        assert study.peer is not None
        name, settings = study.peer
        seeds = episode_seeds(EVALUATION_SEED, EPISODES)
        found = worker("learn", dataset=str(arrays), name=name, settings=settings, reset_seeds=seeds, **common)
    returns = [one["return"] for one in found["evaluations"]]
    cell = {
        "study": study.name,
        "side": side,
        "seed": seed,
        "protocol": protocol(study, side),
        "last": returns[-1],
        "best": max(returns),
        **found,
        "data_return": float(open_dataset(path).episodes.returns.mean()),
        "versions": worker("versions"),
        "threads": worker.threads,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    CELLS.mkdir(parents=True, exist_ok=True)
    aside = cell_file(study, side, seed).with_suffix(".tmp")
    aside.write_text(json.dumps(cell, indent=1) + "\n")
    aside.replace(cell_file(study, side, seed))
    return cell


def bound(study: Study, cells: list[dict[str, Any]]) -> float | None:
    return cells[0]["data_return"] if study.at_least == "data" else study.at_least  # type: ignore[return-value]


def markdown() -> str:
    """The table of all cells that are there."""
    rows, notes = [], []
    for study in STUDIES:
        for side in study.sides():
            cells = [c for seed in study.seeds if (c := finished(study, side, seed))]
            if not cells:
                continue
            last, best = ([cell[key] for cell in cells] for key in ("last", "best"))
            least, asked = bound(study, cells), ""
            if least is not None and side == "d3ray":
                whole = len(cells) == len(study.seeds)
                asked = f"≥ {least:,.1f}: " + ("met" if whole and min(last) >= least else "NOT met" if whole else "unfinished")
            rows.append(
                [
                    study.name,
                    side,
                    ", ".join(f"{score:,.1f}" for score in last),
                    f"{statistics.mean(last):,.1f}",
                    ", ".join(f"{score:,.1f}" for score in best),
                    f"{cells[0]['data_return']:,.1f}",
                    asked,
                ]
            )
        notes.append(
            f"- **{study.name}**: {study.data}, {json.dumps(study.algorithm)}, {study.n_steps:,} gradient steps, evaluated in "
            f"{study.environment} every {study.every:,}. {study.note}"
        )
    there = machine()
    header = [
        "study",
        "side",
        "last score of seeds 0, 1, 2",
        "their mean",
        "best of the evaluations",
        "the data's mean return",
        "asked",
    ]
    return "\n".join(
        [
            "# Learning",
            "",
            table(header, rows),
            "",
            f"A score is the mean return of the greedy policy over {EPISODES} episodes, whose resets have the same seeds in every",
            "evaluation and on both sides. *Last* follows the last gradient step; `asked` is held against it, for each seed.",
            "d3rlpy 2.8.1 gets the same transitions, with rewards in the row of their action and with timeouts.",
            "",
            *notes,
            "",
            f"{there['cpu']}, {there['cores']} cores. Each cell's file has its evaluations, threads, versions and date.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Scores from recorded data.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each process")
    parser.add_argument(
        "--only", nargs="+", choices=[s.name for s in STUDIES], help="studies to run", default=[s.name for s in STUDIES]
    )
    options = parser.parse_args()
    missing = [(s, side, seed) for s in STUDIES for side in s.sides() for seed in s.seeds if not finished(s, side, seed)]
    missing = sorted((m for m in missing if m[0].name in options.only), key=lambda m: m[1] == "d3rlpy")  # ours first
    if missing:
        data = os.environ.get("D3RAY_TEST_DATA")
        if not data or not Path(data).is_dir():
            sys.exit(f"{len(missing)} cells are to be run, and D3RAY_TEST_DATA names no folder of recorded data.")
        with tempfile.TemporaryDirectory(prefix="d3ray-learning-") as folder:
            log = Path(folder) / "workers.log"
            for study, side, seed in missing:
                try:
                    with Worker("ours.py" if side == "d3ray" else "peer.py", options.threads, log) as worker:
                        cell = run(study, side, seed, Path(data).absolute(), worker, Path(folder))
                except RuntimeError as error:
                    sys.exit(f"{error}\n{log.read_text()[-2_000:]}")
                curve = ", ".join(f"{one['return']:,.1f}" for one in cell["evaluations"])
                print(f"{study.name} {side} seed {seed}: {curve} ({cell['seconds']:.0f} s)", flush=True)
    text = markdown()
    (RESULTS / "learning.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
