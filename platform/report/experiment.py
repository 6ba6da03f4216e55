"""An experiment, or several, as one page for a stranger: what was run, the scores with their uncertainty, curves, how to repeat it.

The page needs nothing but itself: style and figures are inside, nothing is fetched, and its content security policy forbids that
anything ever is. It is made from the experiments' folders alone, dates included, so the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...data.errors import ConfigError, D3rayError
from ..record.results import RETURN, ConfigurationResult, Report, Results
from ..results.experiment import read_results
from ..storage.folders import Folder
from ..tracking.runs import Tracking
from ..tracking.settling import settle
from ..words import csv_text
from .charts import Theme, in_themes, learning_curves, losses, png
from .model_charts import model_figure
from .page import PAGE, pictures_of, render, write_page
from .series import MOST, Panel
from .sweep_charts import search_figure
from .sweep_text import configurations_csv, sweep_words
from .tasks import Task, axis_name, choose_metric, group, metric_names, panels, ranked, shown
from .text import conditions, experiment_words, lead, table, too_long

CURVES, LOSSES, SCORES = "learning-curves.png", "losses.png", "scores.csv"
SEARCH, CONFIGURATIONS = "search.png", "configurations.csv"
MODELS = "model-errors.png"


def report(storage: str, names: Sequence[str], *, out: str | None = None, metric: str | None = None) -> Report:
    """Writes the page, its figures as PNG files and the scores as CSV. What was there under these names is replaced.

    Arguments and errors as `api.reports.report`'s; several experiments have their page in `reports/A+B/` of the storage.
    """
    names = list(dict.fromkeys(names))
    if not names:
        raise ConfigError("A report needs the name of an experiment.")
    results = tuple(shown(read_results(storage, name)) for name in names)
    remark = settle_the_dead(storage, results)
    metric = choose_metric(results, metric)
    own = Folder(storage) / names[0] / "report" if len(names) == 1 else Folder(storage) / "reports" / "+".join(names)[:120]
    folder, page, others = write_page(own, out, compose(results, metric), (CURVES, LOSSES, SEARCH, CONFIGURATIONS, MODELS))
    return Report(of=names, page=page, folder=folder.name, files=list(others), remark=remark)


def settle_the_dead(storage: str, results: Sequence[Results]) -> str:
    """Says in MLflow too that commands died, where any did. Why that could not be done; empty otherwise."""
    dead = [one.name for one in results if one.died or one.tracking.get("status", one.state) != one.state]
    if not dead:
        return ""
    places = {(one.tracking.get("uri"), one.tracking.get("experiment")): one.tracking for one in results if one.name in dead}
    try:
        for place in places.values():
            settle(storage, Tracking.open(storage, place))
    except D3rayError as error:
        return f"MLflow does not know yet how {' and '.join(dead)} ended: {error}"
    return ""


# ---- the files


def compose(results: Sequence[Results], metric: str | None) -> dict[str, bytes]:
    """The files of a report by name: figures where there is something to draw, the scores, and the page, last."""
    tasks = group(results)
    drawn, n_left_out = panels(tasks, metric)
    names = [name for name in metric_names(drawn) if name.startswith("train/")]
    bare, is_scored = [replace(p, data_return=None) for p in drawn], any(s.seeds(metric or "") for p in drawn for s in p.series)

    def curves(theme: Theme) -> bytes | None:
        return png(learning_curves(drawn, metric, axis_name(results, metric), theme)) if metric and is_scored else None

    figures = in_themes(
        {
            CURVES: curves,
            LOSSES: lambda theme: png(losses(bare, names, theme)) if names else None,
            SEARCH: lambda theme: search_figure(results, theme),
            MODELS: lambda theme: model_figure(drawn, theme),
        }
    )
    made = {name: themes["light"] for name, themes in figures.items()}
    made[SCORES] = scores(tasks, metric).encode()
    if any(one.sweep for one in results):
        made[CONFIGURATIONS] = configurations_csv(results).encode()
    made[PAGE] = page(results, tasks, drawn, figures, metric, n_left_out).encode()
    return made


def scores(tasks: Sequence[Task], metric: str | None) -> str:
    """CSV, a line a seed: every number that the page's tables are made of, unrounded."""
    head = ["experiment", "dataset", "configuration", "seed", "status", "reason", "step", "n_steps"]
    head += ["metric", "score_step", "score", "counted", "best", "best_step", "updates_per_second", "run_id"]
    lines: list[list[Any]] = []
    for task in tasks:
        for one in task.configurations:
            score = one.score(metric) if metric else None
            for run in one.seeds:
                last = run.curves[metric].at(score.step) if score and metric in run.curves else None
                best, at = (run.best_value(metric) if metric else None) or ("", "")
                counted = int(score is not None and run.seed in score.values)
                place = [one.experiment, task.title, one.label, run.seed, run.status, run.reason, run.reached, run.n_steps]
                of_metric = [metric or "", score.step if score else "", "" if last is None else last, counted, best, at]
                lines.append([*place, *of_metric, "" if run.speed is None else run.speed, run.run_id or ""])
    return csv_text(head, lines)


# ---- the page


def page(
    results: Sequence[Results],
    tasks: Sequence[Task],
    drawn: Sequence[Panel],
    figures: Mapping[str, Mapping[str, bytes]],
    metric: str | None,
    n_left_out: int,
) -> str:
    """The HTML. Everything that comes from runs is escaped."""
    styles = {series.label: series.style for panel in drawn for series in panel.series}
    tables = [{"title": task.title, **table(ranked(task.configurations, metric), task.results, metric, styles)} for task in tasks]
    pictures = pictures_of(figures)
    return render(
        "report/experiment.html",
        title=" and ".join(one.name for one in results),
        results=results,
        lead=[lead(task.experiments, ranked(task.configurations, metric), metric) for task in tasks],
        tables=tables,
        metric=metric,
        score_name="Return" if metric == RETURN else metric,
        normalized=metric == RETURN and any(task.results.reference for task in tasks),
        reference=next((task.results.reference.label for task in tasks if task.results.reference), ""),
        sweeps=[sweep_words(one) for one in results if one.sweep],
        search=pictures.get(SEARCH),
        search_alt=f"Objective of every configuration of {' and '.join(one.name for one in results if one.sweep)}.",
        curves=pictures.get(CURVES),
        losses=pictures.get(LOSSES),
        models=pictures.get(MODELS),
        curves_alt=_alt("Learning curves", drawn, tasks),
        losses_alt=_alt("Losses", drawn, tasks),
        models_alt=_alt("Errors and coverage of the models", drawn, tasks, "on held-out episodes"),
        n_left_out=n_left_out,
        most=MOST,
        too_long=[said for task in tasks for said in too_long(task.configurations)],
        conditions=conditions(results),
        experiments=[experiment_words(one, ranked(of_experiment(tasks, one), metric), metric) for one in results],
    )


def of_experiment(tasks: Sequence[Task], results: Results) -> tuple[ConfigurationResult, ...]:
    return tuple(one for task in tasks for one in task.configurations if one.experiment == results.name)


def _alt(what: str, drawn: Sequence[Panel], tasks: Sequence[Task], over: str = "over gradient steps") -> str:
    labels = list({series.label: None for panel in drawn for series in panel.series})
    where = " and ".join(task.title for task in tasks)
    return f"{what} of {', '.join(labels)} on {where} {over}."
