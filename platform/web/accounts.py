"""Pages of accounts: coming in, going out, and who there is."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...data.errors import ConfigError
from .passwords import LaterError
from .people import People
from .site import At, Said, Site

router = APIRouter()


def _people(site: Site) -> People:
    if site.people is None:
        raise ConfigError("This page has no accounts: start it with --accounts.")
    return site.people


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


@router.get("/login")
def login(site: At, request: Request) -> Response:
    return site.page(request, "people/login.html", wrong="")


@router.post("/login")
async def enter(site: At, request: Request, said: Said) -> Response:
    people, address = _people(site), _address(request)

    def come_in() -> str | None:
        token = people.enter(said.get("name", ""), said.get("password", ""), address)
        if token is not None:
            site.sessions.end(request)  # of whoever used this browser before
        return token

    return await _let_in(site, request, come_in, "people/login.html", "The name or the password is wrong.")


@router.get("/password")
def password(site: At, request: Request) -> Response:
    _people(site)
    return site.page(request, "people/password.html", wrong="")


@router.post("/password")
async def change_password(site: At, request: Request, said: Said) -> Response:
    """Everybody's own: other browsers in which this person had come in have to come in anew."""
    people, who, address = _people(site), request.scope["person"], _address(request)

    def change() -> str | None:
        return people.change(who, said.get("password", ""), said.get("new", ""), address)

    return await _let_in(site, request, change, "people/password.html", "The password that you have had is another.")


async def _let_in(site: Site, request: Request, work: Callable[[], str | None], again: str, wrong: str) -> Response:
    """Gives the session of which the work makes the token, or the same form with what is wrong."""
    try:
        token = await _people(site).passwords.work(_address(request), work)
    except LaterError as error:
        answer = site.page(request, again, error.status, wrong=str(error))
        answer.headers.update(error.headers)
        return answer
    if token is None:
        return site.page(request, again, 401, wrong=wrong)
    answer = site.to("/")
    site.sessions.give(answer, token, request)
    return answer


@router.post("/logout")
def leave(site: At, request: Request) -> Response:
    answer = site.to("/login")
    site.sessions.end(request)
    site.sessions.take(answer)
    return answer


@router.get("/people")
def everybody(site: At, request: Request) -> Response:
    return site.page(request, "people/index.html", people=_people(site).all())


@router.post("/people")
async def change(site: At, request: Request, said: Said) -> Response:
    """Makes or changes an account, or removes one."""
    people, name = _people(site), said.get("name", "").strip()
    if said.get("do") == "remove":
        people.remove(name)
    else:
        password, role = said.get("password", ""), said.get("role", "")
        await people.passwords.work(_address(request), lambda: people.add(name, password, role))
    return site.to("/people")
