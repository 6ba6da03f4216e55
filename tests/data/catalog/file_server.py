"""A web server on loopback that gives files and misbehaves as it is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass
class Fault:
    """What goes wrong in one request: it is answered with `status`, or so many bytes are sent `before` it is cut or stalls."""

    kind: str  # "status", "cut", "stall", "drop" (no answer at all)
    before: int = 0
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Served:
    """A file of the server. `faults` are used up, one a request."""

    content: bytes
    etag: str = '"1"'
    modified: str = ""
    ranges: bool = True
    heeds_if_range: bool = True
    announces_length: bool = True
    kind: str = "application/octet-stream"
    faults: list[Fault] = field(default_factory=list[Fault])
    pause: float = 0.0  # seconds before each piece of 64 KiB


@dataclass(frozen=True)
class Seen:
    """A request, and how many bytes of content went out for it."""

    path: str
    headers: dict[str, str]
    sent: list[int]


class FileServer:
    """Serves `files` by path while its context lasts; `seen` has the requests."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.redirects: dict[str, str] = {}
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request."""
        seen = Seen(handler.path, dict(handler.headers), [0])
        self.seen.append(seen)
        path = handler.path.removeprefix("http://elsewhere.invalid")  # as a proxy is asked
        if path in self.redirects:
            return _say(handler, 302, {"Location": self.redirects[path], "Content-Length": "0"})
        file = self.files.get(path)
        if file is None:
            return _say(handler, 404, {"Content-Length": "0"})
        fault = file.faults.pop(0) if file.faults else None
        if fault is not None and fault.kind == "status":
            return _say(handler, fault.status, {"Content-Length": "0", **fault.headers})
        handler.close_connection = True
        if fault is not None and fault.kind == "drop":
            return None
        start, status = self._start(handler, file), 200
        headers = {"ETag": file.etag, "Last-Modified": file.modified, "Content-Type": file.kind}
        if start is not None and start >= len(file.content):
            return _say(handler, 416, {"Content-Length": "0", "Content-Range": f"bytes */{len(file.content)}"})
        if start is not None:
            status, headers["Content-Range"] = 206, f"bytes {start}-{len(file.content) - 1}/{len(file.content)}"
        body = file.content[start or 0 :]
        if file.announces_length:
            headers["Content-Length"] = str(len(body))
        _say(handler, status, {name: value for name, value in headers.items() if value})
        self._send(handler, body[: fault.before] if fault else body, file.pause, seen)
        if fault is not None and fault.kind == "stall":
            self.closing.wait(30)
        return None

    def _start(self, handler: BaseHTTPRequestHandler, file: Served) -> int | None:
        asked = handler.headers.get("Range")
        if not asked or not file.ranges:
            return None
        version = handler.headers.get("If-Range")
        if version and file.heeds_if_range and version not in (file.etag, file.modified):
            return None
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes, pause: float, seen: Seen) -> None:
        try:
            for k in range(0, len(body), 1 << 16):
                self.closing.wait(pause)
                handler.wfile.write(body[k : k + (1 << 16)])
                handler.wfile.flush()
                seen.sent[0] += len(body[k : k + (1 << 16)])
        except OSError:
            pass  # who asked has gone


def _say(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
