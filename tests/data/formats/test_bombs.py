"""Files that unpack to what fills a memory: each is refused in one sentence, before the memory is taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.formats.registry import read

from .bombs import HOLLOW, LYING, SQUEEZED, Bomb

FREE = 1 << 28  # bytes of memory that the child is told are free: half of them may be made of a file
GROWTH = 400 << 20  # bytes by which it may grow at most
CHILD = """
import json, resource, sys, time
from d3ray.data.errors import D3rayError
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.untrusted import unpacking

free, path = int(sys.argv[1]), sys.argv[2]
if free:
    unpacking.free_memory = lambda: free
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + (4 << 30), resource.RLIM_INFINITY))
before, start, said = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic(), None
try:
    read(path)
except D3rayError as error:
    said = str(error)
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
print(json.dumps({"said": said, "grown": grown, "seconds": time.monotonic() - start}))
"""


def read_in_child(path: Path, free: int = 0, **environment: str) -> dict[str, Any]:
    """What a process of its own says of a file, and by how much it grew."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(free), str(path)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("bomb", HOLLOW, ids=lambda bomb: bomb.__name__)
def test_what_is_declared_is_held_against_what_is_stored(bomb: Bomb, tmp_path: Path) -> None:
    found = read_in_child(bomb(tmp_path))
    assert "are stored" in found["said"]
    assert "D3RAY_UNPACK_LIMIT=" in found["said"]
    assert found["grown"] < GROWTH


@pytest.mark.parametrize("bomb", SQUEEZED, ids=lambda bomb: bomb.__name__)
def test_what_is_made_is_held_against_the_memory(bomb: Bomb, tmp_path: Path) -> None:
    found = read_in_child(bomb(tmp_path), FREE)
    assert "unpacks to" in found["said"]
    assert found["grown"] < GROWTH


@pytest.mark.parametrize("bomb", LYING, ids=lambda bomb: bomb.__name__)
def test_what_is_said_leads_to_nothing_large(bomb: Bomb, tmp_path: Path) -> None:
    found = read_in_child(bomb(tmp_path))
    assert found["said"]
    assert found["grown"] < GROWTH
    assert found["seconds"] < 20
