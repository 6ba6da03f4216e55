"""Pages of accounts: coming in, going out, and who there is."""

from __future__ import annotations

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

    try:
        token = await people.passwords.work(address, come_in)
    except LaterError as error:
        answer = site.page(request, "people/login.html", error.status, wrong=str(error))
        answer.headers.update(error.headers)
        return answer
    if token is None:
        return site.page(request, "people/login.html", 401, wrong="The name or the password is wrong.")
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
