"""Who may ask: a browser that was given the token, at a name of this server, from a page of this server; and what answers carry."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .people import OWNER, People

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, forms would come from Origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PRIVATE = "no-store"
_DAY = 86400
_SAFE = ("GET", "HEAD")
_ANYBODY = ("/policy/act", "/experiments/check", "/logout")  # what is sent, and changes nothing of others


class Guard:
    """Stands before an application.

    The order is: the name by which the server is called, which a foreign page that had a name resolve to this machine gets wrong;
    then from where a change is asked for, which a forged form gets wrong; then the token.

    Args:
        app: What is guarded.
        token: That the printed link has; it becomes a cookie.
        hosts: Names, with their ports, by which this server may be called.
        port: Of the server; cookies know no ports, so its own is in the cookie's name.
        base: Path below which a proxy shows the page; empty: none.
        people: Who may come in beside whoever has the token; None: nobody.
    """

    def __init__(
        self, app: ASGIApp, *, token: str, hosts: Iterable[str], port: int, base: str = "", people: People | None = None
    ) -> None:
        self._app, self._token, self._base, self._people = app, token, base, people
        self._hosts, self._cookie = frozenset(hosts), f"d3ray_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself, or lets the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        if self._base and scope["path"].startswith(f"{self._base}/"):  # a proxy may take the path off, or leave it
            scope = {**scope, "path": scope["path"].removeprefix(self._base)}

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", _PRIVATE)
            await send(message)

        answer = self._refused(scope) or self._admitted(scope)
        await (answer or self._app)(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("This server is called by another name than its own.", 403)
        if scope["method"] in _SAFE:
            return None
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site not in ("same-origin", "none"):
            return PlainTextResponse("This was asked for by a page of another server.", 403)
        if (site is None or origin is not None) and urlsplit(origin or "").netloc not in self._hosts:
            return PlainTextResponse("This does not come from a page of this server.", 403)
        return None

    def _admitted(self, scope: Scope) -> Response | None:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if "token" in query and self._is_token(query["token"]):
            answer = RedirectResponse(self._base + scope["path"], 303)  # the token leaves the address bar, and its history
            path = self._base or "/"
            answer.set_cookie(self._cookie, self._token, max_age=30 * _DAY, httponly=True, samesite="strict", path=path)
            return answer
        cookies, path = cookie_parser(Headers(scope=scope).get("cookie", "")), scope["path"]
        person = OWNER if self._is_token(cookies.get(self._cookie, "")) else None
        if person is None and self._people is not None:
            person = self._people.of(cookies.get(f"{self._cookie}_session", ""))
        scope["person"] = person
        if person is None and self._people is not None and (path == "/login" or path.startswith("/static/")):
            return None
        if person is None and self._people is not None and scope["method"] in _SAFE:
            return RedirectResponse(f"{self._base}/login", 303)
        if person is None:
            return PlainTextResponse("Open the address that `d3ray web` printed: it lets this browser in.", 401)
        if scope["method"] not in _SAFE and not person.may_change and not path.endswith(_ANYBODY):
            return PlainTextResponse("You may look here, and change nothing: ask the owner of this page.", 403)
        return None

    def _is_token(self, said: str) -> bool:
        return hmac.compare_digest(said.encode(), self._token.encode())
