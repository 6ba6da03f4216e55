"""Replicas and the proxy of a service are killed while clients ask: who asks again gets every act, and the log has each once."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from d3ray import Dataset
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.registry import algorithm_class
from d3ray.data.decision_log import read_log

from .processes import clean_environment, end_with_parent, free_port, kill, until

CLIENTS, STEPS, TOKEN = 4, 100, "a-token-of-the-test"
Reply = dict[str, Any]


def policy(folder: Path) -> Path:
    """A discrete one, which a service explores with."""
    import numpy as np

    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(
        rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 3, 200), np.ones(200), np.arange(200) % 20 == 19
    )
    write_package(algorithm_class("DQN")(batch_size=16).fit(data, n_steps=2, n_steps_per_epoch=2), folder / "policy")
    return folder / "policy"


class Asking(threading.Thread):
    """A client in an episode of its own: it asks for each step until it is answered, and hands the state on."""

    def __init__(self, address: str, episode: str) -> None:
        super().__init__()
        self.address, self.episode = address, episode
        self.replies, self.retries, self.stopped = list[Reply](), 0, threading.Event()

    def run(self) -> None:
        body: dict[str, Any] = {"episode": self.episode}
        for step in range(STEPS):
            body["observation"] = [step / 100, 0.0, 1.0, -1.0]
            while (reply := self.ask(body)) is None and not self.stopped.wait(0.05):
                self.retries += 1
            if reply is None:
                return
            self.replies.append(reply)
            body = {"state": reply["state"]}

    def ask(self, body: dict[str, Any]) -> Reply | None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"{self.address}/act", data=json.dumps(body).encode(), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError):  # an answer that broke off among them
            return None


def test_every_act_is_answered_and_logged_once(tmp_path: Path) -> None:
    package, port = policy(tmp_path), free_port()
    settings = ["explore.name=epsilon", "explore.epsilon=0.5", "replicas.min_replicas=2", "replicas.num_cpus=0.1"]
    command = [sys.executable, "-m", "d3ray.jobs", "serve", str(package), f"port={port}", f"log={tmp_path / 'log'}", *settings]
    service = subprocess.Popen(
        command,
        env={**clean_environment(), "D3RAY_SERVE_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
    )
    clients = list[Asking]()
    try:
        assert service.stdout is not None
        assert f":{port} " in service.stdout.readline()
        clients = [Asking(f"http://127.0.0.1:{port}", f"episode {k}") for k in range(CLIENTS)]
        for client in clients:
            client.start()

        def done() -> int:
            return sum(len(client.replies) for client in clients)

        def workers(name: str) -> list[int]:
            found = psutil.Process(service.pid).children(recursive=True)
            return [one.pid for one in found if any(name in word for word in one.cmdline())]

        killed = Counter[str]()
        for share, name in ((0.15, "Replica"), (0.3, "ProxyActor"), (0.45, "Replica"), (0.6, "ProxyActor"), (0.75, "Replica")):
            until(lambda share=share: done() >= share * CLIENTS * STEPS, lambda: f"{done()} answers after {killed}")
            (victim, *_) = until(lambda name=name: workers(name))
            kill(victim)
            killed[name] += 1
        until(lambda: done() == CLIENTS * STEPS, lambda: f"{done()} answers")
        for client in clients:
            client.join()
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
    finally:
        for client in clients:
            client.stopped.set()
        kill(service.pid)
        service.wait()
    assert sum(client.retries for client in clients) > 0, "the kills were felt"
    answered = {reply["id"]: reply for client in clients for reply in client.replies}
    assert len(answered) == CLIENTS * STEPS, "each decision has an id of its own"
    for client in clients:
        assert [(reply["episode"], reply["step"]) for reply in client.replies] == [(client.episode, k) for k in range(STEPS)]
    rows = read_log(tmp_path / "log", "decisions").to_pylist()
    ids = Counter(row["id"] for row in rows)
    assert set(ids.values()) == {1}
    assert answered.keys() <= ids.keys(), "what was answered is in the log"
    acts: dict[tuple[str, int], set[tuple[int, float]]] = {}
    for row in rows:  # who asked again after a kill may have a second row, of the same act with the same probability
        acts.setdefault((row["episode"], row["step"]), set()).add((row["action"], round(row["log_prob"], 5)))
    assert len(acts) == CLIENTS * STEPS
    assert {len(each) for each in acts.values()} == {1}
    assert read_package(package).spec.n_actions == 3
    assert {row["action"] for row in rows} == {0, 1, 2}
