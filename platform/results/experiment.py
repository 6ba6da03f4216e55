"""The one reader of what an experiment has come to, from its folders alone: configurations, seeds, and metrics by gradient step.

Nothing here changes anything, and MLflow is not asked: its runs are copies of what lies here. Metrics are read when they are asked
for: of a sweep of thousands of configurations a page shows the curves of a few.
"""

from __future__ import annotations

from functools import partial

from ...data.errors import DataError
from ...data.uris import without_secrets
from ..record.results import ConfigurationResult, Results, SeedResult
from ..record.status import State
from ..storage.experiments import Experiment
from ..storage.outbox import lines, newest_lines
from ..storage.trials import Trial
from ..surroundings import read_surroundings
from .configurations import differences, ended_seeds, id_of, objective_of, read_configurations
from .mlflow_pages import mlflow_command, view_links
from .reading import find_experiment
from .status_reader import StatusReader


def results_of(experiment: Experiment, undelivered: str = "") -> Results:
    """Read the results of an experiment, also one running or stopped. Raises StorageError."""
    status, trials = StatusReader.of(experiment).read(), experiment.trials()
    objective = objective_of(experiment.configuration) if "search" in experiment.configuration else status.objective
    seeds = experiment.folder.each(partial(_seeds, overall=status.state), trials)
    by_name = {trial.identity: each for trial, each in zip(trials, seeds, strict=True)}
    found = read_configurations(trials, objective, lambda trial: by_name[trial.identity])
    by_trial = {trial.identity: each for each in status.configurations for trial in each.trials}
    chosen = differences([one.settings for one in found]) if len(found) > 1 else [{} for _ in found]
    configurations = list[ConfigurationResult]()
    for one, told in zip(found, chosen, strict=True):
        more = {"chosen": told}
        if one.seeds and (now := by_trial.get(one.seeds[0].trial)) is not None:
            more |= {"label": now.label, "state": now.state, "interval": now.interval, "level": now.level}
            more |= {} if one.ended else {"value": now.value, "scores": one.scores or now.scores}
        configurations.append(one.model_copy(update=more))
    evaluation = next((one.settings["evaluation"] for one in found if one.settings.get("evaluation")), None) or {}
    tracked = experiment.folder.read_json("tracking.json") or {}
    models = dict.fromkeys(note["registered"] for one in trials for note in one.delivered.values() if "registered" in note)
    return Results(
        name=status.name,
        state=status.state,
        reason=status.reason,
        died=status.state == "KILLED" and experiment.state["status"] == "RUNNING",
        folder=status.folder,
        objective=objective,
        created=status.created,
        last_sign=max((seed.last_sign for one in found for seed in one.seeds if seed.last_sign), default=status.created),
        settings=experiment.configuration,
        data=experiment.dataset,
        environment=id_of(evaluation.get("environment")) or id_of(experiment.dataset.get("environment")),
        episodes=evaluation.get("episodes"),
        surroundings=read_surroundings(experiment.folder),
        configurations=configurations,
        models=list(models),
        tracking=tracked,
        tracking_uri=tracked.get("uri", ""),
        run_id=tracked.get("run"),
        look=mlflow_command(tracked.get("uri", "")),
        undelivered=undelivered,
        views=view_links(tracked),
    )


def read_results(storage: str, name: str, trial: str | None = None) -> Results:
    """Read the results of an experiment so far, or of one trial.

    Raises ConfigError: there is none; DataError: it has no trials yet.
    """
    experiment = find_experiment(storage, name)
    found = results_of(experiment)
    if not found.configurations:
        where = without_secrets(experiment.folder.above.name)
        raise DataError(f"The experiment {experiment.name!r} in {where} has no trials yet: there is nothing to report.")
    if trial is None:
        return found
    (mine,) = (one for one in found.configurations if any(seed.trial == trial for seed in one.seeds))
    alone = mine.model_copy(update={"seeds": [seed for seed in mine.seeds if seed.trial == trial]})
    return found.model_copy(
        update={
            "configurations": [alone],
            "settings": {key: value for key, value in found.settings.items() if key != "search"},  # of a sweep one trial is none
            "last_sign": max((seed.last_sign or found.created for seed in alone.seeds), default=found.created),
            "environment": alone.environment,
        }
    )


def _seeds(trial: Trial, overall: State) -> list[SeedResult]:
    """Read a trial's seeds and metrics from its folder, with their run IDs and model versions in MLflow."""
    delivered, committed = trial.delivered, trial.committed
    found: list[SeedResult] = []
    for one in ended_seeds(trial, overall, max(committed, 0)):
        outbox, note, policy = trial.outbox(one.seed), delivered.get(one.seed, {}), trial.folder / "policy" / f"seed-{one.seed}"
        more = {
            "last_sign": one.last_sign or next((line.time / 1000 for line in newest_lines(outbox, committed)), None),
            "policy": policy.name if one.is_final and policy.names() else None,
            "run_id": note.get("run"),
            "model_version": note.get("model"),
        }
        found.append(one.model_copy(update=more).reading(partial(lines, outbox, -1, committed)))
    return found
