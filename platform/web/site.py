"""What every page knows: where things are, who is looked after, how a page is made."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.templating import Jinja2Templates
from markupsafe import Markup

from ...data.errors import ConfigError, D3rayError
from .. import api as d3ray
from ..words import count, level_name, size_text, time_text
from .long_work import LongWork
from .people import People
from .records import Records
from .sessions import Sessions
from .uploads import Uploads
from .watching import Watch

_HERE = Path(__file__).parent
_MOST_FORM = 1 << 20  # bytes
_MOST_FIELDS = 1000


@dataclass(frozen=True)
class Site:
    """The page's data locations and settings."""

    home: Path  # folder of the page's own: records, uploads, files that became datasets
    datasets: str  # folder of datasets
    storage: str  # folder or URI of all results
    beside: str | None = None  # A further folder whose datasets are shown; None: none
    services: Sequence[str] = ()  # logs of services that are shown
    address: str | None = None  # of the Ray cluster that runs experiments; None: this machine
    host: str = "127.0.0.1"
    port: int = 8501  # where it listens
    hosts: Sequence[str] = ()  # further names by which it may be called, with their ports
    base: str = ""  # path below which a proxy shows it
    most_upload: int = 20 << 30  # bytes of an uploaded file
    most_running: int = 8  # experiments that may run at once
    accounts: bool = False  # whether people have names, passwords and roles
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))  # that lets a browser in, as the owner

    @cached_property
    def records(self) -> Records:
        return Records(self.home / "page.sqlite")

    @cached_property
    def uploads(self) -> Uploads:
        return Uploads(self.home / "uploads", self.records, self.most_upload)

    @cached_property
    def people(self) -> People | None:
        """Who may come in by name. Raises ConfigError: argon2 is not installed."""
        return People(self.records, self.sessions) if self.accounts else None

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self.records, self.token, f"d3ray_{self.port}", self.base or "/")

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.storage, self.address, self.datasets, self.beside)

    @cached_property
    def long_work(self) -> LongWork:
        return LongWork()

    @property
    def link(self) -> str:
        return f"http://{self.host}:{self.port}{self.base}/?token={self.token}"

    @cached_property
    def pages(self) -> Jinja2Templates:
        made = Jinja2Templates(_HERE / "templates")
        env: Any = made.env  # whose types are those of what it has at first
        env.globals.update(base=self.base, cluster=self.address)
        env.filters.update(
            {
                "here": self.here,
                "place": self._place,
                "number": number,
                "size_text": size_text,
                "time_text": time_text,
                "plural": count,
                "code": code,
                "caution": d3ray.caution,
                "level_name": level_name,
            }
        )
        env.trim_blocks = env.lstrip_blocks = True
        return made

    def here(self, sentence: str) -> str:
        """A sentence without the folders in which this machine keeps what it speaks of."""
        for folder in (self.home / "sources", self.home, Path(self.datasets)):
            sentence = re.sub(rf"{re.escape(str(folder))}/([^/\s]+/)?", "" if folder.name == "sources" else r"\1", sentence)
        with suppress(D3rayError, OSError, ValueError):  # which may be what the sentence is about
            for one in self.watch.datasets() if "/" in sentence else ():
                if one.elsewhere:
                    sentence = re.sub(rf"{re.escape(one.folder)}(?![\w+-])", one.name, sentence)
        return sentence

    def _place(self, folder: str) -> str:
        """Where a dataset lies that is not the page's own: below the working folder, where it is."""
        place, beside = Path(folder), Path(self.beside or "/")
        return str(place.relative_to(beside)) if self.beside and place.is_relative_to(beside) else folder

    def page(self, request: Request, template: str, /, status: int = 200, **told: Any) -> HTMLResponse:
        told |= {"person": request.scope.get("person"), "has_accounts": self.accounts}
        return self.pages.TemplateResponse(request, template, told, status_code=status)

    def to(self, path: str) -> RedirectResponse:
        """Sends the browser to another page after a change."""
        return RedirectResponse(self.base + path, 303)


def number(value: float | None) -> str:
    """Four digits; nothing for none."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    if value == 0:
        return "0"
    if isinstance(value, int) or (abs(value) >= 10_000 and abs(value) < 1e9):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def code(text: str) -> Markup:
    """A sentence in which `names` are marked as such."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if k % 2 else part for k, part in enumerate(parts))


def as_cell(value: Any) -> Any:
    """A cell of a CSV: text that a spreadsheet would take for a formula begins with an apostrophe; numbers are as they are."""
    if isinstance(value, int | float) or value is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


async def form(request: Request) -> list[tuple[str, str]]:
    """Read a form's fields in order. Raises ConfigError: it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            raise ConfigError("This form holds more than a form of this server does.")
    pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    return [(name, value.replace("\r\n", "\n")) for name, value in pairs]


async def _of(request: Request) -> Site:
    return request.app.state.site


At = Annotated[Site, Depends(_of)]
Pairs = Annotated[list[tuple[str, str]], Depends(form)]  # of what a form says, in its order; names may come again


async def _by_name(pairs: Pairs) -> dict[str, str]:
    return dict(pairs)


Said = Annotated[dict[str, str], Depends(_by_name)]  # the last of each name
