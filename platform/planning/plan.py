"""What an experiment would take: time, GPU hours and disk, worked out from a probe, before anything is launched.

The arithmetic is: what a trial takes, times the trials, over those that run at once.
"""

from __future__ import annotations

import heapq
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from ...data.errors import ConfigError, StorageError
from ..cluster.growth import growth, room_on
from ..cluster.session import ray_session
from ..driver.node_maps import first_nodes, prepare_node_maps
from ..driver.trials import prepare_environment
from ..driver.work import Work
from ..record.settings import Planned
from ..storage.experiments import Experiment
from ..storage.resuming import check_free
from ..storage.trials import Trial
from ..subjects.kind import is_online, kind_of
from ..words import rounded
from ..worker.trial_config import program
from .around import tracked
from .packing import has_begun, pack
from .probe import SECONDS, Measured, TooLargeError, probe
from .rehearsal import proposed, rehearsal

_SAMPLE = 64  # trials of a sweep that are looked at; more are taken to be like them
_METRIC_BYTES = 250  # of one value in MLflow's database, with its indexes
RESULT_SECONDS = 0.01  # that the driver takes for an epoch's result, with room for the rest of its work; see docs/scaling.md


def plan(
    work: Work,
    *,
    n_configurations: int | None = None,
    at_most: str = "",
    resume: bool = False,
    seconds: float = SECONDS,
    sample: int = _SAMPLE,
) -> Planned:
    """Estimate what some work would take. Nothing of it stays behind.

    Args:
        work: Of `train`, `sweep` or `benchmark`.
        n_configurations: How many; None: as many as the proposer gives without results, or as a budget lets begin.
        at_most: Why it may take less than planned; empty: nothing stops a trial early.
        resume: Plan what an experiment of that name has left to do.
        seconds: Time limit of the probe.
        sample: Trials to look at; further ones are taken to be like them.

    Raises:
        ConfigError, DataError, StorageError: what the work itself would raise before it trains; or no node came up to measure on.
    """
    prepare_environment()
    begin, notes = time.monotonic(), list[str]()
    with ray_session():
        ray_seconds = time.monotonic() - begin
        work, kept, first = _as_begun(work) if resume else (work, False, None)
        work = pack(work, kept=kept, tell=notes.append)
        wanted = {"cpu": work.config.resources.cpu, "gpu": float(work.config.resources.gpu)}
        there, to_come = _room(work, wanted)
        prepare_node_maps(*work.datasets, resources=_rays(wanted), mapped=not work.streams)
        with rehearsal(work) as experiment:
            experiment.first_n_steps = first
            trials, complete = proposed(work, experiment, sample)
            left = _left(work, trials) if resume else {}
            trials = [trial for trial in trials if left.get(trial.identity) != 0]
            configs = [work.told(trial, in_full=True) for trial in trials]
            _check(work, configs)
            n = _n_trials(work, trials, n_configurations, complete=complete)
            slots = min(one for one in (sum(there.values()) + sum(to_come), work.max_concurrent, n) if one is not None)
            node, n_nodes = max(there, key=lambda one: there[one]), len(there) + len(to_come)
            side = min(there[node], slots, slots if n is None else -(-n // n_nodes))
            until = _until(work, slots * wanted["gpu"])
            if n is None and math.isinf(until):
                raise ConfigError(
                    "budget.gpu_hours is the only limit, and trials hold no GPU: there is no end to plan, say another."
                )
            begin = time.monotonic()
            found = _probed(configs, side, node, seconds)
            probing = time.monotonic() - begin
            mlflow = tracked(work.config.storage_place, experiment, trials)
        begin = time.monotonic()
    ray_seconds += time.monotonic() - begin
    each = _each(found, configs)
    table = timetable(
        [trial_seconds(one, config, left.get(trial.identity)) for one, config, trial in zip(each, configs, trials, strict=True)],
        n,
        slots,
        first=statistics.fmean(one.start + max(one.first_finish - one.finish, 0.0) for one in each),
        until=until,
    )
    local = not os.environ.get("MLFLOW_TRACKING_URI")
    written = [disk(one, config, tracked=local) for one, config in zip(each, configs, strict=True)]
    sizes = {name: table.n / len(trials) * sum(one[name] for one in written) for name in written[0]}
    n_seeds = sum(len(trial.seeds) for trial in trials) / len(trials)
    if local:
        sizes["tracking"] += mlflow.database + mlflow.run * n_seeds * table.n + mlflow.models
    if n is None:
        notes.append("A budget of hours ends it, so the number of configurations is what is begun by then.")
        n, n_configurations = table.n, round(table.n / _trials(trials, 1))
    elif table.n < n:
        at_most = "; ".join(filter(None, [at_most, "the budget ends it before every configuration is trained"]))
    notes[len(notes) :] = _notes(list(found.values()), len(there), len(to_come), len(trials), n)
    epoch = min(config["n_steps_per_epoch"] * one.update for one, config in zip(each, configs, strict=True))
    if epoch < (least := slots * RESULT_SECONDS):
        notes.append(
            f"Epochs of {rounded(epoch)} s are shorter than one driver can follow with so many trials at once; raise "
            f"n_steps_per_epoch until they take {rounded(least)} s, or trials wait for it."
        )
    return Planned(
        name=work.config.experiment,
        n_configurations=n_configurations or len({trial.number for trial in trials}),
        n_trials=n,
        n_seeds=round(n * n_seeds),
        at_once=slots,
        n_nodes=min(n_nodes, n),
        updates_per_second=statistics.fmean(len(config["seeds"]) / one.update for one, config in zip(each, configs, strict=True)),
        # the command is a process that imports what a worker does, and starts before any of these
        wall_seconds=statistics.fmean(one.start for one in each) + ray_seconds + mlflow.seconds + table.seconds,
        cpu_hours=wanted["cpu"] * table.worked / 3600,
        gpu_hours=wanted["gpu"] * table.worked / 3600,
        disk={name: round(size) for name, size in sizes.items()},
        begins=time.time(),
        at_most=at_most,
        gpu_share=wanted["gpu"],
        probed={
            "seconds": probing,
            "side": side,
            "kinds": sum(isinstance(one, Measured) for one in found.values()),
            "of_kinds": len(found),
        },
        notes=notes,
    )


@dataclass(frozen=True)
class Timetable:
    """Timing of trials in so many slots."""

    n: int  # trials that begin
    seconds: float  # until the last one has ended
    worked: float  # seconds of all trials together


def timetable(each: Sequence[float], n: int | None, slots: int, *, first: float = 0.0, until: float = math.inf) -> Timetable:
    """Trials in order, each in the slot that is free first.

    Args:
        each: Seconds that trials take; they come again and again.
        n: How many trials there are; None: as many as begin in time.
        slots: Trials at once.
        first: Seconds more in a slot, before its first trial.
        until: Seconds after which nothing new begins; what runs then goes on to its end.
    """
    if n is None:
        mean = statistics.fmean(each)
        turns = max(math.ceil((until - first) / mean), 1)
        return Timetable(turns * slots, first + turns * mean, turns * slots * mean)
    ends, begun = [0.0] * slots, list[float]()
    for one in islice(cycle(each), n):
        if ends[0] and first + ends[0] >= until:
            break
        heapq.heapreplace(ends, ends[0] + one)
        begun.append(one)
    return Timetable(len(begun), first + max(ends), sum(begun))


def trial_seconds(one: Measured, config: Mapping[str, Any], left: int | None = None) -> float:
    """Seconds of a trial in a process that is there, with `left` gradient steps to do, or all."""
    steps, evaluation = config["n_steps"] if left is None else left, config["evaluation"]
    evaluations = math.ceil(steps / (evaluation["every"] or config["n_steps_per_epoch"])) if evaluation else 0
    commits = math.ceil(steps / (config["checkpoint"]["every"] or config["n_steps_per_epoch"]))
    around = one.setup + (one.environments if evaluations else 0.0) + one.finish
    return around + steps * one.update + evaluations * one.evaluation + commits * one.commit


def disk(one: Measured, config: Mapping[str, Any], *, tracked: bool) -> dict[str, float]:
    """Bytes that a trial leaves, but for its runs in MLflow (see `around.tracked`), whose database may lie in the storage too."""
    rows, checkpoint = math.ceil(config["n_steps"] / config["n_steps_per_epoch"]), config["checkpoint"]
    commits = math.ceil(config["n_steps"] / (checkpoint["every"] or config["n_steps_per_epoch"]))
    kept = min(checkpoint["keep"], commits) + bool(checkpoint["best"])  # the best: one of each seed, unstacked
    return {
        "checkpoints": kept * one.checkpoint_bytes,
        "policies": one.policy_bytes,
        "metrics": rows * one.row_bytes,
        "tracking": rows * one.n_metrics * _METRIC_BYTES if tracked else 0.0,
    }


def _rays(wanted: Mapping[str, float]) -> dict[str, float]:
    return {name.upper(): amount for name, amount in wanted.items()}


def _room(work: Work, wanted: Mapping[str, float]) -> tuple[dict[str, int], list[int]]:
    """How many trials there is room for on each node, by Ray's id, and on each that the cluster may start beside them."""
    import ray

    ids = first_nodes(_rays(wanted))
    there = {node["NodeID"]: room_on(node["Resources"], wanted) for node in ray.nodes() if node["NodeID"] in ids}
    if (grow_to := work.config.resources.grow_to) is not None:
        largest = max(there.values())
        return there, [largest] * math.ceil((grow_to - sum(there.values())) / largest)
    may = growth()
    return there, [room_on(one, wanted) for one in (may.nodes(wanted) if may else [])][len(there) :]


def _check(work: Work, configs: Sequence[Mapping[str, Any]]) -> None:
    """Raises ConfigError where nothing is left, or a trial learns while it acts, which no probe can time."""
    if not configs:
        raise ConfigError(f"There is nothing left to do of {work.config.experiment!r}.")
    for config in configs:
        name = str(config["algorithm"]["name"])
        if config["online"] or is_online(name) or not kind_of(name).is_timed:
            raise ConfigError(f"A plan is made for d3ray's own algorithms that learn from data: {name} no probe can time.")


def _n_trials(work: Work, sample: Sequence[Trial], n_configurations: int | None, *, complete: bool) -> int | None:
    """How many trials there will be; None: as many as a budget lets begin."""
    if complete or (n_configurations is None and math.isinf(_until(work, 1.0))):
        return len(sample)
    return None if n_configurations is None else _trials(sample, n_configurations)


def _until(work: Work, gpus: float) -> float:
    """Seconds until the budget is spent where so many GPUs are held all the time."""
    hours, gpu_hours = (work.limits.hours, work.limits.gpu_hours) if work.limits else (None, None)
    return 3600 * min(hours or math.inf, gpu_hours / gpus if gpu_hours and gpus else math.inf)


def _probed(
    configs: Sequence[Mapping[str, Any]], side: int, node: str, seconds: float
) -> dict[str, Measured | TooLargeError | None]:
    """Measure each kind of trial among the configs, the most frequent first."""
    first: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        first.setdefault(program(config), config)
    kinds = [kind for kind, _ in Counter(map(program, configs)).most_common()]
    return dict(zip(kinds, probe([first[kind] for kind in kinds], side=side, node=node, seconds=seconds), strict=True))


def _trials(sample: Sequence[Trial], n_configurations: int) -> int:
    """Trials of so many configurations, of which the sample shows some whole ones."""
    each = Counter(trial.number for trial in sample)
    whole = list(each.values())[:-1] or list(each.values())
    return round(n_configurations * sum(whole) / len(whole))


def _as_begun(work: Work) -> tuple[Work, bool, int | None]:
    """The work with the stacks that its experiment has, whether those have to stay, and the steps by which its trials are named.

    As it is where there is no experiment. Raises ConfigError: it was begun with other settings or data.
    """
    try:
        begun = Experiment.look(work.config.storage_place, work.config.experiment)
    except StorageError:
        return work, False, None
    check_free(
        work.config.storage_place, work.config.experiment, work.configuration, work.about, work.longer, resume=True, replace=False
    )
    before = begun.configuration.get("n_steps")
    first = begun.first_n_steps or (before if work.longer and before != work.configuration.get("n_steps") else None)
    return work.stacked(begun.seeds_per_trial), has_begun(work, begun), first


def _left(work: Work, sample: Sequence[Trial]) -> dict[str, int]:
    """Gradient steps that trials of an earlier run have left, by identity; none where nothing is left."""
    try:
        begun = {trial.identity: trial for trial in Experiment.look(work.config.storage_place, work.config.experiment).trials()}
    except StorageError:
        return {}
    left = dict[str, int]()
    for now in sample:
        if (trial := begun.get(now.identity)) is not None:
            goes_on = not trial.is_settled or (now.n_steps > trial.n_steps and trial.goes_on_longer)
            left[now.identity] = max(now.n_steps - max(trial.committed, 0), 1) if goes_on else 0
    return left


def _each(found: Mapping[str, Measured | TooLargeError | None], configs: Sequence[Mapping[str, Any]]) -> list[Measured]:
    """Return each trial's cost. A partly measured kind keeps only its update time, an unmeasured one gets the mean of these."""
    known = [one for one in found.values() if isinstance(one, Measured)]
    like = next((one for one in known if one.is_whole), known[0])
    update = statistics.fmean(one.update for one in known)

    def one(kind: Measured | TooLargeError | None) -> Measured:
        if isinstance(kind, Measured):
            return kind if kind.is_whole else replace(like, update=kind.update)
        return replace(like, update=update)

    return [one(found[program(config)]) for config in configs]


def _notes(found: Sequence[Measured | TooLargeError | None], n_nodes: int, n_to_come: int, n_seen: int, n: int) -> list[str]:
    large = dict.fromkeys(str(one) for one in found if isinstance(one, TooLargeError))
    notes = [f"{why} They are taken to be like the others." for why in large]
    if n_to_come:
        now = "node is" if n_nodes == 1 else "nodes are"
        notes.append(
            f"{n_nodes} {now} there, and the cluster may start {n_to_come} more: the plan has all of them from the beginning."
        )
    if not all(one.is_whole for one in found if isinstance(one, Measured)):
        notes.append("The probe's time was over before a trial had written and played, so trials may take longer than said.")
    if n_nodes + n_to_come > 1:
        notes.append("One node was measured; the others are taken to be as fast.")
    if n > n_seen:
        notes.append(f"The first {n_seen} trials were looked at; the others are taken to be like them.")
    return notes
