"""Where things lie on the server is its owner's to know: everybody else sees the last part of each path alone.

This looks at whole answers, so that no sentence, log or config has to be thought of where it is made.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PART = r"[^\s/\\'\"`<>|()\[\]{};,:]"
_PATH = re.compile(
    rf"(?:\b(?:file|sqlite):/{{2,3}}(?=/)|(?<![\w./~)\]])|(?<=[)\]])(?=/{_PART}+/{_PART}))"  # no fraction, no `and/or`, no address
    rf"/(?=[\w.~@$+-])(?:{_PART}+/+(?={_PART}))*({_PART}+)/*"
)
_OF_HTML = re.compile(r"<[^>]*>|[^<]+")
_PROSE = re.compile(r'(?<=\s)((?:title|value|placeholder|alt|aria-label|data-start|data-name)=")([^"]*)')
_OF_JSON = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')  # with what follows a key
_MAY_BE = re.compile(r"(?<![\w.~])/|\\(?:u.{4}|.)/")  # most of what is long holds none
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Places:
    """Stands between the guard and the application.

    `known` are folders and addresses that may have blanks in them, or be of another kind than a path; the cluster's `address` is
    nobody else's to know either.
    """

    def __init__(self, app: ASGIApp, known: Iterable[str], address: str | None = None) -> None:
        self._app, self._address = app, address
        longest = sorted({place.rstrip("/") for place in known} - {""}, key=len, reverse=True)
        self._known = re.compile("|".join(rf"(?<![\w./~]){re.escape(place)}(?:/+|(?![\w+-]))" for place in longest) or "(?!)")
        self._last = {place: place.rpartition("/")[2] for place in longest}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as the application does, without places."""
        person = scope.get("person")
        if scope["type"] != "http" or scope["path"].startswith("/static/") or (person is not None and person.role == "owner"):
            await self._app(scope, receive, send)
            return
        start, body, change = dict[str, Any](), bytearray(), None

        async def without(message: Message) -> None:
            nonlocal start, change
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "").partition(";")[0]
                change = self._changes(kind)
                if change is not None and kind != "text/event-stream":
                    start = message  # its length is known once the whole body is
                    return
            elif change is not None and start:
                body.extend(message.get("body", b""))
                if message.get("more_body"):
                    return
                told = await run_in_threadpool(_in_text, bytes(body), change)
                if body:
                    MutableHeaders(raw=start["headers"])["Content-Length"] = str(len(told))
                await send(start)
                message = {**message, "body": told}
            elif change is not None:
                message = {**message, "body": await run_in_threadpool(_in_text, message.get("body", b""), change)}
            await send(message)

        await self._app(scope, receive, without)

    def _changes(self, kind: str) -> Callable[[str], str] | None:
        if kind == "text/html":
            return self.of_html
        if kind in ("application/json", "text/event-stream"):
            return self.of_json
        return self.of if kind.startswith("text/") else None

    def of(self, text: str) -> str:
        """Prose without places."""
        if "/" not in text:
            return text
        text = _COLOURS.sub("", text)
        if self._address:
            text = text.replace(self._address, "of this page")
        return _PATH.sub(r"\1", self._known.sub(lambda found: self._last.get(found[0], ""), text))

    def of_html(self, text: str) -> str:
        """A page without places: in its text, and in attributes that people read."""

        def prose(text: str) -> str:
            plain = html.unescape(text)
            told = self.of(plain)
            return text if told == plain else html.escape(told)

        def part(found: re.Match[str]) -> str:
            if found[0].startswith("<"):
                return _PROSE.sub(lambda one: one[1] + prose(one[2]), found[0])
            return prose(found[0])

        return _OF_HTML.sub(part, text)

    def of_json(self, text: str) -> str:
        """JSON, or events that hold some, without places in its strings."""
        if not _MAY_BE.search(text):
            return text

        def string(found: re.Match[str]) -> str:
            if found[1] or "/" not in found[0]:  # keys are names
                return found[0]
            plain = json.loads(found[0])
            told = self.of(plain)
            return found[0] if told == plain else json.dumps(told)

        return _OF_JSON.sub(string, text)


def _in_text(body: bytes, change: Callable[[str], str]) -> bytes:
    return change(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
