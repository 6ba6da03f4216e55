"""Pages of policies: the best, what it does at an observation, how it is judged, files to take away; and how policies serve."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...data.errors import ConfigError
from ...data.storage.claims import scratch_names
from .. import api as d3ray
from . import queue
from .guard import OF_REPORTS
from .long_work import takes_long
from .site import At, Said, Site

_FORMATS: dict[str, tuple[Literal["onnx", "torchscript", "package"], str]] = {
    "onnx": ("onnx", ".onnx"),
    "torchscript": ("torchscript", ".pt"),
    "package": ("package", ""),
}

router = APIRouter()


def policy(site: Site, name: str, of: str) -> tuple[str, int | None]:
    """The policy of an experiment that a page names: `TRIAL:SEED`, or nothing for its best; where it lies, and its seed.

    Raises ConfigError: there is no such trial.
    """
    if not of:
        return str(site.watch.handle(name).folder), None
    trial, _, seed = of.rpartition(":")
    found = next((one for one in site.watch.handle(name).status().trials if one.identity == trial), None)
    if found is None or not seed.isdecimal():
        raise ConfigError(f"{name} has no policy {of[:80]!r}.", missing=True)
    return f"{site.watch.handle(name).folder}/trials/{found.identity}", int(seed)


@router.get("/experiments/{name}/policy")
@takes_long
def show(site: At, request: Request, name: str, of: str = "") -> Response:
    mine = site.watch.handle(name)
    found = mine.results()
    choices = [(f"{one.trial}:{one.seed}", each.label, one) for each in found.configurations for one in each.seeds]
    if not of and choices and all(one.score is None for _, _, one in choices):  # nothing was measured to choose by
        of = choices[0][0]
    source, seed = policy(site, name, of)
    about = d3ray.about(source, seed=seed, storage=site.storage)
    data = d3ray.judges(source, site.watch.datasets(), seed=seed, storage=site.storage)
    told: dict[str, Any] = {"name": name, "about": about, "choices": choices, "of": of, "results": found, "datasets": data}
    return site.page(request, "policies/show.html", **told)


@router.get("/experiments/{name}/policy/play")
async def play(site: At, request: Request, name: str, of: str = "") -> Response:
    """Where the page shows the episode, once it is there: why it is not is said in its place."""
    await _video(site, request, name, of)
    return site.page(request, "policies/played.html", name=name, of=of)


@router.get("/experiments/{name}/policy/video.gif")
async def video(site: At, request: Request, name: str, of: str = "") -> Response:
    return Response(await _video(site, request, name, of), media_type="image/gif")


async def _video(site: Site, request: Request, name: str, of: str) -> bytes:
    return await site.long_work.done(request, "video", (name, of), lambda: _played(site, name, of))


def _played(site: Site, name: str, of: str) -> bytes:
    source, seed = policy(site, name, of)
    now = site.watch.handle(name).status()
    return _recorded(source, seed, site.storage, (now.created, *((one.identity, one.step) for one in now.trials)))


@functools.lru_cache(maxsize=32)
def _recorded(source: str, seed: int | None, storage: str, as_of: tuple[Any, ...]) -> bytes:
    folder = Path(tempfile.mkdtemp(prefix=scratch_names("video")))
    try:
        made = d3ray.record(source, str(folder / "episode.gif"), seed=seed, storage=storage)
        return Path(made.file).read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@router.post("/experiments/{name}/policy/judge")
@takes_long
def judge(site: At, request: Request, name: str, said: Said) -> Response:
    data = site.watch.dataset(said.get("dataset", ""))
    steps = said.get("n_steps", "").strip()
    config: dict[str, Any] = {
        "policies": str(site.watch.handle(name).folder),
        "dataset": str(data.folder),
        "name": f"judge-{name}-by-{data.name}",
        "storage": site.storage,
        **({"n_steps": int(steps)} if steps.isdecimal() else {}),
    }
    return site.to(queue.begin(site, "judge", config, ""))


@router.post("/experiments/{name}/policy/promote")
@takes_long
def promote(site: At, request: Request, name: str, said: Said) -> Response:
    """Makes it the champion where it passes the gate, or gives the champion before it back."""
    if said.get("back"):
        found = d3ray.rollback(name, storage=site.storage)
    else:
        by: Literal["play", "estimate"] = "estimate" if said.get("by") == "estimate" else "play"
        found = d3ray.promote(name, by=by, storage=site.storage)
    return site.page(request, "policies/promoted.html", found=found)


@router.get("/experiments/{name}/policy/{format}")
@takes_long
def download(site: At, request: Request, name: str, format: str, of: str = "") -> Response:
    if format not in _FORMATS:
        raise ConfigError(f"There is no format {format!r}: onnx, torchscript or package.", missing=True)
    kind, ending = _FORMATS[format]
    source, seed = policy(site, name, of)
    folder = Path(tempfile.mkdtemp(prefix=scratch_names("export")))
    try:
        made = d3ray.export(source, str(folder / f"{name}{ending}"), format=kind, seed=seed, storage=site.storage)
        file = Path(made.target)
        if file.is_dir():
            file = Path(shutil.make_archive(str(folder / f"{name}-package"), "zip", file))
        headers = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(file.name)}"}
        return Response(file.read_bytes(), media_type="application/octet-stream", headers=headers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@router.post("/experiments/{name}/policy/act")
@takes_long
def act(site: At, request: Request, name: str, said: Said) -> Response:
    observation = typed(said.get("observation", ""))
    source, seed = policy(site, name, said.get("of", ""))
    action = d3ray.act(source, observation, seed=seed, storage=site.storage)
    return site.page(request, "policies/action.html", action=action)


def typed(text: str) -> Any:
    """An observation as somebody types it: numbers with commas or spaces between, or JSON. Raises ConfigError."""
    text = text.strip()
    try:
        return json.loads(text) if text.startswith(("[", "{")) else [float(part) for part in text.replace(",", " ").split()]
    except (ValueError, RecursionError):
        raise ConfigError("An observation is numbers with commas between them, or JSON.") from None


@router.get("/service")
@takes_long
def services(site: At, request: Request) -> Response:
    looks = [(log, d3ray.watched(log)) for log in site.services]
    return site.page(request, "service/index.html", looks=looks, loops=d3ray.loops(site.storage))


@router.get("/service/{index}/page")
@takes_long
def service_page(site: At, request: Request, index: int) -> Response:
    """The page that the watch wrote, which brings its own style and forbids all else."""
    content = d3ray.watch_page(site.services[index]) if 0 <= index < len(site.services) else None
    if content is None:
        raise ConfigError(f"There is no look at a service {index}.", missing=True)
    return Response(content, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": OF_REPORTS})
