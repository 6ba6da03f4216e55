"""Experiments that wait for room: those that are asked for while as many run as may."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ...data.errors import ConfigError, D3rayError
from .. import api as d3ray
from .records import Waiting

if TYPE_CHECKING:
    from ..record.jobs import JobName
    from .site import Site

_LOOK_SECONDS = 2.0


def begin(site: Site, job: JobName, config: dict[str, Any], project: str) -> str:
    """Begins an experiment, or lets it wait; the page that shows it.

    Raises ConfigError: a setting cannot be used, or there is such an experiment, or one waits under its name.
    """
    name = d3ray.check(config, job=job).name
    if any(one.name == name and not one.reason for one in site.records.waiting()):
        raise ConfigError(f"An experiment {name!r} waits already: say another name.")
    if any(one.name == name for one in d3ray.list(site.storage, address=site.address)):
        raise ConfigError(f"There is an experiment {name!r} already: say another name, or delete it first.")
    one = Waiting(name, job, config, project, time.time())
    if not _has_room(site):
        site.records.wait(one)
        return "/experiments"
    _start(site, one)
    return f"/experiments/{name}"


def step(site: Site) -> None:
    """Begins those that there is room for. What cannot begin stays, and says why."""
    for one in site.records.waiting():
        if one.reason:
            continue
        if not _has_room(site):
            return
        try:
            _start(site, one)  # it leaves the queue once it has begun, so that a kill in between loses nothing
        except D3rayError as error:
            site.records.wait(replace(one, reason=str(error)))


async def run(site: Site) -> None:
    """Steps for ever."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if site.records.waiting():
            with suppress(D3rayError):  # the storage or the cluster is away: they are asked again
                await asyncio.to_thread(step, site)


def _has_room(site: Site) -> bool:
    return sum(one.runs for one in d3ray.list(site.storage, address=site.address)) < site.most_running


def _start(site: Site, one: Waiting) -> None:
    d3ray.submit(one.config, job=cast("JobName", one.job), address=site.address)
    site.watch.forget(one.name)
    site.records.leave(one.name)
    if one.project in site.records.projects():  # it may have been deleted meanwhile
        site.records.put(one.project, "experiment", one.name)
