"""The arithmetic of a plan: trials run on paper, their disk, and numbers as people say them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from ...data.errors import ConfigError
from .probe import Measured

_METRIC_BYTES = 250  # of one value in MLflow's database, with its indexes
_ON_PAPER = 20_000  # trials of a search without an end that are run on paper; of more the rest goes on as fast as they


@dataclass(frozen=True)
class Node:
    """What a machine has for trials."""

    cpu: float
    gpu: float


@dataclass(frozen=True)
class Job:
    """A trial as the plan sees it."""

    cpu: float
    gpu: float
    seconds: float  # in a process that is there
    first: float  # seconds more in a process that it is the first trial of


@dataclass(frozen=True)
class Schedule:
    """When trials run, if each begins as soon as there is room for it."""

    n: int  # trials that begin
    seconds: float  # until the last one has ended
    at_once: int  # the most that run at the same time
    cpu_seconds: float
    gpu_seconds: float


def schedule(
    jobs: Iterable[Job],
    nodes: Sequence[Node],
    *,
    max_concurrent: int | None = None,
    seconds: float = math.inf,
    gpu_seconds: float = math.inf,
) -> Schedule:
    """Runs the jobs on paper, in order, each as soon as a node has room for it; a node's processes are used again.

    Args:
        jobs: Trials.
        nodes: What they run on.
        max_concurrent: The most at a time, whatever there is room for.
        seconds: After which nothing new begins; what runs then goes on to its end.
        gpu_seconds: The same, of GPUs.

    Raises:
        ConfigError: a job fits on no node.
    """
    cpus = [node.cpu for node in nodes]
    gpus = [[1.0] * int(node.gpu) for node in nodes]
    idle = [0] * len(nodes)  # processes that have no trial
    running: list[tuple[float, int, int, Job, list[int]]] = []  # when it ends, its number, its node, its GPUs there
    now = ends = held_gpus = spent = cpu_all = gpu_all = 0.0
    n = most = 0
    for job in jobs:
        while (place := None if len(running) == max_concurrent else _place(job, cpus, gpus)) is None:
            if not running:
                raise ConfigError(f"No node has what a trial asks for: {job.cpu:g} CPU and {job.gpu:g} GPU.")
            before = now
            now, _, k, over, held = heapq.heappop(running)
            spent += held_gpus * (now - before)
            held_gpus -= over.gpu
            cpus[k] += over.cpu
            for card in held:
                gpus[k][card] = round(gpus[k][card] + min(over.gpu, 1.0), 4)
            idle[k] += 1
        if now >= seconds or spent >= gpu_seconds:
            break
        k, held = place
        n, cpu_all, gpu_all = n + 1, cpu_all + job.cpu * job.seconds, gpu_all + job.gpu * job.seconds
        held_gpus += job.gpu
        cpus[k] -= job.cpu
        for card in held:
            gpus[k][card] = round(gpus[k][card] - min(job.gpu, 1.0), 4)
        end = now + job.seconds + (0.0 if idle[k] else job.first)
        idle[k] = max(idle[k] - 1, 0)
        heapq.heappush(running, (end, n, k, job, held))
        most, ends = max(most, len(running)), max(ends, end)
    return Schedule(n, ends, most, cpu_all, gpu_all)


def until_spent(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    *,
    max_concurrent: int | None = None,
    seconds: float = math.inf,
    gpu_seconds: float = math.inf,
) -> Schedule:
    """As `schedule`, of jobs that come again and again, until a budget is spent. Raises ConfigError also where none ever is."""
    paper = schedule(islice(cycle(jobs), _ON_PAPER), nodes, max_concurrent=max_concurrent, seconds=seconds, gpu_seconds=gpu_seconds)
    if paper.n < _ON_PAPER:
        return paper
    more = max(1.0, min(seconds / paper.seconds, gpu_seconds / paper.gpu_seconds if paper.gpu_seconds else math.inf))
    if math.isinf(more):
        raise ConfigError("budget.gpu_hours is the only limit, and trials hold no GPU: there is no end to plan, say another.")
    return replace(
        paper,
        n=round(more * paper.n),
        seconds=more * paper.seconds,
        cpu_seconds=more * paper.cpu_seconds,
        gpu_seconds=more * paper.gpu_seconds,
    )


def _place(job: Job, cpus: Sequence[float], gpus: Sequence[Sequence[float]]) -> tuple[int, list[int]] | None:
    """A node with room, and the GPUs there that the job gets: a fraction lies on one."""
    for k, free in enumerate(cpus):
        if free + 1e-9 < job.cpu:
            continue
        cards = [card for card, left in enumerate(gpus[k]) if left + 1e-9 >= min(job.gpu, 1.0)]
        wanted = math.ceil(job.gpu)
        if len(cards) >= wanted:
            return k, cards[:wanted]
    return None


def trial_seconds(one: Measured, config: Mapping[str, Any], left: int | None = None) -> float:
    """Seconds of a trial in a process that is there.

    Args:
        one: What its kind takes.
        config: What its worker is told.
        left: Gradient steps left to do; None: all.
    """
    steps = config["n_steps"] if left is None else left
    epoch = config["n_steps_per_epoch"]
    evaluation = config["evaluation"]
    evaluations = math.ceil(steps / (evaluation["every"] or epoch)) if evaluation else 0
    commits = math.ceil(steps / (config["checkpoint"]["every"] or epoch))
    around = one.setup + (one.environments if evaluations else 0.0) + one.finish
    return around + steps * one.update + evaluations * one.evaluation + commits * one.commit


def disk(one: Measured, config: Mapping[str, Any], *, tracked: bool) -> dict[str, float]:
    """Bytes that a trial leaves, but for its runs in MLflow; see `around.tracked`.

    Args:
        one: What its kind takes.
        config: What its worker is told.
        tracked: Whether MLflow's database lies in the storage too.
    """
    rows = math.ceil(config["n_steps"] / config["n_steps_per_epoch"])
    commits = math.ceil(config["n_steps"] / (config["checkpoint"]["every"] or config["n_steps_per_epoch"]))
    kept = min(config["checkpoint"]["keep"], commits) + bool(config["checkpoint"]["best"])  # the best: one of each seed, unstacked
    return {
        "checkpoints": kept * one.checkpoint_bytes,
        "policies": one.policy_bytes,
        "metrics": rows * one.row_bytes,
        "tracking": rows * one.n_metrics * _METRIC_BYTES if tracked else 0.0,
    }
