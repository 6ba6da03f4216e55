"""The server: uvicorn, with limits of time that it does not have itself."""

from __future__ import annotations

import socket
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...data.errors import StorageError

HEAD_SECONDS = 10.0  # within which the head of a request has to be here
BODY_SECONDS = 120.0  # within which its body has: one chunk of a file on a slow line
STOP_SECONDS = 3  # that open streams get when the server ends
MOST_CONNECTIONS = 500
_LOOK_SECONDS = 1.0


class Punctual(H11Protocol):
    """A connection that is closed where a request does not come in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._seen: tuple[object, ...] = ()
        self._since = self.loop.time()
        self._look_again = self.loop.call_later(_LOOK_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_again.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle: Any = self.cycle  # none at first, whatever its type says
        answering = cycle is not None and not cycle.response_complete
        state, now = self.conn.their_state, self.loop.time()
        if (cycle, state) != self._seen:
            self._seen, self._since = (cycle, state), now
        limit = BODY_SECONDS if state is h11.SEND_BODY else HEAD_SECONDS
        waits = state is h11.SEND_BODY or (state is h11.IDLE and not answering)
        if waits and now - self._since > limit:
            self.transport.close()
        else:
            self._look_again = self.loop.call_later(_LOOK_SECONDS, self._look)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens, so that whoever opens the page at once waits and is not refused.

    It names its protocol: asyncio sends small answers at once on those connections alone, and others wait 40 ms for the browser's
    acknowledgement of the head.

    Raises StorageError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise StorageError(f"{host}:{port} cannot be had ({error.strerror}): say another port.") from None
    return listener


def server(app: FastAPI, host: str, port: int, *, proxies: str | None = None) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=Punctual,
            ws="none",
            access_log=False,  # it would print the token
            log_level="warning",
            server_header=False,
            date_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=STOP_SECONDS,
            timeout_keep_alive=30,
            proxy_headers=proxies is not None,
            forwarded_allow_ips=proxies,
        )
    )
