"""HTML pages that need nothing but themselves: style and figures are inside, and a content security policy forbids all else."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from ..storage.folders import Folder
from ..storage.targets import ending

PAGE = "report.html"


def render(template: str, **values: Any) -> str:
    """A page of a template, named by its path in `platform`. Everything that is no Markup is escaped."""
    style = _read("report/page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _templates().get_template(template).render(style=Markup(style), style_hash=digest, **values)


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def pictures_of(figures: Mapping[str, Mapping[str, bytes]]) -> dict[str, dict[str, str]]:
    """Figures by name and theme, as addresses that hold them."""
    return {name: {theme: data_uri(png) for theme, png in themes.items()} for name, themes in figures.items()}


def write_page(
    own: Folder, out: str | None, made: Mapping[str, bytes], may_be: Iterable[str]
) -> tuple[Folder, str, tuple[str, ...]]:
    """Writes the files of a report: its folder, the page's address, and those of the others. Raises StorageError.

    `out` is a folder, or the page's own name when it ends with .html; None: `own`. Those of an earlier report that there `may_be`,
    and are not `made` now, are deleted: they would be taken for its own.
    """
    folder, page = (own if out is None else Folder(out)), PAGE
    if out is not None and ending(out) == ".html":
        folder, page = Folder.of_file(out)
    for name, content in made.items():  # the page last: it is what a reader waits for
        folder.write(page if name == PAGE else name, content)
    folder.delete(set(may_be) - set(made))
    return folder, folder.address(page), tuple(folder.address(name) for name in made if name != PAGE)


@functools.cache
def _templates() -> Templates:
    made = Templates(loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"code": _code, "breakable": _breakable}
    return made


def _read(name: str) -> str:
    return files("d3ray.platform").joinpath(name).read_text("utf-8")


def _breakable(text: str) -> Markup:
    """A name that may be broken between its words, where it would make a column wide: PLAS-With-Perturbation."""
    return Markup("<wbr>").join(re.split(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=_)", text))


def _code(text: str) -> Markup:
    """Text with `code` between backticks."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if k % 2 else escape(part) for k, part in enumerate(parts))
