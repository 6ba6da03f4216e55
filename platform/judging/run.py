"""Judges policies: FQE as trials, estimates from its values and from weights, their record, and MLflow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from ...algos.dynamics.generated import check_model
from ...algos.dynamics.model import Model
from ...algos.judging.behaviour import estimate_behaviour
from ...algos.judging.decisions import Decisions, decisions, policy_of
from ...algos.judging.logs import LOG_PROB, has_column, logged
from ...algos.judging.selection import FEWEST, Selection, select
from ...algos.judging.values import PolicyValues, policy_values
from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError
from ..driver.proposer import Listed
from ..driver.work import Work
from ..experiment.checks import check_data, check_place, describe_dataset
from ..experiment.run import carry_out
from ..results.progress import OnProgress
from ..results.reading import read_results
from ..settings.config import asked
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..tracking.policies import open_policy
from .checks import check_environment, check_folder, logs_of
from .judgement import RECORD, Judgement, Verdict, chosen_estimator
from .noting import note
from .page import FILE, page
from .policies import Kept, keep
from .settings import JudgeSettings
from .verdicts import Behaved, Critics, verdict


def judge(
    settings: JudgeSettings,
    *,
    resume: bool = False,
    replace: bool = False,
    on_progress: OnProgress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Judgement:
    """What policies would return, from logs of another.

    Args:
        settings: Which, and how.
        resume: Go on with a judgement of that name in that storage.
        replace: Delete it and begin anew.
        on_progress: As `run_experiment`'s.
        say: Is told what is done now.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used; or a policy cannot act on the logs.
        KeyboardInterrupt: after Ctrl-C; what was committed is kept.
    """
    check_folder(settings, again=resume or replace)
    dataset = logs_of(settings.dataset)
    check_environment(settings, dataset)
    model = _model(settings, dataset)
    kept = keep(settings.sources, settings.storage_place, settings.tracking)
    work = _work(settings, dataset, kept) if settings.n_steps else None
    acted = [_decided(one, dataset) for one in kept]
    behaved = _behaviour(settings, dataset, say)
    critics: list[Critics | None] = [None] * len(kept)
    if work is not None:
        carry_out(work, resume=resume, replace=replace, on_progress=on_progress)
        critics = _critics(settings, dataset, kept, acted)
    verdicts = [
        verdict(settings, dataset, one, policy, behaved, fqe, model, say)
        for one, policy, fqe in zip(kept, acted, critics, strict=True)
    ]
    return _concluded(settings, dataset, verdicts)


def _model(settings: JudgeSettings, dataset: Dataset) -> Model | None:
    """The model that was named. Raises ConfigError or DataError for one that is none, or of other spaces or environments."""
    if settings.model is None:
        return None
    with open_policy(settings.model, storage=settings.storage_place) as found:
        if found.algorithm is None or not found.algorithm.models_dynamics:
            raise ConfigError(f"model: {found.what} is no model: name a trained ProbabilisticEnsemble.")
        model = cast("Any", found.algorithm).model()
    check_model(model, dataset.spec, dataset.name, dataset.environment and dataset.environment.id)
    return model


def _decided(one: Kept, dataset: Dataset) -> Decisions:
    try:
        return decisions(policy_of(one.path, dataset.spec), dataset)
    except D3rayError as error:
        raise type(error)(f"{one.label}: {str(error)[:1].lower()}{str(error)[1:]}") from error


def _behaviour(settings: JudgeSettings, dataset: Dataset, say: Callable[[str], None]) -> Behaved:
    """How likely what was logged was: recorded, or estimated."""
    recorded = has_column(dataset, LOG_PROB)
    if settings.behaviour == "recorded" and not recorded:
        raise ConfigError(f"{dataset.name!r} has no column {LOG_PROB!r}: say behaviour=estimated, or leave it out.")
    if recorded and settings.behaviour != "estimated":
        return Behaved(logged(dataset, LOG_PROB))
    if not dataset.spec.discrete:
        return Behaved(None)  # a greedy policy of continuous actions has no density that could be compared
    say("Estimating the behaviour's probabilities, which the data do not record.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products of small networks wait for each other longer than they take
    try:
        return Behaved(estimate_behaviour(dataset).log_prob, estimated=True)
    finally:
        torch.set_num_threads(threads)


def _work(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept]) -> Work:
    """FQE of each policy, all seeds a stack."""
    configs = [settings.experiment(dataset.spec, one.path) for one in kept]
    first = configs[0]
    check_place(first)
    check_data(first, dataset)
    about = describe_dataset(dataset, first.dataset_place)
    decided = [config.configuration() for config in configs]
    return Work(
        config=first,
        configuration={**decided[0], "algo": [one.path for one in kept], "seeds": list(first.seeds)},
        datasets={first.dataset_place: about},
        proposer=lambda experiment, *_: Listed(
            [
                experiment.trial(each, first.seeds, title=f"FQE of {one.label}", tags={"d3ray.judged": one.source})
                for one, each in zip(kept, decided, strict=True)
            ]
        ),
        asked=asked("judge", settings, JudgeSettings),
        undivided="a policy is judged by all seeds of its FQE together",
    )


def _critics(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept], acted: Sequence[Decisions]) -> list[Critics | None]:
    """What came of FQE, by policy. Raises DataError where no seed of one has finished."""
    results = read_results(settings.storage_place, settings.experiment_name).configurations
    trained = {str(one.settings["algorithm"]["algo"]): one for one in results}
    trials = {
        t.configuration["algorithm"]["algo"]: t for t in Experiment.look(settings.storage_place, settings.experiment_name).trials()
    }
    found = list[Critics | None]()
    for one, policy in zip(kept, acted, strict=True):
        trial, values, status = trials[one.path], list[PolicyValues](), trials[one.path].status
        for seed in trial.seeds:
            if status.get(seed, {}).get("status") == "FINISHED":
                with open_policy(trial.folder.name, seed=seed) as fqe:
                    assert fqe.algorithm is not None
                    values.append(policy_values(fqe.algorithm, dataset, policy))
        if not values:
            reason = next((about.get("reason", "") for about in status.values()), "it has not ended")
            raise DataError(f"FQE of {one.label} has no finished seed: {reason}.")
        doubt = next((about["warning"] for about in status.values() if "warning" in about), "")
        found.append(Critics(values, trained[one.path].seeds, doubt))
    return found


def _concluded(settings: JudgeSettings, dataset: Dataset, verdicts: list[Verdict]) -> Judgement:
    judgement = Judgement(
        name=settings.experiment_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        trusted=chosen_estimator(verdicts),
        verdicts=tuple(verdicts),
        settings=settings.model_dump(mode="json", exclude={"tracking", "storage", "resources"}),
        folder=(Folder(settings.storage_place) / settings.experiment_name).name,
    )
    lower = {one.path: judgement.lower(one) for one in verdicts}
    ranked = sorted(verdicts, key=lambda one: np.inf if (low := lower[one.path]) is None else -low)
    judgement = dataclasses.replace(judgement, verdicts=tuple(ranked), selection=_selection(judgement))
    folder = Folder(judgement.folder)
    folder.write(FILE, page(judgement).encode())
    folder.write(RECORD, json.dumps(judgement.to_dict(), indent=1).encode())
    note(judgement, settings.storage_place, settings.tracking)
    return judgement


def _selection(judgement: Judgement) -> Selection | None:
    """What estimates were worth, where there are enough policies that were played too."""
    pairs = [(found.value, one.true) for one in judgement.verdicts if (found := judgement.trusted_of(one)) is not None]
    if len(pairs) < FEWEST or any(value is None or true is None for value, true in pairs):
        return None
    estimates, truth = zip(*pairs, strict=True)
    return select(np.array(estimates), np.array(truth), level=judgement.verdicts[0].estimates.level)
