"""The learning table: what is learned from recorded data and online, beside d3rlpy 2.8.1 or PFRL 0.4.0 where they get the same.

    make peer && D3RAY_TEST_DATA=… make benchmark-learning        or: python benchmarks/learning.py [--threads 1] [--only NAME …]

`D3RAY_TEST_DATA` is the folder of recorded data that the tests use too. A cell is one seed of one side of a study
(`learning_studies.py`): it trains, evaluates the greedy policy every so many gradient steps in the same episodes, and is written to
`benchmarks/results/learning/` when it is done. Cells that are there are not run again (delete one to repeat it), so a run that
was stopped goes on; seeds of ours that are missing are trained as one stack where a study says so (`seeds.py`). Scores are mean
returns: the *last* evaluation is what counts, the *best* is shown because some of these scores swing. Both sides are reset with
the same seeds.

Whether one side's scores lie below the other's is asked with Welch's one-sided test, Holm-corrected over the rows of a family, at
1 %. Where the answer is yes, ten new seeds a side decide; they were named in advance, are run once all first seeds are there, and
are shown whatever they say. A "no" is not parity, for five seeds show only large losses: so the difference and its interval stand
beside it, and what random actions return (`at_random.py`), since two sides that learned nothing are alike too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from arrays import for_peer
from at_random import at_random
from learning_studies import BY_NAME, COMPARISONS, STUDIES
from learning_study import NEW_SEEDS, Comparison, Study
from ours import open_dataset
from significance import below, difference, holm, interval
from workers import HERE, Worker, machine, table

from d3ray.algos.environments.evaluate import episode_seeds

RESULTS = HERE / "results"
CELLS = RESULTS / "learning"
EVALUATION_SEED = 0
ALPHA = 0.01
Cell = tuple[Study, str, int]  # study, side, seed
SCRIPTS = {"d3ray": "ours.py", "d3rlpy": "peer.py", "pfrl": "learn_pfrl.py"}


# ---- cells


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
        "episodes": study.episodes,
        "evaluation_seed": EVALUATION_SEED,
        **({} if study.data else {"online": study.online}),
    }


def scores(study: Study, side: str, seeds: tuple[int, ...]) -> list[float]:
    """Last scores of the cells that are there."""
    return [cell["last"] for seed in seeds if (cell := finished(study, side, seed))]


def run(cells: list[Cell], data: Path, worker: Worker, folder: Path) -> list[dict[str, Any]]:
    """Trains and evaluates the seeds of one side of a study, together where there are several, and keeps each cell."""
    study, side, _ = cells[0]
    seeds = [seed for _, _, seed in cells]
    common = {"n_steps": study.n_steps, "every": study.every, "environment": study.environment}
    mine = {**common, "seeds": seeds, "episodes": study.episodes, "evaluation_seed": EVALUATION_SEED}
    returned = {}
    if study.data is None and side == "d3ray":
        found = worker("learn_online", algorithm=study.algorithm, online=study.online, **mine)
    elif study.data is None:
        assert study.peer is not None
        agent, told = study.peer
        where = {"environment": study.environment, "reset_seeds": episode_seeds(EVALUATION_SEED, study.episodes)}
        verb = "learn_async" if "processes" in told else "learn_online"
        found = [worker(verb, agent=agent, seed=seed, **told, **where) for seed in seeds]
    else:
        path = str(data / study.data)
        dataset = open_dataset(path)
        returned = {"data_return": float(dataset.episodes.returns.mean()), "data_fingerprint": dataset.fingerprint}
        if side == "d3ray":
            found = worker("learn", dataset=path, algorithm=study.algorithm, **mine)
        else:
            arrays = folder / f"{study.data.replace('/', '-')}.npz"
            if not arrays.exists():
                for_peer(dataset, arrays)
            assert study.peer is not None
            name, settings = study.peer
            reset = episode_seeds(EVALUATION_SEED, study.episodes)
            peers = {**common, "name": name, "settings": settings, "reset_seeds": reset}
            found = [worker("learn", dataset=str(arrays), seed=seed, **peers) for seed in seeds]
    about = {**returned, "versions": worker("versions"), "threads": worker.threads, "cpu": machine()["cpu"]}
    return [kept(cell, {**one, **about}) for cell, one in zip(cells, found, strict=True)]


def kept(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """What is written of a cell."""
    study, side, seed = cell
    returns = [one["return"] for one in found["evaluations"]]
    told = {"study": study.name, "side": side, "seed": seed, "protocol": protocol(study, side)}
    told |= {"last": returns[-1], "best": max(returns), **found, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    CELLS.mkdir(parents=True, exist_ok=True)
    aside = cell_file(*cell).with_suffix(".tmp")
    aside.write_text(json.dumps(told, indent=1) + "\n")
    aside.replace(cell_file(*cell))
    return told


# ---- comparisons


def sides(row: Comparison) -> list[tuple[Study, str]]:
    return [(BY_NAME[study], side) for study, side in (row.a, row.b)]


def first_answers() -> dict[Comparison, tuple[float, float]]:
    """The p value and the corrected one by row, of families whose first seeds are all there."""
    answers: dict[Comparison, tuple[float, float]] = {}
    for family in dict.fromkeys(row.family for row in COMPARISONS):
        rows = [row for row in COMPARISONS if row.family == family]
        found = [[scores(study, side, study.seeds) for study, side in sides(row)] for row in rows]
        if all(
            len(s) == len(study.seeds)
            for row, pair in zip(rows, found, strict=True)
            for s, (study, _) in zip(pair, sides(row), strict=True)
        ):
            p_values = [below(a, b) for a, b in found]
            answers |= dict(zip(rows, zip(p_values, holm(p_values), strict=True), strict=True))
    return answers


def undecided() -> list[Cell]:
    """New seeds that are still to be run, of rows whose first seeds say that one side is below."""
    rows = [row for row, (_, corrected) in first_answers().items() if corrected < ALPHA]
    cells = {(s.name, side, seed): (s, side, seed) for row in rows for s, side in sides(row) for seed in NEW_SEEDS}
    return [cell for cell in cells.values() if not finished(*cell)]


# ---- the table


def shown(found: list[float]) -> str:
    return within(*interval(found))


def within(mean: float, half: float) -> str:
    return f"{mean:,.1f}" if math.isnan(half) else f"{mean:,.1f} ± {half:,.1f}"


def nothing_learned(study: Study) -> str:
    """What random actions return in its evaluation."""
    return f"{at_random(study.environment, study.episodes, EVALUATION_SEED):,.1f}"


def asked(study: Study, side: str, cells: list[dict[str, Any]]) -> str:
    if study.at_most is not None:
        kept = sum(cell["last"] <= study.at_most + 1e-6 for cell in cells)
        return f"≤ {study.at_most:,.1f}, without memory: {kept} of {len(study.seeds)}"
    if study.at_least is None or side != "d3ray":
        return ""
    if isinstance(study.at_least, tuple):
        name, share = study.at_least
        rivals = scores(BY_NAME[name], "d3ray", BY_NAME[name].seeds)
        told = f"≥ {share:.0%} of {name} in the mean"
        if len(cells) < len(study.seeds) or len(rivals) < len(BY_NAME[name].seeds):
            return f"{told}: unfinished"
        reached = fmean(cell["last"] for cell in cells) / fmean(rivals)
        return f"{told}: {'met' if reached >= share else 'NOT met'} ({reached:.0%})"
    least = cells[0]["data_return"] if isinstance(study.at_least, str) else study.at_least
    needed = study.needed or len(study.seeds)
    reached = sum(cell[study.counts] >= least for cell in cells)
    state = "met" if reached >= needed else "NOT met" if len(cells) == len(study.seeds) else "unfinished"
    some = " in some evaluation" if study.counts == "best" else ""
    return f"≥ {least:,.1f}{some} on {needed} of {len(study.seeds)}: {state} ({reached})"


def score_rows() -> list[list[str]]:
    rows: list[list[str]] = []
    for study in STUDIES:
        for side in study.sides():
            cells = [c for seed in study.seeds if (c := finished(study, side, seed))]
            if not cells:
                continue
            last, best = ([cell[key] for cell in cells] for key in ("last", "best"))
            rows.append(
                [
                    study.name,
                    study.called(side),
                    ", ".join(f"{score:,.1f}" for score in last),
                    shown(last),
                    ", ".join(f"{score:,.1f}" for score in best),
                    f"{cells[0]['data_return']:,.1f}" if study.data else "",
                    nothing_learned(study),
                    asked(study, side, cells),
                ]
            )
    return rows


def test_rows() -> list[list[str]]:
    rows: list[list[str]] = []
    answers = first_answers()
    for row in COMPARISONS:
        (a, a_side), (b, b_side) = sides(row)
        found = scores(a, a_side, a.seeds), scores(b, b_side, b.seeds)
        if not all(found):
            continue
        p = corrected = ""
        there = f"{len(found[0])} and {len(found[1])} of {len(a.seeds)} seeds"
        verdict = f"unfinished: {there}" if min(map(len, found)) < len(a.seeds) else "waits for the other rows of its family"
        if row in answers:
            p, corrected = (f"{value:.3f}" for value in answers[row])
            verdict = "no" if answers[row][1] >= ALPHA else decision(row)
        names = f"{a.name} {a.called(a_side)} : {b.name} {b.called(b_side)}"
        apart = within(*difference(*found))
        rows.append([row.family, names, *(shown(s) for s in found), apart, nothing_learned(a), p, corrected, verdict])
    return rows


def decision(row: Comparison) -> str:
    """What ten new seeds a side say."""
    a, b = (scores(study, side, NEW_SEEDS) for study, side in sides(row))
    if min(len(a), len(b)) < len(NEW_SEEDS):
        return f"yes at first; new seeds to decide: {len(a)} and {len(b)} of {len(NEW_SEEDS)}"
    p = below(a, b)
    told = "; ".join(", ".join(f"{score:,.1f}" for score in found) for found in (a, b))
    return (
        f"{'no' if p >= ALPHA else 'YES'}, by ten new seeds, p = {p:.3f}: {shown(a)} and {shown(b)}, "
        f"{within(*difference(a, b))} apart ({told})"
    )


def processors() -> list[str]:
    """Lines on what the cells were trained on, as far as their files tell."""
    cells = [cell for s in STUDIES for side in s.sides() for seed in (*s.seeds, *NEW_SEEDS) if (cell := finished(s, side, seed))]
    named = Counter(cell["cpu"] for cell in cells if "cpu" in cell)
    silent = len(cells) - named.total()
    told = [f"{cpu}: {n} cells" for cpu, n in sorted(named.items())]
    told += [f"{silent} older cells do not tell their processor"] if silent else []
    return [
        f"{'; '.join(told)}.",
        "Cells ran on more than one machine, some of them shared with other work, so their seconds are not comparable. Each",
        "cell's file has its evaluations, seconds, threads, versions and date.",
    ]


def markdown() -> str:
    """The tables of all cells that are there."""
    notes = [
        f"- **{study.name}**: {study.data or 'online'}, {json.dumps(study.algorithm)}, {study.n_steps:,} gradient steps, evaluated "
        f"in {study.environment} every {study.every:,} over {study.episodes} episodes. {study.note}"
        for study in STUDIES
        if any(finished(study, "d3ray", seed) for seed in study.seeds)
    ]
    header = [
        "study",
        "side",
        "last score of each seed",
        "mean, 95 %",
        "best of the evaluations",
        "the data's mean return",
        "random actions",
        "asked",
    ]
    tests = ["family", "A : B", "A", "B", "A - B, 95 %", "random actions", "p", "Holm"]
    tests += [f"A shown to be below B? (Holm p < {ALPHA:g})"]
    return "\n".join(
        [
            "# Learning",
            "",
            table(header, score_rows()),
            "",
            "A score is the mean return of the policy that `predict` gives over episodes whose resets have the same seeds in",
            "each evaluation and on both sides. It is deterministic, but for d3rlpy's BCQ and BEAR, which draw anew at each call",
            "and take the best, and for CRR, which takes one by the softmax of Q, or where a study says so its mean. *Last*",
            "follows the last gradient step; `asked` is held against it, unless it says *in some evaluation*. d3rlpy 2.8.1 gets",
            "the same transitions, with rewards in the row of their action and with timeouts, and so does PFRL 0.4.0. ± is half of",
            "Student's 95 % interval over the seeds. *Random actions* are uniform, in the same evaluation. Cells that tell in",
            "their file how many were `stacked` were trained together: a row learns what its seed learns alone but for the",
            "rounding of batched products, which grows.",
            "",
            "Studies of hopper and halfcheetah have two expert episodes of 1,000 steps each: they ask whether a critic leads away",
            "from what BC learns, not whether an algorithm betters its data. Settings there that are no preset's were chosen by",
            "returns in Hopper, with seeds that no cell has, but for CQL's action scaler and the Decision Transformer's dropout in",
            "HalfCheetah, which were changed after cells had been seen; those cells were run again.",
            "",
            table(tests, test_rows()),
            "",
            "Welch's one-sided test that A's mean is below B's, over the last scores of seeds, Holm-corrected over the rows of a",
            f"family. Where it says so, seeds {NEW_SEEDS[0]} to {NEW_SEEDS[-1]}, named before any was run, decide. A *no* is not",
            "parity: five seeds show only large losses, and A - B with Welch's 95 % interval, not corrected, says how large a loss",
            "they leave open. Where both sides stay near random actions neither learned, and the row says nothing about equality.",
            "The exploratory rows were added when the means of pendulum-plas and pendulum-plas+p had been seen to lie below",
            "d3rlpy's: to look for a reason, not to test.",
            "",
            *notes,
            "",
            *processors(),
            "",
        ]
    )


# ---- running


def together(cells: list[Cell]) -> list[list[Cell]]:
    """Cells that one process trains at once: seeds of ours of one study, where it is stacked, and else each by itself."""
    groups: dict[Any, list[Cell]] = {}
    for study, side, seed in cells:
        groups.setdefault((study.name, side, (study.stacked and side == "d3ray") or seed), []).append((study, side, seed))
    return list(groups.values())


def go(cells: list[Cell], threads: int) -> None:
    """Runs cells one after the other, each or each stack of them in a process of its own."""
    data, recorded = os.environ.get("D3RAY_TEST_DATA", ""), [study for study, _, _ in cells if not study.is_played]
    if recorded and not Path(data or "missing").is_dir():
        sys.exit(f"{len(recorded)} cells need recorded data, and D3RAY_TEST_DATA names no folder of them.")
    with tempfile.TemporaryDirectory(prefix="d3ray-learning-") as folder:
        log = Path(folder) / "workers.log"
        for group in together(cells):
            try:
                with Worker(SCRIPTS[group[0][1]], threads, log) as worker:
                    found = run(group, Path(data).absolute(), worker, Path(folder))
            except RuntimeError as error:
                sys.exit(f"{error}\n{log.read_text()[-2_000:]}")
            for cell in found:
                curve = ", ".join(f"{one['return']:,.1f}" for one in cell["evaluations"])
                print(f"{cell['study']} {cell['side']} seed {cell['seed']}: {curve} ({cell['seconds']:.0f} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Scores from recorded data and online.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    names = [study.name for study in STUDIES]
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument(
        "--only", nargs="*", choices=names, default=names, metavar="STUDY", help="studies to run; none: the table only"
    )
    options = parser.parse_args()
    missing = [(s, side, seed) for s in STUDIES for side in s.sides() for seed in s.seeds if not finished(s, side, seed)]
    missing = sorted((m for m in missing if m[0].name in options.only), key=lambda m: m[1] != "d3ray")  # ours first
    if missing:
        go(missing, options.threads)
    new = [cell for cell in undecided() if cell[0].name in options.only]
    if new:
        go(new, options.threads)
    text = markdown()
    (RESULTS / "learning.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
