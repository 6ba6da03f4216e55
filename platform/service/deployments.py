"""The service on Ray Serve: a deployment for each policy, one that takes outcomes, and one at the root where policies are several.

A request goes through Serve's proxy to a replica of the policy's deployment, which acts itself: requests that come together are one
batch (`serve.batch`). Replicas hold no state that a client would miss, so Serve may add, end and replace them as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.metrics import Counter

from ...data.errors import D3rayError, DataError
from ...data.spec import Spec
from . import wire
from .alarms import Alarms
from .application import Doors, application, together
from .local import Ledgers, alarm_folder, recorder, served_policy
from .policy import Case
from .settings import ServeSettings

OUTCOMES, FRONT = "d3ray-outcomes", "d3ray-front"  # names of Serve's applications beside those of policies


def applications(settings: ServeSettings, digest: bytes, spaces: dict[str, Spec]) -> list[tuple[str, str | None, Any]]:
    """Serve's applications of a service: name, path and what runs there, in the order in which they need each other.

    Args:
        settings: Of the service.
        digest: SHA-256 of the token, which itself goes nowhere.
        spaces: Of each policy, by name.
    """
    said = settings.model_dump_json()
    names, found = list(settings.served()), list[tuple[str, str | None, Any]]()
    if settings.log is not None:
        about = {name: spec.model_dump_json() for name, spec in spaces.items()}
        found.append((OUTCOMES, None, _deployed(Clerk, OUTCOMES, _ALONE).bind(said, about)))
    for name in names:
        policy = _deployed(serve.ingress()(Replica), name, _scaled(settings)).bind(said, name, digest)
        found.append((name, "/" if len(names) == 1 else f"/{name}", policy))
    if len(names) > 1:
        found.append((FRONT, "/", _deployed(serve.ingress()(Front), FRONT, _ALONE).bind(said, digest)))
    return found


_ALONE: dict[str, Any] = {
    "num_replicas": 1,
    "ray_actor_options": {"num_cpus": 0},
    "max_ongoing_requests": 1000,
    "graceful_shutdown_wait_loop_s": 0.2,
}


def _deployed(cls: type[Any], name: str, options: dict[str, Any]) -> Any:
    made: Any = serve.deployment(cls)
    return made.options(name=name, **options)


def _scaled(settings: ServeSettings) -> dict[str, Any]:
    replicas, waiting = settings.replicas, settings.bounds.waiting
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": replicas.num_cpus},
        "max_ongoing_requests": waiting,
        "max_queued_requests": waiting,  # in a proxy, which answers 503 to one more
        "health_check_period_s": 5,
        "graceful_shutdown_timeout_s": 10,
        "graceful_shutdown_wait_loop_s": 0.2,  # between looks whether it has answered what it has
    }
    if replicas.max_replicas is None or replicas.max_replicas == replicas.min_replicas:
        return options | {"num_replicas": replicas.min_replicas}
    scaling = replicas.model_dump(
        include={"min_replicas", "max_replicas", "target_ongoing_requests", "upscale_delay_s", "downscale_delay_s"}
    )
    return options | {"autoscaling_config": scaling}


class Replica:
    """One process of a policy."""

    def __init__(self, said: str, name: str, digest: bytes) -> None:
        self._settings = settings = ServeSettings.model_validate_json(said)
        self._digest, self._alarms = digest, Alarms(alarm_folder(settings))
        one, counted = settings.served()[name], _counter(name)
        self._policy = served_policy(name, one, settings, alarms=self._alarms, record=recorder(settings), note=counted)
        batched: Any = self._together
        batched.set_max_batch_size(settings.replicas.max_batch_size)
        batched.set_batch_wait_timeout_s(settings.replicas.batch_wait_timeout_s)

    def __serve_build_asgi_app__(self) -> FastAPI:
        doors = _doors(self._settings, self._digest, self._alarms, self._policy.name)
        return application(self._policy, doors, self._decide)

    async def _decide(self, cases: Sequence[Case]) -> list[wire.Decision | D3rayError]:
        return await self._together(cases)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0)
    async def _together(self, requests: list[Sequence[Case]]) -> list[list[wire.Decision | D3rayError]]:
        import asyncio

        found = await asyncio.to_thread(self._policy.decide, [case for cases in requests for case in cases])
        ends = 0
        return [found[(ends := ends + len(cases)) - len(cases) : ends] for cases in requests]

    def status(self) -> dict[str, Any]:
        return self._policy.status()

    def __del__(self) -> None:
        if policy := getattr(self, "_policy", None):
            policy.close()


class Clerk:
    """The one process that takes outcomes, and knows of each decision whether one came already."""

    def __init__(self, said: str, about: dict[str, str]) -> None:
        spaces = {name: Spec.model_validate_json(text) for name, text in about.items()}
        self._ledgers = Ledgers(ServeSettings.model_validate_json(said), spaces)

    def record(self, given: list[dict[str, Any]], policy: str | None) -> list[dict[str, Any]] | str:
        """Answers of outcomes, or the sentence that refuses them."""
        try:
            return self._ledgers.record([wire.Outcome.checked(one) for one in given], policy)
        except D3rayError as error:
            return str(error)

    def __del__(self) -> None:
        if ledgers := getattr(self, "_ledgers", None):
            ledgers.close()


class Front:
    """What stands at the root where there are several policies."""

    def __init__(self, said: str, digest: bytes) -> None:
        self._settings, self._digest = ServeSettings.model_validate_json(said), digest
        self._alarms = Alarms(alarm_folder(self._settings))

    def __serve_build_asgi_app__(self) -> FastAPI:
        doors = _doors(self._settings, self._digest, self._alarms, None)
        return together(list(self._settings.served()), self._status_of, doors, {})

    async def _status_of(self, name: str) -> dict[str, Any]:
        found: Any = serve.get_deployment_handle(name, name).status.remote()
        return await found


def _doors(settings: ServeSettings, digest: bytes, alarms: Alarms, policy: str | None) -> Doors:
    async def outcomes(given: Sequence[wire.Outcome]) -> list[dict[str, Any]]:
        handle = serve.get_deployment_handle(OUTCOMES, OUTCOMES)
        found: Any = await handle.record.remote([one.model_dump() for one in given], policy)  # pyright: ignore[reportGeneralTypeIssues]
        if isinstance(found, str):
            raise DataError(found)
        return found

    return Doors(settings.bounds, digest, alarms, None if settings.log is None else outcomes)


def _counter(policy: str) -> Callable[[str, str, str | None], None]:
    """Counts decisions for Prometheus: `d3ray_decisions` by policy, version, role and what kind of reason the fallback had."""
    tags: Any = ("policy", "version", "role", "reason")  # whose type says that there is one
    decisions = Counter("d3ray_decisions", description="decisions that were answered", tag_keys=tags)

    def note(version: str, role: str, reason: str | None) -> None:
        kind = (reason or "").partition(":")[0]
        decisions.inc(tags={"policy": policy, "version": version, "role": role, "reason": kind})

    return note
