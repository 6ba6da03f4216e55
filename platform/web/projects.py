"""Projects: names under which datasets and experiments stand together."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import Response

from ...data.errors import ConfigError
from .site import At, Said

router = APIRouter(prefix="/projects")
_NAME = re.compile(r"[\w][\w .-]{0,60}")
_KINDS = {"dataset": "datasets", "experiment": "experiments"}


@router.post("")
def change(site: At, said: Said) -> Response:
    name, kind, member = said.get("project", "").strip(), said.get("kind", ""), said.get("member", "")
    if kind not in _KINDS:
        raise ConfigError("A project holds datasets and experiments.")
    if said.get("do") == "delete":
        site.records.delete_project(name)
        return site.to(f"/{_KINDS[kind]}")
    if member:
        site.records.take_out(kind, member)
    if name:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"A project cannot be called {name[:70]!r}: letters, digits, spaces, dots and dashes, 61 at most.")
        site.records.add_project(name)
    if name and member:
        site.records.put(name, kind, member)
    return site.to(f"/{_KINDS[kind]}/{member}" if member else f"/{_KINDS[kind]}?{urlencode({'project': name})}")
