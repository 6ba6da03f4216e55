"""HTML pages that need nothing but themselves: style and figures are inside, and a content security policy forbids all else."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FunctionLoader, StrictUndefined
from markupsafe import Markup, escape


def render(template: str, **values: Any) -> str:
    """A page of a template, named by its path in `platform`. Everything that is no Markup is escaped."""
    style = _read("report/page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _templates().get_template(template).render(style=Markup(style), style_hash=digest, **values)


def data_uri(png: bytes) -> str:
    """A picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


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
