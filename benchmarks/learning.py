"""The learning table: what is learned from recorded data and online, beside d3rlpy 2.8.1 or PFRL 0.4.0 where they get the same.

    make peer && D3RAY_TEST_DATA=… make benchmark-learning        or: python benchmarks/learning.py [--threads 1] [--only NAME …]

`D3RAY_TEST_DATA` is the folder of recorded data that the tests use too. A cell is one seed of one side of a study
(`learning.yaml`): it trains, evaluates the greedy policy every so many gradient steps in the same episodes, and is a line of
`benchmarks/results/learning.jsonl` once it is done. Cells that are there are not run again (delete a line to repeat it), so a run
that was stopped goes on; seeds of ours that are missing are trained as one stack where a study of recorded data says so. Scores are
mean returns: the *last* evaluation is what counts, the *best* is shown because some of these scores swing. Both sides are reset
with the same seeds.

Whether one side's scores lie below the other's is asked with Welch's one-sided test, Holm-corrected over the rows of a family, at
1 %. Where the answer is yes, ten new seeds a side decide; they were named in advance, are run once all first seeds are there, and
are shown whatever they say. A "no" is not parity, for five seeds show only large losses: so the difference and its interval stand
beside it, and what random actions return, since two sides that learned nothing are alike too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import FileLock
from significance import below, difference, holm, interval
from tasks import MADE, PLAYED, at_random, for_peer, open_dataset
from workers import RESULTS, Worker, machine, page, table, today, told

from d3ray.algos.environments.evaluate import episode_seeds

KEPT = RESULTS / "learning.jsonl"
EVALUATION_SEED = 0
ALPHA = 0.01
NEW_SEEDS = tuple(range(100, 110))  # they decide where the first seeds say that something is below; named before any was run
SCRIPTS = {"d3ray": "ours.py", "d3rlpy": "d3rlpy_side.py", "pfrl": "pfrl_side.py"}


@dataclass(frozen=True)
class Study:
    """One algorithm on one dataset, or in one environment, with some seeds.

    Attributes:
        name: of its cells.
        data: file below the folder of recorded data; None: it learns online.
        environment: gymnasium id to evaluate in, and to learn in where there is no data; "data": the data's own, of goals its five
            tasks in turn.
        algorithm: name, preset and settings of ours.
        peer: name and settings of the peer's; None: it is not run.
        n_steps: gradient steps.
        every: gradient steps between evaluations.
        at_least: score that the last evaluation of the seeds must reach; "data": the data's own mean return; a study's name and a
            share: that share of its mean, in the mean over the seeds.
        at_most: score that the last evaluation of no seed may pass: what can be reached by what it lacks the means to surpass.
        note: what a reader should know.
        seeds: how many, from 0.
        needed: how many seeds must reach `at_least`; None: all.
        episodes: of an evaluation.
        online: arguments of `fit_online`.
        rival: the peer.
        counts: which score is held against `at_least`: of the "last" evaluation, or the "best".
        scored: what of an evaluation is the score: its mean "return", or its "success", the share of tasks solved in percent.
        stacked: whether seeds of ours that are missing are trained as one stack, where there are data.
    """

    name: str
    environment: str
    algorithm: dict[str, Any]
    n_steps: int
    every: int
    note: str
    data: str | None = None
    peer: tuple[str, dict[str, Any]] | None = None
    at_least: float | str | tuple[str, float] | None = None
    at_most: float | None = None
    seeds: int = 5
    needed: int | None = None
    episodes: int = 10
    online: dict[str, Any] = field(default_factory=dict)
    rival: str = "d3rlpy"
    stacked: bool = False
    counts: str = "last"
    scored: str = "return"

    @property
    def is_played(self) -> bool:
        """Whether what it learns from is played here, or has a recipe, so that no folder of recorded data is needed."""
        return self.data is None or self.data in PLAYED or self.data.startswith(("random/", MADE))

    def sides(self) -> list[str]:
        return ["d3ray", self.rival] if self.peer else ["d3ray"]


@dataclass(frozen=True)
class Comparison:
    """Whether A's scores lie below B's; rows of one family are corrected together. A and B are (study, side)."""

    family: str
    a: tuple[str, str]
    b: tuple[str, str]


def studies() -> dict[str, Study]:
    """By name, in the order of the table."""
    groups = [(group.get("same", {}), group["studies"]) for group in TOLD["groups"]]
    return {name: Study(name, **(same | own)) for same, some in groups for name, own in some.items()}


def comparisons() -> list[Comparison]:
    rows = [(family, [one.partition("/") for one in row]) for family, rows in TOLD["comparisons"].items() for row in rows]
    return [Comparison(family, *((name, side or "d3ray") for name, _, side in row)) for family, row in rows]


TOLD = told("learning.yaml")
STUDIES, COMPARISONS = studies(), comparisons()
Cell = tuple[Study, str, int]  # study, side, seed


# ---- cells


def cells_kept() -> dict[str, dict[str, Any]]:
    """Every cell that is there, by its name."""
    found = map(json.loads, KEPT.read_text().splitlines() if KEPT.is_file() else [])
    return {f"{cell['study']}-{cell['side']}-seed{cell['seed']}": cell for cell in found}


def keep(cell: dict[str, Any]) -> None:
    """Puts a cell among those that are kept, which other runs may add to meanwhile; lines are in the order of names."""
    KEPT.parent.mkdir(exist_ok=True)
    with FileLock(f"{KEPT}.lock"):
        CELLS.update(cells_kept())
        CELLS[f"{cell['study']}-{cell['side']}-seed{cell['seed']}"] = cell
        aside = KEPT.with_suffix(".tmp")
        aside.write_text("".join(json.dumps(CELLS[name]) + "\n" for name in sorted(CELLS)))
        aside.replace(KEPT)


CELLS = cells_kept()


def finished(study: Study, side: str, seed: int) -> dict[str, Any] | None:
    """The cell if it is there and of this protocol."""
    cell = CELLS.get(f"{study.name}-{side}-seed{seed}")
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
        "episodes": study.episodes,
        "evaluation_seed": EVALUATION_SEED,
        **({} if study.data else {"online": study.online}),
    }


def scores(study: Study, side: str, *, new: bool = False) -> list[float]:
    """Last scores of the cells that are there, of the first seeds or of the new ones."""
    return [cell["last"] for seed in (NEW_SEEDS if new else range(study.seeds)) if (cell := finished(study, side, seed))]


def run(cells: list[Cell], data: Path, worker: Worker, folder: Path) -> list[dict[str, Any]]:
    """Trains and evaluates the seeds of one side of a study, together where there are several, and keeps each cell."""
    study, side, _ = cells[0]
    seeds, reset = [seed for _, _, seed in cells], episode_seeds(EVALUATION_SEED, study.episodes)
    common: dict[str, Any] = {"n_steps": study.n_steps, "every": study.every, "environment": study.environment}
    mine = {**common, "seeds": seeds, "episodes": study.episodes, "evaluation_seed": EVALUATION_SEED, "algorithm": study.algorithm}
    agent, settings = study.peer or ("", {})
    returned = {}
    if study.data is None and side == "d3ray":
        found = worker("learn_online", online=study.online, **mine)
    elif study.data is None:
        verb = "learn_async" if "processes" in settings else "learn_online"
        where = {"environment": study.environment, "reset_seeds": reset}
        found = [worker(verb, agent=agent, seed=seed, **settings, **where) for seed in seeds]
    else:
        path = str(data / study.data)
        dataset = open_dataset(path)
        returned = {"data_return": float(dataset.episodes.returns.mean()), "data_fingerprint": dataset.fingerprint}
        if side == "d3ray":
            found = worker("learn", dataset=path, **mine)
        else:
            arrays = folder / f"{study.data.replace('/', '-')}.npz"
            if not arrays.exists():
                for_peer(dataset, arrays)
            peers = {**common, "dataset": str(arrays), "name": agent, "settings": settings, "reset_seeds": reset}
            found = [worker("learn", seed=seed, **peers) for seed in seeds]
    about = {**returned, "versions": worker("versions"), "threads": worker.threads, "cpu": machine()["cpu"]}
    made: list[dict[str, Any]] = []
    for seed, one in zip(seeds, found, strict=True):
        returns = [evaluation[study.scored] for evaluation in one["evaluations"]]
        named = {"study": study.name, "side": side, "seed": seed, "protocol": protocol(study, side)}
        made.append({**named, "last": returns[-1], "best": max(returns), **one, **about, "date": today()})
        keep(made[-1])
    return made


# ---- comparisons


def sides(row: Comparison) -> list[tuple[Study, str]]:
    return [(STUDIES[study], side) for study, side in (row.a, row.b)]


def first_answers() -> dict[Comparison, tuple[float, float]]:
    """The p value and the corrected one by row, of families whose first seeds are all there."""
    answers: dict[Comparison, tuple[float, float]] = {}
    for family in dict.fromkeys(row.family for row in COMPARISONS):
        rows = [row for row in COMPARISONS if row.family == family]
        if all(len(scores(*one)) == one[0].seeds for row in rows for one in sides(row)):
            p_values = [below(*(scores(*one) for one in sides(row))) for row in rows]
            answers |= dict(zip(rows, zip(p_values, holm(p_values), strict=True), strict=True))
    return answers


def undecided() -> list[Cell]:
    """New seeds that are still to be run, of rows whose first seeds say that one side is below."""
    rows = [row for row, (_, corrected) in first_answers().items() if corrected < ALPHA]
    cells = {(s.name, side, seed): (s, side, seed) for row in rows for s, side in sides(row) for seed in NEW_SEEDS}
    return [cell for cell in cells.values() if not finished(*cell)]


# ---- the page


def listed(found: list[float]) -> str:
    return ", ".join(f"{score:,.1f}" for score in found)


def within(mean: float, half: float) -> str:
    return f"{mean:,.1f}" if math.isnan(half) else f"{mean:,.1f} ± {half:,.1f}"


def nothing_learned(study: Study) -> str:
    """What random actions return in its evaluation."""
    if study.environment == "data":
        return ""
    return f"{at_random(study.environment, study.episodes, EVALUATION_SEED):,.1f}"


def asked(study: Study, side: str, cells: list[dict[str, Any]]) -> str:
    if study.at_most is not None:
        below_it = sum(cell["last"] <= study.at_most + 1e-6 for cell in cells)
        return f"≤ {study.at_most:,.1f}, without memory: {below_it} of {study.seeds}"
    if study.at_least is None or side != "d3ray":
        return ""
    if isinstance(study.at_least, list):
        name, share = study.at_least
        rivals, wanted = scores(STUDIES[name], "d3ray"), f"≥ {share:.0%} of {name} in the mean"
        if len(cells) < study.seeds or len(rivals) < STUDIES[name].seeds:
            return f"{wanted}: unfinished"
        ratio = fmean(cell["last"] for cell in cells) / fmean(rivals)
        return f"{wanted}: {'met' if ratio >= share else 'NOT met'} ({ratio:.0%})"
    least: Any = cells[0]["data_return"] if study.at_least == "data" else study.at_least
    needed, reached = study.needed or study.seeds, sum(cell[study.counts] >= least for cell in cells)
    state = "met" if reached >= needed else "NOT met" if len(cells) == study.seeds else "unfinished"
    some = " in some evaluation" if study.counts == "best" else ""
    return f"≥ {least:,.1f}{some} on {needed} of {study.seeds}: {state} ({reached})"


def score_rows() -> list[list[str]]:
    rows: list[list[str]] = []
    for study in STUDIES.values():
        for side in study.sides():
            if cells := [c for seed in range(study.seeds) if (c := finished(study, side, seed))]:
                last, best = ([cell[key] for cell in cells] for key in ("last", "best"))
                of_data = f"{cells[0]['data_return']:,.1f}" if study.data and study.scored == "return" else ""
                row = [study.name, side, listed(last), within(*interval(last)), listed(best), of_data]
                rows.append([*row, nothing_learned(study), asked(study, side, cells)])
    return rows


def test_rows() -> list[list[str]]:
    rows: list[list[str]] = []
    answers = first_answers()
    for row in COMPARISONS:
        (a, a_side), (b, b_side) = sides(row)
        found = scores(a, a_side), scores(b, b_side)
        if not all(found):
            continue
        p = corrected = ""
        there = f"{len(found[0])} and {len(found[1])} of {a.seeds} seeds"
        verdict = f"unfinished: {there}" if min(map(len, found)) < a.seeds else "waits for the other rows of its family"
        if row in answers:
            p, corrected = (f"{value:.3f}" for value in answers[row])
            verdict = "no" if answers[row][1] >= ALPHA else decision(row)
        names = f"{a.name} {a_side} : {b.name} {b_side}"
        means = [within(*interval(s)) for s in found]
        rows.append([row.family, names, *means, within(*difference(*found)), nothing_learned(a), p, corrected, verdict])
    return rows


def decision(row: Comparison) -> str:
    """What ten new seeds a side say."""
    a, b = (scores(study, side, new=True) for study, side in sides(row))
    if min(len(a), len(b)) < len(NEW_SEEDS):
        return f"yes at first; new seeds to decide: {len(a)} and {len(b)} of {len(NEW_SEEDS)}"
    p = below(a, b)
    return (
        f"{'no' if p >= ALPHA else 'YES'}, by ten new seeds, p = {p:.3f}: {within(*interval(a))} and {within(*interval(b))}, "
        f"{within(*difference(a, b))} apart ({listed(a)}; {listed(b)})"
    )


def markdown() -> str:
    """The tables of all cells that are there."""
    notes = [
        f"- **{study.name}**: {study.data or 'online'}, {json.dumps(study.algorithm)}, {study.n_steps:,} gradient steps, evaluated "
        f"in {study.environment} every {study.every:,} over {study.episodes} episodes. {study.note}"
        for study in STUDIES.values()
        if scores(study, "d3ray")
    ]
    seeds = [(s, side, seed) for s in STUDIES.values() for side in s.sides() for seed in (*range(s.seeds), *NEW_SEEDS)]
    cells = [cell for one in seeds if (cell := finished(*one))]
    named = Counter(cell["cpu"] for cell in cells if "cpu" in cell)
    processors = [f"{cpu}: {n} cells" for cpu, n in sorted(named.items())]
    if silent := len(cells) - named.total():
        processors.append(f"{silent} older cells do not tell their processor")
    header = ["study", "side", "last score of each seed", "mean, 95 %", "best of the evaluations", "the data's mean return"]
    tests = ["family", "A : B", "A", "B", "A - B, 95 %", "random actions", "p", "Holm"]
    return page(
        "learning",
        scores=table([*header, "random actions", "asked"], score_rows()),
        tests=table([*tests, f"A shown to be below B? (Holm p < {ALPHA:g})"], test_rows()),
        first=NEW_SEEDS[0],
        last=NEW_SEEDS[-1],
        notes="\n".join(notes),
        processors="; ".join(processors),
    )


# ---- running


def go(cells: list[Cell], threads: int) -> None:
    """Runs cells one after the other, each, or each stack of seeds of ours, in a process of its own."""
    data, recorded = os.environ.get("D3RAY_TEST_DATA", ""), [study for study, _, _ in cells if not study.is_played]
    if recorded and not Path(data or "missing").is_dir():
        sys.exit(f"{len(recorded)} cells need recorded data, and D3RAY_TEST_DATA names no folder of them.")
    groups: dict[Any, list[Cell]] = {}
    for study, side, seed in cells:
        together = study.stacked and study.data is not None and side == "d3ray"
        groups.setdefault((study.name, side, together or f"seed {seed}"), []).append((study, side, seed))
    with tempfile.TemporaryDirectory(prefix="d3ray-learning-") as folder:
        log = Path(folder) / "workers.log"
        for group in groups.values():
            try:
                with Worker(SCRIPTS[group[0][1]], threads, log) as worker:
                    found = run(group, Path(data).absolute(), worker, Path(folder))
            except RuntimeError as error:
                sys.exit(f"{error}\n{log.read_text()[-2_000:]}")
            for cell in found:
                curve = listed([one[STUDIES[cell["study"]].scored] for one in cell["evaluations"]])
                print(f"{cell['study']} {cell['side']} seed {cell['seed']}: {curve} ({cell['seconds']:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Scores from recorded data and online.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    only = {"nargs": "*", "choices": [*STUDIES], "default": [*STUDIES], "metavar": "STUDY"}
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--only", **only, help="studies to run; none: the table only")
    options = parser.parse_args()
    some = [STUDIES[name] for name in STUDIES if name in options.only]
    missing = [(s, side, seed) for s in some for side in s.sides() for seed in range(s.seeds) if not finished(s, side, seed)]
    go(sorted(missing, key=lambda one: one[1] != "d3ray"), options.threads)  # ours first
    go([cell for cell in undecided() if cell[0].name in options.only], options.threads)
    text = markdown()
    (RESULTS / "learning.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
