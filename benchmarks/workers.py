"""Processes that benchmarks measure in: one for each side, fed the same arrays, asked in turn over a pipe.

Needs NumPy and torch only, so that it runs in the peer's environment as well as in ours.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
PEER = "D3RAY_PEER_PYTHON"  # names the peers' interpreter; without it, what `make peer` installed
RESULTS = HERE / "results"
PEER_SCRIPTS = ("d3rlpy_side.py", "pfrl_side.py", "fidelity_jax.py", "fql_jax.py")
Task = Callable[..., Any]


# ---- the side that asks


def peer_place() -> Path:
    """Where the interpreter of the environment that holds d3rlpy 2.8.1, PFRL 0.4.0 and JAX would be."""
    named = os.environ.get(PEER)
    return Path(named) if named else HERE.parent / ".venv-peer" / "bin" / "python"


def peer_python() -> str:
    """That interpreter. Leaves the program where there is none."""
    python = peer_place()
    if not python.is_file():
        sys.exit(f"There is no {python}: run `make peer`, or name an interpreter that has d3rlpy 2.8.1 and PFRL 0.4.0 in {PEER}.")
    return str(python)


class Worker:
    """A process that runs tasks one at a time.

    Args:
        script: file beside this one: "ours.py", or one of `PEER_SCRIPTS`.
        threads: what OpenMP and torch get.
        log: where its standard output and error go.
        environment: further environment variables.
        python: the interpreter; None: the peers' for one of `PEER_SCRIPTS`, else the one that runs this.
    """

    def __init__(
        self, script: str, threads: int, log: Path, environment: Mapping[str, str] | None = None, python: str | None = None
    ) -> None:
        self.script, self.threads, self.log = script, threads, log
        python = python or (peer_python() if script in PEER_SCRIPTS else sys.executable)
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [python, str(HERE / script), str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **(environment or {}), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
                text=True,
            )

    def __call__(self, task: str, **arguments: Any) -> Any:
        """The answer of a task. Raises RuntimeError when it failed."""
        self.send(task, arguments)
        return self.answer(task)

    def send(self, task: str, arguments: Mapping[str, Any]) -> None:
        """Asks, without waiting."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps([task, arguments]) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"{self.script}, {task}: the process died") from None

    def answer(self, task: str) -> Any:
        """The answer to what was asked. Raises RuntimeError when it failed."""
        stdout = self._process.stdout
        assert stdout is not None
        answer = json.loads(stdout.readline() or '{"error": "the process died"}')
        if "error" in answer:
            raise RuntimeError(f"{self.script}, {task}: {answer['error']}; its output is in {self.log}")
        return answer["result"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# ---- the side that works


def serve(tasks: Mapping[str, Task]) -> None:
    """Answers requests from standard input until it closes. What tasks print goes to standard error, beside the answers."""
    import torch

    torch.set_num_threads(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    every = {"control": control, "versions": versions, **tasks}
    for line in sys.stdin:
        task, arguments = json.loads(line)
        try:
            answer = {"result": every[task](**arguments)}
        except Exception as error:  # the answer names it; the trace is in the log
            import traceback

            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def control(products: int = 100) -> float:
    """Seconds that fixed work takes: products of 512 × 512 matrices. Timed beside a measurement, it shows the machine's noise."""
    import torch

    a = torch.full((512, 512), 1 / 512)
    begin = time.perf_counter()
    for _ in range(products):
        a = a @ a
    return time.perf_counter() - begin


def timed(work: Callable[[], Any], device: str) -> dict[str, float]:
    """Wall-clock seconds of `work`, processor seconds of this process, and the control loop's seconds beside it."""
    import torch

    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    before = control()
    wait()
    begin, spent = time.perf_counter(), time.process_time()
    work()
    wait()
    seconds, spent = time.perf_counter() - begin, time.process_time() - spent
    return {"seconds": seconds, "cpu_seconds": spent, "control": (before + control()) / 2}


def versions() -> dict[str, str]:
    """What a side runs with."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "gymnasium", "mujoco", "ray", "d3rlpy", "pfrl", "jax", "optax", "d3ray"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Processor, cores, memory, accelerators, and how busy it is."""
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerators": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "load_average": round(os.getloadavg()[0], 2),
    }


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def told(name: str) -> Any:
    """A table of data beside this file. `$name` stands for what its `words` say, and {name} for such a text within another one."""
    from ruamel.yaml import YAML

    found = YAML(typ="safe", pure=True).load((HERE / name).read_text(encoding="utf-8"))
    words: dict[str, Any] = {}

    def meant(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: meant(one) for key, one in value.items()}
        if isinstance(value, list):
            return [meant(one) for one in value]
        if isinstance(value, str) and value.startswith("$"):
            return words[value[1:]]
        return re.sub(r"{(\w+)}", lambda word: words[word[1]], value) if isinstance(value, str) else value

    for word, value in found.pop("words", {}).items():
        words[word] = meant(value)
    return meant(found)


def page(name: str, **parts: Any) -> str:
    """The page of a subject: its text in `pages.yaml` with these parts in their places."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load((HERE / "pages.yaml").read_text(encoding="utf-8"))[name].format(**parts)


def keep(name: str, found: Any, text: str | None = None) -> None:
    """Writes what was found to `results/NAME.json`, and its page."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if text is not None:
        (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")


def kept(name: str, otherwise: Any) -> Any:
    """What `keep` wrote."""
    place = RESULTS / f"{name}.json"
    return json.loads(place.read_text(encoding="utf-8")) if place.is_file() else otherwise


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown, with columns in line so that it reads in a terminal too."""
    width = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    line = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, width, strict=True)) + " |" for row in [header, *rows]]
    return "\n".join([line[0], "|" + "|".join("-" * (w + 2) for w in width) + "|", *line[1:]])
