"""Pages of experiments: begun by a form, with live curves and logs; stopped, gone on with, cloned, deleted."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from ...data.errors import ConfigError, D3rayError
from ...data.storage.claims import scratch_names
from .. import api as d3ray
from ..record.datasets import Inspected
from ..yaml_text import to_block
from . import queue
from .forms import MOST_PARTS, fields
from .guard import OF_REPORTS
from .long_work import takes_long
from .new_experiment import beginning, config_of, from_config, from_yaml, planned, shown
from .site import At, Pairs, Said
from .watching import ROWS_SECONDS, ended

_LOG_CHARACTERS = 20_000
_DOCTOR_SECONDS = 20.0  # that the form waits for what the doctor finds
router = APIRouter(prefix="/experiments")


@router.get("")
def index(site: At, request: Request, project: str = "") -> Response:
    part = "experiments/rows.html" if "hx-request" in request.headers else "experiments/index.html"
    found, shown = site.watch.all(), site.records.members(project, "experiment") if project else None
    chosen = [one for one in found if shown is None or one.name in shown]
    waiting = [one for one in site.records.waiting() if not project or one.project == project]
    return site.page(request, part, experiments=chosen, waiting=waiting, project=project, projects=site.records.projects())


@router.get("/new")
async def new(site: At, request: Request, dataset: str = "", algorithm: str = "", preset: str = "", like: str = "") -> Response:
    def told(looks: Future[Inspected] | None = None) -> dict[str, Any]:
        if like and not algorithm:
            return from_config(site, site.watch.handle(like).settings()["config"])
        chosen = {"name": algorithm, "preset": preset or None, **_asked_for(request)}
        return shown(site, dataset, chosen, {}, advised=True, looks=looks)

    found = await run_in_threadpool(told)
    if found["doctor_looks"]:
        looks = await run_in_threadpool(site.watch.inspected, found["top"]["dataset"])
        await ended(looks, _DOCTOR_SECONDS)
        found = await run_in_threadpool(told, looks)
    return await run_in_threadpool(lambda: site.page(request, "experiments/new.html", **found, **planned(site, found["pairs"])))


@router.post("/yaml")
def yaml(site: At, request: Request, said: Said) -> Response:
    told = from_yaml(site, said.get("yaml", ""))
    return site.page(request, "experiments/new.html", **told, **planned(site, told["pairs"]))


@router.post("/check")
def check(site: At, request: Request, pairs: Pairs) -> Response:
    return site.page(request, "experiments/plan.html", **planned(site, pairs))


@router.post("/plan")
@takes_long
def plan(site: At, request: Request, pairs: Pairs) -> Response:
    job, config = config_of(site, pairs)
    found = d3ray.plan(config, job=job, address=site.address)
    return site.page(request, "sentence.html", sentence=f"{found.text[:1].upper()}{found.text[1:]}.")


@router.post("/part/{path:path}")
def part(site: At, request: Request, path: str, said: Said) -> Response:
    about = d3ray.algorithm(said.get("algorithm", ""))
    first, *below = path.removeprefix("algorithm.").split(".")[:MOST_PARTS]
    chosen: dict[str, Any] = {"name": name} if (name := said.get(path, "")) else {}
    for inner in reversed(below):
        chosen = {inner: chosen}
    values, start = {first: chosen or None}, beginning(about, said.get("preset", ""))
    found = [one for one in fields(about.settings, values, start, "algorithm.") if one.path == f"algorithm.{first}"]
    if not found:
        raise ConfigError(f"{about.name} has no setting {first[:80]!r}.", missing=True)
    return site.page(request, "experiments/settings.html", groups={}, children=found[0].children)


@router.post("")
@takes_long
def begin(site: At, request: Request, pairs: Pairs, said: Said) -> Response:
    job, config = config_of(site, pairs)
    return site.to(queue.begin(site, job, config, said.get("project", "")))


@router.post("/{name}/leave")
def leave(site: At, name: str) -> Response:
    site.records.leave(name)
    return site.to("/experiments")


@router.get("/{name}")
def show(site: At, request: Request, name: str) -> Response:
    now, handle = site.watch.status(name), site.watch.handle(name)
    job, settings = _settings(handle)
    told: dict[str, Any] = {"settings": settings, "judgement": handle.judgement(), "projects": site.records.projects()}
    told["is_judgement"] = told["judgement"] is not None or job == "judge"
    if now.trials:
        told |= {"look": handle.results().look, "says": site.watch.verdicts(name)}
    return site.page(request, "experiments/show.html", one=now, **told)


@router.get("/{name}/report")
@takes_long
def report(site: At, request: Request, name: str) -> Response:
    content = _reported(name, site.storage, site.watch.handle(name).status().model_dump_json(exclude={"now"}))
    return Response(content, media_type="text/html", headers={"Content-Security-Policy": OF_REPORTS})


@functools.lru_cache(maxsize=16)
def _reported(name: str, storage: str, as_of: str) -> bytes:  # pyright: ignore[reportUnusedParameter] - how all of it stands
    folder = Path(tempfile.mkdtemp(prefix=scratch_names("report")))
    try:
        made = d3ray.report([name], storage=storage, out=str(folder / "report.html"))
        return Path(made.page).read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@router.get("/{name}/state")
def state(site: At, request: Request, name: str) -> Response:
    return site.page(request, "experiments/state.html", one=site.watch.status(name))


@router.get("/{name}/log")
def log(site: At, request: Request, name: str) -> Response:
    try:
        text = site.watch.handle(name).logs()
    except ConfigError as error:
        text = str(error)
    lines = [line.rpartition("\r")[2] for line in text[-_LOG_CHARACTERS:].splitlines()]
    return site.page(request, "experiments/log.html", text="\n".join(lines), one=site.watch.status(name))


@router.get("/{name}/rows.json")
def rows(site: At, name: str) -> Response:
    return JSONResponse(site.watch.rows(name))


def _exists(site: At, name: str) -> None:
    site.watch.handle(name)


@router.get("/{name}/events", response_class=EventSourceResponse, dependencies=[Depends(_exists)])  # which cannot say it any more
async def events(site: At, request: Request, name: str) -> AsyncIterator[ServerSentEvent]:
    """Rows that this viewer has not seen, until nothing more will come."""
    seen: dict[tuple[str, int], int] = {}
    while await asyncio.to_thread(site.sessions.person, request) is not None:  # which may have ended meanwhile
        now = await asyncio.to_thread(site.watch.status, name)
        found = await asyncio.to_thread(site.watch.rows, name)
        fresh = [row for row in found if row["step"] > seen.get((row["group"], row["seed"]), -1)]
        if fresh:
            yield ServerSentEvent(event="rows", data=fresh)
        for row in fresh:
            seen[row["group"], row["seed"]] = row["step"]
        if now.is_over:
            yield ServerSentEvent(event="end", data=now.state.lower())
            return
        await asyncio.sleep(ROWS_SECONDS)


@router.post("/{name}/cancel")
@takes_long
def cancel(site: At, request: Request, name: str, said: Said) -> Response:
    trial = said.get("trial")
    site.watch.handle(name).cancel(trial)
    site.watch.forget(name)
    return site.to(f"/experiments/{name}")


@router.post("/{name}/resume")
@takes_long
def resume(site: At, request: Request, name: str, said: Said) -> Response:
    site.watch.handle(name).resume(said.get("trial"))
    site.watch.forget(name)
    return site.to(f"/experiments/{name}")


@router.get("/{name}/delete")
def ask(site: At, request: Request, name: str) -> Response:
    return site.page(request, "experiments/delete.html", one=site.watch.status(name))


@router.post("/{name}/delete")
@takes_long
def delete(site: At, request: Request, name: str, said: Said) -> Response:
    if said.get("typed", "").strip() != name:
        raise ConfigError(f"To delete it, type its name: {name}.")
    site.watch.handle(name).delete()
    site.watch.forget(name)
    site.records.take_out("experiment", name)
    return site.to("/experiments")


def _asked_for(request: Request) -> dict[str, str]:
    """Settings of the algorithm that an address names, as algorithm.observation_scaler=standard."""
    said = request.query_params.items()
    return {name.removeprefix("algorithm."): value for name, value in said if name.startswith("algorithm.")}


def _settings(handle: d3ray.ExperimentHandle) -> tuple[str, str]:
    """The job, empty where nobody knows, and its config."""
    try:
        found = handle.settings()
    except D3rayError as error:
        return "", f"# {error}"
    return found["job"], to_block(found["config"])
