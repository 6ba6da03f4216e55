"""What a command and its processes listen on while they run, and what a stranger without the token gets there."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import ray
import ray.core.generated

_OF_OBJECTS = [f"/ray.rpc.ObjectManagerService/{name}" for name in ("Push", "Pull", "FreeObjects")]


@dataclass(frozen=True)
class Port:
    """A port that is listened on."""

    host: str  # in the kernel's hexadecimal form
    number: int

    @property
    def address(self) -> str:
        """Where a stranger reaches it."""
        given = len(self.host) == 8 and self.host != "00000000"
        return f"{socket.inet_ntoa(bytes.fromhex(self.host)[::-1]) if given else outside()}:{self.number}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it: 127.0.0.0/8, or ::1."""
        return self.host == "00000000000000000000000001000000" or (len(self.host) == 8 and self.host.endswith("7F"))


@dataclass
class Watch:
    """Looks at a process and all its descendants, again and again, until `stop`."""

    root: int
    ports: dict[Port, str] = field(default_factory=dict[Port, str])  # with the command that listened
    answers: dict[Port, list[str]] = field(default_factory=dict[Port, list[str]])  # to a stranger, of ports that others reach
    commands: set[bytes] = field(default_factory=set[bytes])
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def __enter__(self) -> Watch:
        self._threads = [threading.Thread(target=target) for target in (self._look, self._probe)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            processes = descendants(self.root)
            self.ports.update(listeners(processes))
            for process in processes:
                with suppress(OSError):
                    self.commands.add(Path(f"/proc/{process}/cmdline").read_bytes())

    def _probe(self) -> None:
        first_seen: dict[Port, float] = {}
        while not self._over.wait(0.1):
            for port in list(self.ports):
                first = first_seen.setdefault(port, time.monotonic())
                if port.is_loopback or port in self.answers or time.monotonic() - first < 1:  # it may only just be starting
                    continue
                answers = [http_answer(port), *grpc_answers(port)]
                if port in listeners(descendants(self.root)):  # it was there all the while
                    self.answers[port] = answers


def descendants(root: int) -> list[int]:
    """A process and all that come from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            children.setdefault(int((entry / "stat").read_text().rpartition(") ")[2].split()[1]), []).append(int(entry.name))
    found, waiting = list[int](), [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def listeners(processes: list[int]) -> dict[Port, str]:
    """The TCP ports that these processes listen on, over IPv4 and IPv6."""
    listening: dict[str, Port] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A":  # LISTEN
                host, _, number = cells[1].partition(":")
                listening[f"socket:[{cells[9]}]"] = Port(host, int(number, 16))
    found: dict[Port, str] = {}
    for process in processes:
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if port := listening.get(str(descriptor.readlink())):
                        found[port] = command
    return found


def outside() -> str:
    """The address under which other machines see this one; loopback where it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("198.51.100.1", 9))  # sends nothing
        return probe.getsockname()[0]
    return "127.0.0.1"


def http_answer(port: Port) -> str:
    """What a GET without a token gets: "HTTP 401", or why there is no answer in HTTP."""
    try:
        with urllib.request.urlopen(f"http://{port.address}/", timeout=5) as answer:
            return f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except Exception as error:
        return type(error).__name__


def grpc_answers(port: Port, names: Sequence[str] = (), token: str = "") -> list[str]:
    """What Ray's remote procedures say to an empty request, as "OK /ray.rpc.…"; without names every one that there is."""
    metadata = [("authorization", f"Bearer {token}")] if token else None
    found: list[str] = []
    with grpc.insecure_channel(port.address) as channel:
        for method in names or methods():
            call: Any = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
            try:
                call(b"", timeout=5, metadata=metadata)
                found.append(f"OK {method}")
            except grpc.RpcError as error:
                code = error.code().name  # pyright: ignore[reportAttributeAccessIssue] - it is a Call as well
                found.append(f"{code} {method}")
                if code == "UNAVAILABLE":  # no gRPC here
                    break
    return found


@cache
def methods() -> list[str]:
    """Names of Ray's remote procedures, from the code that it generates, and of those that have no such code in Python."""
    generated = (Path(next(iter(ray.core.generated.__path__))), Path(ray.__file__).parent / "serve" / "generated")
    texts = [file.read_text() for folder in generated for file in folder.glob("*_pb2_grpc.py")]
    return sorted({name for text in texts for name in re.findall(r"'(/ray\.[\w.]+/\w+)'", text)} | set(_OF_OBJECTS))
