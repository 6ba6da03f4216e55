"""Pages of datasets: files come in, the doctor asks, episodes are looked at, parts are split off, what is not needed goes."""

from __future__ import annotations

import hashlib
import re
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from ...data.errors import ConfigError, D3rayError
from .. import api as d3ray
from ..record.datasets import Inspected
from . import mending
from .long_work import takes_long
from .site import At, Pairs, Said, Site
from .watching import ended

SHIPPED = {
    "cartpole-replay": ("d3ray/cartpole-replay", "balancing a pole, two actions"),
    "pendulum-replay": ("d3ray/pendulum-replay", "swinging a pole up, a torque as action"),
}
_KINDS = {"continuous": False, "discrete": True}
_PAGE = 10  # episodes of a list
_SHOWN = 100  # datasets of a list
_FRAMES = 40  # of a film strip
_ID = re.compile(r"[\w./-]+")

router = APIRouter(prefix="/datasets")


@router.get("")
def index(site: At, request: Request, project: str = "", start: int = 0, seen: str = "") -> Response:
    """The list, or where a page that shows it asks again its rows; nothing where these are what it has `seen`."""
    found, shown = site.watch.datasets(), site.records.members(project, "dataset") if project else None
    chosen = [one for one in found if shown is None or one.name in shown]
    start = min(max(start, 0), len(chosen))
    rows = chosen[start : start + _SHOWN]
    now = hashlib.blake2s(repr((len(chosen), rows)).encode()).hexdigest()[:16]
    again = "hx-request" in request.headers
    if again and seen == now:
        return Response(status_code=204)
    return site.page(
        request,
        "datasets/rows.html" if again else "datasets/index.html",
        datasets=rows,
        start=start,
        per_page=_SHOWN,
        total=len(chosen),
        seen=now,
        coming=site.uploads.all(),
        shipped={name: about for name, (_, about) in SHIPPED.items() if name not in {one.name for one in found}},
        most=site.most_upload,
        project=project,
        projects=site.records.projects(),
    )


@router.post("")
@takes_long
def bring_in(site: At, request: Request, pairs: Pairs, said: Said) -> Response:
    ids = [value for key, value in pairs if key == "upload"]
    name = said.get("name", "").strip()
    d3ray.datasets.DatasetHandle(name, site.datasets)  # which refuses names that cannot be a folder's
    if any(name == other.name for other in site.watch.datasets()):
        raise ConfigError(f"There is a dataset {name!r} already: choose another name, or delete it first.")
    if not ids:
        raise ConfigError("No file has come in yet: choose one first.")
    settings = {key: value for key, value in decisions(said).items() if value is not None}
    files = site.uploads.take(ids, _files(site, name))
    images = [file for file in files if file.suffix.lower() == ".zip"]
    tables = [file for file in files if file not in images]
    if tables and images:
        settings["options"] = {**settings.get("options", {}), "images": str(images[0])}
    d3ray.datasets.ingest(tables or images, name, folder=site.datasets, **settings)
    site.watch.forget()
    if project := said.get("project"):
        site.records.put(project, "dataset", name)
    return site.to(f"/datasets/{name}")


@router.post("/shipped")
def shipped(site: At, said: Said) -> Response:
    name = said.get("name", "")
    if name not in SHIPPED:
        raise ConfigError("There is no such dataset to begin with.")
    d3ray.datasets.derive([SHIPPED[name][0]], name, folder=site.datasets)
    site.watch.forget()
    return site.to(f"/datasets/{name}")


@router.get("/{name}")
def show(site: At, request: Request, name: str, start: int = 0) -> Response:
    mine = site.watch.dataset(name)
    now = mine.status()
    told: dict[str, Any] = {"one": now, "settings": _said(mine), "table": mine.table()}
    told["projects"] = site.records.projects()
    if now.state == "READY":
        start = max(0, min(start, now.n_episodes - 1))
        told |= {"episodes": mine.episodes(start, _PAGE), "start": start, "per_page": _PAGE}
    part = "datasets/state.html" if "hx-request" in request.headers and now.state == "RUNNING" else "datasets/show.html"
    answer = site.page(request, part, **told)
    if "hx-request" in request.headers and now.state != "RUNNING":
        answer.headers["HX-Refresh"] = "true"  # what was waited for is there: the page is another
    return answer


@router.get("/{name}/inspected")
async def inspected(site: At, request: Request, name: str) -> Response:
    looks = await run_in_threadpool(site.watch.inspected, name)
    await ended(looks)
    return await run_in_threadpool(_inspected, site, request, name, looks)


def _inspected(site: Site, request: Request, name: str, looks: Future[Inspected]) -> Response:
    seen = looks.result()
    found = [(one, mending.training(one, name), mending.todo(one)) for one in seen.findings]
    return site.page(request, "datasets/inspected.html", one=site.watch.dataset(name).status(), seen=seen, findings=found)


@router.get("/{name}/episodes/{index}")
def episode(site: At, request: Request, name: str, index: int) -> Response:
    mine = site.watch.dataset(name)
    found = mine.episode(index)
    count = found.about.steps
    frames = [k * count // min(_FRAMES, count) for k in range(min(_FRAMES, count))] if found.has_images else []
    return site.page(request, "datasets/episode.html", one=mine.status(), episode=found, frames=frames)


@router.get("/{name}/episodes/{index}/steps.json")
def steps(site: At, name: str, index: int) -> Response:
    return JSONResponse(site.watch.dataset(name).episode(index).model_dump(mode="json"))


@router.get("/{name}/episodes/{index}/{step}.png")
def image(site: At, name: str, index: int, step: int) -> Response:
    content = site.watch.dataset(name).image(index, step)
    return Response(content, media_type="image/png")


@router.post("/{name}/again")
def again(site: At, name: str, said: Said) -> Response:
    mine = site.watch.dataset(name)
    decided = decisions(said)
    if "options" in decided:  # beside those that the form has no field for
        kept = {key: value for key, value in mine.settings().get("options", {}).items() if key != "ends"}
        decided["options"] = {**kept, **(decided["options"] or {})} or None
    mine.again(**decided)
    site.watch.forget()
    return site.to(f"/datasets/{name}")


@router.post("/{name}/cancel")
@takes_long
def cancel(site: At, request: Request, name: str) -> Response:
    site.watch.dataset(name).cancel()
    site.watch.forget()
    return site.to(f"/datasets/{name}")


@router.post("/{name}/split")
def split(site: At, name: str, said: Said) -> Response:
    mine = site.watch.dataset(name)
    share = numbers(said.get("share", "20"), "The share")
    share = share / 100 if isinstance(share, float) else 0.0
    if not 0 < share < 1:
        raise ConfigError("The share of episodes to split off is between 0 and 100 %.")
    for part in ("train", "test"):
        d3ray.datasets.derive([str(mine.folder)], f"{name}-{part}", folder=site.datasets, part=part, test_size=share)
    site.watch.forget()
    return site.to("/datasets")


@router.get("/{name}/delete")
@takes_long
def ask(site: At, request: Request, name: str) -> Response:
    mine = site.watch.dataset(name)
    mine.check_own()
    return site.page(request, "datasets/delete.html", one=mine.status(), users=users(site, str(mine.folder)))


@router.post("/{name}/delete")
@takes_long
def delete(site: At, request: Request, name: str, said: Said) -> Response:
    mine = site.watch.dataset(name)
    if said.get("typed", "").strip() != name:
        raise ConfigError(f"To delete it, type its name: {name}.")
    mine.delete()
    shutil.rmtree(_files(site, name), ignore_errors=True)
    site.records.take_out("dataset", name)
    site.watch.forget()
    return site.to("/datasets")


def decisions(said: dict[str, str]) -> dict[str, Any]:
    """Settings of an ingest that a form says; None for those that it has a field for and says nothing of. Raises ConfigError."""
    found: dict[str, Any] = {}
    if (limit := said.get("timeout_at", "").strip()) and not limit.isdecimal():
        raise ConfigError(f"The time limit is {limit!r}; it is a whole number of steps.")
    found["timeout_at"] = int(limit) if limit else None
    found["environment"] = environment_id(place) if (place := said.get("environment", "").strip()) else None
    found["action_scale"] = numbers(scale, "The factor of actions") if (scale := said.get("action_scale", "").strip()) else None
    found["discrete_action"] = _KINDS.get(said.get("kind", ""))
    found["actions"] = actions if (actions := said.get("actions")) in ("clip", "refuse") else None
    found["options"] = {"ends": "terminated"} if said.get("ends") == "terminated" else None
    roles = {key.removeprefix("column:"): role for key, role in said.items() if key.startswith("column:")}
    found["rename"] = d3ray.datasets.renames(roles) or None
    fields = {"discrete_action": "kind", "options": "ends"}
    return {name: value for name, value in found.items() if fields.get(name, name) in said or (name == "rename" and roles)}


def numbers(text: str, what: str) -> float | list[float]:
    """One number, or several. Raises ConfigError."""
    try:
        found = [float(part) for part in text.strip("[] ").replace(",", " ").split()]
    except ValueError:
        raise ConfigError(f"{what} is {text[:50]!r}; write a number, or one for each entry.") from None
    return found[0] if len(found) == 1 else found


def environment_id(text: str) -> str:
    """An id of gymnasium. Raises ConfigError: it names a module, which would be imported, or something else."""
    if not _ID.fullmatch(text):
        raise ConfigError(f"The environment is {text!r}; write the id of a registered one, as Pendulum-v1.")
    return text


def _said(mine: d3ray.datasets.DatasetHandle) -> dict[str, Any]:
    try:
        return mine.settings()
    except D3rayError:  # of one that was never made, by nobody who is known
        return {}


def users(site: Site, folder: str) -> list[str]:
    found: list[str] = []
    for one in d3ray.list(site.storage, address=site.address):
        try:
            settings = d3ray.open(one.name, storage=site.storage, address=site.address).settings()
        except D3rayError:
            continue
        if settings["config"].get("dataset") == folder:
            found.append(one.name)
    return found


def _files(site: Site, name: str) -> Path:
    return site.home / "sources" / name
