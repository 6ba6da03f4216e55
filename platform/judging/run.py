"""Judges policies: FQE as trials, estimates from its values and from weights, their record, and MLflow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ...algos.environments.collect import collect
from ...algos.environments.make import make
from ...algos.judging.behaviour import estimate_behaviour
from ...algos.judging.decisions import Decisions, decisions, policy_of
from ...algos.judging.estimates import Estimates, estimate
from ...algos.judging.logs import LOG_PROB, Logs
from ...algos.judging.selection import FEWEST, Selection, select
from ...algos.judging.values import PolicyValues, mean_of, policy_values
from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError
from ...data.spec import Environment
from ...data.storage.files import storage_errors, write_atomically
from ..driver.proposer import Listed
from ..driver.work import Work
from ..experiment.checks import check_data, check_place, describe_dataset
from ..experiment.run import carry_out
from ..places import open_place
from ..results.experiment import ExperimentResult
from ..results.progress import OnProgress
from ..results.reading import Configuration, SeedRun, read_results
from ..settings.evaluation import check_spaces
from ..storage.experiments import Experiment, Trial, check_name
from ..storage.folders import Folder
from ..tracking.policies import open_policy
from .judgement import Judgement, Verdict, chosen_estimator, disagreement, unleaned, unsettled, widened
from .noting import note
from .page import FILE, page
from .policies import Kept, keep
from .settings import JudgeSettings

RECORD = "judgement.json"
VALUE = "train/q_value"
CUT = 0.05  # share of episodes that were cut from which it is said
SAME = "The policy was trained on these very logs, which flatters it: judge it by episodes that it has not seen."


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
    _check_folder(settings, again=resume or replace)
    dataset = _logs_of(settings.dataset)
    _check_environment(settings, dataset)
    kept = keep(settings.sources, settings.storage_place, settings.tracking)
    work = _work(settings, dataset, kept) if settings.n_steps else None
    acted = [_decided(one, dataset) for one in kept]
    log_prob, estimated = _behaviour(settings, dataset, say)
    asked = settings.estimators
    needed = (
        asked if asked is None or work is None else tuple(dict.fromkeys((*asked, "DM")))
    )  # by which it is seen what has settled
    result, values, trials = None, list[list[PolicyValues]](), list[Trial]()
    if work is not None:
        result = carry_out(work, resume=resume, replace=replace, on_progress=on_progress)
        trials = Experiment(Folder(result.folder)).trials()
        values = [_valued(one, trials, dataset, policy) for one, policy in zip(kept, acted, strict=True)]
    trained = _trained(settings) if result else {}
    verdicts = list[Verdict]()
    for k, (one, policy) in enumerate(zip(kept, acted, strict=True)):
        logs = {"gamma": settings.gamma, LOG_PROB: log_prob, "estimated": estimated}
        by_seed = [_estimated(settings, dataset, policy, logs, value, ("DM",)) for value in (values[k] if values else ())]
        found = _estimated(settings, dataset, policy, logs, mean_of(values[k]) if values else None, needed)
        each = [(cast("float", e["DM"].value), e["DM"].interval) for e in by_seed]
        seeds = trained[one.path].seeds if one.path in trained else ()
        ended = [seed for seed in seeds if seed.status == "FINISHED"]
        if seeds:
            found = unsettled(widened(found, each), _moved(ended), settings.n_steps)
        if diverged := _diverged(one, trials):
            found = unleaned(found, f"FQE diverged: {diverged}.")
        warnings = [f"FQE of {one.label}: seed {s.seed} failed: {s.reason}." for s in seeds if s.status == "FAILED"]
        if clash := disagreement(found):
            found = unleaned(found, clash)
        warnings += [beyond] if values and (beyond := _beyond(dataset)) else []
        warnings += [SAME] if one.learned_from == dataset.fingerprint else []
        rows = found.rows if asked is None else {name: found.rows[name] for name in asked}
        found = dataclasses.replace(found, rows=rows, warnings=(*found.warnings, *warnings))
        runs = tuple(seed.run_id for seed in ended if seed.run_id)
        played = _played(settings, one, dataset, say) if settings.environment is not None else ()
        verdicts.append(Verdict(one.label, one.source, one.path, found, tuple(v for v, _ in each), played, runs))
    return _concluded(settings, dataset, verdicts, result)


def _trained(settings: JudgeSettings) -> dict[str, Configuration]:
    """FQE's training as its folders tell it, by the judged policy's path."""
    found = read_results(settings.storage_place, settings.experiment_name).configurations
    return {str(one.settings["algorithm"]["algo"]): one for one in found}


def _diverged(one: Kept, trials: Sequence[Trial]) -> str:
    """What the metrics of FQE's seeds give cause to doubt; empty where nothing does."""
    ended = [about for trial in trials if trial.configuration["algorithm"]["algo"] == one.path for about in trial.status.values()]
    return next((about["warning"] for about in ended if "warning" in about), "")


def _beyond(dataset: Dataset) -> str:
    """What to say where the recording of episodes was cut, and nobody knows what would have come; empty where few were."""
    cut = float(np.mean(~np.asarray(dataset.episodes.terminated, bool)))
    if cut < CUT:
        return ""
    return f"{cut:.0%} of the episodes were cut: DM, DR and WDR count what FQE expects beyond, the logs' own return and IS do not."


def _moved(seeds: Sequence[SeedRun]) -> float:
    """How far the mean value of logged actions moved from the last epochs but three to the last three, the largest of seeds."""
    curves = [seed.curves[VALUE].values for seed in seeds if VALUE in seed.curves]
    far = [abs(one[-3:].mean() - one[-6:-3].mean()) for one in curves if len(one) >= 6]
    return float(max(far, default=0.0))


def _check_folder(settings: JudgeSettings, *, again: bool) -> None:
    """Raises ConfigError where a judgement of that name cannot be begun."""
    check_name(settings.experiment_name)
    if "://" in settings.storage_place:
        raise ConfigError(f"Policies are judged in a results folder, and {settings.storage} is a URI: name a folder as storage.")
    folder = Folder(settings.storage_place) / settings.experiment_name
    trains = folder.read("experiment.json") is not None
    if not again and (trains or folder.read(RECORD) is not None):
        flags = "--resume to go on with it, --replace to delete it, or " if settings.n_steps or not trains else ""
        what = "an experiment" if trains else "a judgement"
        raise ConfigError(
            f"There is {what} {settings.experiment_name!r} in {settings.storage_place} already: say {flags}another name."
        )
    if trains and not settings.n_steps:
        raise ConfigError(f"{folder} is an experiment, with whose training n_steps=0 has nothing to do: say another name.")


def _check_environment(settings: JudgeSettings, dataset: Dataset) -> None:
    """Raises ConfigError where policies for these logs cannot play."""
    if settings.environment is None:
        return
    place = Environment(id=settings.environment) if isinstance(settings.environment, str) else settings.environment
    with make(place) as vector:
        check_spaces(dataset, vector.spec, place.id, "environment")


def _logs_of(place: str) -> Dataset:
    dataset = open_place(place)
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"{place} is no dataset: policies are judged by logs.")
    if dataset.spec.action_kind not in ("discrete", "continuous"):
        raise DataError(
            f"The actions of {dataset.name!r} are {dataset.spec.action_kind}; discrete or continuous ones can be judged."
        )
    if dataset.n_episodes < 2:
        raise DataError(f"{dataset.name!r} has one episode, which does not tell how far others would differ; give two or more.")
    return dataset


def _decided(one: Kept, dataset: Dataset) -> Decisions:
    try:
        return decisions(policy_of(one.path, dataset.spec), dataset)
    except D3rayError as error:
        raise type(error)(f"{one.label}: {str(error)[:1].lower()}{str(error)[1:]}") from error


def _behaviour(settings: JudgeSettings, dataset: Dataset, say: Callable[[str], None]) -> tuple[np.ndarray | None, bool]:
    """Log-probabilities of what was logged, and whether they were estimated; None where weights would say nothing."""
    rows = dataset.rows()
    recorded = LOG_PROB in rows.names()
    if settings.behaviour == "recorded" and not recorded:
        raise ConfigError(f"{dataset.name!r} has no column {LOG_PROB!r}: say behaviour=estimated, or leave it out.")
    if recorded and settings.behaviour != "estimated":
        return rows.read(LOG_PROB, 0, rows.n)[~rows.read("closing", 0, rows.n).astype(bool)], False
    if not dataset.spec.discrete:
        return None, False  # a greedy policy of continuous actions has no density that could be compared
    say("Estimating the behaviour's probabilities, which the data do not record.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products of small networks wait for each other longer than they take
    try:
        return estimate_behaviour(dataset).log_prob, True
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
        proposer=lambda experiment: Listed(
            [
                experiment.trial(each, first.seeds, title=f"FQE of {one.label}", tags={"d3ray.judged": one.source})
                for one, each in zip(kept, decided, strict=True)
            ]
        ),
    )


def _valued(one: Kept, trials: Sequence[Trial], dataset: Dataset, policy: Decisions) -> list[PolicyValues]:
    """Of each seed of FQE that has finished."""
    (trial,) = [t for t in trials if t.configuration["algorithm"]["algo"] == one.path]
    found = list[PolicyValues]()
    for seed in trial.seeds:
        if trial.status.get(seed, {}).get("status") == "FINISHED":
            with open_policy(trial.folder.name, seed=seed) as fqe:
                assert fqe.algorithm is not None
                found.append(policy_values(fqe.algorithm, dataset, policy))
    if not found:
        reason = next((about.get("reason", "") for about in trial.status.values()), "it has not ended")
        raise DataError(f"FQE of {one.label} has no finished seed: {reason}.")
    return found


def _estimated(
    settings: JudgeSettings,
    dataset: Dataset,
    policy: Decisions,
    logs: dict[str, Any],
    values: PolicyValues | None,
    estimators: Sequence[str] | None,
) -> Estimates:
    known: dict[str, Any] = {}
    if values is not None:
        known = {"q_value": values.q_value, "value": values.value, "final_value": values.final_value}
    log_prob = None
    if dataset.spec.discrete:
        rows = dataset.rows()
        logged = rows.read("action", 0, rows.n)[~rows.read("closing", 0, rows.n).astype(bool)]
        log_prob = np.where(policy.taken == logged, 0.0, -np.inf)
    made = Logs.of(dataset, log_prob, **logs, **known)
    options: dict[str, Any] = {"interval": settings.interval, "level": settings.level, "bounds": settings.bounds}
    return estimate(made, estimators, **options)


def _played(settings: JudgeSettings, one: Kept, dataset: Dataset, say: Callable[[str], None]) -> tuple[float, ...]:
    """Discounted returns in the environment."""
    say(f"Playing {settings.episodes} episodes of {one.label}.")
    place = settings.environment if isinstance(settings.environment, Environment) else Environment(id=str(settings.environment))
    found = collect(place, policy_of(one.path, dataset.spec), n_episodes=settings.episodes, n_envs=min(settings.episodes, 10))
    return tuple(Logs.of(found, None, gamma=settings.gamma).returns.tolist())


def _concluded(settings: JudgeSettings, dataset: Dataset, verdicts: list[Verdict], result: ExperimentResult | None) -> Judgement:
    judgement = Judgement(
        name=settings.experiment_name,
        dataset=dataset.name,
        fingerprint=dataset.fingerprint,
        trusted=chosen_estimator(verdicts),
        verdicts=tuple(verdicts),
        settings=settings.model_dump(mode="json", exclude={"tracking", "storage", "resources"}),
        folder=result.folder if result else str(Path(settings.storage_place) / settings.experiment_name),
    )
    lower = {one.path: judgement.lower(one) for one in verdicts}
    ranked = sorted(verdicts, key=lambda one: np.inf if (low := lower[one.path]) is None else -low)
    judgement = dataclasses.replace(judgement, verdicts=tuple(ranked), selection=_selection(judgement))
    folder, record, shown = Path(judgement.folder), json.dumps(judgement.to_dict(), indent=1), page(judgement)
    with storage_errors("written", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, shown.encode())
        write_atomically(folder / RECORD, record.encode())
    note(judgement, settings.storage_place, settings.tracking)
    return judgement


def _selection(judgement: Judgement) -> Selection | None:
    """What estimates were worth, where there are enough policies that were played too."""
    pairs = [(found.value, one.true) for one in judgement.verdicts if (found := judgement.trusted_of(one)) is not None]
    if len(pairs) < FEWEST or any(value is None or true is None for value, true in pairs):
        return None
    estimates, truth = zip(*pairs, strict=True)
    return select(np.array(estimates), np.array(truth), level=judgement.verdicts[0].estimates.level)
