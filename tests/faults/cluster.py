"""A Ray of a head and three nodes on this machine: each started by `ray start`, found and killed by the ids of its processes."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from d3ray.platform.yaml_text import read_yaml

from .processes import clean_environment, end_with_parent, free_port, kill, marked, until

PLUGINS = Path(__file__).parent / "plugins"
CLUSTER_FILE = Path(__file__).parents[2] / "ray_cluster.yaml"
N_NODES, CPUS = 3, 1
START_SECONDS = 240


def health_checks() -> dict[str, str]:
    """How often a head asks whether its nodes are alive: what the shipped cluster file says."""
    (command,) = [line for line in read_yaml(str(CLUSTER_FILE))[0]["head_start_ray_commands"] if "ray start" in line]
    return dict(re.findall(r"(RAY_health_check_\w+)=(\d+)", command))


@dataclass
class Node:
    """A node as Ray sees it: a raylet, its agents and its workers."""

    name: str
    process: subprocess.Popen[bytes]

    def processes(self, named: str = "") -> list[int]:
        """Ids of its processes whose command line holds `named`."""
        return marked("D3RAY_TEST_NODE", self.name, named)

    @property
    def workers(self) -> list[int]:
        """Ids of its workers; its agents are none: a raylet ends with them."""
        return sorted({*self.processes("ray::")} - {*self.processes("Agent")})

    @property
    def raylet(self) -> int:
        """The raylet's id."""
        (found,) = [one for one in self.processes("raylet/raylet") if Path(f"/proc/{one}/comm").read_text().strip() == "raylet"]
        return found

    def kill_raylet(self) -> None:
        """Only the raylet: whoever watches over the node is stopped first, or it would end the workers too."""
        kill(self.process.pid, by=signal.SIGSTOP)
        kill(self.raylet)

    def kill(self) -> None:
        """As if its plug were pulled: everything at once."""
        while left := self.processes():
            kill(*left)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait()


class LocalCluster:
    """The head, which has no CPUs, and its nodes.

    Args:
        cpus: of each node.
    """

    def __init__(self, cpus: int = CPUS) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="d3f-", dir="/tmp")
        )  # a socket's path is short: pytest's own folders are too deep
        self.cpus, self.token, self._count = cpus, secrets.token_hex(16), 0
        self.nodes: list[Node] = []
        self.head: Node | None = None
        self.address = ""

    # ---- what commands need

    def environment(self) -> dict[str, str]:
        """Variables with which a command on this machine runs on it."""
        path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
        return {
            **clean_environment(),
            "PYTHONPATH": path,
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def node_of(self, process: int) -> Node:
        """Where a process runs."""
        (found,) = [node for node in self.nodes if process in node.processes()]
        return found

    def logs(self) -> str:
        """What workers wrote, for a message."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("ray*/session_*/logs/worker-*.err"))

    # ---- starting and ending

    def whole(self) -> LocalCluster:
        """Starts what is missing, and waits until it is there."""
        self.nodes = [node for node in self.nodes if node.process.poll() is None]
        while self.head is None or self.head.process.poll() is not None:
            self.end_nodes()
            port = free_port()
            self.address = f"127.0.0.1:{port}"
            ports = {"port": port, "ray-client-server-port": free_port(), "dashboard-port": free_port()}
            options = ["--head", "--num-cpus=0", "--include-dashboard=false", "--no-monitor"]
            self.head = self._start("head", [*options, *(f"--{name}={port}" for name, port in ports.items())], health_checks())
            self._has_started(self.head)
        while missing := N_NODES - len(self.nodes):
            options = [f"--address={self.address}", f"--num-cpus={self.cpus}"]
            new = [self._start("node", options, {}) for _ in range(missing)]
            self.nodes += [node for node in new if self._has_started(node)]
        return self

    def _start(self, kind: str, options: list[str], env: dict[str, str]) -> Node:
        self._count += 1
        name = f"{self.folder.name}-{kind}{self._count}"
        common = [
            "--block",
            "--disable-usage-stats",
            "--node-ip-address=127.0.0.1",
            f"--temp-dir={self.folder / f'ray{self._count}'}",
            "--object-store-memory=80000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--dashboard-agent-listen-port={free_port()}",
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *common, *options],
                cwd=self.folder,
                env={
                    **self.environment(),
                    "RAY_worker_niceness": "0",
                    "SPT_NOENV": "1",  # or a worker's title is written over its environment, by which it is found
                    "D3RAY_TEST_NODE": name,
                    **env,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
            )
        return Node(name, process)

    def _has_started(self, node: Node) -> bool:
        """Whether it is there now; False where it gave up, as Ray does after 30 s on a busy machine."""
        log = self.folder / f"{node.name}.log"
        until(lambda: "Ray runtime started." in log.read_text() or node.process.poll() is not None, log.read_text, START_SECONDS)
        if node.process.poll() is None:
            return True
        assert "timed out during startup" in log.read_text(), log.read_text()
        node.kill()
        return False

    def end_nodes(self) -> None:
        """Kills the nodes that are left."""
        for node in self.nodes:
            node.kill()
        self.nodes = []

    def end(self) -> None:
        """Kills what is left, and deletes its folder."""
        self.end_nodes()
        if self.head is not None:
            self.head.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
