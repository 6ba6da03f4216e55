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
from .costs import check_costs, costs_as_rewards, discounted_limit, not_below_0, of_costs
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
    check_costs(settings, dataset)
    if settings.cost_limit is not None:
        check_folder(of_costs(settings), again=resume or replace)
    model = _model(settings, dataset)
    kept = keep(settings.sources, settings.storage_place, settings.tracking)
    dataset, place, seen = unseen(settings, dataset, kept, say)
    acted = [_decided(one, dataset) for one in kept]
    with _one_thread():
        behaved = _behaviour(settings, dataset, say)

    def estimated(
        settings: JudgeSettings, dataset: Dataset, place: str, model: Model | None, *, are_costs: bool = False
    ) -> tuple[list[Judged], int]:
        """Give verdicts by the rewards of logs, and the gradient steps of FQE."""
        configs = [fqe_experiment(settings, dataset, place, one.path) for one in kept] if settings.n_steps != 0 else []
        work = fqe_work(settings, dataset, kept, configs) if configs and not is_one_step(dataset) else None
        if work is None:
            check_no_experiment(settings)
        with _one_thread():
            fitted = one_step_critics(configs, dataset, kept, acted, say) if configs and work is None else None
        critics: Sequence[Critics | None] = fitted or [None] * len(kept)
        if work is not None:
            again = resume and (Folder(settings.storage_place) / settings.experiment_name).read("experiment.json") is not None
            carry_out(work, resume=again, replace=replace, on_progress=on_progress)
            critics = critics_of_trials(settings, dataset, kept, acted)
        critics = not_below_0(critics, dataset, settings.gamma) if are_costs else critics
        verdicts = [
            verdict(settings, dataset, one, policy, behaved, fqe, model, say, has_seen=one.path in seen)
            for one, policy, fqe in zip(kept, acted, critics, strict=True)
        ]
        return verdicts, configs[0].n_steps if configs else 0

    verdicts, n_steps = estimated(settings, dataset, place, model)
    if settings.cost_limit is not None:
        say("Estimating what the policies cost.")
        costs, _ = estimated(of_costs(settings), *costs_as_rewards(settings, dataset), None, are_costs=True)
        verdicts = [one.model_copy(update={"costs": of.estimates}) for one, of in zip(verdicts, costs, strict=True)]
    return _concluded(settings, dataset, verdicts, n_steps)


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
    costed = [one.costs for one in verdicts if one.costs is not None]
    by_cost = chosen_estimator(costed) if costed else None
    judgement = Judgement(
        name=settings.experiment_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        trusted=chosen_estimator([one.estimates for one in verdicts]),
        trusted_cost=by_cost,
        cost_limit=None if by_cost is None else discounted_limit(dataset, settings.cost_limit or 0.0, settings.gamma, by_cost),
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
