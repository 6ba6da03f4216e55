"""What takes seconds or minutes: few threads of its own do each kind of it, so that nobody who only looks waits for it."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from fastapi import HTTPException, Request

AT_ONCE = 2  # of a kind that are done
EACH = 8  # of a kind that a person at one address has asked for and not got yet
MOST = 40  # of a kind that everybody has
_LATER = {"Retry-After": "5"}

T = TypeVar("T")
P = ParamSpec("P")


class LongWork:
    """That of a page. What is asked for while it is being done is not done again: whoever asks gets what comes of it."""

    def __init__(self) -> None:
        self._threads = defaultdict[str, anyio.CapacityLimiter](lambda: anyio.CapacityLimiter(AT_ONCE))
        self._being_done: dict[tuple[str, Hashable], asyncio.Task[Any]] = {}
        self._asked = Counter[tuple[str, str]]()

    async def done(self, request: Request, kind: str, what: Hashable, work: Callable[[], T]) -> T:
        """Return the result of `work`. Raises HTTPException: too many requests by this client, or in total.

        Args:
            request: Who asks.
            kind: Of work, for which there are threads and limits.
            what: By which the same work is known again.
            work: Done in a thread.
        """
        task = self._being_done.get((kind, what))
        if task is None:
            who = f"{request.scope['person'].name} {request.client.host if request.client else ''}"
            if self._asked[who, kind] >= EACH:
                raise HTTPException(429, f"You wait for {EACH} of these already: ask again once one is there.", _LATER)
            if sum(1 for each, _ in self._being_done if each == kind) >= MOST:
                raise HTTPException(429, f"{MOST} of these are being waited for already: ask again in a while.", _LATER)
            task = asyncio.create_task(anyio.to_thread.run_sync(work, limiter=self._threads[kind]))
            self._being_done[kind, what] = task
            self._asked[who, kind] += 1
            task.add_done_callback(lambda _: self._end(who, kind, what))
        return await asyncio.shield(task)  # others may wait for it too

    def _end(self, who: str, kind: str, what: Hashable) -> None:
        del self._being_done[kind, what]
        self._asked[who, kind] -= 1


def takes_long(answer: Callable[P, T]) -> Callable[P, Any]:
    """A route's function, which has a `request`, as long work: the same requests of a person are answered once."""

    @functools.wraps(answer)
    async def later(*args: P.args, **kwargs: P.kwargs) -> T:
        request: Any = kwargs["request"]
        said = {name: value for name, value in kwargs.items() if name not in ("site", "request")}
        what = (request.scope["person"].name, request.url.query, repr(said))
        kind = f"{answer.__module__}.{answer.__name__}"
        return await request.app.state.site.long_work.done(request, kind, what, lambda: answer(*args, **kwargs))

    return later
