"""How workers of trials die: in a clause for people, and for Tune always as the death of an actor."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import Any

from ray._private.worker import global_worker
from ray.air.execution._internal import actor_manager
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.execution import tune_controller

_SIGNALS = {  # by what Python's faulthandler, which Ray switches on, calls them as it writes where they came
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_PROCESS = re.compile(r"^\tpid: (\d+)$", re.MULTILINE)
_TAKEN = re.compile(r"Actor\((\w+)\)[^()]*memory used=([\d.]+)GB")
_ON_NODE = re.compile(r"was ([\d.]+)GB used / ([\d.]+)GB limit")
_ENDINGS = {  # Ray's words, and what they mean
    "node has died|node is dead": "its node died",
    "is unavailable": "it cannot be reached any more, as where its node died",
    "SIGTERM": "somebody ended it (SIGTERM)",
    r"with an exit code (-?\d+)": r"it ended itself, with exit status \1",
}
_LOG = 100_000  # bytes at the end of a worker's log, where its last words are


class Deaths:
    """Context in which Tune takes any death of a worker for the death of its actor, after which it begins the trial again.

    Tune knows two kinds of Ray's errors. Any other, as where Ray ends a worker because memory is short, would end the whole run.

    Attributes:
        worker: Ray's id of the last one that died: each of its pending calls fails.
        error: Ray's error on it.
    """

    def __init__(self) -> None:
        self.worker, self.error = "", Exception()
        self._killed_before = _killed_by_system()

    def __enter__(self) -> Deaths:
        deaths = self

        class Manager(actor_manager.RayActorManager):
            def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
                super()._actor_task_failed(tracked_actor_task, deaths._of(self, tracked_actor_task._tracked_actor, exception))

            def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
                super()._actor_start_failed(tracked_actor, deaths._of(self, tracked_actor, exception))

        _take(Manager)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _take(actor_manager.RayActorManager)

    def _of(self, manager: Any, worker: Any, error: Exception) -> Exception:
        """Notes a failure of a worker. As Tune is told of it."""
        there = manager._live_actors_to_ray_actors_resources
        if worker in there:  # else another of its calls has failed before
            self.worker = there[worker][0]._actor_id.hex()
        self.error = error
        return error if isinstance(error, RayActorError | RayTaskError) else RayActorError(error_msg=str(error))

    @property
    def is_short_of_memory(self) -> bool:
        return isinstance(self.error, OutOfMemoryError)

    def cause(self) -> str:
        """Of what the worker died, a clause: segmentation fault (SIGSEGV) in step, mine.py, line 5."""
        said = str(self.error)
        killed, self._killed_before = _killed_by_system() - self._killed_before, _killed_by_system()
        if self.is_short_of_memory:
            return self._short(said)
        if isinstance(self.error, RayTaskError):  # as the death of a process that trains with it
            return str(self.error.cause).strip().rstrip(".")
        log = _log(found[1]) if (found := _PROCESS.search(said)) else None
        if log and (words := _last_words(log)):
            return words
        for words, meaning in _ENDINGS.items():
            if ended := re.search(words, said):
                return ended.expand(meaning)
        if log is None:  # on another machine, where it says more
            return "it was killed, crashed or ended itself"
        return "the system killed it, out of memory (SIGKILL)" if killed > 0 else "it was killed (SIGKILL), or ended itself"

    def _short(self, said: str) -> str:
        """Summarise Ray's message on an out-of-memory kill in a clause."""
        taken, node = dict(_TAKEN.findall(said)), _ON_NODE.search(said)
        own = taken.get(self.worker) or (next(iter(taken.values())) if len(taken) == 1 else "")
        it = f"it had taken {own} GB" if own else ""
        all_ = f"{node[1]} of the {node[2]} GB of its node were taken" if node else ""
        return ": ".join(filter(None, ["memory ran short and Ray ended it", " and ".join(filter(None, [it, all_]))]))


def _take(manager: type[actor_manager.RayActorManager]) -> None:
    """Has Tune call a class of managers, of which it has no setting."""
    controller: Any = tune_controller
    controller.RayActorManager = manager


def _log(process: str) -> str | None:
    """The end of what a worker of this machine wrote; None: it was no worker of this machine."""
    node: Any = global_worker.node
    files = list(Path(node.get_logs_dir_path()).glob(f"worker-*-{process}.err"))
    return "".join(file.read_text(errors="replace")[-_LOG:] for file in files) if files else None


def _last_words(log: str) -> str:
    """Extract a worker's fatal signal, and where it came, from its log; empty: none."""
    if (fatal := _FATAL.search(log)) is None:
        return ""
    name = f"{fatal[1].lower()} ({_SIGNALS[fatal[1]]})" if fatal[1] in _SIGNALS else fatal[1]
    at = _FRAME.search(log, fatal.end())
    return f"{name} in {at[3]}, {at[1]}, line {at[2]}" if at else name


def _killed_by_system() -> int:
    """How many processes this machine's kernel has killed for want of memory; 0 where it does not tell."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0
    return int(counts.get("oom_kill", 0))
