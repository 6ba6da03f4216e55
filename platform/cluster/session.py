"""A Ray to work in: the one that is there, the one that `RAY_ADDRESS` names, or a local one for as long as it is needed."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from ...data.catalog.entries import name_catalogs_absolutely
from ...data.errors import StorageError
from .growth import growth
from .staging import LOAD_SECRETS, load_secrets
from .token import keep_token_private

# What object stores' clients read. Workers of a cluster get it without a word, where Tune would have Ray's agent log it.
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")
# Ray's ports for Prometheus are open to the whole network and ask for no token: those of its agent, its autoscaler and its
# dashboard's process. A port that cannot be, its programs note in their logs and go on without.
NO_METRICS = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
# What a Ray of one driver has no use for: its dashboard's process, which comes even without a dashboard and is waited for, the
# autoscaler, and the reader of its workers' logs, which are not shown. A third of what a start costs.
_UNUSED = ("start_api_server", "start_monitor", "start_log_monitor")
_VITAL = ("raylet", "gcs_server")  # processes of Ray without which nothing goes on; a raylet ends with its agents
_coming: list[Future[None]] = []  # the start of a Ray that `ray_ahead` has begun, until a session takes it


@contextmanager
def ray_session(*, address: str | None = None, **options: Any) -> Generator[None]:
    """Ray is initialised inside; what was started here is shut down at the end, its workers with it.

    A Ray that is started here asks for the token, whatever `RAY_AUTH_MODE` says: its ports listen on every interface. One that is
    joined is as its owner started it, and `RAY_AUTH_MODE` says whether this process shows a token.

    Args:
        address: a cluster; None: `RAY_ADDRESS`, and where that is not set either a Ray of this machine's own.
        options: for `ray.init`; those that shape a local Ray, such as `num_cpus`, are left out where there is a cluster.

    Raises:
        StorageError: the cluster cannot be reached.
    """
    import ray

    stop = signal.getsignal(signal.SIGTERM)
    if _coming:
        _coming[0].result()
        _coming.clear()
    elif ray.is_initialized():
        yield
        return
    else:
        _start(address or os.environ.get("RAY_ADDRESS") or "local", options)
    if passes := gc.get_freeze_count() == 0:  # else somebody else has frozen what he wants to
        gc.freeze()  # what is there already holds nothing of Ray's, and to look through it all takes as long as to end Ray
    try:
        with _sigterm_interrupts(stop):
            yield
    finally:
        _shut_down()
        if passes:
            gc.unfreeze()


@contextmanager
def ray_ahead() -> Generator[None]:
    """Where a `ray_session` inside would start a Ray of this machine's own, it starts now, in a thread, while other work goes on.

    What is found wrong meanwhile is raised as ever; the Ray that came is then shut down.
    """
    if _coming or not is_own_ray() or ("ray" in sys.modules and sys.modules["ray"].is_initialized()):
        yield
        return
    importlib.import_module("ray")  # as a whole, before two threads import what they share
    with ThreadPoolExecutor(1, "d3ray-ray") as pool:  # whose thread lives on: the kernel may end what it has started with it
        _coming.append(started := pool.submit(_start, "local", {}))
        try:
            yield
        finally:
            if started in _coming:  # nobody took it
                _coming.remove(started)
                while not started.done():  # an interrupt would leave half a Ray, whose end waits a minute for the other half
                    with suppress(KeyboardInterrupt):
                        wait([started])
                if started.exception() is None:
                    _shut_down()


def _start(address: str, options: dict[str, Any]) -> None:
    """Initialises Ray. Raises as `ray_session`."""
    import ray
    from ray.exceptions import AuthenticationError

    if address == "local":
        options = {"include_dashboard": False, **options}
        name_catalogs_absolutely()  # its workers lie in other folders
        os.environ.setdefault("RAY_worker_niceness", "0")  # a trial is the work itself; Ray's 15 is for what may wait
        for name, value in NO_METRICS.items():
            os.environ.setdefault(name, value)
        # Where it is not set Ray turns tokens on as it starts, and then reads the mode again. Where it is set, to "token" too, Ray
        # keeps to what it read when it was imported, which may have been "disabled".
        os.environ.pop("RAY_AUTH_MODE", None)
    else:
        options = {name: value for name, value in options.items() if name in ("runtime_env", "namespace")}
    keep_token_private(make=address == "local")
    if (hook := _hook(address)) is not None:
        options["runtime_env"] = {**options.get("runtime_env", {}), "worker_process_setup_hook": hook}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        for attempt in (1, 2):
            try:
                with _lean() if address == "local" else nullcontext():
                    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
                break
            except Exception as error:
                # Its processes wait 15 s for one another, which is little on a machine that is busy at that moment.
                if attempt == 2 or "timed out during startup" not in str(error):
                    raise
                _shut_down()
    except (ConnectionError, AuthenticationError) as error:
        raise StorageError(
            f"The Ray cluster {address!r} cannot be used: {str(error).strip().splitlines()[0].rstrip('.')}."
        ) from None


def _hook(address: str) -> str | Callable[[], None] | None:
    """Return the setup hook that gives workers this process's secrets; None: they have them, or there are none."""
    if load_secrets():  # in the job's driver; its workers do the same
        return LOAD_SECRETS
    here = {name: os.environ[name] for name in CREDENTIALS if name in os.environ}
    return _setting(here) if here and address != "local" else None  # a Ray of this process's own inherits its environment


def _setting(variables: Mapping[str, str]) -> Callable[[], None]:
    """Make a hook that sets environment variables. Ray passes it in the cluster's memory, and logs only its name."""

    def set_variables() -> None:
        os.environ.update(variables)

    return set_variables


@contextmanager
def _lean() -> Generator[None]:
    """A Ray that starts inside has no `_UNUSED` processes. Ray has no option for it: where a name is gone, that process starts.

    Nor does this process import a dashboard's modules to find that they are there, which d3ray's own dependencies see to.
    """
    from ray._private import utils
    from ray._private.node import Node

    places = [*((Node, name) for name in _UNUSED), (utils, "get_dashboard_dependency_error")]
    kept = [(place, name, getattr(place, name)) for place, name in places if hasattr(place, name)]
    try:
        for place, name, _ in kept:
            setattr(place, name, lambda *_, **__: None)  # pyright: ignore[reportUnknownLambdaType]
        yield
    finally:
        for place, name, was in kept:
            setattr(place, name, was)


@contextmanager
def _sigterm_interrupts(before: Any) -> Generator[None]:
    """SIGTERM does what it did `before` Ray came, and where that was to end at once, interrupts as Ctrl-C.

    Ray's own handler sets an alarm that aborts the process 3 s later, whatever is being put in order then.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may say so
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler if before in (None, signal.SIG_DFL) else before)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _shut_down() -> None:
    """Ends Ray while no other thread can end this process.

    Ray leaves the process at once, with exit status 1, when a reference of its own is freed while it shuts down. The garbage
    collector frees those that hang in cycles, in whichever thread it happens to run; it runs here first, and then waits.
    """
    import ray

    _end_ray_data()
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        if collected:
            gc.enable()


def _end_ray_data() -> None:
    """Stops what Ray Data still does when its reader was interrupted.

    Its thread would ask Ray for more, and where there is none any more Ray starts another one for it, in the midst of what ends.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("StreamingExecutor") and hasattr(thread, "shutdown"):
            thread.shutdown(force=True)  # pyright: ignore[reportAttributeAccessIssue] - the class is not public
            thread.join(30)


def check_ray() -> None:
    """Raises StorageError where the node of this process is dead: what it asks of Ray would never be answered.

    Of a Ray that was started here that is known at once, of another as soon as its head has noticed.
    """
    import ray
    from ray._private.worker import global_worker

    node: Any = global_worker.node
    for kind, process in node.dead_processes():  # none of a Ray that was joined
        if kind in _VITAL:
            how = f"was killed ({signal.Signals(-process.returncode).name})" if process.returncode < 0 else "ended"
            logs = node.get_logs_dir_path()
            raise StorageError(f"Ray's process {process.pid} of this machine, its {kind}, {how}; its own words are in {logs}.")
    own = ray.get_runtime_context().get_node_id()
    if not any(one["Alive"] for one in ray.nodes() if one["NodeID"] == own):
        raise StorageError("The Ray node of this command's machine is dead.")


def is_own_ray() -> bool:
    """Return True if trials run on this machine's own Ray: no cluster is named, and no multi-node one was joined."""
    if os.environ.get("RAY_ADDRESS", "") not in ("", "local"):
        return False
    ray: Any = sys.modules.get("ray")  # who has not imported it has joined nothing
    return ray is None or not ray.is_initialized() or len(ray.nodes()) == 1


def node_count(*, to_come: bool = False) -> int:
    """How many machines the trials may run on: 1 where Ray is this machine's own. Raises StorageError as `ray_session`.

    Args:
        to_come: Whether those count that the cluster may start: as many as its autoscaler may, or one, where a head without CPUs
            is alone and nobody here knows what comes.
    """
    if is_own_ray():
        return 1
    import ray

    with ray_session():
        alive = [node for node in ray.nodes() if node["Alive"]]
    if not to_come:
        return len(alive)
    may = growth()
    waits = not any(node["Resources"].get("CPU") for node in alive)
    return max(len(alive), 1 + (may.most if may else int(waits)))


def quiet_ray_data() -> None:
    """Switches off Ray Data's own progress bars and messages: jobs show progress in their own way."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
