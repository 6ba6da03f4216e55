"""Every page as a program of tensors: what a GPU captures of it, and what compiling its steps gains on this machine's CPU.

    python benchmarks/programs.py [NAME ...] [--seconds 3]

A cell is a page: updates a second through `fit` with its default settings on data of Hopper's or CartPole's shapes, plain and with
compiled in turn in one process, medians of five; and seconds of the first two steps, with nothing compiled before. Pages that are
given a policy or a model are not timed. What is there is kept: delete it from `results/programs.json` to measure it again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from typing import Any

import torch
from tasks import cartpole_like, hopper_like
from workers import keep, kept, machine, page, table, versions

from d3ray.algos.learning.programs import Programs
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.testing import data_for, maker

ROUNDS = 5
GIVEN = {
    **dict.fromkeys(("FQE", "DiscreteFQE"), "is given a policy to judge"),
    **dict.fromkeys(("MOPO", "MOReL", "COMBO", "RAMBO", "MOBILE"), "is given a model"),
    "MBPO": "learns online",
}


def captured(name: str) -> str:
    """What a GPU captures of a page with its default sampler."""
    algorithm = algorithm_class(name)
    if algorithm.reads_values is not None:
        return f"nothing: {algorithm.reads_values}"
    make = maker(algorithm)
    fit = make().fit(data_for(make), 0).fit_
    draws = Programs(fit.learner, compiled=False, graphs=None).draws_from(fit.sampler(data_for(make)))
    return "draws and steps" if draws else "steps, fed by the host"


def sides_of(name: str) -> dict[str, Any]:
    """The two that are compared."""
    return {side: algorithm_class(name)(compile_graph=side == "compiled") for side in ("plain", "compiled")}


def data_of(name: str) -> Any:
    """What they learn from."""
    return cartpole_like(20_000) if "discrete" in algorithm_class(name).action_kinds() else hopper_like(20_000)


def first_steps(name: str) -> dict[str, float]:
    """Seconds of the first two steps, plain and compiled, where nothing was compiled before."""
    row, data = dict[str, float](), data_of(name)
    for side, made in sides_of(name).items():
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            begin = time.perf_counter()
            made.fit(data, 2, 100_000, show_progress=False)
            row[f"first_{side}"] = time.perf_counter() - begin
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
    return row


def timed(name: str, seconds: float) -> dict[str, float]:
    """Updates a second, plain and compiled."""
    sides, data, n = sides_of(name), data_of(name), 8
    for made in sides.values():
        made.fit(data, 2, 100_000, show_progress=False)
        made.fit(data, n, 100_000, show_progress=False)
    for _ in range(3):  # the step that ends a fit is looked at, which takes as long as several: it must be one of many
        begin = time.perf_counter()
        sides["compiled"].fit(data, n, 100_000, show_progress=False)
        n = max(8, int(n * seconds / ROUNDS / (time.perf_counter() - begin)))
    speeds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, made in sides.items():
            begin = time.perf_counter()
            made.fit(data, n, 100_000, show_progress=False)
            speeds[side].append(n / (time.perf_counter() - begin))
    ratios = sorted(c / p for c, p in zip(speeds["compiled"], speeds["plain"], strict=True))
    row = {side: statistics.median(found) for side, found in speeds.items()}
    return row | {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}


def written(rows: dict[str, Any]) -> str:
    """The page of the results."""
    cells: list[list[str]] = []
    for name in algorithm_names():
        row = rows.get(name, {})
        if {"ratio", "first_compiled"} <= row.keys():
            ratio = row["ratio"]
            pays = (row["first_compiled"] - row["first_plain"]) / (1 - 1 / ratio) * row["plain"] if ratio > 1 else None
            gained = f"{ratio:.2f} ({row['least']:.2f} to {row['most']:.2f})"
            told = [f"{row['plain']:.0f}", gained, f"{row['first_compiled']:.0f}", "never" if pays is None else f"{pays:,.0f}"]
        else:
            told = [GIVEN.get(name) or row.get("failed", "not measured yet"), "", "", ""]
        cells.append([name, row.get("captured", ""), *told])
    heads = ["page", "captured on a GPU", "updates/s as it stands", "compiled: times as many", "first step, s", "pays from step"]
    where = f"{machine()['cpu']}, {torch.get_num_threads()} threads, torch {versions()['torch']}"
    return page("programs", where=where, table=table(heads, cells))


def main() -> None:
    """Measures the cells that are missing, one after another, and writes after each."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="those to time; none: all")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each side of a cell")
    asked = parser.parse_args()
    rows: dict[str, Any] = kept("programs", {})
    for name in algorithm_names():
        row = rows.setdefault(name, {})
        row["captured"] = captured(name)
        if name not in GIVEN and not {"ratio", "first_compiled"} <= row.keys() and (not asked.pages or name in asked.pages):
            try:
                row.pop("failed", None)
                if "first_compiled" not in row:
                    row |= first_steps(name)
                if "ratio" not in row:
                    row |= timed(name, asked.seconds)
            except Exception as error:  # the others are measured all the same, and the table says why this one is not
                row["failed"] = f"{type(error).__name__}: {error}"
            print(name, row, flush=True)
        keep("programs", rows, written(rows))


if __name__ == "__main__":
    main()
