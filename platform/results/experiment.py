"""What came of an experiment, from its folders alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..record.results import Checkpoint, ConfigurationResult, Results, SeedResult
from ..record.status import ConfigurationStatus, State
from ..storage.experiments import Experiment
from ..storage.trials import Status, Trial
from .configurations import ConfigurationOutcome, read_configurations
from .mlflow_pages import mlflow_command, view_links
from .reading import differences
from .status_reader import StatusReader


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


def results_of(experiment: Experiment, undelivered: str = "") -> Results:
    """What an experiment has come to; also of one that is running or was stopped. Raises StorageError.

    Args:
        experiment: Which.
        undelivered: What the tracking server has not got, and why.
    """
    status = StatusReader.of(experiment).read()
    trials = {trial.identity: trial for trial in experiment.trials()}
    members = [[trials[one.identity] for one in each.trials if one.identity in trials] for each in status.configurations]
    settings = [mine[0].configuration for mine in members]
    chosen = differences(settings) if len(settings) > 1 else [{} for _ in settings]
    outcomes: dict[str, ConfigurationOutcome] = {}
    if (objective := status.objective) is not None:
        outcomes = {folder: one for one in read_configurations(trials.values(), objective) for folder in one.folders}
    tracked = experiment.folder.read_json("tracking.json") or {}
    models = dict.fromkeys(note["registered"] for one in trials.values() for note in one.delivered.values() if "registered" in note)
    return Results(
        name=status.name,
        state=status.state,
        folder=status.folder,
        objective=objective,
        configurations=[
            _configuration(each, mine, told, outcomes.get(mine[0].folder.name), status.state)
            for each, mine, told in zip(status.configurations, members, chosen, strict=True)
        ],
        models=list(models),
        tracking_uri=tracked.get("uri", ""),
        run_id=tracked.get("run"),
        look=mlflow_command(tracked.get("uri", "")),
        undelivered=undelivered,
        views=view_links(tracked),
    )


def _configuration(
    now: ConfigurationStatus, trials: Sequence[Trial], chosen: dict[str, Any], came: ConfigurationOutcome | None, overall: State
) -> ConfigurationResult:
    return ConfigurationResult(
        number=now.number,
        label=now.label,
        chosen=chosen,
        choice=trials[0].choice_at_end,
        algorithm=str(trials[0].configuration.get("algorithm", {}).get("name", "")),
        dataset=str(trials[0].dataset["name"]) if came is None else came.dataset,
        settings=trials[0].configuration,
        state=now.state,
        ended=came and came.ended,
        value=now.value if came is None or came.ended is None else came.value,
        scores=now.scores if came is None else came.scores,
        interval=now.interval,
        level=now.level,
        seeds=[seed for trial in trials for seed in _seeds(trial, overall)],
    )


def _seeds(trial: Trial, overall: State) -> list[SeedResult]:
    ended, delivered, committed = trial.status, trial.delivered, max(trial.committed, 0)
    found: list[SeedResult] = []
    for seed in trial.seeds:
        about: Mapping[str, Any] = ended.get(seed, {})
        note, policy = delivered.get(seed, {}), trial.folder / "policy" / f"seed-{seed}"
        status: State = about.get("status", "RUNNING" if overall == "RUNNING" else "KILLED")
        is_final = status == "FINISHED" or bool(about.get("final"))
        found.append(
            SeedResult(
                seed=seed,
                number=trial.number,
                trial=trial.identity,
                status=status,
                reason=about.get("reason", ""),
                is_final=is_final,
                step=about.get("step", committed),
                metrics=about.get("metrics", {}),
                best=Checkpoint(**about["best"]) if about.get("best") else None,
                policy=policy.name if is_final and policy.names() else None,
                run_id=note.get("run"),
                model_version=note.get("model"),
                warning=about.get("warning", ""),
            )
        )
    return found
