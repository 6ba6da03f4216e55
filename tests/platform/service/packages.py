"""Small policies as packages, and a server that answers for them."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import uvicorn

from d3ray.algos.export.packing import write_package
from d3ray.algos.registry import algorithm_class
from d3ray.algos.testing.tiny import data_for, maker
from d3ray.data.dataset import Dataset
from d3ray.platform.service.local import Service, local_service
from d3ray.platform.service.settings import ServiceSettings

OBSERVATION = [0.1, -0.2, 0.3, 0.4, 0.5]
TOKEN = "a-token"


def write_policy(name: str, folder: Path, *, seed: int = 0, dataset: Dataset | None = None, **settings: Any) -> Path:
    """Train an algorithm for two steps on tiny data of five numbers, and write its package."""
    cls = algorithm_class(name)
    made = maker(cls, **settings)(seed=seed)
    made.fit(dataset or data_for(maker(cls)), n_steps=2, n_steps_per_epoch=2)
    write_package(made, folder)
    return folder


class Registry:
    """A model registry in a database of its own, which `place` tells a service of."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.place = name, {"tracking": f"sqlite:///{folder}/mlflow.db"}
        self.client = mlflow.MlflowClient(self.place["tracking"])
        self.client.create_registered_model(name)
        self.source = f"models:/{name}@champion"

    def add(self, package: Path) -> str:
        """Register a package, whatever is in it; its version."""
        return str(self.client.create_model_version(self.name, str(package)).version)

    def crown(self, version: str, alias: str = "champion") -> None:
        self.client.set_registered_model_alias(self.name, alias, version)


@dataclass
class Client:
    """Speaks with a service."""

    address: str
    token: str | None = TOKEN
    timeout: float = 30.0

    def ask(self, path: str, body: Any = None, *, raw: bytes | None = None) -> tuple[int, Any]:
        """The status and what the JSON of the answer says."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.address}{path}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def act(self, observation: Any = None, **more: Any) -> dict[str, Any]:
        """A decision; anything else fails."""
        status, found = self.ask("/act", {"observation": OBSERVATION if observation is None else observation, **more})
        assert status == 200, found
        return found

    def refused(self, body: Any, path: str = "/act") -> tuple[int, str]:
        """The status and the sentence of a refusal."""
        status, found = self.ask(path, body)
        assert status >= 400, found
        return status, found["detail"]


@contextmanager
def serving(
    *sources: Path | str, token: str | None = TOKEN, record: Any = None, **settings: Any
) -> Iterator[tuple[Client, Service]]:
    """A service in this process behind a real server, for as long as the context lasts."""
    service = local_service(ServiceSettings(sources=tuple(map(str, sources)), **settings), token=token, record=record)
    with server(service.app) as address:
        try:
            yield Client(address, token), service
        finally:
            service.close()


def until(what: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never was"
        time.sleep(0.01)


@contextmanager
def server(app: Any) -> Iterator[str]:
    """The address at which uvicorn serves an application meanwhile."""
    listener = socket.create_server(("127.0.0.1", 0))
    ready = threading.Event()

    class Told(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    one = Told(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=one.run, kwargs={"sockets": [listener]})
    thread.start()
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        one.should_exit = True
        thread.join()
        listener.close()


def frames_dataset() -> Dataset:
    """Images [1, 12, 12] of bytes in episodes of ten steps, and two actions."""
    rng = np.random.default_rng(0)
    n = 60
    ends = np.zeros(n, bool)
    ends[9::10] = True
    images = rng.integers(0, 256, (n, 1, 12, 12)).astype(np.uint8)
    return Dataset.from_arrays(images, rng.integers(0, 2, n), rng.normal(size=n).astype(np.float32), ends, name="frames")
