"""A benchmark's tables as Markdown, LaTeX and CSV. Scores as CSV hold no times, paths or runs: equal results give equal bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..record.results import NORMALIZED, RETURN, SeedResult
from ..statistics import summarise
from ..words import csv_text
from .results import Benchmark, Cell
from .statistics import AGGREGATES, Estimate, improvement
from .tables import MISSING, Comparable, Entry, Table, Tables

SCORES_HEAD = (
    *("suite", "dataset", "algorithm", "seed", "status", "step", "episodes", "return", "normalized"),
    *("best_return", "best_step", "n_evaluations", "best_normalized", "environment", "unit", "every", "n_warm_up"),
)
_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{"±": r"$\pm$", "−": r"$-$", "–": "--", "“": "``", "”": "''", "’": "'", "×": r"$\times$", "·": r"$\cdot$", "…": r"\dots{}"},
}


# ---- CSV


def scores_csv(benchmark: Benchmark) -> str:
    """A line for each seed of each cell that the suite asks for, and for every other run; numbers in full."""
    lines: list[Sequence[Any]] = []
    for dataset in benchmark.datasets:
        for label in benchmark.labels:
            cell = benchmark.cell(dataset, label)
            seeds = {run.seed: run for run in cell.runs.seeds} if cell else {}
            asked = benchmark.seeds if benchmark.awaits(dataset, label) else ()
            for seed in sorted({*seeds, *asked}):
                place = benchmark.suite, dataset, label, seed
                if cell is None or seed not in seeds:
                    lines.append([*place, MISSING.upper(), *[""] * (len(SCORES_HEAD) - len(place) - 1)])
                else:
                    lines.append([*place, *_seed(cell, seeds[seed])])
    return csv_text(SCORES_HEAD, lines)


def _seed(cell: Cell, run: SeedResult) -> list[Any]:
    returns, normalized = run.curves.get(RETURN), run.curves.get(NORMALIZED)
    about = [cell.runs.environment or "", cell.unit if cell.has_scores else "", cell.protocol.every]
    if returns is None:
        return [run.status, 0, cell.protocol.episodes, "", "", "", "", 0, "", *about, 0]
    best, at = cell.best_of(run, RETURN) or ("", "")
    best_normalized = cell.best_of(run, NORMALIZED) or ("", "")
    last = "" if normalized is None else float(normalized.values[-1])
    measured = [int(returns.steps[-1]), cell.protocol.episodes, float(returns.values[-1]), last]
    counted = cell.counted(run, RETURN)
    n_warm_up = len(returns.steps) - (0 if counted is None else len(counted.steps))
    return [run.status, *measured, best, at, len(returns.steps), best_normalized[0], *about, n_warm_up]


def statistics_csv(tables: Tables) -> str:
    """A line for each number of the other tables, unrounded, with its interval; what it is of is named as there."""
    head = ("statistic", "unit", "protocol", "dataset", "algorithm", "than", "seeds", "value", "standard_error", "low", "high")
    lines: list[Sequence[Any]] = []
    for group in tables.groups:
        about = group.unit, group.protocol
        data = {cell.dataset: cell.data_score for cell in group.cells if cell.is_current}
        lines += [["mean of the data", *about, d, "", "", "", score, "", "", ""] for d, score in data.items() if score is not None]
        for cell in (cell for cell in group.cells if cell.final):
            summary = cell.score.summary
            assert summary is not None
            place = *about, cell.dataset, cell.label, "", len(cell.final)
            error = "" if summary.standard_error is None else summary.standard_error
            lines.append(["mean of seeds", *place, summary.mean, error, *_ends(summary.interval)])
            if cell.best:
                lines.append(["best", *place, sum(cell.best.values()) / len(cell.best), "", "", ""])
            for task, shares in ((task, list(of.values())) for task, of in cell.tasks.items() if of):
                found = summarise(shares)
                error = "" if found.standard_error is None else found.standard_error
                of_task = "success rate in %", group.protocol, cell.dataset, cell.label, "", len(shares)
                lines.append([f"mean of seeds, task {task}", *of_task, found.mean, error, *_ends(found.interval)])
    for one in tables.comparable:
        for label, runs in one.runs.items():
            place = one.group.unit, one.group.protocol, " ".join(one.datasets), label, "", _seeds(one)
            lines += [[what, *place, *_estimate(runs.aggregate(what))] for what in AGGREGATES]
    for one in tables.compared:
        for x in one.labels:
            for y in (y for y in one.labels if y != x):
                place = "", one.group.protocol, " ".join(one.datasets), x, y, _seeds(one)
                lines.append(["probability of improvement", *place, *_estimate(improvement(one.runs[x], one.runs[y]))])
    return csv_text(head, lines)


def _seeds(one: Comparable) -> str:
    counts = {len(x) for runs in one.runs.values() for x in runs.scores.values()}
    return "-".join(map(str, sorted({min(counts), max(counts)})))


def _estimate(one: Estimate) -> list[Any]:
    return [one.value, "", *_ends(one.interval)]


def _ends(interval: tuple[float, float] | None) -> Sequence[Any]:
    return ("", "") if interval is None else interval


# ---- Markdown


def markdown(title: str, lead: str, tables: Sequence[Table], figures: Sequence[tuple[str, str]], end: Sequence[str]) -> str:
    """A report that stands beside its figures, which are given by caption and file name."""
    parts = [f"# {_plain(title)}", _plain(lead)]
    for table in tables:
        parts += [f"**{_plain(table.caption)}**", markdown_table(table)]
        if table.notes:
            parts.append("\n".join(f"- {_plain(note)}" for note in table.notes))
    parts += [f"**{_plain(caption)}**\n\n![{_plain(caption)}]({file})" for caption, file in figures]
    return "\n\n".join([*parts, *map(_plain, end)]) + "\n"


def markdown_table(table: Table) -> str:
    head = [table.corner, *(column.text for column in table.columns)]
    rows = [[row.text, *map(_of_markdown, entries)] for row, entries in table.rows]
    lines = [[*map(_plain, head)], ["---", *["---:"] * len(table.columns)], *([_plain(row[0]), *row[1:]] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of_markdown(entry: Entry) -> str:
    text = _plain(entry.text)
    shown = f"**{text}**" if entry.strong and text else text
    return "<br>".join([shown, *map(_plain, entry.below)])


def _plain(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|#$])", r"\\\1", text)


# ---- LaTeX


def latex(tables: Sequence[Table]) -> str:
    """Tables for a paper, in floats; they need the package booktabs."""
    head = "% Tables of a d3ray report. In the preamble: \\usepackage{booktabs}\n"
    names = [re.sub("[^a-z-]", "-", table.name) for table in tables]
    labels = [f"{name}-{names[: k + 1].count(name)}" if names.count(name) > 1 else name for k, name in enumerate(names)]
    return head + "\n".join(map(_latex_table, tables, labels))


def _latex_table(table: Table, label: str) -> str:
    columns = "l" + "r" * len(table.columns)
    lines = [
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{_tex(table.caption)}.}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        _latex_row([table.corner, *(column.text for column in table.columns)]),
        "\\midrule",
    ]
    for row, entries in table.rows:
        texts = [f"\\textbf{{{_tex(e.text)}}}" if e.strong and e.text else _tex(e.text) for e in entries]
        lines.append(f"{_tex(row.text)} & {' & '.join(texts)} \\\\")
        if any(e.below for e in entries):
            small = ["{\\scriptsize " + _tex(", ".join(e.below)) + "}" if e.below else "" for e in entries]
            lines.append(f" & {' & '.join(small)} \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(_tex, texts)) + " \\\\"


def _tex(text: str) -> str:
    """Text in which nothing is a command."""
    return "".join(_LATEX.get(char, char) for char in text)
