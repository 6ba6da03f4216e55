"""Runs a service on Ray Serve, from its start until it is interrupted."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ...data.errors import ConfigError, StorageError
from ..cluster.session import check_ray, is_own_ray, ray_session
from ..settings.config import absolute
from .application import digest_of
from .settings import PolicySettings, ServeSettings
from .token import service_token
from .versions import Version

_HUNG_SECONDS = 10.0  # beyond those of a request after which the proxy gives a replica up that does not answer at all
_LOOK_SECONDS = 1.0  # between looks whether Ray is there


@dataclass(frozen=True)
class Running:
    """A service that answers.

    Attributes:
        address: Its URL.
        token_at: Where clients find the token.
        versions: Who acts, by the policy's name, as it started.
        settings: Of it.
    """

    address: str
    token_at: str
    versions: dict[str, Version]
    settings: ServeSettings


@contextmanager
def running(settings: ServeSettings) -> Generator[Running]:
    """A service for as long as the context lasts; what was started for it ends with it, Ray too.

    Raises:
        ConfigError: settings that cannot be, before any work; or what Ray Serve needs is not installed.
        StorageError: a policy, the log, the port or the cluster cannot be had.
    """
    serve = _serve()
    served = settings.served()
    token, token_at = service_token(settings.host, settings.token)
    versions = {name: _tried(name, one, settings) for name, one in served.items()}
    port = settings.port or _free_port(settings.host)
    _check_port(settings.host, port)
    options: dict[str, Any] = {}
    if settings.metrics is not None:
        os.environ.update({"RAY_enable_metrics_collection": "1"})  # which a session of this machine's own turns off
        options["_metrics_export_port"] = settings.metrics
    if is_own_ray():
        most = settings.replicas.max_replicas or settings.replicas.min_replicas
        options["num_cpus"] = max(os.cpu_count() or 1, math.ceil(len(served) * most * settings.replicas.num_cpus))
    own = not _in_a_session()
    with ray_session(address=settings.address, **options):
        from .deployments import applications

        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        there = not own and _has_serve()
        names: list[str] = []
        quiet = {"log_level": "WARNING", "enable_access_log": False}
        placed = settings.model_copy(update={"storage": absolute(settings.storage)})
        try:
            http = {"host": settings.host, "port": port, "request_timeout_s": settings.bounds.seconds + _HUNG_SECONDS}
            serve.start(http_options=http, logging_config=quiet)
            spaces = {name: version.spec for name, version in versions.items()}
            for name, path, application in applications(placed, digest_of(token), spaces):
                names.append(name)
                serve.run(application, name=name, route_prefix=path, logging_config=quiet)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            yield Running(f"http://{host}:{port}", token_at, versions, settings)
        except RuntimeError as error:
            raise StorageError(f"Ray Serve could not start the service: {str(error).strip().splitlines()[-1]}") from error
        finally:
            with suppress(Exception):  # of a cluster that is gone nothing is left to end
                with ThreadPoolExecutor(len(names) or 1) as pool:  # each waits until its replicas have answered what they have
                    list(pool.map(serve.delete, names))
                if not there and not (own and is_own_ray()):  # else its proxy and controller end with Ray
                    serve.shutdown()


def wait(over: threading.Event | None = None) -> None:
    """Wait until it is interrupted, or `over`. Raises StorageError where Ray is gone."""
    over = over or threading.Event()
    while not over.wait(_LOOK_SECONDS):
        check_ray()


def _tried(name: str, one: PolicySettings, settings: ServeSettings) -> Version:
    """Make the policy here once, without its log: what does not suit it is said before Ray starts. Returns who acts."""
    from .alarms import Alarms
    from .local import served_policy
    from .recording import Unkept

    quiet = settings.model_copy(update={"poll_seconds": 0.0})
    policy = served_policy(name, one, quiet, alarms=Alarms(None), record=lambda *_: Unkept())
    policy.close()
    return policy.champion


def _serve() -> Any:
    """Ray Serve. Raises ConfigError where a part of it is missing."""
    try:
        from ray import serve
    except ImportError as error:
        raise ConfigError(f"Ray Serve is not whole here ({str(error).splitlines()[0]}): pip install 'd3ray[serve]'.") from None
    return serve


def _in_a_session() -> bool:
    """Tell whether somebody else has begun a session of Ray in this process."""
    import ray

    return ray.is_initialized()


def _has_serve() -> bool:
    """Tell whether somebody else's Serve runs on this Ray."""
    import ray

    try:
        ray.get_actor("SERVE_CONTROLLER_ACTOR", namespace="serve")
    except ValueError:
        return False
    return True


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.bind((host, 0))
        return one.getsockname()[1]


def _check_port(host: str, port: int) -> None:
    """Raises StorageError where a port is taken, which Serve's proxy would say in a log alone."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            raise StorageError(f"{host}:{port} cannot be had ({error.strerror}): say another port.") from None
