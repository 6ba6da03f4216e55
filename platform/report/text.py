"""The words and numbers of a report's page, as plain text: the template escapes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ...algos.judging.overfitting import stop_here
from ...data.uris import without_password
from ..record.results import COSTS, RETURN, ConfigurationResult, Results, Score, SeedResult
from ..results.mlflow_pages import mlflow_command
from ..results.summary import compare
from ..settings.config import ExperimentConfig
from ..settings.objective import is_cost
from ..statistics import FEW, Summary, interval_name, why_below
from ..subjects.kind import is_online
from ..surroundings import describe_git, describe_machine
from ..words import count

NONE = "–"
_NAMED = 3  # configurations of which it is said that the best is not shown to differ
STATUS = {"FINISHED": "finished", "FAILED": "failed", "KILLED": "stopped", "RUNNING": "running", "PENDING": "pending"}


@dataclass(frozen=True)
class Row:
    label: str
    style: int | None  # of its line in the figures; None where it is not drawn
    seeds: str
    mean: str = NONE
    error: str = NONE
    interval: str = NONE
    normalized: str = NONE
    cost: str = NONE
    best: str = NONE
    step: str = NONE
    speed: str = NONE
    is_partial: bool = False  # not the score where training ends


# ---- numbers


def number(value: float | None, decimals: int) -> str:
    """1,556.9 with a true minus; a dash for None."""
    if value is None:
        return NONE
    return f"{value:,.{decimals}f}".replace("-", "−") if math.isfinite(value) else str(value)


def mean_text(summary: Summary, places: int) -> str:
    """Mean ± standard error; of one seed the mean alone."""
    error = summary.standard_error
    return number(summary.mean, places) + ("" if error is None else f" ± {number(error, places)}")


def ends_text(interval: tuple[float, float], places: int) -> str:
    return " to ".join(number(end, places) for end in interval)


def decimals(values: Iterable[float | None]) -> int:
    """Decimals that give the largest of some numbers four digits."""
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    return 2 if largest == 0 else min(max(3 - math.floor(math.log10(largest)), 0), 6)


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


# ---- scores


def table(
    configurations: Sequence[ConfigurationResult], results: Results, metric: str | None, styles: Mapping[str, int]
) -> dict[str, Any]:
    """Rows in the order given, the data's own row, and what must be said below."""
    found = [one.score(metric) if metric else None for one in configurations]
    data = results.data_return if metric == RETURN else None
    places = decimals([data, *(score.summary.mean for score in found if score and score.summary)])
    scored = zip(configurations, found, strict=True)
    rows = [_row(one, metric, score, results, places, styles.get(one.label)) for one, score in scored]
    own = None
    if data is not None:
        normalized = results.reference and number(float(results.reference.score(data)), 1)
        own = {"mean": number(data, places), "normalized": normalized or NONE, "n": count(results.data["n_episodes"], "episode")}
    name = interval_name(max((score.summary.n for score in found if score and score.summary), default=1))
    costs = any(COSTS in run.curves for one in configurations for run in one.seeds)
    return {"rows": rows, "data": own, "costs": costs, "notes": _notes(configurations, found, metric), "interval_name": name}


def _row(
    one: ConfigurationResult, metric: str | None, score: Score | None, results: Results, places: int, style: int | None
) -> Row:
    speeds = [run.speed for run in one.seeds if run.speed is not None]
    speed = math.fsum(speeds) / len(speeds) if speeds else None
    shown_speed = number(speed, 0 if speed is None or speed >= 10 else 1)
    if score is None or metric is None or score.summary is None:
        done, steps = sum(run.status == "FINISHED" for run in one.seeds), sorted({run.reached for run in one.seeds})
        reached = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
        n = done if score is None else 0
        return Row(one.label, style, _of(n, len(one.seeds)), step=reached, speed=shown_speed)
    costs = one.score(COSTS).summary
    summary, reference = score.summary, results.reference if metric == RETURN else None
    best = [found[0] for run in one.seeds if run.seed in score.values and (found := run.best_value(metric)) is not None]
    few = "†" if 1 < summary.n < FEW else ""
    return Row(
        one.label,
        style,
        _of(summary.n, len(one.seeds)),
        number(summary.mean, places),
        NONE if summary.standard_error is None else f"± {number(summary.standard_error, places)}",
        NONE if summary.interval is None else ends_text(summary.interval, places) + few,
        NONE if reference is None else number(float(reference.score(summary.mean)), 1),
        NONE if costs is None else mean_text(costs, decimals([costs.mean])),
        number(math.fsum(best) / len(best), places),
        f"{score.step:,}" if score.is_final else f"{score.step:,} of {one.n_steps:,}",
        shown_speed,
        not score.is_final,
    )


def _of(n: int, of: int) -> str:
    return str(n) if n == of else f"{n} of {of}"


def _notes(configurations: Sequence[ConfigurationResult], scores: Sequence[Score | None], metric: str | None) -> list[str]:
    said: list[str] = []
    for one, score in zip(configurations, scores, strict=True):
        if score is None:
            said += [f"{one.label}: seed {run.seed} {_fate(run)}." for run in one.seeds if run.status in ("FAILED", "KILLED")]
            continue
        said += [f"Not in the mean of {one.label}: seed {seed}, which {_ended(why)}." for seed, why in score.left_out.items()]
        if score.summary and not score.is_final:
            said.append(f"{one.label}: the scores are those at step {score.step:,} of {one.n_steps:,}, not of finished training.")
    summaries = [score.summary for score in scores if score and score.summary]
    if few := sorted({summary.n for summary in summaries if 1 < summary.n < FEW}):
        said.append(f"† {why_below(*few)}")
    if any(summary.n == 1 for summary in summaries):
        said.append("A single seed does not say how much seeds differ: it has no standard error and no interval.")
    return said


def _fate(run: SeedResult) -> str:
    if run.status == "FAILED":
        return f"failed at step {run.reached:,}: {_ended(run.reason)}"
    return f"was stopped at step {run.step:,} of {run.n_steps:,}"


def _ended(reason: str) -> str:
    return reason.strip().rstrip(".") or "nobody knows why"


def seed_rows(configurations: Sequence[ConfigurationResult], results: Results, metric: str | None) -> list[dict[str, Any]]:
    """A row a seed: how it ended, its last and best score, and its run in MLflow."""
    runs = [(one, run) for one in configurations for run in one.seeds]
    values = [value for _, run in runs if metric in run.curves for value in run.curves[metric].values] if metric else []
    places = decimals(map(float, values))
    return [
        {
            **seed_cells(run, metric, run.best_value(metric) if metric else None, places),
            "configuration": one.label,
            "speed": number(run.speed, 0 if run.speed is None or run.speed >= 10 else 1),
            "link": run_link(results.tracking, run.run_id),
        }
        for one, run in runs
    ]


def seed_cells(run: SeedResult, metric: str | None, best: tuple[float, int] | None, places: int) -> dict[str, Any]:
    """How a seed ended, its last and best score, and its run."""
    curve = run.curves.get(metric or "")
    return {
        "seed": run.seed,
        "status": STATUS[run.status],
        "step": f"{run.reached:,}",
        "last": NONE if curve is None else number(float(curve.values[-1]), places),
        "best": number(best[0], places) if best else NONE,
        "best_step": f"at {best[1]:,}" if best else "",
        "run": run.run_id or "",
    }


# ---- sentences


def too_long(configurations: Sequence[ConfigurationResult]) -> list[str]:
    """Of each seed that should have ended earlier where, and what says so; nothing of the others."""
    said: list[str] = []
    for one in configurations:
        for run in one.seeds:
            curves = {
                name: dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)) for name, curve in run.curves.items()
            }
            if (stop := stop_here(curves, one.settings.get("n_steps_per_epoch"))) is not None:
                said.append(f"{one.label}, seed {run.seed}: {stop.evidence}")
    return said


def lead(experiments: Sequence[Results], configurations: Sequence[ConfigurationResult], metric: str | None) -> str:
    """Summarise runs on some data and their results in a few sentences; the best configuration first."""
    results = experiments[0]
    data, runs = results.data, [run for one in configurations for run in one.seeds]
    algorithms = list(dict.fromkeys(one.algorithm for one in configurations))
    n_seeds = sorted({len(one.seeds) for one in configurations})
    seeds = count(n_seeds[0], "seed") if len(n_seeds) == 1 else f"{n_seeds[0]} to {n_seeds[-1]} seeds"
    what = listed(algorithms)
    if len(configurations) > len(algorithms):
        shown, of = len(configurations), sum(len(one.sweep) for one in experiments)
        what = f"{f'The best {shown} of ' if of > shown else ''}{count(max(shown, of), 'configuration')} of {what}"
    steps = sorted({one.n_steps for one in configurations})
    kind = "environment step" if (online := all(map(is_online, algorithms))) else "gradient step"
    length = count(steps[0], kind) if len(steps) == 1 else f"{steps[0]:,} to {count(steps[-1], kind)}"
    size = f"{count(data['n_transitions'], 'transition')} in {count(data['n_episodes'], 'episode')}"
    came = f"from the dataset {data['name']} ({size}) for {length}"
    if online or not data["n_transitions"]:
        came = f"in {data['environment']} for {length}"
    said = [f"{what} learned {came}, with {seeds}{' each' * (len(configurations) > 1)}."]
    said += _outcome(results, configurations, metric)
    said += _casualties(runs)
    if running := [one.name for one in experiments if one.state == "RUNNING"]:
        said.append(f"{listed(running)} {'is' if len(running) == 1 else 'are'} still running.")
    return " ".join(said)


def _outcome(results: Results, configurations: Sequence[ConfigurationResult], metric: str | None) -> list[str]:
    if metric is None:
        return ["Nothing was scored, so this page shows losses only."]
    scored = [(one, score) for one in configurations if (score := one.score(metric)).summary]
    if not scored:
        return [f"No seed has a value of {metric} that counts."]
    one, score = scored[0]
    summary = score.summary
    assert summary is not None
    data = results.data_return if metric == RETURN else None
    places = decimals([summary.mean, data])
    alike = _not_shown([each for each, _ in scored], metric)
    best = "best" if not alike else "lowest" if is_cost(metric) else "highest"
    who = f"the {best} of them, {one.label}," if len(configurations) > 1 else "the policy"
    when = "After the last step" if score.is_final else f"At step {score.step:,} of {one.n_steps:,}"
    over = "one seed" if summary.n == 1 else f"mean ± standard error over {summary.n} seeds"
    reaches = "reaches a return" if metric == RETURN else f"has a {metric}"
    where = f" in {results.environment}" if metric == RETURN and results.environment else ""
    said = f"{when}, {who} {reaches} of {mean_text(summary, places)}{where} ({over})"
    said += f"; the data’s own episodes return {number(data, places)} on average." if data is not None else "."
    if not alike:
        return [said]
    others = listed(alike) if len(alike) <= _NAMED else f"{len(alike)} of the {len(scored) - 1} others"
    return [said, f"That it differs from {others} is not shown."]


def _not_shown(configurations: Sequence[ConfigurationResult], metric: str) -> list[str]:
    """Those from which seeds do not show that the first differs, as `d3ray compare` tests it."""
    if len(configurations) < 2:
        return []
    verdicts = compare(configurations, metric).verdicts
    return [one.label for one, verdict in zip(configurations[1:], verdicts, strict=True) if not verdict.is_shown]


def _casualties(runs: Sequence[SeedResult]) -> list[str]:
    failed, stopped = (sum(run.status == status for run in runs) for status in ("FAILED", "KILLED"))
    parts = [f"{n} {verb}" for n, verb in ((failed, "failed"), (stopped, "was stopped" if stopped == 1 else "were stopped")) if n]
    if not parts:
        return []
    said = f"Of {count(len(runs), 'seed')} in all, {listed(parts)}"
    if stopped and not any(run.status == "FINISHED" for run in runs):  # then a mean of the stopped is all there is
        return [f"{said}."]
    return [f"{said}, and {'is' if failed + stopped == 1 else 'are'} in no mean."]


def conditions(experiments: Sequence[Results]) -> list[tuple[str, list[tuple[str, str]]]]:
    """List the conditions as (term, value) pairs: first, unnamed, those common to all experiments."""
    each = [_conditions(one) for one in experiments]
    common = [pair for pair in each[0] if all(pair in other for other in each)]
    own = [(one.name, [pair for pair in pairs if pair not in common]) for one, pairs in zip(experiments, each, strict=True)]
    return [group for group in (("", common), *own) if group[1]]


def _conditions(results: Results) -> list[tuple[str, str]]:
    data = results.data
    size = f"{count(data['n_transitions'], 'transition')} in {count(data['n_episodes'], 'episode')}"
    found = [
        ("Dataset", f"{data['name']}: {size}") if data["n_transitions"] else ("Environment", str(data["name"])),
        ("Fingerprint", f"{str(data['fingerprint'])[:12]}"),
    ]
    if results.data_return is not None:
        places = decimals([results.data_return])
        spread = data.get("return_std")
        words = "" if spread is None else f", standard deviation {number(spread, places)}"
        found.insert(1, ("Return of its episodes", f"mean {number(results.data_return, places)}{words}"))
    if results.environment and results.episodes:
        found.append(("Scored in", f"{results.environment}, {count(results.episodes, 'episode')} an evaluation"))
    elif results.environment:
        found.append(("Recorded in", results.environment))
    if results.reference is not None:
        low, high = results.reference.min, results.reference.max
        found.append(
            ("Normalisation", f"0 is a return of {number(low, 1)} (random), 100 one of {number(high, 1)} (expert), as in D4RL")
        )
    found.append(("Trained", f"{moment(results.created)} to {moment(results.last_sign)}"))
    for machine in results.surroundings:
        found.append(("Machine", describe_machine(machine)))
    commits = [describe_git(machine["git"]) for machine in results.surroundings if machine.get("git")]
    found += [("Code", one) for one in dict.fromkeys(commits)]
    versions = list(dict.fromkeys("  ·  ".join(f"{k} {v}" for k, v in m["versions"].items()) for m in results.surroundings))
    return [*found, *(("Versions", one) for one in versions)]


# ---- how to repeat it


def experiment_words(results: Results, configurations: Sequence[ConfigurationResult], metric: str | None) -> dict[str, Any]:
    """An experiment's status, its seeds, and how to repeat it and look at its runs."""
    configs = [(one.label, *_again(results, one, k, len(configurations))) for k, one in enumerate(configurations, 1)]
    return {
        "name": results.name,
        "status": STATUS[results.state],
        "reason": results.reason if results.state != "FINISHED" else "",
        "rows": seed_rows(configurations, results, metric),
        "configs": configs,
        "mlflow": mlflow_command(str(results.tracking["uri"])) if results.tracking.get("uri") else "",
        "mlflow_is_local": str(results.tracking.get("uri", "")).startswith("sqlite:"),
        "run": results.tracking.get("run", ""),
        "link": run_link(results.tracking, results.tracking.get("run")),
    }


def _again(results: Results, one: ConfigurationResult, k: int, of: int) -> tuple[str, str]:
    """The command that trains a configuration again, and the config file that it reads."""
    name = f"{results.name}-again" if of == 1 else f"{results.name}-again-{k}"
    settings = {key: value for key, value in one.settings.items() if key in ExperimentConfig.model_fields}
    best = {"checkpoint": {"best": one.settings["best"]}} if one.settings.get("best") else {}
    together = {"seeds": [run.seed for run in one.seeds], "seeds_per_trial": max(run.seeds_together for run in one.seeds)}
    config = {"name": name, "dataset": results.data.get("source", results.data["name"]), **settings, **best, **together}
    return f"d3ray train --config {name}.json", _json(config)


def _json(value: Any, indent: str = "") -> str:
    """JSON with a line an entry, lists on one line: short enough to read."""
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + "  "
    entries = [f"{deeper}{json.dumps(str(key))}: {_json(entry, deeper)}" for key, entry in value.items()]
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def run_link(tracking: Mapping[str, Any], run: str | None) -> str:
    """Where a run is shown: on its server, or where `mlflow ui` shows a local database. Empty where that is not known."""
    uri, experiment = str(tracking.get("uri", "")), tracking.get("experiment_id")
    if not run or not experiment:
        return ""
    base = "http://127.0.0.1:5000" if uri.startswith("sqlite:") else without_password(uri).rstrip("/")
    return f"{base}/#/experiments/{experiment}/runs/{run}" if base.startswith(("http://", "https://")) else ""
