"""What became of configurations, whose trials differ in nothing but their seeds, and of an experiment, as its trials say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..record.results import RETURN, Checkpoint, ConfigurationResult, Ended, SeedResult
from ..record.status import State
from ..settings.objective import Objective
from ..storage.resuming import flatten
from ..storage.trials import Status, Trial

OF_MODELS = "train/held_out_error"  # by which models of the dynamics are compared where nothing else was measured


def objective_of(settings: Mapping[str, Any]) -> Objective:
    """By what an experiment's configurations are compared: a sweep says it, elsewhere it is what chooses checkpoints."""
    return Objective.checked(settings.get("objective") or ({"metric": settings["best"]} if settings.get("best") else {}))


def by_configuration(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Trials that differ in nothing but their seeds, in the order in which configurations first appear."""
    found: dict[Any, list[Trial]] = {}
    for trial in trials:
        alike = json.dumps([trial.dataset.get("fingerprint"), trial.configuration], sort_keys=True)
        found.setdefault(alike if trial.number is None else trial.number, []).append(trial)
    return list(found.values())


def ended_seeds(trial: Trial, overall: State = "KILLED", reached: int = 0) -> list[SeedResult]:
    """The seeds of a trial, as `status.json` has them; of one that has not ended, as the experiment stands and as far as it is."""
    ended, found = trial.status, list[SeedResult]()
    for seed in trial.seeds:
        about: Mapping[str, Any] = ended.get(seed, {})
        status: State = about.get("status", "RUNNING" if overall == "RUNNING" else "KILLED")
        found.append(
            SeedResult(
                seed=seed,
                number=trial.number,
                trial=trial.identity,
                status=status,
                reason=about.get("reason", ""),
                is_final=status == "FINISHED" or bool(about.get("final")),
                step=int(about.get("step", reached)),
                first_bad_step=about.get("first_bad_step"),
                n_steps=int(trial.configuration.get("n_steps", 0)),
                seeds_together=len(trial.seeds),
                last_sign=about["time"] / 1000 if "time" in about else None,
                metrics=about.get("metrics", {}),
                best=Checkpoint(**about["best"]) if about.get("best") else None,
                warning=about.get("warning", ""),
            )
        )
    return found


def read_configurations(
    trials: Iterable[Trial], objective: Objective | None, read: Callable[[Trial], list[SeedResult]] = ended_seeds
) -> list[ConfigurationResult]:
    """The configurations of trials so far, in order of number; `read` gives the seeds of a trial. Raises StorageError."""
    found: list[ConfigurationResult] = []
    for members in by_configuration(trials):
        first, choice, statuses = members[0], members[0].choice_at_end, [trial.status for trial in members]
        ended = {seed: about for status in statuses for seed, about in status.items()}
        value: dict[str, Any] = {}
        if objective is not None:
            metric = objective.metric
            measured = {seed: about for seed, about in ended.items() if metric in about.get("metrics", {})}
            value["scores"] = {s: float(a["metrics"][metric]) for s, a in measured.items() if a["status"] != "FAILED"}
            if all(statuses):
                value |= {"ended": how_ended(ended), "value": objective_value(objective, ended)}
        settings = first.configuration
        found.append(
            ConfigurationResult(
                experiment=first.folder.above.above.label,
                number=first.number,
                choice=choice,
                algorithm=str(settings.get("algorithm", {}).get("name", "?")),
                dataset=str(choice.get("dataset", first.dataset["name"])),
                data=first.dataset,
                environment=id_of((settings.get("evaluation") or {}).get("environment")) or id_of(first.dataset.get("environment")),
                settings=settings,
                n_steps=int(settings.get("n_steps", 0)),
                seeds=sorted((seed for trial in members for seed in read(trial)), key=lambda one: one.seed),
                **value,
            )
        )
    return sorted(found, key=lambda one: one.number or 0)


def free_seed(seed: int | None, taken: dict[int, Any]) -> int:
    """The seed of a run, or where that is not known or is another's too the first that is free."""
    return seed if seed is not None and seed not in taken else next(k for k in range(len(taken) + 1) if k not in taken)


def id_of(environment: Any) -> str | None:
    return environment.get("id") if isinstance(environment, Mapping) else environment


def how_ended(ended: Mapping[int, Mapping[str, Any]]) -> Ended:
    """How a configuration ended, of how each of its seeds did. It failed where all seeds did."""
    statuses = {about["status"] for about in ended.values()}
    return "failed" if statuses == {"FAILED"} else "stopped" if "KILLED" in statuses else "finished"


def objective_value(objective: Objective, ended: Mapping[int, Mapping[str, Any]]) -> float | None:
    """The objective of a configuration, of how each of its seeds ended: their last metrics, those that failed left out."""
    failed = [seed for seed, about in ended.items() if about["status"] == "FAILED"]
    return objective.of({seed: about.get("metrics", {}) for seed, about in ended.items()}, failed)


def best_by(
    kind: Callable[[ConfigurationResult], str], configurations: Iterable[ConfigurationResult], objective: Objective
) -> dict[str, ConfigurationResult]:
    """The best configuration of each kind, as of a dataset, of those that went to their end; the first of equals."""
    found: dict[str, ConfigurationResult] = {}
    for one in (one for one in configurations if one.ended == "finished"):
        before = found.get(kind(one))
        best = None if before is None else before.value
        if before is None or (one.value is not None and (best is None or objective.is_better(one.value, best))):
            found[kind(one)] = one
    return found


def seed_score(about: Mapping[str, Any], metric: str = RETURN) -> tuple[str, float] | None:
    """The metric by which a seed is compared, and its value: what chose its checkpoint, else the last of `metric`.

    A model of the dynamics that nothing else was measured of has its error on what it held out.
    """
    if best := about.get("best"):
        return best["metric"], best["value"]
    metrics = about.get("metrics", {})
    return next(((name, metrics[name]) for name in (metric, OF_MODELS) if name in metrics), None)


def differences(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries, by dotted name, in which configurations differ, for each of them; `algorithm.` is left out of the names."""
    flat = [dict(flatten(one)) for one in settings]
    names = list({name: None for one in flat for name in one})
    telling = [name for name in names if len({json.dumps(one.get(name), sort_keys=True) for one in flat}) > 1]
    return [{name.removeprefix("algorithm."): one[name] for name in telling if name in one} for one in flat]


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
