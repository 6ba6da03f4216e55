"""What trials take here: a few are trained for seconds, in workers like theirs, as many side by side as would run at once.

A probe's trial is a trial: the same worker, threads, device, data and folder. What it wrote goes once it has been measured.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import uuid4

import torch

from ...algos.definition import COMPILED_FROM
from ...data.errors import ConfigError, D3rayError, StorageError
from ..cluster.gpus import ran_out
from ..storage.experiments import PACKAGES, Trial
from ..storage.folders import Folder
from ..worker.peers import begin_trial
from ..worker.trial_config import TrialConfig, too_little

_COMPILING = 240.0  # seconds that the first steps may take beside, where they are compiled
SECONDS = 30.0  # that a probe may take once its workers are up
_START = 90.0  # that those may take at most
_WARM_UP = 8  # gradient steps before any is timed
_TRAINING = (1.0, 5.0)  # seconds of training in a round: at least and at most


@dataclass(frozen=True)
class Measured:
    """What one trial takes, all its seeds together."""

    start: float  # seconds until its process could train; a process is used for one trial after another
    setup: float  # seconds to open the data and to build what is trained
    update: float  # seconds of a gradient step
    row_bytes: float  # of an epoch's metrics
    n_metrics: float  # in such a row
    gpu_memory: float  # the part of a GPU's memory that it held at most, what CUDA takes for itself included; 0: it used none
    commit: float = 0.0  # seconds of a checkpoint
    checkpoint_bytes: float = 0.0
    first_finish: float = 0.0  # seconds to write the policies, of a process's first trial
    finish: float = 0.0  # the same of its later ones
    policy_bytes: float = 0.0
    evaluation: float = 0.0  # seconds of an evaluation
    environments: float = 0.0  # seconds to make what it plays in, once a trial
    late: str = ""  # what was not over when the probe's time was: it takes longer than is said here


class TooLargeError(ConfigError):
    """A kind of trial that needs more of a GPU's memory than it was given."""

    gpu_bytes: int = 0  # all the memory of that GPU; 0: nobody could ask it


def _given_back(phase: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float] | D3rayError]:
    """A phase that gives back what a user can mend, memory that is too small included.

    Raised, it would carry a worker's traceback; and where the probe's time is over and its folder gone, Ray would print it as an
    error that nobody has dealt with.
    """

    @functools.wraps(phase)
    def called(probe: Probe, *arguments: Any) -> dict[str, float] | D3rayError:
        try:
            return phase(probe, *arguments)
        except (D3rayError, RuntimeError) as error:
            if not ran_out(error):
                if isinstance(error, D3rayError):
                    return error
                raise
            told, lacking = probe.told, getattr(error, "lacking", None)
        probe.forget()  # what it holds would count against the next, and the error's frames hold it as long as they are there
        share, name = told["resources"]["gpu"], told["algorithm"]["name"]
        gpu = "a whole GPU" if share >= 1 else f"{share:g} of a GPU"
        large = TooLargeError(f"{name}: {too_little(gpu, len(told['seeds']), told['algorithm'], lacking)}.")
        with suppress(RuntimeError):  # where CUDA itself found no memory to begin with, it tells nothing either
            large.gpu_bytes = torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 0
        return large

    return called


class Probe:
    """A worker in which trials are measured one after another, phase by phase, so that those beside it do the same."""

    def __init__(self) -> None:
        self._row: dict[str, float] = {}
        self.told: Mapping[str, Any] = {}

    def forget(self) -> None:
        """Gives up the trial that is measured, and the memory that it holds."""
        import gc

        for name in ("_run", "_data", "_evaluators"):
            self.__dict__.pop(name, None)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def ready(self) -> None:
        """Answers once the process can train: what a trial's worker imports is imported."""
        from .. import trainable  # noqa: F401  # pyright: ignore[reportUnusedImport]

    @_given_back
    def begin(self, config: Mapping[str, Any]) -> dict[str, float]:
        """Sets a trial up and warms it up."""
        self.told = config
        setup = self._set_up(config)
        if self._compiles:
            setup = self._set_up(config)  # what was compiled for the first lies on the machine now, for the trials too
        n = max(1, min(_WARM_UP, int(1.0 / self._train(1))))
        self._train(n)
        self._guess = self._train(n)
        return {"setup": setup}

    def _set_up(self, config: Mapping[str, Any]) -> float:
        """Seconds to set a trial up and to do its first gradient step."""
        begin = time.monotonic()
        if hasattr(self, "_run"):
            self._run.close()
        settings = TrialConfig.checked(config, title="trial")
        source = Trial(Folder(str(settings.folder)))
        own = Trial.create(source.folder / uuid4().hex, source.configuration, source.seeds, source.dataset)
        self._run = begin_trial(settings.model_copy(update={"folder": own.folder.name}))
        if self._run.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._run.device)
        self._data, self._evaluators = self._run.prepare()
        self._train(1)
        if self._compiles:
            self._train(_WARM_UP)  # other kinds of step, which are compiled too
        return time.monotonic() - begin

    @property
    def _compiles(self) -> bool:
        programs = getattr(self._run.subject.fit_, "programs", None)
        return programs is not None and programs.compiled

    def _train(self, n: int) -> float:
        """Seconds of a gradient step, over some, with what every epoch asks for. RLlib may do more of them than are asked for."""
        run, begin, first = self._run, time.perf_counter(), self._run.subject.step
        for rows in run.train(self._data, n):
            self._row |= rows[0]
        return (time.perf_counter() - begin) / max(run.subject.step - first, 1)

    @_given_back
    def train(self, seconds: float) -> dict[str, float]:
        """Trains half of the time where training begins, and half of it where it is half way: what is due may differ."""
        run, places = self._run, list[float]()
        for start in (run.subject.step, run.config.n_steps // 2):
            if (learner := getattr(run.subject.fit_, "learner", None)) is not None:  # RLlib's has one of another kind
                learner.step = start
            self._train(min(_WARM_UP, 2 * run.config.n_steps_per_epoch))
            until, times = time.monotonic() + seconds / 2, list[float]()
            while not times or time.monotonic() < until:
                n = max(1, min(int(seconds / 8 / self._guess), run.config.n_steps_per_epoch))
                times.append(self._train(n))
            places.append(statistics.median(times))
        return {"update": statistics.fmean(places), "gpu_memory": gpu_memory(run.device), **self._metrics()}

    def _metrics(self) -> dict[str, float]:
        """What the metrics of an epoch come to."""
        size = len(json.dumps([self._run.config.n_steps, time.time_ns() // 1_000_000, self._row]))
        n = len(self._run.config.seeds)
        return {"row_bytes": size * n, "n_metrics": len(self._row) * n}

    @_given_back
    def commit(self) -> dict[str, float]:
        """Writes checkpoints. The second is the one that counts."""
        run, took = self._run, 0.0
        for _ in range(2):
            self._train(1)
            took = _seconds(run.commit)
        assert run.writer is not None
        kept = run.writer.checkpoints
        return {"commit": took, "checkpoint_bytes": _bytes(kept) / max(len(kept.checkpoint_steps()), 1)}

    @_given_back
    def finish(self) -> dict[str, float]:
        """Writes the packages, once as a process's first and once as a later trial would."""
        run = self._run
        first, later = _seconds(run.finish), _seconds(run.finish)
        assert run.writer is not None
        made = sum(_bytes(run.writer.trial.folder / kind) for kind in PACKAGES)
        return {"first_finish": first, "finish": later, "policy_bytes": made}

    @_given_back
    def evaluate(self) -> dict[str, float]:
        """Evaluates every seed, the first of them twice: once more than needed, to tell what the environments cost."""
        run, times = self._run, list[float]()
        for seed in (run.config.seeds[0], *run.config.seeds):
            one, begin = run.one(seed), time.perf_counter()
            for name, every in self._evaluators.items():
                self._row |= {f"{name}/{key}": value for key, value in every.evaluator(one, 0).items()}
            times.append(time.perf_counter() - begin)
        found = {"evaluation": sum(times[1:]), "environments": max(times[0] - times[1], 0.0), "gpu_memory": gpu_memory(run.device)}
        return found | self._metrics()


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
    programs: Sequence[Mapping[str, Any]],
    *,
    side: int,
    node: str,
    seconds: float = SECONDS,
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
        if not done:
            done, _ = ray.wait(list(ready), num_returns=1, timeout=_START / 2)
        if not done:
            raise StorageError(f"No worker of the probe came up in {_START:g} s: other work holds what a trial asks for.")
        ray.get(done)
        start, up = time.monotonic() - begin, [ready[reference] for reference in done]
        found: list[list[Measured]] = [[] for _ in programs]
        large: dict[int, TooLargeError] = {}
        rounds, deadline = math.ceil(len(programs) / len(up)), time.monotonic() + seconds
        for turn in range(rounds):
            before = time.monotonic()
            which = [(turn * len(up) + k) % len(programs) for k in range(len(up))]
            over = _round(up, [programs[k] for k in which], deadline, rounds - turn)
            is_late = 2 * time.monotonic() - before > deadline
            for k, one in zip(which, over, strict=True):
                if isinstance(one, TooLargeError):
                    large[k] = one
                elif one is not None:
                    found[k].append(Measured(**one, start=start))
                is_late = is_late or one is None or (isinstance(one, dict) and "late" in one)
            if is_late:
                break
        if not any(found):
            for error in large.values():
                raise error
            raise StorageError(f"A trial was not through its first updates after the {seconds:g} s of a probe: there is no plan.")
        return [large.get(k) or (_median(several) if several else None) for k, several in enumerate(found)]
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


def _round(
    workers: Sequence[Any], programs: Sequence[Mapping[str, Any]], deadline: float, rounds: int
) -> list[dict[str, Any] | TooLargeError | None]:
    """One program in each worker, all in the same phase at the same time; None where no update was timed.

    Whoever runs out of a GPU's memory is out, and the others go on.
    """
    import ray

    found: list[dict[str, Any]] = [{} for _ in workers]
    large: dict[int, TooLargeError] = {}
    patience = _COMPILING if any(map(_may_compile, programs)) else 0.0

    def everyone(phase: str, until: float, arguments: Sequence[Any] = ()) -> dict[int, Any] | None:
        asked = {
            k: getattr(worker, phase).remote(*([arguments[k]] if arguments else []))
            for k, worker in enumerate(workers)
            if k not in large
        }
        if not asked:
            return {}
        _, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=max(until - time.monotonic(), 0.1))
        return None if late else dict(zip(asked, ray.get(list(asked.values())), strict=True))

    least, most = _TRAINING
    for phase in ("begin", "train", "commit", "finish", "evaluate"):
        begin = time.monotonic()
        share = min(max((deadline - begin) / rounds / 3, least), most)
        arguments = {"begin": programs, "train": [share] * len(workers)}.get(phase, ())
        answers = everyone(phase, deadline + (patience if phase == "begin" else 0.0), arguments)
        if patience and phase == "begin":  # what was compiled is kept, so the trials do not do it again: it is not counted
            deadline = max(deadline, time.monotonic() + SECONDS / 2)
        if answers is None:
            if phase in ("begin", "train"):
                return [large.get(k) for k in range(len(workers))]
            for one in found:
                one.update(late=_LATE[phase], **_least(phase, time.monotonic() - begin))
            break
        for k, answer in answers.items():
            if isinstance(answer, TooLargeError):
                large[k] = answer
            elif isinstance(answer, D3rayError):
                raise answer
            else:
                found[k].update(answer)
    return [large.get(k, one) for k, one in enumerate(found)]


def _may_compile(config: Mapping[str, Any]) -> bool:
    asked = config["algorithm"].get("compile_graph")
    return asked is True or (asked is None and config["n_steps"] >= COMPILED_FROM)


_LATE = {"commit": "a checkpoint", "finish": "the writing of the policies", "evaluate": "an evaluation"}


def _least(phase: str, waited: float) -> dict[str, float]:
    """What a phase takes at least that was not over."""
    return (
        {"finish": waited / 2, "first_finish": waited / 2}
        if phase == "finish"
        else {"evaluation" if phase == "evaluate" else phase: waited}
    )


def _median(several: Sequence[Measured]) -> Measured:
    numbers = {f.name: statistics.median(getattr(one, f.name) for one in several) for f in fields(Measured) if f.name != "late"}
    return replace(several[0], **numbers)
