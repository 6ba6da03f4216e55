"""An import that is killed leaves no dataset; started again it is the one that an undisturbed import makes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError

# One process imports everything and forks: a child is in the middle of the work at once. Each is killed at a point of its own,
# at the start of a random one of its file operations, or after a random share of the time that it takes undisturbed.
KILLER = """
import json, os, random, signal, sys, time
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.platform.datasets.ingest import ingest

sources, folder, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(seed)
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.listdir", "shutil.rmtree")

def child(target, at_event=None):
    process = os.fork()
    if process == 0:
        seen = 0
        def hook(event, arguments):
            nonlocal seen
            if event in EVENTS and folder in str(arguments):
                seen += 1
                if seen == at_event:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        ingest(sources, target, n_shards=3, parallel=False)
        with open(f"{folder}.seen", "w") as file:
            file.write(str(seen))
        os._exit(0)
    return process

def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

start = time.monotonic()
assert ended(child(f"{folder}/whole")) == 0
took, n = time.monotonic() - start, int(open(f"{folder}.seen").read())
left = []
for k in range(14):
    target = f"{folder}/{k}"
    if k % 2:
        process = child(target, at_event=rng.randrange(1, n + 1))
    else:
        process = child(target)
        time.sleep(rng.uniform(0.05, 0.95) * took)
        os.kill(process, signal.SIGKILL)
    status = ended(process)
    took /= 2 if status == 0 else 1  # others had kept the machine busy while it was measured
    try:
        half = Dataset.open(target).fingerprint
    except DataError:
        half = None
    again = None if half else ended(child(target))
    left.append([status, half, again, Dataset.open(target).fingerprint])
print(json.dumps({"events": n, "left": left}))
"""


def sources(folder: Path, n_files: int = 3, n: int = 10_000) -> str:
    folder.mkdir()
    for k in range(n_files):
        rng = np.random.default_rng(k)
        arrays = {"observations": rng.normal(size=(n, 11)).astype(np.float32), "actions": rng.uniform(-1, 1, (n, 3))}
        np.savez_compressed(folder / f"{k}.npz", **arrays, rewards=rng.normal(size=n), terminated=rng.random(n) < 0.01)
    return f"{folder}/*.npz"


@pytest.mark.long
def test_killed_at_random_points_and_started_again_it_is_the_same(tmp_path: Path) -> None:
    pattern, out = sources(tmp_path / "logs"), tmp_path / "out"
    said = subprocess.run(
        [sys.executable, "-c", KILLER, pattern, out, "7"], capture_output=True, text=True, timeout=300, check=False
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    whole = Dataset.open(out / "whole")
    killed = [left for left in found["left"] if left[0] == -signal.SIGKILL]
    assert len(killed) >= 10  # others were done before
    assert sum(half is None for _, half, _, _ in killed) >= 8
    for status, half, again, fingerprint in found["left"]:
        assert status in (0, -signal.SIGKILL)
        assert half in (None, whole.fingerprint)  # nothing, or all of it
        assert again in (None, 0)
        assert fingerprint == whole.fingerprint
    assert sorted(path.name for path in out.iterdir()) == sorted(["whole", *map(str, range(14))])  # no draft is left
    Dataset.open(out / "11").verify()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_while_ray_reads_and_started_again_it_is_the_same(tmp_path: Path) -> None:
    pattern, target = sources(tmp_path / "logs", 6, 40_000), tmp_path / "set"

    def command(place: Path) -> list[str]:
        return [sys.executable, "-m", "d3ray.jobs", "ingest", pattern, str(place), "parallel=true", "n_shards=4"]

    start = time.monotonic()
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    took = time.monotonic() - start
    whole, rng, killed = Dataset.open(tmp_path / "whole"), random.Random(3), 0
    for _ in range(10):
        process = subprocess.Popen(command(target), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.2, 0.98) * took)
        os.kill(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        try:
            assert Dataset.open(target).fingerprint == whole.fingerprint
            break
        except DataError:
            assert not target.exists()
    assert killed >= 5
    last = subprocess.run([*command(target), "overwrite=true"], check=False, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert Dataset.open(target).fingerprint == whole.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "set", "whole"]
