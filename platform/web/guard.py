"""Who may ask: a browser that was let in, at a name of this server, from a page of this server; and what answers carry."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .sessions import OWNER, Role, Sessions

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
OF_REPORTS = (  # pages that stand alone, and do nothing
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, forms would come from Origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PRIVATE = "no-store"
SAFE = ("GET", "HEAD")
WAYS_IN = ("/login",)  # which whoever is not let in yet sees, beside the files of /static
ROLES: Mapping[tuple[str, str], Role] = {  # by method and path of the route
    ("GET", "/people"): "owner",
    ("POST", "/people"): "owner",
    ("HEAD", "/uploads/{id}"): "editor",
    ("GET", "/experiments/new"): "editor",
    ("GET", "/experiments/{name}/delete"): "editor",
    ("GET", "/datasets/{name}/delete"): "editor",
    ("POST", "/experiments/{name}/policy/act"): "viewer",
    ("POST", "/logout"): "viewer",
    ("POST", "/password"): "viewer",
}
_REFUSED: Mapping[Role, str] = {
    "editor": "You may look here, and change nothing: ask the owner of this page.",
    "owner": "This is the owner's alone: whoever started the page has a link that lets in as such.",
}
_FAULT = "This went wrong, by a fault of the page: whoever started it finds in its log what it was."
_FOREIGN = "This was asked for by a page of another server."
_NO_WAY_IN = "Open the address that `d3ray web` printed: it lets this browser in."


class Guard:
    """Stands before an application.

    The order is: the name by which the server is called, which a foreign page that had a name resolve to this machine gets wrong;
    then from where a change is asked for, which a forged form gets wrong; then the session. What a role may do the application
    knows, once it knows the route.

    Args:
        app: What is guarded.
        token: That the printed link has; whoever opens it gets a session of the owner's.
        sessions: Of those who were let in.
        hosts: Names, with their ports, by which this server may be called.
        base: Path below which a proxy shows the page; empty: none.
        accounts: Whether there is another way in than the link.
    """

    def __init__(
        self, app: ASGIApp, *, token: str, sessions: Sessions, hosts: Iterable[str], base: str = "", accounts: bool = False
    ) -> None:
        self._app, self._token, self._sessions, self._base, self._accounts = app, token, sessions, base, accounts
        self._hosts = {known for host in hosts for known in (host, *_by_default(host))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself, or lets the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        if self._base and scope["path"].startswith(f"{self._base}/"):  # a proxy may take the path off, or leave it
            scope = {**scope, "path": scope["path"].removeprefix(self._base)}

        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", _PRIVATE)
            await send(message)

        try:
            answer = self._refused(scope) or await self._admitted(scope)
            await (answer or self._app)(scope, receive, with_headers)
        except Exception:
            if not begun:
                await PlainTextResponse(_FAULT, 500, {"Connection": "close"})(scope, receive, with_headers)
            raise  # into the server's log, which closes the connection

    def _refused(self, scope: Scope) -> Response | None:
        headers = HTTPConnection(scope).headers
        if headers.get("host") not in self._hosts:
            return PlainTextResponse("This server is called by another name than its own.", 403)
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
        is_foreign = site not in ("same-origin", "none")
        if scope["method"] in SAFE:  # other pages may lead here, and put nothing into theirs
            return PlainTextResponse(_FOREIGN, 403) if is_foreign and headers.get("sec-fetch-dest") != "document" else None
        if is_foreign:
            return PlainTextResponse(_FOREIGN, 403)
        if ("sec-fetch-site" not in headers or origin is not None) and (origin or "").partition("://")[2] not in self._hosts:
            return PlainTextResponse("This does not come from a page of this server.", 403)
        return None

    async def _admitted(self, scope: Scope) -> Response | None:
        asked, path = HTTPConnection(scope), scope["path"]
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if "token" in query and hmac.compare_digest(query["token"].encode(), self._token.encode()):
            answer = RedirectResponse(f"{self._base}/{path.lstrip('/')}", 303)  # the token leaves the address bar, and its history
            self._sessions.give(answer, await run_in_threadpool(self._sessions.begin, OWNER.name), asked)
            return answer
        person = scope["person"] = self._sessions.person(asked)
        if person is not None or path in WAYS_IN or path.startswith("/static/"):
            return None
        login = f"{self._base}/login"
        if "hx-request" in asked.headers:  # a part of a page would show the whole of another one
            return PlainTextResponse(_NO_WAY_IN, 401, {"HX-Redirect": login})
        if self._accounts and scope["method"] in SAFE:
            return RedirectResponse(login, 303)
        return PlainTextResponse(_NO_WAY_IN, 401)


def _by_default(host: str) -> list[str]:
    """Return a host without its port if that is 80 or 443, else none."""
    name, _, port = host.rpartition(":")
    return [name] if port in ("80", "443") else []


async def check_role(request: Request) -> None:
    """Refuses what is not for whoever asks, before anything is read of what was sent. Raises HTTPException."""
    path, person = request.scope["route"].path, request.scope["person"]
    if path in WAYS_IN:
        return
    role = ROLES.get((request.method, path), "viewer" if request.method in SAFE else "editor")
    if not person.may_as(role):
        raise HTTPException(403, _REFUSED[role])
