"""Ray's workers as writers of datasets use them: a session, what a worker says of bad input, plain tasks, and how far they are."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...data.errors import ConfigError, D3rayError, DataError, StorageError
from ...data.storage.working import Advance, Run
from ..cluster.session import quiet_ray_data, ray_session


@contextmanager
def ray_workers() -> Generator[None]:
    """Ray is there and Ray Data quiet; what a worker found wrong is raised as it would be here."""
    from ray.exceptions import OutOfMemoryError, RayTaskError, WorkerCrashedError

    with ray_session():
        quiet_ray_data()
        try:
            yield
        except (OutOfMemoryError, WorkerCrashedError) as error:
            raise _killed() from error
        except RayTaskError as error:
            raise _said(error) from None


def _said(error: BaseException) -> BaseException:
    """The error of d3ray, or the death of a worker, that lies in Ray's errors about it; else the error itself."""
    from ray.exceptions import OutOfMemoryError, RayTaskError, WorkerCrashedError

    ahead: list[BaseException] = [error]
    while ahead:
        one = ahead.pop(0)
        if isinstance(one, OutOfMemoryError | WorkerCrashedError):
            return _killed()
        if isinstance(one, D3rayError) and not isinstance(one, RayTaskError):
            return _plain(one)
        ahead += [cause for cause in (getattr(one, "cause", None), one.__cause__) if isinstance(cause, BaseException)]
    kinds = {kind.__name__: kind for kind in (DataError, ConfigError, StorageError)}  # of a user's function only text is kept
    found = re.findall(r"^d3ray\.data\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    return kinds[found[-1][0]](found[-1][1]) if found else error


def _plain(error: D3rayError) -> D3rayError:
    """Restore an error to how it was raised: Ray wraps it in a class of its own and adds lines."""
    kind = next(known for known in type(error).__mro__ if known.__module__.startswith(__name__.partition(".")[0]))
    return kind(str(error).splitlines()[0])


def _killed() -> StorageError:
    return StorageError(
        "A worker was killed while it read or wrote, most likely for lack of memory: give Ray fewer CPUs, or the job more memory."
    )


def placed(*, local: bool) -> dict[str, Any]:
    """Options of tasks: again after a worker's death, but not for ever; and on this machine where files lie on it."""
    import ray

    node = {"label_selector": {"ray.io/node-id": ray.get_runtime_context().get_node_id()}} if local else {}
    return {"max_retries": 3, **node}


def n_cpus() -> int:
    """Of the cluster, at least 1."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def in_tasks(*, local: bool) -> Run:
    """Return a runner of functions in plain tasks, two per CPU at a time, with results in the order of the items."""
    import ray

    options, most = placed(local=local), 2 * n_cpus()

    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        task, going = ray.remote(**options)(_call), deque[Any]()
        for item in items:
            going.append(task.remote(function, item))
            if len(going) >= most:
                yield ray.get(going.popleft())
        while going:
            yield ray.get(going.popleft())

    return run


def _call(function: Callable[[Any], Any], item: Any) -> Any:
    return function(item)


@contextmanager
def watched(count: Callable[[], int], advance: Advance) -> Generator[None]:
    """Tells how far work is that says nothing itself, by counting what is there of it twice a second."""
    ended, seen = threading.Event(), 0

    def look() -> None:
        nonlocal seen
        while not ended.wait(0.5):
            if (now := count()) > seen:
                advance(now - seen)
                seen = now

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
