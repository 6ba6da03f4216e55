"""Pages of accounts: coming in, going out, and who there is."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...data.errors import ConfigError
from .people import SESSION_SECONDS, People
from .site import At, Said, Site

router = APIRouter()


def _people(site: Site) -> People:
    if site.people is None:
        raise ConfigError("This page has no accounts: start it with --accounts.")
    return site.people


@router.get("/login")
def login(site: At, request: Request) -> Response:
    return site.page(request, "people/login.html", wrong="")


@router.post("/login")
def enter(site: At, request: Request, said: Said) -> Response:
    people = _people(site)
    try:
        token = people.enter(said.get("name", ""), said.get("password", ""))
        wrong = "" if token else "The name or the password is wrong."
    except ConfigError as error:
        token, wrong = None, str(error)
    if token is None:
        return site.page(request, "people/login.html", 401, wrong=wrong)
    answer = site.to("/")
    secure = request.url.scheme == "https"
    answer.set_cookie(
        site.session_cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", path=site.base or "/", secure=secure
    )
    return answer


@router.post("/logout")
def leave(site: At, request: Request) -> Response:
    if site.people is not None:
        site.people.leave(request.cookies.get(site.session_cookie, ""))
    answer = site.to("/login")
    answer.delete_cookie(site.session_cookie, path=site.base or "/")
    return answer


@router.get("/people")
def everybody(site: At, request: Request) -> Response:
    return site.page(request, "people/index.html", people=_people(site).all())


@router.post("/people")
def change(site: At, request: Request, said: Said) -> Response:
    """Makes or changes an account, or removes one; the owner's to do."""
    people = _people(site)
    if request.scope["person"].role != "owner":
        raise ConfigError("Accounts are the owner's to make: whoever started the page has a link that lets in as such.")
    if said.get("do") == "remove":
        people.remove(said.get("name", ""))
    else:
        people.add(said.get("name", "").strip(), said.get("password", ""), said.get("role", ""))
    return site.to("/people")
