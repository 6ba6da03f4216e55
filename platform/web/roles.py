"""What a role may do: whoever is let in looks, and an editor changes, but for the routes that are named here."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException, Request

from .sessions import Role

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


async def check_role(request: Request) -> None:
    """Refuses what is not for whoever asks, before anything is read of what was sent. Raises HTTPException."""
    path, person = request.scope["route"].path, request.scope["person"]
    if path in WAYS_IN:
        return
    role = ROLES.get((request.method, path), "viewer" if request.method in SAFE else "editor")
    if not person.may_as(role):
        raise HTTPException(403, _REFUSED[role])
