"""What came of an experiment: a status for the whole, and a line for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..storage.experiments import Experiment, Status, Trial
from .mlflow_pages import mlflow_command, view_links


@dataclass(frozen=True)
class SeedResult:
    """What came of a seed."""

    seed: int
    number: int | None  # of its configuration in a sweep
    status: Status
    reason: str  # why it failed, or ended early; empty otherwise
    final: bool  # whether it ended in a way that --resume leaves as it is
    step: int  # gradient steps done
    metrics: dict[str, float]  # the last of each
    best: dict[str, Any] | None  # metric, value, step
    folder: str  # of its trial
    policy: str | None  # its policy package; of seeds that a scheduler stopped, the best until then where that was kept
    run_id: str | None = None  # in MLflow
    model_version: str | None = None
    warning: str = ""  # what its metrics give cause to doubt, as diverging values

    @property
    def score(self) -> float | None:
        """The best metric, else the last return in an environment; None where neither was measured."""
        if self.best is not None:
            return float(self.best["value"])
        return self.metrics.get("evaluation/return")


@dataclass(frozen=True)
class ExperimentResult:
    """What came of an experiment, and where it lies."""

    name: str
    status: Status
    seeds: list[SeedResult]
    folder: str
    tracking_uri: str
    parent_run_id: str | None
    models: tuple[str, ...]  # the registered models: one, where configurations learned from several datasets one for each
    undelivered: str = ""  # what the tracking server has not got, and why
    views: Mapping[str, str] = field(default_factory=dict[str, str])  # links into MLflow's pages, by what they show

    @property
    def model(self) -> str | None:
        """The registered model, the first of them."""
        return next(iter(self.models), None)

    @property
    def look(self) -> str:
        """The command that shows the runs."""
        return mlflow_command(self.tracking_uri)


def conclude(trials: Sequence[Trial]) -> tuple[Status, str]:
    """The status of an experiment whose trials have ended, and why it failed, or ended early.

    What a scheduler stopped, or somebody cancelled, is an outcome like any, and in a sweep so is a configuration that diverged;
    the experiment fails where others failed, or where nothing finished. What is left where a budget ended it, where it was
    cancelled, or data are missing now, a resume goes on with.
    """
    if left := sum(not trial.status for trial in trials):
        return "KILLED", f"{left} of {len(trials)} trials are left"
    ended = [(trial, seed, about) for trial in trials for seed, about in trial.status.items()]
    killed = [about for _, _, about in ended if about["status"] == "KILLED"]
    if open_ := [about for about in killed if not about.get("final")]:
        return "KILLED", open_[0].get("reason", "")
    failed = [(trial, seed, about) for trial, seed, about in ended if about["status"] == "FAILED"]
    if any(about["status"] == "FINISHED" for _, _, about in ended):
        failed = [one for one in failed if one[0].number is None or not one[2].get("final")]
    elif not failed and killed:
        return "KILLED", killed[0].get("reason", "")
    if not failed:
        limited = [about["reason"] for _, _, about in ended if "time_limit" in about]
        return "FINISHED", f"{len(limited)} of {len(ended)} seeds: {limited[0]}" if limited else ""
    trial, seed, about = failed[0]
    which = f"seed {seed}" if trial.number is None else f"configuration {trial.number}, seed {seed}"
    return "FAILED", f"{len(failed)} of {len(ended)} seeds failed; {which}: {about['reason']}"


def collect(experiment: Experiment, undelivered: str = "") -> ExperimentResult:
    """What an experiment has come to, as its folders say; also of one that is running or was stopped."""
    seeds: list[SeedResult] = []
    models: dict[str, None] = {}
    overall: Status = experiment.state["status"]
    for trial in experiment.trials():
        ended, delivered, committed = trial.status, trial.delivered, max(trial.committed, 0)
        for seed in trial.seeds:
            about, note = ended.get(seed, {}), delivered.get(seed, {})
            status: Status = about.get("status", "RUNNING" if overall == "RUNNING" else "KILLED")
            policy = trial.folder / "policy" / f"seed-{seed}"
            final = status == "FINISHED" or bool(about.get("final"))
            result = SeedResult(
                seed=seed,
                number=trial.number,
                status=status,
                reason=about.get("reason", ""),
                final=final,
                step=about.get("step", committed),
                metrics=about.get("metrics", {}),
                best=about.get("best"),
                folder=trial.folder.name,
                policy=policy.name if final and policy.names() else None,
                run_id=note.get("run"),
                model_version=note.get("model"),
                warning=about.get("warning", ""),
            )
            seeds.append(result)
            if "registered" in note:
                models[note["registered"]] = None
    tracked = experiment.folder.read_json("tracking.json") or {}
    return ExperimentResult(
        name=experiment.name,
        status=overall,
        seeds=sorted(seeds, key=lambda result: (result.number or 0, result.seed)),
        folder=experiment.folder.name,
        tracking_uri=tracked.get("uri", ""),
        parent_run_id=tracked.get("run"),
        models=tuple(models),
        undelivered=undelivered,
        views=view_links(tracked),
    )
