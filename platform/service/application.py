"""The service as an ASGI application: what is asked over HTTP, its bounds, and one sentence for whatever is wrong.

    POST /act        what to do at an observation, or at many          GET /status   which policy, version, alarm, trouble
    POST /outcome    what came of a decision, or of many               GET /health   the process answers
    POST /alarm      sets or ends the alarm that fallbacks act by      GET /ready    it can act
    GET  /docs       this, for people; /openapi.json for programs

One application is of one policy; where there are several, `together` puts each below its name.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ...data.errors import ConfigError, D3rayError, DataError, StorageError
from ...data.version import __version__
from . import wire
from .alarms import Alarms
from .policy import Case, LateError, ServedPolicy, UnableError
from .settings import Bounds

OPEN = (
    "/health",
    "/ready",
    "/docs",
    "/docs/oauth2-redirect",
    "/openapi.json",
)  # paths that tell nothing of anybody, without a token
_BUSY = "The service has as many requests in hand as it may: ask again."
_NO_LOG = "This service keeps no log, so outcomes have no decisions to belong to: start it with log=FOLDER."
_STATUS = {"recorded": 200, "known": 200, "conflict": 409, "unmatched": 404}  # of what is answered to an outcome

Decide = Callable[[Sequence[Case]], Awaitable[list[wire.Decision | D3rayError]]]
Status = Callable[[str], Awaitable[dict[str, Any]]]
Outcomes = Callable[[Sequence[wire.Outcome]], Awaitable[list[dict[str, Any]]]]


class TooLargeError(D3rayError):
    """A request has more bytes or more decisions than one may have."""


@dataclass(frozen=True)
class Doors:
    """What an application hands on, and what it lets in.

    Attributes:
        bounds: Of a request.
        digest: SHA-256 of the token; None: nobody has to show one.
        alarms: That `POST /alarm` sets.
        outcomes: Takes outcomes; None: there is no log.
    """

    bounds: Bounds
    digest: bytes | None
    alarms: Alarms
    outcomes: Outcomes | None


def digest_of(token: str) -> bytes:
    """Of a token, which alone processes that check it have to know."""
    return hashlib.sha256(token.encode()).digest()


def application(policy: ServedPolicy, doors: Doors, decide: Decide | None = None) -> FastAPI:
    """One policy.

    Args:
        policy: That acts.
        doors: What is let in.
        decide: Answers cases, as together with those of other requests; None: the policy itself, in a thread.
    """
    app = _bare(f"d3ray: {policy.name}", doors)
    in_hand = 0

    async def alone(cases: Sequence[Case]) -> list[wire.Decision | D3rayError]:
        return await asyncio.to_thread(policy.decide, cases)

    @app.post(
        "/act", summary="What to do at an observation, or at many", openapi_extra=_body(wire.Asked, wire.Request), responses=_ACT
    )
    async def act(request: Request) -> Response:
        nonlocal in_hand
        if in_hand >= doors.bounds.waiting:
            raise UnableError(_BUSY)
        in_hand += 1
        try:
            asked, several = wire.read_request(await _bounded(request, doors.bounds))
            if len(asked.decisions) > doors.bounds.decisions:
                raise TooLargeError(f"The request has {len(asked.decisions)} decisions; one may have {doors.bounds.decisions}.")
            cases = [_checked(policy, one, k if several else None, explain=asked.explain) for k, one in enumerate(asked.decisions)]
            found = await _in_time(policy, cases, decide or alone, doors.bounds.seconds)
        finally:
            in_hand -= 1
        if wrong := next((one for one in found if isinstance(one, D3rayError)), None):
            raise wrong  # what was decided beside it is in the log, and is decided likewise when it is asked again
        told = [one.model_dump(exclude_none=False) for one in found if isinstance(one, wire.Decision)]
        return JSONResponse({"decisions": told} if several else told[0])

    @app.get("/status", summary="Which policy, version, alarm and trouble")
    def status() -> dict[str, Any]:
        return policy.status()

    return app


def together(names: Sequence[str], status_of: Status, doors: Doors, apps: Mapping[str, FastAPI]) -> FastAPI:
    """What stands at the root where there are several policies.

    Args:
        names: Of the policies.
        status_of: Asks one how it is.
        doors: What is let in.
        apps: Those that stand in this process, each to be found below its name; the others are somebody else's to find.
    """
    app = _bare("d3ray", doors, tuple(apps))

    @app.get("/status", summary="Of every policy")
    async def status() -> dict[str, Any]:
        return {"policies": [await status_of(name) for name in names]}

    for name, inner in apps.items():
        app.mount(f"/{name}", inner)

    @app.post("/{name}/act", include_in_schema=False)
    def unknown(name: str) -> Response:
        raise DataError(f"There is no policy {name!r}; there are {', '.join(names)}.", missing=True)

    return app


def _bare(title: str, doors: Doors, below: Sequence[str] = ()) -> FastAPI:
    """What every application has."""
    app = FastAPI(title=title, version=__version__, description=__doc__ or "", redoc_url=None)
    app.add_middleware(Gate, digest=doors.digest, below=below)

    @app.post("/outcome", summary="What came of a decision, or of many", openapi_extra=_body(wire.Outcome, wire.Outcomes))
    async def outcome(request: Request) -> Response:
        given, several = wire.read_outcomes(await _bounded(request, doors.bounds))
        if doors.outcomes is None:
            raise ConfigError(_NO_LOG)
        if len(given) > doors.bounds.decisions:
            raise TooLargeError(f"The request has {len(given)} outcomes; one may have {doors.bounds.decisions}.")
        answers = await doors.outcomes(given)
        return JSONResponse({"outcomes": answers}) if several else JSONResponse(answers[0], _STATUS.get(answers[0]["answer"], 200))

    @app.post("/alarm", summary="Set or end the alarm that fallbacks act by", openapi_extra=_body(wire.Alarm))
    async def alarm(request: Request) -> dict[str, Any]:
        given = wire.read_alarm(await _bounded(request, doors.bounds))
        await asyncio.to_thread(doors.alarms.set, given)
        return given.model_dump()

    @app.get("/health", summary="The process answers")
    def health() -> dict[str, str]:
        return {"health": "up"}

    @app.get("/ready", summary="It can act")
    def ready() -> dict[str, str]:
        return {"ready": "yes"}

    @app.exception_handler(D3rayError)
    async def mendable(request: Request, error: D3rayError) -> Response:
        return JSONResponse({"detail": str(error)}, _status(error), {"Retry-After": "1"} if _status(error) == 503 else None)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        missing = f"There is no {request.method} {request.url.path} here: /docs says what there is."
        sentence = missing if error.status_code in (404, 405) else str(error.detail)
        return JSONResponse({"detail": sentence}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": f"This went wrong, by a fault of the service: {type(error).__name__}."}, 500)

    return app


def _status(error: D3rayError) -> int:
    match error:
        case TooLargeError():
            return 413
        case LateError():
            return 504
        case UnableError() | StorageError():
            return 503
        case _:
            return 404 if error.missing else 422


async def _bounded(request: Request, bounds: Bounds) -> bytes:
    """Read a body, and no more of it than it may have. Raises TooLargeError."""
    most = int(bounds.request_mb * 1e6)
    declared = request.headers.get("content-length", "")
    parts, size = list[bytes](), int(declared) if declared.isascii() and declared.isdigit() else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            parts.append(part)
            if (size := size + len(part)) > most:
                break
    if size > most:
        raise TooLargeError(f"The request has more than the {bounds.request_mb:g} MB that one may have.")
    return b"".join(parts)


def _checked(policy: ServedPolicy, asked: wire.Asked, at: int | None, *, explain: bool) -> Case:
    """Check one of a request's observations; `at` is its place, where there are several."""
    try:
        return policy.case(asked, explain=explain)
    except (DataError, ConfigError) as error:
        if at is None:
            raise
        raise DataError(f"Decision {at}: {error}", missing=error.missing) from None


async def _in_time(policy: ServedPolicy, cases: list[Case], decide: Decide, seconds: float) -> list[wire.Decision | D3rayError]:
    """Answer cases, those that take too long by the fallback. Raises LateError where there is none."""
    deciding = asyncio.ensure_future(decide(cases))
    done, _ = await asyncio.wait((deciding,), timeout=seconds)
    if done:
        return deciding.result()
    deciding.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody waits for it any more
    found: list[wire.Decision | D3rayError] = []
    for case in cases:
        try:
            found.append(await asyncio.to_thread(policy.late, case, seconds))
        except D3rayError as error:
            found.append(error)
    return found


class Gate:
    """Lets in who shows the token; others see that the service is up, and how it is spoken with."""

    def __init__(self, app: ASGIApp, digest: bytes | None, below: Sequence[str] = ()) -> None:
        self._app, self._digest = app, digest
        self._open = {f"{start}{path}" for start in ("", *(f"/{name}" for name in below)) for path in OPEN}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._digest is not None:
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            kind, _, given = HTTPConnection(scope).headers.get("authorization", "").partition(" ")
            known = kind.lower() == "bearer" and hmac.compare_digest(digest_of(given.strip()), self._digest)
            if not known and path not in self._open:
                sentence = "Show the service's token, as the header Authorization: Bearer TOKEN."
                await JSONResponse({"detail": sentence}, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _body(*models: type[wire.Config]) -> dict[str, Any]:
    """What OpenAPI says of a body that is read by hand, because its size is bounded before it is parsed."""
    each = [_inlined(model) for model in models]
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": each[0] if len(each) == 1 else {"anyOf": each}}},
        }
    }


def _inlined(model: type[wire.Config]) -> dict[str, Any]:
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def put_in(node: Any) -> Any:
        if isinstance(node, dict):
            return put_in(parts[node["$ref"].rpartition("/")[2]]) if "$ref" in node else {k: put_in(v) for k, v in node.items()}
        return [put_in(part) for part in node] if isinstance(node, list) else node

    return put_in(schema)


_ACT: dict[int | str, dict[str, Any]] = {
    200: {"description": "what to do", "content": {"application/json": {"schema": _inlined(wire.Decision)}}},
    401: {"description": "the token is missing"},
    404: {"description": "there is no such policy or version"},
    413: {"description": "more bytes or decisions than a request may have"},
    422: {"description": "something in it is wrong, as the sentence says"},
    503: {"description": "too busy, or the policy failed and there is no fallback"},
    504: {"description": "not in time"},
}
