"""Commands of clouds for tests: `aws`, `docker`, `kubectl` or `ssh`, its first argument, as far as what d3ray writes calls them.

CLOUD_STAND_IN is a folder with what their cluster is: `head`, the port of a Ray that takes jobs, and `token`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(os.environ["CLOUD_STAND_IN"])


def aws(arguments: list[str]) -> None:
    """`aws cloudformation deploy` and `describe-stacks`."""
    import boto3

    _, action, *rest = arguments
    words = " ".join(rest)
    options = {name: value.strip() for name, value in re.findall(r"--([\w-]+) ((?:(?!--)\S+ ?)+)", words)}
    stacks, name = boto3.client("cloudformation", region_name=options["region"]), options["stack-name"]
    if action == "deploy":
        pairs = [pair.split("=", 1) for pair in options["parameter-overrides"].split()]
        stacks.create_stack(
            StackName=name,
            TemplateBody=Path(options["template-file"]).read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in pairs],
            Capabilities=options["capabilities"].split(),
        )
    else:
        assert options["query"] == "Stacks[0].Outputs"
        print(json.dumps(stacks.describe_stacks(StackName=name)["Stacks"][0]["Outputs"]))


def docker(arguments: list[str]) -> None:
    """`docker build -f FILE …` in the checkout, and `docker push`."""
    assert arguments[0] == "push" or Path(arguments[arguments.index("-f") + 1]).exists()


def kubectl(arguments: list[str]) -> None:
    """What is applied it keeps; a RayJob it submits as the operator does."""
    if arguments[0] == "-n":
        arguments = arguments[2:]
    action, *rest = arguments
    if action == "apply":
        for one in yaml.safe_load_all(Path(rest[-1]).read_text()):
            kind, name = one["kind"].lower(), one["metadata"]["name"]
            (FOLDER / f"{kind}-{name}").touch()
            if kind == "rayjob":
                submit(name, one["spec"])
    elif action == "get" and rest[0] == "secret":
        assert (FOLDER / f"raycluster-{rest[1]}").exists()
        assert rest[-1] == "jsonpath={.data.auth_token}"
        print(base64.b64encode((FOLDER / "token").read_bytes()).decode(), end="")
    elif action == "wait":
        assert (FOLDER / rest[-1].replace("/", "-")).exists()
    elif action == "port-forward":
        kind, _, service = rest[0].partition("/")
        assert kind == "service"
        assert (FOLDER / f"raycluster-{service.removesuffix('-head-svc')}").exists()
        tunnel(int(rest[1].partition(":")[0]))
    elif action == "logs":
        ray("logs", "--follow", rest[-1].removeprefix("job/"))


def submit(name: str, spec: dict[str, Any]) -> None:
    """As the operator's own pod does, a shell of which reads the entrypoint."""
    environment = json.dumps(yaml.safe_load(spec["runtimeEnvYAML"]))
    ray("submit", "--no-wait", "--submission-id", name, "--runtime-env-json", environment, "--", *shlex.split(spec["entrypoint"]))


def ray(action: str, *arguments: str) -> None:
    """`ray job …`."""
    address = f"http://127.0.0.1:{(FOLDER / 'head').read_text()}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": (FOLDER / "token").read_text()}
    subprocess.run(["ray", "job", action, "--address", address, *arguments], env={**os.environ, **token}, check=True)


def ssh(arguments: list[str]) -> None:
    """`ssh -L PORT:HOST:PORT …`, with -f in the background once it listens."""
    port, _, there = arguments[arguments.index("-L") + 1].split(":")
    tunnel(int(port), background="-fN" in arguments, to=int(there))


def tunnel(port: int, *, background: bool = False, to: int | None = None) -> None:
    """A port that leads to the head, if there is a file that says which, and otherwise to the one that was said."""
    head = FOLDER / "head"
    listening = socket.create_server(("127.0.0.1", port))
    if background and os.fork():
        os._exit(0)
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", int(head.read_text()) if head.exists() else to or 0))
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(one, other), daemon=True).start()


def pump(one: socket.socket, other: socket.socket) -> None:
    """Bytes, until there are no more."""
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        other.close()


if __name__ == "__main__":
    {"aws": aws, "docker": docker, "kubectl": kubectl, "ssh": ssh}[sys.argv[1]](sys.argv[2:])
