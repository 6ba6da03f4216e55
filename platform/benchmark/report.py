"""A benchmark as one page for a stranger, and as Markdown, LaTeX, CSV and figures; all of it from the tracking server alone.

What was run and what came of it, with uncertainty; algorithms compared over datasets; published scores beside; and of every number
its seeds, data, machine and versions, with a link to its run. The same runs give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...algos.judging.resampling import RESAMPLES
from ...data.errors import ConfigError, D3rayError
from ...data.uris import without_password
from ..record.results import Report
from ..report.charts import in_themes
from ..report.page import PAGE, pictures_of, render, write_page
from ..report.series import MOST
from ..report.text import NONE, STATUS, decimals, ends_text, listed, number, run_link, seed_cells
from ..results.mlflow_pages import mlflow_command
from ..storage.folders import Folder
from ..tracking.place import recorded_place
from ..tracking.runs import Tracking
from ..tracking.settling import settle
from ..words import count
from .charts import budget_figure, curves_figure, profiles_figure, short, styles
from .formats import latex, markdown, scores_csv, statistics_csv
from .reading import find_benchmark, read_benchmark
from .results import Benchmark, Cell, Origin
from .settings import settings_of
from .statistics import EXPERT
from .tables import Table, Tables

MARKDOWN, LATEX, SCORES, STATISTICS = "report.md", "tables.tex", "scores.csv", "statistics.csv"
CURVES, PROFILES, BUDGET = "learning-curves.png", "profiles.png", "budget.png"
_FIGURES = {
    PROFILES: ("Performance profiles", profiles_figure),
    CURVES: ("Learning curves", curves_figure),
    BUDGET: ("Score against the number of online evaluations", budget_figure),
}
_ORIGINS = {
    "Machine of the command": "machine",
    "Trained on the node": "node",
    "Versions": "versions",
    "Code in the command’s folder": "code",
}
HOW = (
    "Mean, standard error and interval of a cell are over its seeds, of which those that failed or have not finished are in none. "
    f"Intervals are 95 % percentile bootstrap intervals from {RESAMPLES:,} resamples, over several datasets stratified by dataset "
    "(Agarwal et al. 2021). The algorithm with the highest mean of a row is bold. “The data” is the mean return of a dataset’s own "
    "episodes; a normalised return of 0 is that of random actions, and a success rate is the share of episodes whose task "
    "was solved. Raw returns of every run are in scores.csv.",
    "The best evaluation of a run was picked by the score itself, and so flatters; it costs as many online evaluations as it had. "
    "What was evaluated in an algorithm’s warm-up, before its policy sees a critic, is not counted here. "
    "With a budget of k of the E evaluated checkpoints of a run, drawn without replacement, the expected best is "
    "Σ C(i−1, k−1) / C(E, k) · x(i) over its scores in ascending order: their mean for k = 1, the largest for k = E. Kurenkov and "
    "Kolesnikov (2022) measure so, as expected online performance, policies of different hyper-parameters; here it is applied to "
    "the checkpoints of one run, with the unbiased estimator of Tang et al. (2020).",
)


AGGREGATED = (
    f"IQM is the mean of the middle half of all runs. The optimality gap is how far runs stay below {EXPERT:.0f}, an expert’s, on "
    "average: less is better."
)
IMPROVED = (
    "A probability of improvement is bold where its interval lies above one half. It compares runs on the same dataset, so raw "
    "returns count in it too."
)


def write(storage: str, name: str, *, out: str | None = None) -> Report:
    """Writes the report on a benchmark, named by its experiment, or by its suite for the newest; what was there is replaced.

    Arguments as `report.experiment.report`'s. Raises ConfigError: there is none; StorageError: MLflow does not answer, or a file
    cannot be written.
    """
    tracking = Tracking.open(storage, recorded_place(storage, name))
    below = without_password((Folder(storage) / name).name)
    parent, remark = find_benchmark(tracking, name, below), ""
    if parent.info.status == "RUNNING":  # its command may have died without a word
        remark = _settle(storage, tracking)
        parent = find_benchmark(tracking, name, below)
    benchmark = read_benchmark(tracking, parent)
    own = Folder(storage) / benchmark.experiment / "report"
    folder, page, others = write_page(own, out, compose(benchmark), _FIGURES)
    return Report(of=[name], page=page, folder=folder.name, files=list(others), remark=remark)


def is_benchmark(storage: str, name: str) -> bool:
    """Return True if a benchmark has this name: an experiment in this storage, else an experiment or suite in MLflow."""
    about = (Folder(storage) / name).read_json("experiment.json")
    if about is not None:
        return "suite" in about["configuration"]
    local = Folder(storage).local
    if os.environ.get("MLFLOW_TRACKING_URI") or (local is not None and (local / "mlflow.db").exists()):  # else it would be made
        with suppress(ConfigError):
            find_benchmark(Tracking.open(storage), name)
            return True
    return False


def _settle(storage: str, tracking: Tracking) -> str:
    """Marks what died in MLflow. Why that could not be done; empty otherwise."""
    try:
        settle(storage, tracking)
    except D3rayError as error:
        return f"MLflow may not know yet how experiments ended: {error}"
    return ""


def _over(tables: Tables) -> str:
    """How the numbers came about that compare algorithms, as far as there are any."""
    return " ".join([AGGREGATED] * bool(tables.aggregates) + [IMPROVED] * bool(tables.improvements))


def compose(benchmark: Benchmark) -> dict[str, bytes]:
    """The files of a report by name, the page last."""
    tables = Tables(benchmark, styles(benchmark.labels))
    figures = in_themes({name: partial(draw, tables) for name, (_, draw) in _FIGURES.items()})
    made = {name: themes["light"] for name, themes in figures.items()}
    made[SCORES] = scores_csv(benchmark).encode()
    made[STATISTICS] = statistics_csv(tables).encode()
    made[LATEX] = latex(tables.all).encode()
    titled = [(_FIGURES[name][0], name) for name in figures]
    about = [f"{term}: {value.rstrip('.')}." for _, terms in conditions(benchmark) for term, value in terms]
    about += [f"Settings of {row}" for row in settings_of(benchmark).rows]
    made[MARKDOWN] = markdown(
        title(benchmark), " ".join(lead(tables)), tables.all, titled, [HOW[0], *filter(None, [_over(tables)]), HOW[1], *about]
    ).encode()
    made[PAGE] = page(tables, figures).encode()
    return made


# ---- words


def title(benchmark: Benchmark) -> str:
    same = benchmark.experiment in ("", benchmark.suite)
    return benchmark.suite if same else f"{benchmark.suite}: {benchmark.experiment}"


def lead(tables: Tables) -> list[str]:
    """Summarise runs, progress and results."""
    bench = tables.benchmark
    what = listed(bench.labels) if 0 < len(bench.labels) <= 6 else count(len(bench.labels), "algorithm")
    where = listed([short(d) for d in bench.datasets]) if 0 < len(bench.datasets) <= 4 else count(len(bench.datasets), "dataset")
    protocols = list(dict.fromkeys(group.protocol for group in tables.groups))
    how = f": {protocols[0]}" if len(protocols) == 1 and ";" not in protocols[0] else ""
    said = [f"{what} on {where}, {count(len(bench.seeds), 'seed')} each{how}.", _progress(bench)]
    for one in tables.comparable:
        best = max(one.labels, key=lambda label: one.runs[label].aggregate("iqm").value)
        iqm = one.runs[best].aggregate("iqm")
        ends = "" if iqm.interval is None else f" ({ends_text(iqm.interval, 1)})"
        if len(one.labels) > 1:
            so_far = "" if bench.count("FINISHED", "FAILED") == bench.n_runs else "So far "
            who = f"{so_far}{best} has the highest interquartile mean over {one.words}"
            said.append(f"{who}: {number(iqm.value, 1)}{ends}, {one.group.unit}.")
    return said


def _progress(bench: Benchmark) -> str:
    n, done = bench.n_runs, bench.count("FINISHED")
    if n and done == n:
        return f"All {n:,} runs have finished." if n > 1 else "Its one run has finished."
    counts = [
        (bench.count("FAILED"), "failed"),
        (bench.count("RUNNING"), "still running"),
        (bench.count("KILLED"), "stopped before the end"),
        (n - sum(len(cell.runs.seeds) for cell in bench.cells), "not begun"),
    ]
    rest = listed([f"{k:,} {words}" for k, words in counts if k]) if any(k for k, _ in counts) else ""
    return f"Of {count(n, 'run')} {done or 'none'} {'has' if done <= 1 else 'have'} finished" + (f"; {rest}." if rest else ".")


def conditions(benchmark: Benchmark) -> list[tuple[str, list[tuple[str, str]]]]:
    """List the conditions as (term, value) pairs in groups; the first has no name."""
    about = benchmark.about
    first = [("Suite", benchmark.suite), ("Experiment", benchmark.experiment)]
    first += [("Source", str(about["source"]))] if about.get("source") else []
    first.append(("Seeds", ", ".join(map(str, benchmark.seeds))))
    found = origins(benchmark)
    for term, field in _ORIGINS.items():
        values = {letter: str(getattr(origin, field)) for letter, (origin, _) in found.items()}
        if len(set(values.values())) == 1:
            first += [(term, text) for text in list(values.values())[:1] if text]
        else:
            first += [(f"{term} {letter} ({count(found[letter][1], 'run')})", text or NONE) for letter, text in values.items()]
    data = [(cell.dataset, _data(cell)) for cell in _first_of_data(benchmark)]
    data += [(dataset, f"missing: {why.strip().rstrip('.')}") for dataset, why in benchmark.missing.items()]
    return [("", first), *([("Data", data)] if data else [])]


def _first_of_data(benchmark: Benchmark) -> list[Cell]:
    found: dict[tuple[str, str], Cell] = {}
    for cell in benchmark.cells:
        found.setdefault((cell.dataset, cell.fingerprint), cell)
    return list(found.values())


def _data(cell: Cell) -> str:
    parts = [cell.size, f"fingerprint {cell.fingerprint[:12]}"]
    if cell.data_return is not None:
        parts.insert(1, f"mean return of its episodes {number(cell.data_return, decimals([cell.data_return]))}")
    if cell.runs.environment:
        parts.append(f"scored in {cell.runs.environment}")
    if (reference := cell.reference) is not None:
        parts.append(f"0 is a return of {number(reference.min, 1)}, 100 one of {number(reference.max, 1)}")
    return "; ".join(filter(None, parts))


def origins(benchmark: Benchmark) -> dict[str, tuple[Origin, int]]:
    """On what runs ran, by letter, with how many did; in the order of the runs."""
    counts: dict[Origin, int] = {}
    for cell in benchmark.cells:
        for origin in cell.origins.values():
            counts[origin] = counts.get(origin, 0) + 1
    return {_letter(k): entry for k, entry in enumerate(counts.items())}


def _letter(k: int) -> str:
    return chr(ord("A") + k % 26) * (k // 26 + 1)


# ---- the page


def page(tables: Tables, figures: Mapping[str, Mapping[str, bytes]]) -> str:
    """The HTML. Everything that comes from runs is escaped."""
    bench = tables.benchmark
    where = listed([short(d) for d in bench.datasets]) if bench.datasets else "nothing"
    uri = str(bench.place["uri"])
    return render(
        "benchmark/report.html",
        title=title(bench),
        lead=lead(tables),
        status=STATUS[bench.status],
        reason=bench.reason,
        tables=tables,
        pictures=pictures_of(figures),
        alts={name: f"{words} of {', '.join(tables.styles)} on {where}." for name, (words, _) in _FIGURES.items()},
        names={"profiles": PROFILES, "curves": CURVES, "budget": BUDGET},
        not_drawn=bench.labels[MOST:],
        how=HOW,
        over="Over datasets" if len(bench.datasets) > 1 else "Over runs",
        over_how=_over(tables),
        runs=run_rows(bench),
        many_origins=len(origins(bench)) > 1,
        conditions=conditions(bench),
        settings=settings_of(bench),
        made_here=[d for d in bench.datasets if d.startswith("d3ray-")],
        suite=bench.suite,
        mlflow=mlflow_command(uri),
        is_local=uri.startswith("sqlite:"),
        run=bench.run_id,
        link=run_link(bench.place, bench.run_id),
        is_wide=is_wide,
    )


def is_wide(table: Table) -> bool:
    return len(table.columns) > 5


def run_rows(benchmark: Benchmark) -> list[dict[str, Any]]:
    """A row a run: where it stands, how it ended, its last and best score, on what it ran, and its place in MLflow."""
    letters = {origin: letter for letter, (origin, _) in origins(benchmark).items()}
    rows: list[dict[str, Any]] = []
    for cell in benchmark.cells:
        values = [float(v) for run in cell.runs.seeds if cell.metric in run.curves for v in run.curves[cell.metric].values]
        places = 1 if cell.is_normalized else decimals(values)
        for run in cell.runs.seeds:
            about = {"dataset": cell.dataset, "label": cell.label, "origin": letters[cell.origins[run.seed]]}
            link = run_link(benchmark.place, run.run_id)
            rows.append({**about, **seed_cells(run, cell.metric, cell.best_of(run), places), "link": link})
    return rows
