"""Policies that answer over HTTP within a server that is there: `uvicorn.run(d3ray.serving.app("models:/x@champion"))`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from d3ray.platform.service.local import local_service
from d3ray.platform.service.settings import ServiceSettings


def app(*sources: str, token: str | None = None, **settings: Any) -> FastAPI:
    """The application that `d3ray serve` has in every replica, in this process: to be run by a server, or mounted in another one.

    Args:
        sources: `models:/NAME@champion`, `models:/NAME/VERSION` or folders of policy packages.
        token: That clients show as `Authorization: Bearer TOKEN`; None: nobody has to, as behind a guard of your own.
        settings: Of the service, as `d3ray serve --help` has them: `explore={"name": "epsilon"}`, `log="FOLDER"`, …

    Raises:
        ConfigError: nothing is served, or settings do not suit a policy.
        StorageError: a policy or the log cannot be opened.
    """
    return local_service(ServiceSettings.checked({"sources": sources, **settings}), token=token).app
