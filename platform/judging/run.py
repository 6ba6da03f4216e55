"""Judges policies: FQE as trials, estimates from its values and from weights, their record, and MLflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch

from ...algos.dynamics.generated import check_model
from ...algos.dynamics.model import Model
from ...algos.judging.behaviour import estimate_behaviour
from ...algos.judging.decisions import Decisions, decisions, policy_of
from ...algos.judging.logs import LOG_PROB, has_column, logged
from ...algos.judging.selection import FEWEST, select
from ...algos.judging.values import is_one_step
from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError
from ..experiment.run import carry_out
from ..record.policies import Judged, Judgement, Worth
from ..results.progress import OnProgress
from ..storage.folders import Folder
from ..tracking.policies import open_policy
from .checks import check_environment, check_folder, check_no_experiment, logs_of
from .judgement import RECORD, chosen_estimator
from .noting import note
from .page import FILE, page
from .policies import Kept, keep
from .settings import JudgeSettings
from .training import critics_of_trials, fqe_experiment, fqe_work, one_step_critics
from .unseen import unseen
from .verdicts import Behaved, Critics, verdict


def judge(
    settings: JudgeSettings,
    *,
    resume: bool = False,
    replace: bool = False,
    on_progress: OnProgress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Judgement:
    """Estimate policies' returns from another policy's logs; `say` gets each step, the rest is as `run_experiment`'s.

    Raises ConfigError, DataError, StorageError: before any work, for what cannot be used, or a policy cannot act on the logs;
    KeyboardInterrupt: after Ctrl-C; what was committed is kept.
    """
    check_folder(settings, again=resume or replace)
    dataset = logs_of(settings.dataset)
    check_environment(settings, dataset)
    model = _model(settings, dataset)
    kept = keep(settings.sources, settings.storage_place, settings.tracking)
    dataset, place, seen = unseen(settings, dataset, kept, say)
    configs = [fqe_experiment(settings, dataset, place, one.path) for one in kept] if settings.n_steps != 0 else []
    work = fqe_work(settings, dataset, kept, configs) if configs and not is_one_step(dataset) else None
    if work is None:
        check_no_experiment(settings)
    acted = [_decided(one, dataset) for one in kept]
    with _one_thread():
        behaved = _behaviour(settings, dataset, say)
        fitted = one_step_critics(configs, dataset, kept, acted, say) if configs and work is None else None
    critics: Sequence[Critics | None] = fitted or [None] * len(kept)
    if work is not None:
        carry_out(work, resume=resume, replace=replace, on_progress=on_progress)
        critics = critics_of_trials(settings, dataset, kept, acted)
    verdicts = [
        verdict(settings, dataset, one, policy, behaved, fqe, model, say, has_seen=one.path in seen)
        for one, policy, fqe in zip(kept, acted, critics, strict=True)
    ]
    return _concluded(settings, dataset, verdicts, configs[0].n_steps if configs else 0)


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
        return decisions(policy_of(one.path, dataset.spec, dataset.name), dataset)
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
    return Behaved(estimate_behaviour(dataset).log_prob, estimated=True)


@contextmanager
def _one_thread() -> Generator[None]:
    """Products of small networks wait for each other longer than they take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _concluded(settings: JudgeSettings, dataset: Dataset, verdicts: list[Judged], n_steps: int) -> Judgement:
    judgement = Judgement(
        name=settings.experiment_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        trusted=chosen_estimator(verdicts),
        verdicts=tuple(verdicts),
        settings={**settings.model_dump(mode="json", exclude={"tracking", "storage", "resources"}), "n_steps": n_steps},
        folder=(Folder(settings.storage_place) / settings.experiment_name).name,
    )
    lower = {one.path: judgement.lower(one) for one in verdicts}
    ranked = sorted(verdicts, key=lambda one: np.inf if (low := lower[one.path]) is None else -low)
    judgement = judgement.model_copy(update={"verdicts": tuple(ranked), "selection": _selection(judgement)})
    folder = Folder(judgement.folder)
    folder.write(FILE, page(judgement).encode())
    folder.write(RECORD, json.dumps(judgement.model_dump(mode="json"), indent=1).encode())
    note(judgement, settings.storage_place, settings.tracking)
    return judgement


def _selection(judgement: Judgement) -> Worth | None:
    """Rate the estimates against played returns; None if too few policies were played."""
    pairs = [(found.value, one.played) for one in judgement.verdicts if (found := judgement.decisive(one)) is not None]
    if len(pairs) < FEWEST or any(value is None or true is None for value, true in pairs):
        return None
    estimates, truth = zip(*pairs, strict=True)
    found = select(np.array(estimates), np.array(truth), level=judgement.verdicts[0].estimates.level)
    return Worth.model_validate(asdict(found))
