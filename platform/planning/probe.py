"""What trials take here: a few are trained for seconds, in workers like theirs, as many side by side as would run at once.

A probe's trial is a trial: the same worker, threads, device, data and folder. What it wrote goes once it has been measured.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import torch

from ...algos.definition import COMPILED_FROM
from ...data.errors import ConfigError, D3rayError, StorageError
from ..cluster.gpus import ran_out
from ..storage.folders import Folder
from ..storage.trials import PACKAGES, Trial
from ..worker.peers import begin_trial
from ..worker.trial_config import TrialConfig, too_little
from ..worker.trial_run import TrialRun

SECONDS = 30.0  # that a probe may take once its workers are up
_START = 90.0  # that those may take at most
_COMPILING = 240.0  # seconds that the first steps may take beside, where they are compiled
_WARM_UP = 8  # gradient steps before any is timed
_TRAINING = (1.0, 5.0)  # seconds of training in a round: at least and at most


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Cost of one trial, all its seeds together."""

    start: float = 0.0  # seconds until its process could train; a process is used for one trial after another
    setup: float = 0.0  # seconds to open the data and to build what is trained
    update: float = 0.0  # seconds of a gradient step
    row_bytes: float = 0.0  # of an epoch's metrics
    n_metrics: float = 0.0  # in such a row
    gpu_memory: float = 0.0  # the part of a GPU's memory that it held at most, CUDA's own included; 0: it used none
    commit: float = 0.0  # seconds of a checkpoint
    checkpoint_bytes: float = 0.0
    first_finish: float = 0.0  # seconds to write the policies, of a process's first trial
    finish: float = 0.0  # the same of its later ones
    policy_bytes: float = 0.0
    evaluation: float = 0.0  # seconds of an evaluation
    environments: float = 0.0  # seconds to make what it plays in, once a trial
    is_whole: bool = True  # else the probe's time was over before it had written and played


class TooLargeError(ConfigError):
    """A kind of trial that needs more of a GPU's memory than it was given."""

    gpu_bytes: int = 0  # all the memory of that GPU; 0: nobody could ask it


class Probe:
    """A worker in which trials are measured one after another."""

    def ready(self) -> None:
        """Answers once the process can train: what a trial's worker imports is imported."""
        from .. import trainable  # noqa: F401  # pyright: ignore[reportUnusedImport]

    def measure(
        self, programs: Sequence[tuple[int, Mapping[str, Any]]], seconds: float
    ) -> Generator[tuple[int, dict[str, float] | D3rayError]]:
        """Yield measurements of trials, bit by bit; what is known when time is over counts.

        Errors that a user can mend, too little memory included, are yielded, not raised: they would carry a worker's traceback.
        """
        for k, config in programs:
            gc.collect()  # what the one before held, of which an error's frames may have kept more
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            try:
                for found in _measured(config, seconds):
                    yield k, found
            except (D3rayError, RuntimeError) as error:
                if ran_out(error):
                    yield k, _too_large(config, error)
                elif isinstance(error, D3rayError):
                    yield k, error
                else:
                    raise


def _too_large(config: Mapping[str, Any], error: BaseException) -> TooLargeError:
    share, algorithm = config["resources"]["gpu"], config["algorithm"]
    gpu = "a whole GPU" if share >= 1 else f"{share:g} of a GPU"
    why = too_little(gpu, len(config["seeds"]), algorithm, getattr(error, "lacking", None))
    large = TooLargeError(f"{algorithm['name']}: {why}.")
    with suppress(RuntimeError):  # where CUDA itself found no memory to begin with, it tells nothing either
        large.gpu_bytes = torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 0
    return large


def _measured(config: Mapping[str, Any], seconds: float) -> Generator[dict[str, float]]:
    """Sets a trial up, trains it for some seconds, and lets it write and play."""
    row: dict[str, float] = {}

    def train(n: int) -> float:
        """Seconds of a gradient step, over some, with what every epoch asks for. RLlib may do more of them than are asked for."""
        begin, first = time.perf_counter(), run.subject.step
        for rows in run.train(data, n):
            row.update(rows[0])
        return (time.perf_counter() - begin) / max(run.subject.step - first, 1)

    def metrics() -> dict[str, float]:
        n, size = len(run.config.seeds), len(json.dumps([run.config.n_steps, time.time_ns() // 1_000_000, row]))
        return {"row_bytes": size * n, "n_metrics": len(row) * n, "gpu_memory": gpu_memory(run.device)}

    for again in (True, False):
        begin = time.monotonic()
        run = _begun(config)
        data, evaluators = run.prepare()
        train(1)
        if is_compiled := getattr(getattr(run.subject.fit_, "programs", None), "compiled", False):
            train(_WARM_UP)  # other kinds of step, which are compiled too
        setup = time.monotonic() - begin
        if not (is_compiled and again):
            break
        run.close()  # what was compiled lies on the machine now, for the trials too: it is set up again
    n = max(1, min(_WARM_UP, int(1.0 / train(1))))
    train(n)
    guess, places = train(n), list[float]()
    yield {"setup": setup}
    for start in (run.subject.step, run.config.n_steps // 2):  # what is due may differ half way
        if (learner := getattr(run.subject.fit_, "learner", None)) is not None:  # RLlib's has one of another kind
            learner.step = start
        train(min(_WARM_UP, 2 * run.config.n_steps_per_epoch))
        until, times = time.monotonic() + seconds / 2, list[float]()
        while not times or time.monotonic() < until:
            times.append(train(max(1, min(int(seconds / 8 / guess), run.config.n_steps_per_epoch))))
        places.append(statistics.median(times))
    yield {"update": statistics.fmean(places), **metrics()}
    assert run.writer is not None
    took, kept = 0.0, run.writer.checkpoints
    for _ in range(2):  # the second is the one that counts
        train(1)
        took = _seconds(run.commit)
    yield {"commit": took, "checkpoint_bytes": _bytes(kept) / max(len(kept.checkpoint_steps()), 1)}
    first, later = _seconds(run.finish), _seconds(run.finish)
    made = sum(_bytes(run.writer.trial.folder / kind) for kind in PACKAGES)
    yield {"first_finish": first, "finish": later, "policy_bytes": made}
    played = list[float]()
    for seed in (run.config.seeds[0], *run.config.seeds):  # the first once more than needed, to tell what environments cost
        one, begin = run.one(seed), time.perf_counter()
        for name, every in evaluators.items():
            row |= {f"{name}/{key}": value for key, value in every.evaluator(one, 0).items()}
        played.append(time.perf_counter() - begin)
    yield {"evaluation": sum(played[1:]), "environments": max(played[0] - played[1], 0.0), **metrics(), "is_whole": True}


def _begun(config: Mapping[str, Any]) -> TrialRun:
    settings = TrialConfig.checked(config, title="trial")
    source = Trial(Folder(str(settings.folder)))
    own = Trial.create(source.folder / uuid4().hex, source.configuration, source.seeds, source.dataset)
    run = begin_trial(settings.model_copy(update={"folder": own.folder.name}))
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    return run


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _bytes(folder: Folder) -> int:
    return sum(size or 0 for size in folder.sizes(folder.tree()).values())


def gpu_memory(device: torch.device) -> float:
    """The part of a device's memory that this process held at most, what CUDA takes for itself included; 0 of what is no GPU.

    Other processes on the same GPU count as CUDA's own, so it says the truth of a process that has the GPU alone.
    """
    if device.type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return (torch.cuda.max_memory_reserved(device) + max(total - free - torch.cuda.memory_reserved(device), 0)) / total


def probe(
    programs: Sequence[Mapping[str, Any]], *, side: int, node: str, seconds: float = SECONDS
) -> list[Measured | TooLargeError | None]:
    """Measures trials in workers like theirs. Ray must be initialised, and the data's maps be prepared.

    Args:
        programs: The configs of trials that are not alike, as a trial's worker is told, with folders of their own.
        side: How many run side by side.
        node: Ray's id of the node that they run on.
        seconds: All the time there is, once the workers are up.

    Returns:
        What each takes; an error: its GPU has too little memory for it; None: there was no time for it. Some are always measured.

    Raises:
        ConfigError, DataError, StorageError: what a trial would raise in its first seconds; no kind fits into its GPU's memory; or
            there is no room for a worker.
    """
    import ray
    from ray.util.placement_group import remove_placement_group

    begin = time.monotonic()
    gangs: list[Any] = [_gang(programs[k % len(programs)], node) for k in range(side)]
    workers = [_worker(programs[k % len(programs)], node, gang) for k, gang in enumerate(gangs)]
    try:
        ready = {worker.ready.remote(): worker for worker in workers}
        done, _ = ray.wait(list(ready), num_returns=side, timeout=_START / 2)
        done = done or ray.wait(list(ready), num_returns=1, timeout=_START / 2)[0]
        if not done:
            raise StorageError(f"No worker of the probe came up in {_START:g} s: other work holds what a trial asks for.")
        ray.get(done)
        start, up = time.monotonic() - begin, [ready[reference] for reference in done]
        n, rounds = len(programs), math.ceil(len(programs) / len(up))
        share = min(max(seconds / rounds / 3, _TRAINING[0]), _TRAINING[1])
        turns = [[(k % n, programs[k % n]) for k in range(first, rounds * len(up), len(up))] for first in range(len(up))]
        running: dict[Any, int] = {
            worker.measure.options(num_returns="streaming").remote(turn, share): i
            for i, (worker, turn) in enumerate(zip(up, turns, strict=True))
        }
        # what is compiled is kept, so the trials do not do it again: it has time beside
        compiling = _COMPILING if any(map(_may_compile, programs)) else 0.0
        deadline, begun = time.monotonic() + seconds, set[int]()
        found: dict[tuple[int, int], dict[str, float]] = {}
        large: dict[int, TooLargeError] = {}
        while running and (done := ray.wait(list(running), timeout=max(deadline + compiling - time.monotonic(), 0.0))[0]):
            said: Any = done[0]
            try:
                k, answer = ray.get(next(said))
            except StopIteration:
                del running[said]
                continue
            if isinstance(answer, TooLargeError):
                large[k] = answer
            elif isinstance(answer, D3rayError):
                raise answer
            else:
                found.setdefault((k, running[said]), {}).update(answer)
            begun.add(running[said])
            if compiling and len(begun) == len(up):
                compiling, deadline = 0.0, max(deadline, time.monotonic() + SECONDS / 2)
        known = [(k, one) for (k, _), one in found.items() if "update" in one]
        if not known:
            for error in large.values():
                raise error
            raise StorageError(f"A trial was not through its first updates after the {seconds:g} s of a probe: there is no plan.")
        of_each = [[one for which, one in known if which == k] for k in range(n)]
        whole = [[one for one in several if "is_whole" in one] or several for several in of_each]
        return [large.get(k) or (_median(several, start) if several else None) for k, several in enumerate(whole)]
    finally:
        for worker, gang in zip(workers, gangs, strict=True):
            ray.kill(worker)
            if gang is not None:
                remove_placement_group(gang)


def _gang(config: Mapping[str, Any], node: str) -> Any:
    """Room on the node for the processes of a trial that has several GPUs; None: it is one process."""
    from ray.util.placement_group import placement_group

    wanted = config["resources"]
    if (n := int(wanted["gpu"])) <= 1:
        return None
    parts: list[dict[str, float]] = [{"CPU": wanted["cpu"] / n, "GPU": 1.0}] * n
    return placement_group(parts, strategy="STRICT_PACK", bundle_label_selector=[{"ray.io/node-id": node}] * n)


def _worker(config: Mapping[str, Any], node: str, gang: Any) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

    wanted, n = config["resources"], max(1, int(config["resources"]["gpu"]))
    if gang is None:
        where: Any = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    else:
        where = PlacementGroupSchedulingStrategy(gang, placement_group_capture_child_tasks=True)
    actor: Any = ray.remote(num_cpus=wanted["cpu"] / n, num_gpus=wanted["gpu"] / n, max_restarts=0)(Probe)
    return actor.options(scheduling_strategy=where).remote()


def _may_compile(config: Mapping[str, Any]) -> bool:
    asked = config["algorithm"].get("compile_graph")
    return asked is True or (asked is None and config["n_steps"] >= COMPILED_FROM)


def _median(several: Sequence[Mapping[str, float]], start: float) -> Measured:
    """Take the medians of trials of a kind."""
    numbers = {name: statistics.median(one[name] for one in several) for name in several[0] if name != "is_whole"}
    return Measured(**numbers, start=start, is_whole="is_whole" in several[0])
