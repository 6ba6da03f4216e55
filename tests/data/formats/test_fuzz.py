"""Damaged files of every format go through ingest: each is read, or refused in one sentence, and nothing half-written is left."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.formats.registry import FORMATS, detect, read

from .fuzz_files import damage, tiny_files

SECONDS = 5.0  # of a processor's time, for one file
WAIT = 90.0  # seconds, on a machine that others keep busy
MEMORY = 12 << 30  # bytes of address space of a worker; what a damaged header asks for beyond that is refused by the system
WORKER = """
import json, os, resource, sys, traceback
from d3ray.data.errors import D3rayError
from d3ray.platform.datasets.ingest import ingest

resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
print("ready", flush=True)
for line in sys.stdin:
    source, target = json.loads(line)
    start = sum(os.times()[:4])
    try:
        found = {{"read": ingest(source, target, parallel=False).dataset.n_transitions}}
    except D3rayError as error:
        found = {{"refused": str(error)}}
    except BaseException:
        found = {{"traceback": traceback.format_exc()}}
    print(json.dumps(found | {{"seconds": sum(os.times()[:4]) - start}}), flush=True)
"""


class Worker:
    """A process that ingests one file after the other, started again where one killed it."""

    def __init__(self) -> None:
        self.deaths = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ingest(self, source: Path, target: Path) -> dict[str, Any]:
        """`read`, `refused`, `traceback` or `died`, with what there is to say of it."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps([str(source), str(target)]) + "\n")
        process.stdin.flush()
        try:
            line = self._lines.get(timeout=WAIT)
        except queue.Empty:
            self._end()
            return {"hung": WAIT}
        if line:
            return json.loads(line)
        self.deaths += 1
        code = process.wait()
        self._end()
        return {"died": code}

    def _start(self) -> subprocess.Popen[str]:
        code = WORKER.format(memory=MEMORY)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._lines = queue.Queue()
        threading.Thread(target=_follow, args=(self._process, self._lines), daemon=True).start()
        assert self._lines.get(timeout=120) == "ready\n"
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


def _follow(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:  # closed meanwhile
        return
    lines.put("")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_files(tmp_path_factory.mktemp("tiny"))


def test_there_is_a_tiny_file_for_each_format_and_it_is_read(files: dict[str, Path]) -> None:
    assert {name.split()[0] for name in files} == set(FORMATS)
    for name, path in files.items():
        parts = FORMATS[name.split()[0]].parts(path) if path.is_dir() else [path]
        assert parts
        for part in parts:
            assert detect(part) == name.split()[0], name
            assert read(part).steps.n_transitions > 0


def fuzz(files: dict[str, Path], folder: Path, n: int, seed: int) -> dict[str, int]:
    """Damages `n` files in turn and ingests them; fails with all that went wrong, else counts what came of them."""
    wrong: list[str] = []
    counts = {"read": 0, "refused": 0, "died": 0}
    names = list(files)
    with Worker() as worker:
        for k in range(n):
            name = names[k % len(names)]
            place = folder / str(k)
            place.mkdir()
            done = damage(files[name], place / "source", np.random.default_rng([seed, k]))
            source = place / "source" / files[name].name if files[name].is_file() else place / "source"
            found = worker.ingest(source, place / "out" / "target")
            outcome, said = next(iter(found.items()))
            if found.get("seconds", 0.0) > SECONDS:
                wrong.append(f"{k}: {name}, {done}: {found['seconds']:.1f} s")
            if outcome not in ("read", "refused"):
                wrong.append(f"{k}: {name}, {done}: {outcome} {said}")
            elif outcome == "refused" and (problem := _problem(said)):
                wrong.append(f"{k}: {name}, {done}: {problem}: {said}")
            if outcome != "read" and (place / "out").exists() and (left := sorted(p.name for p in (place / "out").iterdir())):
                wrong.append(f"{k}: {name}, {done}: {outcome}, and {left} is left")
            counts[outcome] = counts.get(outcome, 0) + 1
            shutil.rmtree(place)
    assert not wrong, "\n".join([f"{len(wrong)} of {n} (seed {seed})", *wrong])
    return counts


def _problem(sentence: str) -> str:
    """Why a refusal is not one sentence of use to a person."""
    if "\n" in sentence or len(sentence) > 1600:
        return "more than a sentence"
    if "source" not in sentence:
        return "names no file"
    return "" if sentence.endswith((".", "?", ".)")) else "no sentence"


@pytest.mark.long
def test_damaged_files_are_read_or_refused(files: dict[str, Path], tmp_path: Path) -> None:
    counts = fuzz(files, tmp_path, 200, seed=1)
    assert counts["refused"] > 50
    assert counts["read"] > 20  # so that damage goes deeper than the first bytes


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_damaged_files_are_read_or_refused(files: dict[str, Path], tmp_path: Path) -> None:
    fuzz(files, tmp_path, 2_000, seed=2)
