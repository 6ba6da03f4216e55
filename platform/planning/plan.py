"""What an experiment would take: time, GPU hours and disk, worked out from a probe, before anything is launched."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import cycle, islice
from typing import Any

from ...data.errors import ConfigError, StorageError
from ..cluster.growth import growth, room_on
from ..cluster.session import ray_session
from ..driver.node_maps import first_nodes, prepare_node_maps
from ..driver.trials import prepare_environment
from ..driver.work import Work
from ..storage.experiments import Experiment, Trial, check_free
from ..subjects.kind import is_online, kind_of
from ..words import count, rounded, size_text, time_text
from ..worker.trial_config import program
from .around import tracked
from .estimate import (
    Job,
    Node,
    disk,
    schedule,
    trial_seconds,
    until_spent,
)
from .packing import has_begun, pack
from .probe import SECONDS, Measured, TooLargeError, probe
from .rehearsal import proposed, rehearsal

_MANY = 1000  # trials that show how many run at once on a node
_SAMPLE = 64  # trials of a sweep that are looked at; more are taken to be like them
RESULT_SECONDS = 0.01  # that the driver takes for an epoch's result, with room for the rest of its work; see docs/scaling.md


@dataclass(frozen=True)
class Plan:
    """What an experiment would take. `str(plan)` is for people, `plan.json()` for programs."""

    name: str
    n_configurations: int
    n_trials: int
    n_seeds: int  # of all trials together
    at_once: int
    n_nodes: int
    updates_per_second: float  # of one trial, its seeds counted one by one; the mean over trials
    wall_seconds: float
    cpu_hours: float
    gpu_hours: float
    disk: dict[str, int]  # bytes of checkpoints, policies, metrics, tracking
    begins: float  # seconds since 1970
    at_most: str  # why it may take less; empty: nothing stops a trial early
    gpu_share: float  # of a trial
    probed: dict[str, float]  # seconds, side (by side), kinds (of trial that were measured), of_kinds (that there are)
    notes: list[str] = field(default_factory=list[str])

    @property
    def disk_bytes(self) -> int:
        """All of it."""
        return sum(self.disk.values())

    @property
    def ends(self) -> float:
        """Seconds since 1970, if it began now."""
        return self.begins + self.wall_seconds

    def json(self) -> str:
        """One JSON object, numbers as they are."""
        return json.dumps({**asdict(self), "ends": self.ends, "disk_bytes": self.disk_bytes}, indent=1)

    def __str__(self) -> str:
        most = "at most " if self.at_most else "about "
        each = self.n_seeds / self.n_trials
        tried = f"{count(self.n_configurations, 'configuration')}, " if self.n_configurations > 1 else ""
        end = datetime.fromtimestamp(self.ends).astimezone()
        day = "" if end.date() == datetime.fromtimestamp(self.begins).date() else f"{end:%a %d %b} "
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in self.disk.items() if size)
        rows = {
            "trials": f"{tried}{count(self.n_trials, 'trial')} of {count(round(each), 'seed')}, {self.at_once} at once on "
            f"{count(self.n_nodes, 'node')}",
            "speed": f"about {rounded(self.updates_per_second)} updates/s a trial, "
            f"{rounded(self.updates_per_second * self.at_once)} in all",
            "wall time": f"{most}{time_text(self.wall_seconds)}, until {day}{end:%H:%M}",
            "GPU hours": f"{most}{rounded(self.gpu_hours)}, {rounded(self.gpu_share)} GPU a trial" if self.gpu_hours else "0",
            "CPU hours": f"{most}{rounded(self.cpu_hours)}",
            "disk": f"{most}{size_text(self.disk_bytes)}: {parts}",
        }
        lines = [f"{self.name} would take:", *(f"  {name + ':':<11}{text}" for name, text in rows.items())]
        if self.at_most:
            lines.append(f"  An upper bound: {self.at_most}.")
        probed = self.probed
        of = f"{probed['kinds']:.0f} of {count(int(probed['of_kinds']), 'kind')} of trial"
        lines.append(f"  Measured in {probed['seconds']:.0f} s, {probed['side']:.0f} side by side, {of}. Nothing was launched.")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def plan(
    work: Work,
    *,
    n_configurations: int | None = None,
    hours: float | None = None,
    gpu_hours: float | None = None,
    at_most: str = "",
    resume: bool = False,
    seconds: float = SECONDS,
    sample: int = _SAMPLE,
) -> Plan:
    """What some work would take. Nothing of it stays behind.

    Args:
        work: Of `train`, `sweep` or `benchmark`.
        n_configurations: That there will be; None: as many as the proposer gives without results, or as a budget lets begin.
        hours: After which nothing new begins.
        gpu_hours: The same, of GPUs.
        at_most: Why it may take less than planned; empty: nothing stops a trial early.
        resume: Plan what an experiment of that name has left to do.
        seconds: That the probe may take.
        sample: Trials that are looked at; more are taken to be like them.

    Raises:
        ConfigError, DataError, StorageError: what the work itself would raise before it trains; or no node came up to measure on.
    """
    prepare_environment()
    begin, told = time.monotonic(), list[str]()
    with ray_session():
        ray_seconds = time.monotonic() - begin
        work, kept, first = _as_begun(work) if resume else (work, False, None)
        work = pack(work, kept=kept, tell=told.append)
        wanted = {"CPU": work.config.resources.cpu, "GPU": float(work.config.resources.gpu)}
        nodes = _nodes(first_nodes(wanted))
        to_come = _to_come(nodes, work)
        prepare_node_maps(*work.datasets, resources=wanted, mapped=not work.streams)
        with rehearsal(work) as experiment:
            experiment.first_n_steps = first
            trials, complete = proposed(work, experiment, sample)
            left = _left(work, trials) if resume else {}
            trials = [trial for trial in trials if left.get(trial.identity) != 0]
            if not trials:
                raise ConfigError(f"There is nothing left to do of {work.config.experiment!r}.")
            configs = [work.told(trial, in_full=True) for trial in trials]
            names = [(str(config["algorithm"]["name"]), config["online"]) for config in configs]
            if theirs := [name for name, online in names if online or is_online(name) or not kind_of(name).is_timed]:
                raise ConfigError(f"A plan is made for d3ray's own algorithms that learn from data: {theirs[0]} no probe can time.")
            n_trials: int | None = len(trials)  # None: until a budget ends it
            if not complete and n_configurations is not None:
                n_trials = _trials(trials, n_configurations)
            elif not complete and (hours or gpu_hours):
                n_trials = None
            probed = _probe(configs, nodes, len(to_come), n_trials, work.max_concurrent, seconds)
            mlflow = tracked(work.config.storage_place, experiment, trials)
        begin = time.monotonic()
    ray_seconds += time.monotonic() - begin
    # The command is a process that imports what a worker does, and starts before any of these.
    around = statistics.fmean(probed.of(config).start for config in configs) + ray_seconds + mlflow.seconds
    jobs = [_job(probed.of(config), config, left.get(t.identity)) for config, t in zip(configs, trials, strict=True)]
    machines = [*nodes.values(), *to_come]
    spent = {"seconds": hours * 3600 if hours else math.inf, "gpu_seconds": gpu_hours * 3600 if gpu_hours else math.inf}
    if endless := n_trials is None:
        paper = until_spent(jobs, machines, **spent, max_concurrent=work.max_concurrent)
        n_trials, n_configurations = paper.n, round(paper.n / _trials(trials, 1))
    else:
        paper = schedule(islice(cycle(jobs), n_trials), machines, **spent, max_concurrent=work.max_concurrent)
    share, local = paper.n / len(trials), not os.environ.get("MLFLOW_TRACKING_URI")
    if paper.n < n_trials:
        at_most = "; ".join(filter(None, [at_most, "the budget ends it before every configuration is trained"]))
    written = [disk(probed.of(config), config, tracked=local) for config in configs]
    sizes = {name: share * sum(one[name] for one in written) for name in written[0]}
    if local:
        n_runs = share * sum(len(trial.seeds) for trial in trials)
        sizes["tracking"] += mlflow.database + mlflow.run * n_runs + mlflow.models
    return Plan(
        name=work.config.experiment,
        n_configurations=n_configurations or len({trial.number for trial in trials}),
        n_trials=n_trials,
        n_seeds=round(n_trials / len(trials) * sum(len(trial.seeds) for trial in trials)),
        at_once=paper.at_once,
        n_nodes=min(len(machines), n_trials),
        updates_per_second=sum(len(config["seeds"]) / probed.of(config).update for config in configs) / len(configs),
        wall_seconds=around + paper.seconds,
        cpu_hours=paper.cpu_seconds / 3600,
        gpu_hours=paper.gpu_seconds / 3600,
        disk={name: round(size) for name, size in sizes.items()},
        begins=time.time(),
        at_most=at_most,
        gpu_share=float(work.config.resources.gpu),
        probed={"seconds": probed.seconds, "side": probed.side, "kinds": probed.n_measured, "of_kinds": len(probed.found)},
        notes=[
            *told,
            *_notes(probed, len(nodes), len(to_come), len(trials), n_trials, endless, _short(probed, configs, paper.at_once)),
        ],
    )


@dataclass(frozen=True)
class _Probed:
    """What the probe found, by kind of trial."""

    found: dict[str, Measured]
    n_measured: int
    side: int
    seconds: float
    large: list[str]  # why kinds were not measured that ran out of a GPU's memory

    def of(self, config: dict[str, Any]) -> Measured:
        return self.found[program(config)]


def _probe(
    configs: Sequence[dict[str, Any]],
    nodes: dict[str, Node],
    n_to_come: int,
    n_trials: int | None,
    max_concurrent: int | None,
    seconds: float,
) -> _Probed:
    """Measures the kinds of trial that there are, the most frequent first, on the node that runs most at once."""
    kinds = Counter(map(program, configs))
    first = {kind: next(config for config in configs if program(config) == kind) for kind, _ in kinds.most_common()}
    jobs = [Job(config["resources"]["cpu"], config["resources"]["gpu"], 1.0, 0.0) for config in configs]
    jobs = [jobs[k % len(jobs)] for k in range(_MANY if n_trials is None else min(n_trials, _MANY))]
    at_once = {has: schedule(jobs, [has]).at_once for has in set(nodes.values())}
    node = max(nodes, key=lambda one: at_once[nodes[one]])
    side = min(at_once[nodes[node]], _MANY if max_concurrent is None else max_concurrent)
    if n_trials is not None:
        side = min(side, -(-n_trials // (len(nodes) + n_to_come)))
    begin = time.monotonic()
    found = dict(zip(first, probe(list(first.values()), side=side, node=node, seconds=seconds), strict=True))
    known = [one for one in found.values() if isinstance(one, Measured)]
    like = replace(known[0], update=sum(one.update for one in known) / len(known))  # of those that were not measured
    return _Probed(
        {kind: one if isinstance(one, Measured) else like for kind, one in found.items()},
        len(known),
        side,
        time.monotonic() - begin,
        [str(one) for one in found.values() if isinstance(one, TooLargeError)],
    )


def _nodes(ids: Any) -> dict[str, Node]:
    """What the nodes that can train have, by Ray's id."""
    import ray

    known = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
    return {one: Node(float(known[one].get("CPU", 0)), float(known[one].get("GPU", 0))) for one in ids}


def _to_come(nodes: Mapping[str, Node], work: Work) -> list[Node]:
    """What the cluster may start beside the nodes that it has."""
    resources = work.config.resources
    wanted = {"cpu": resources.cpu, "gpu": float(resources.gpu)}
    if resources.grow_to is not None:
        room = {node: room_on({"CPU": node.cpu, "GPU": node.gpu}, wanted) for node in nodes.values()}
        largest = max(room, key=lambda one: room[one])
        missing = resources.grow_to - sum(room[node] for node in nodes.values())
        return [largest] * math.ceil(missing / room[largest])
    may = growth()
    found = [Node(float(one.get("CPU", 0)), float(one.get("GPU", 0))) for one in may.nodes(wanted)] if may else []
    return found[len(nodes) :]


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


def _job(one: Measured, config: dict[str, Any], left: int | None) -> Job:
    wanted = config["resources"]
    first = one.start + max(one.first_finish - one.finish, 0.0)
    return Job(wanted["cpu"], wanted["gpu"], trial_seconds(one, config, left), first)


def _short(probed: _Probed, configs: Sequence[dict[str, Any]], at_once: int) -> tuple[float, float] | None:
    """Seconds of the shortest epoch, and what it should take at least, where it does not."""
    epoch = min(config["n_steps_per_epoch"] * probed.of(config).update for config in configs)
    least = at_once * RESULT_SECONDS
    return (epoch, least) if epoch < least else None


def _notes(
    probed: _Probed, n_nodes: int, n_to_come: int, n_seen: int, n_trials: int, endless: bool, short: tuple[float, float] | None
) -> list[str]:
    """What to know of the numbers."""
    notes = [f"{why} They are taken to be like the others." for why in probed.large]
    if endless:
        notes.append("A budget of hours ends it, so the number of configurations is what is begun by then.")
    if n_to_come:
        now = "node is" if n_nodes == 1 else "nodes are"
        notes.append(
            f"{n_nodes} {now} there, and the cluster may start {n_to_come} more: the plan has all of them from the beginning."
        )
    if late := [one.late for one in probed.found.values() if one.late]:
        notes.append(f"The probe's time was over before {late[0]} was, so trials take longer than said.")
    if n_nodes + n_to_come > 1:
        notes.append("One node was measured; the others are taken to be as fast.")
    if short is not None:
        seconds, least = short
        notes.append(
            f"Epochs of {rounded(seconds)} s are shorter than one driver can follow with so many trials at once; raise "
            f"n_steps_per_epoch until they take {rounded(least)} s, or trials wait for it."
        )
    if n_trials > n_seen:
        notes.append(f"The first {n_seen} trials were looked at; the others are taken to be like them.")
    return notes
