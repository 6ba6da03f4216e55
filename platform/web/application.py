"""The page as an application: its rooms behind its guard, and what it says where something is wrong."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from ...data.errors import D3rayError, StorageError
from . import accounts, compare, datasets, experiments, new_experiment, policies, projects, queue, tus
from .guard import Guard, check_role
from .passwords import LaterError
from .places import Places
from .site import Site

_HERE = Path(__file__).parent
_NOT_FOUND, _NO_PAGE = 404, "There is no such page."


def application(site: Site) -> FastAPI:
    """The page as an ASGI application."""

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncGenerator[None]:
        waiting = asyncio.create_task(queue.run(site))
        threading.Thread(target=_preload, daemon=True).start()
        yield
        waiting.cancel()

    dependencies = [Depends(check_role)]
    app = FastAPI(title="d3ray", lifespan=alive, dependencies=dependencies, docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/static", _Static(directory=_HERE / "static"), "static")
    for room in (tus, datasets, policies, experiments, compare, projects, accounts):
        app.include_router(room.router)
    app.state.site = site
    site.uploads.folder.mkdir(exist_ok=True)  # its records and folders are made now, and not by two requests at once
    hosts = {f"{name}:{site.port}" for name in ("127.0.0.1", "localhost", "[::1]", site.host)} | set(site.hosts)
    known = (str(site.home), site.datasets, site.storage, site.beside or "", str(Path.home()))
    app.add_middleware(Places, known=known, address=site.address)  # behind the guard, which knows who asks
    app.add_middleware(
        Guard, token=site.token, sessions=site.sessions, hosts=hosts, base=site.base, accounts=site.people is not None
    )

    @app.get("/")
    def home() -> Response:
        return site.to("/experiments" if site.watch.all() else "/datasets")

    def answer(request: Request, sentence: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
        sentence = site.here(sentence)
        if "text/html" not in request.headers.get("accept", "") and "hx-request" not in request.headers:
            return JSONResponse({"detail": sentence}, status, headers)
        if "hx-request" in request.headers:  # htmx shows no answer that is an error
            return site.page(request, "sentence.html", sentence=sentence)
        typed = request.method not in ("GET", "HEAD")  # else nothing was sent that could be changed or lost
        page = site.page(request, "error.html", status, sentence=sentence, missing=status == _NOT_FOUND, typed=typed)
        page.headers.update(headers or {})
        return page

    @app.exception_handler(D3rayError)
    def mendable(request: Request, error: D3rayError) -> Response:
        named = request.path_params.get("name")  # in a form a name that is not there is what was typed
        if isinstance(error, LaterError):
            return answer(request, str(error), error.status, error.headers)
        if error.missing and (named is not None or request.method in ("GET", "HEAD")):
            return answer(request, str(error), _NOT_FOUND)
        return answer(request, str(error), 503 if isinstance(error, StorageError) else 400)

    @app.exception_handler(RequestValidationError)
    def misread(request: Request, error: RequestValidationError) -> Response:
        """A part of an address that is not of its kind, as the number of an episode that is a word."""
        first = error.errors()[0]
        if first["loc"][0] == "path":
            return answer(request, _NO_PAGE, _NOT_FOUND)
        return answer(request, f"This cannot be read: {'.'.join(map(str, first['loc'][1:]))} is {first['input']!r}.", 400)

    @app.exception_handler(HTTPException)
    def other(request: Request, error: HTTPException) -> Response:
        sentence = _NO_PAGE if error.status_code == _NOT_FOUND else str(error.detail)
        return answer(request, sentence, error.status_code, error.headers)

    @app.exception_handler(ValueError)
    def unreadable(request: Request, error: ValueError) -> Response:
        return answer(request, f"This cannot be read: {error}", 400)

    return app


def _preload() -> None:
    """Imports what the first form would wait seconds for, and spares the collector what stays for good.

    A full collection that walks all modules stops every answer for half a second.
    """
    for actions in ("continuous", "discrete"):
        new_experiment.fitting(actions)
    gc.collect()
    gc.freeze()


class _Static(StaticFiles):
    """Files of a version: a browser keeps those whose name has one."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        found = super().file_response(*args, **kwargs)
        found.headers["Cache-Control"] = "max-age=86400" if "vendor" in str(args[0]) else "no-cache"
        return found
