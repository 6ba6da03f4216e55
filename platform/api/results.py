"""What came of an experiment, from its folders alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..judging.judgement import RECORD
from ..record.policies import Estimated, Judged, Judgement
from ..record.results import Checkpoint, ConfigurationResult, Results, SeedResult
from ..results.configurations import best_by, objective_of, read_configurations
from ..results.experiment import SeedResult as Seed
from ..results.experiment import collect
from ..results.reading import differences
from ..results.status_reader import StatusReader
from ..storage.experiments import Experiment, Trial
from ..storage.folders import Folder


def results_of(experiment: Experiment) -> Results:
    """What came of an experiment. Raises StorageError."""
    view = StatusReader.of(experiment).read()
    found, trials = collect(experiment), {trial.identity: trial for trial in experiment.trials()}
    seeds = {(seed.folder, seed.seed): seed for seed in found.seeds}
    members = [[trials[one.identity] for one in each.trials if one.identity in trials] for each in view.configurations]
    chosen = differences([each[0].configuration for each in members]) if len(members) > 1 else [{} for _ in members]
    configurations = [
        ConfigurationResult(
            number=each.number,
            label=each.label,
            chosen=told,
            algorithm=str(mine[0].configuration.get("algorithm", {}).get("name", "")),
            dataset=str(mine[0].dataset["name"]),
            settings=mine[0].configuration,
            state=each.state,
            value=each.value,
            interval=each.interval,
            level=each.level,
            seeds=[_seed(trial, seeds[trial.folder.name, seed]) for trial in mine for seed in trial.seeds],
        )
        for each, mine, told in zip(view.configurations, members, chosen, strict=True)
    ]
    places = {trial.folder.name: k for k, mine in enumerate(members) for trial in mine}
    data, objective = (
        {trial.folder.name: str(trial.dataset["name"]) for trial in trials.values()},
        objective_of(experiment.configuration),
    )
    best = best_by(lambda one: data[one.folders[0]], read_configurations(trials.values(), objective), objective)
    return Results(
        name=view.name,
        state=view.state,
        folder=view.folder,
        metric=view.metric,
        mode=view.mode,
        configurations=configurations,
        best={name: places[one.folders[0]] for name, one in best.items() if one.outcome and one.outcome.objective is not None},
        models=list(found.models),
        tracking_uri=found.tracking_uri,
        run_id=found.parent_run_id,
        look=found.look,
    )


def _seed(trial: Trial, one: Seed) -> SeedResult:
    best: Mapping[str, Any] | None = one.best
    return SeedResult(
        seed=one.seed,
        trial=trial.identity,
        status=one.status,
        reason=one.reason,
        is_final=one.final,
        step=one.step,
        metrics=one.metrics,
        best=None if best is None else Checkpoint(**best),
        score=one.score,
        policy=one.policy,
        run_id=one.run_id,
        model_version=one.model_version,
        warning=one.warning,
    )


def judgement_of(folder: Folder) -> Judgement | None:
    """What a folder keeps of a judgement; None: nothing yet."""
    found = folder.read_json(RECORD)
    if found is None:
        return None
    policies = [
        Judged(
            label=one["label"],
            estimates={name: Estimated(**{key: row[key] for key in Estimated.model_fields}) for name, row in _rows(one).items()},
            warnings=list(one["estimates"]["warnings"]),
            played=sum(one["played"]) / len(one["played"]) if one["played"] else None,
        )
        for one in found["verdicts"]
    ]
    logs = found["verdicts"][0]["estimates"]
    data, episodes = logs["data"]["value"], logs["n_episodes"]
    return Judgement(dataset=found["dataset"], trusted=found["trusted"], episodes=episodes, data=data, policies=policies)


def _rows(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    return verdict["estimates"]["rows"]
