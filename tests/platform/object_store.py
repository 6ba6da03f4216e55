"""An S3 server on loopback, in memory, in a thread: moto behind a lock, since it looks at what is there and then writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.request import Request, urlopen

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "no secret", "AWS_EC2_METADATA_DISABLED": "true"}


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""


class ObjectStore:
    """A server with one bucket.

    Attributes:
        address: As clients of AWS take it under AWS_ENDPOINT_URL; it has AWS's other services too.
        requests: What it was asked: method, path, and the range of bytes.
        delay: Seconds that each answer takes longer, as over a network; many may wait side by side.
        busy: Seconds in which it was working on one.
    """

    def __init__(self) -> None:
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._lock, self.requests, self.delay = threading.Lock(), list[tuple[str, str, str]](), 0.0
        self.busy = 0.0
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        urlopen(Request(f"{self.address}/bucket", method="PUT")).close()

    def _answer(self, environ: Any, start_response: Any) -> Any:
        time.sleep(self.delay)
        with self._lock:
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE", "")))
            begun = time.monotonic()
            answer = list(self._app(environ, start_response))
            self.busy += time.monotonic() - begun
            return answer

    def uri(self, path: str) -> str:
        """Of something in the bucket."""
        return f"s3://bucket/{path}?{self.options}"

    @property
    def options(self) -> str:
        """What the URI of a bucket of this server ends in."""
        return f"endpoint_override=127.0.0.1:{self._server.server_port}&scheme=http&region=us-east-1"

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server, and its keys in this process's environment."""
    with mock.patch.dict(os.environ, KEYS):
        store = ObjectStore()
        try:
            yield store
        finally:
            store.close()
