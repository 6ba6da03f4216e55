"""The queue as the page steps it."""

from __future__ import annotations

import threading
import time

import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.web import queue
from d3ray.platform.web.records import Waiting
from d3ray.platform.web.site import Site

from .site_server import Served


def test_it_goes_on_where_the_storage_was_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, asked = threading.Event(), list[Site]()

    def has_room(site: Site) -> bool:
        asked.append(site)
        if len(asked) == 1:
            raise StorageError("The storage does not answer.")
        return True

    def start(site: Site, one: Waiting) -> None:
        site.records.leave(one.name)
        begun.set()

    monkeypatch.setattr(queue, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(queue, "_has_room", has_room)
    monkeypatch.setattr(queue, "_start", start)
    served.site.records.wait(Waiting("waits", "train", {}, "", time.time()))
    assert begun.wait(20)
