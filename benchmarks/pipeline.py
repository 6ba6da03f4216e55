"""The pipeline table: ingest on Ray beside one process, `from_ray` beside memory, maps of a store, and what a large file takes.

    python benchmarks/pipeline.py [--repeat 5] [--scale 1.0] [--folder FOLDER] [--only map_of_store …]

The two sides of a row are measured in turn, A B A B …, in one process whose Ray is warm (its start is told apart); a ratio is taken
pair by pair, and the table gives the median of the pairs and their range. A control loop of fixed work runs before and after each
measurement. Files are in the page cache; every process has one thread. Memory is the anonymous memory of a process, read 20 times
a second: mapped files and the object store are not in it. It needs 12 GB of disk. Results go to `results/pipeline.json` and
`pipeline.md`; below scale 1 they are printed only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the server of an object store is one of the tests'

from workers import HERE, control, machine, table, versions

import d3ray
from d3ray.data.dataset import Dataset
from d3ray.data.storage.flat import put_in_order, steps_from_flat
from d3ray.platform.cluster.session import quiet_ray_data, ray_session
from d3ray.platform.datasets.ingest import ingest

RESULTS = HERE / "results"
LENGTH = 500  # steps of an episode, about
LIMIT = 1_500_000_000  # bytes of data that the large file is read in
LARGE = "--large"
PIECE = 8 << 20  # bytes of a range
# How many times as fast as the other side, on two cores that nobody else uses.
TARGETS = {"on Ray": 1.2, "from_ray": 0.1, "node map": 0.6}
COLUMNS = (("observations", 27, "f4"), ("actions", 8, "f4"), ("rewards", 0, "f4"), ("terminals", 0, "?"), ("timeouts", 0, "?"))


def hdf5(path: Path, n: int, seed: int) -> Path:
    """`n` steps of 27 observations and 8 actions in D4RL's layout, a million at a time."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        for name, width, dtype in COLUMNS:
            array = file.create_dataset(name, (n, width) if width else (n,), dtype)
            for start in range(0, n, 1_000_000):
                m = min(1_000_000, n - start)
                ends = rng.random(m, np.float32) < 0.5 / LENGTH
                array[start : start + m] = ends if dtype == "?" else rng.standard_normal((m, width) if width else m, np.float32)
    return path


@contextmanager
def memory() -> Generator[dict[str, float]]:
    """The most anonymous memory, in MB, that this process had, and that of any of Ray's workers."""
    most, ended = defaultdict[str, float](float), threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    about = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
                except OSError:
                    continue
                mine = int(status.parent.name) == os.getpid()
                if (mine or about["Name"].startswith("ray::")) and "RssAnon" in about:
                    who = "process" if mine else "worker"
                    most[who] = max(most[who], int(about["RssAnon"].split()[0]) / 1000)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def timed(work: Callable[[], Any]) -> dict[str, float]:
    before = control()
    with memory() as most:
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "control": (before + control()) / 2, **most}


def pairs(a: Callable[[], Any], b: Callable[[], Any], repeat: int) -> dict[str, Any]:
    """Both sides in turn; `ratio` is B's seconds over A's, so how many times as fast A is."""
    found = [(timed(a), timed(b)) for _ in range(repeat)]
    ratios = [theirs["seconds"] / ours["seconds"] for ours, theirs in found]
    noise = [theirs["control"] / ours["control"] for ours, theirs in found]
    return {"pairs": found, "ratio": _of(ratios), "control": _of(noise)}


def _of(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def ingest_of_files(folder: Path, scale: float, repeat: int) -> dict[str, Any]:
    files = [hdf5(folder / f"{k}.hdf5", int(1_420_000 * scale), k) for k in range(8)]
    size = sum(file.stat().st_size for file in files) / 1e6

    def write(parallel: bool) -> str:
        target = folder / f"set-{parallel}"
        shutil.rmtree(target, ignore_errors=True)
        return ingest(files, target, parallel=parallel).dataset.fingerprint

    assert write(True) == write(False)  # which warms both
    found = pairs(lambda: write(True), lambda: write(False), repeat)
    for path in (*files, folder / "set-True", folder / "set-False"):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    return {
        "work": f"ingest of eight HDF5 files, {size:,.0f} MB, MB/s",
        "sides": ("on Ray", "one process"),
        "amount": size,
        **found,
    }


def rows_from_ray(folder: Path, scale: float, repeat: int) -> dict[str, Any]:
    """Transitions in 40 blocks in random order, whose borders cut episodes and whose rows are reversed."""
    import pyarrow as pa
    import ray.data

    from d3ray.data.storage.shards import to_arrow

    n = int(1_500_000 * scale)
    rng, order = np.random.default_rng(0), np.arange(n)
    columns = {"episode": order // 487, "step": order % 487, "terminated": order % 487 == 486}
    columns |= {"observation": rng.standard_normal((n, 27), np.float32), "action": rng.standard_normal((n, 8), np.float32)}
    columns |= {"reward": rng.standard_normal(n, np.float32)}
    cuts = np.linspace(0, n, 41).astype(int)
    blocks = [{name: column[a:b][::-1] for name, column in columns.items()} for a, b in pairwise(cuts)]
    blocks = [blocks[k] for k in rng.permutation(40)]
    data = ray.data.from_arrow([pa.table({name: to_arrow(c) for name, c in block.items()}) for block in blocks])

    def there() -> str:
        return d3ray.from_ray(data, folder / "there", overwrite=True).fingerprint

    def here() -> str:
        rows = put_in_order({name: np.concatenate([block[name] for block in blocks]) for name in columns})
        return Dataset.from_steps(steps_from_flat(rows), name="here").write(folder / "here", overwrite=True).fingerprint

    assert there() == here()
    size = sum(column.nbytes for column in columns.values()) / 1e6
    found = pairs(there, here, repeat)
    shutil.rmtree(folder / "here"), shutil.rmtree(folder / "there")
    work = f"{n:,} transitions in any order to a folder, {size:,.0f} MB, MB/s"
    return {"work": work, "sides": ("from_ray", "in memory"), "amount": size, **found}


def map_of_store(folder: Path, scale: float, repeat: int) -> dict[str, Any]:
    """2 GB behind a server on loopback (moto, in a process of its own): a node map, and 32 ranges of 8 MiB at a time by obstore."""
    import obstore
    from object_store import Server
    from obstore.store import S3Store

    from d3ray.data.storage.stores.side_by_side import side_by_side
    from tests.platform.object_store import KEYS

    os.environ.update(KEYS)
    server, n = Server(), int(13_700_000 * scale)
    try:
        rng, ends = np.random.default_rng(0), np.arange(n) % LENGTH == LENGTH - 1
        arrays = (
            rng.standard_normal((n, 27), np.float32),
            rng.standard_normal((n, 8), np.float32),
            rng.standard_normal(n, np.float32),
        )
        where = server.uri("set")
        Dataset.from_arrays(*arrays, ends).write(where, n_shards=max(1, round(16 * scale)))
        del arrays
        endpoint = "http://" + where.partition("endpoint_override=")[2].partition("&")[0]
        store = S3Store("bucket", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
        found = [one for some in obstore.list(store, "set") for one in some if one["path"].endswith(".arrow")]
        ranges = [(one["path"], k, min(k + PIECE, one["size"])) for one in found for k in range(0, one["size"], PIECE)]

        def mapped() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as cache:
                os.environ["D3RAY_CACHE"] = cache
                Dataset.open(where).prepare()

        def read() -> None:
            side_by_side(lambda part: len(obstore.get_range(store, part[0], start=part[1], end=part[2])), ranges)

        sides = pairs(mapped, read, repeat)
    finally:
        server.close()
        os.environ.pop("D3RAY_CACHE", None)
    size = sum(one["size"] for one in found) / 1e6
    return {"work": f"{size:,.0f} MB of an object store, MB/s", "sides": ("node map", "plain read"), "amount": size, **sides}


def large_file(folder: Path, scale: float) -> dict[str, Any]:
    """One file of 4 GB in a process that may have 1.5 GB of data."""
    file = hdf5(folder / "large.hdf5", int(27_400_000 * scale), 0)
    size = file.stat().st_size
    command = [sys.executable, __file__, LARGE, str(file), str(folder / "large")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    shutil.rmtree(folder / "large")
    file.unlink()
    return {"bytes": size, "limit": LIMIT, **json.loads(done.stdout.splitlines()[-1])}


def read_large(file: str, target: str) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    begin = time.perf_counter()
    with memory() as most:
        dataset = ingest(file, target, parallel=False).dataset
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "anonymous_mb": most["process"], "transitions": dataset.n_transitions}))


def markdown(report: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for row in report["rows"]:
        rates = [[row["amount"] / side["seconds"] for side in sides] for sides in zip(*row["pairs"], strict=True)]
        said = [f"{statistics.median(r):,.0f} ({min(r):,.0f}–{max(r):,.0f})" for r in rates]
        ratios = [f"{row[key]['median']:.2f} ({row[key]['least']:.2f}–{row[key]['most']:.2f})" for key in ("ratio", "control")]
        own = row["sides"][0] == "node map"  # which needs no worker
        worker = max(a.get("process" if own else "worker", 0) for a, _ in row["pairs"])
        asked = TARGETS[row["sides"][0]]
        verdict = f"≥ {asked}: {'met' if row['ratio']['median'] >= asked else 'missed'}"
        rows.append([row["work"], " : ".join(row["sides"]), *said, ratios[0], verdict, ratios[1], f"{worker:,.0f} MB"])
    large, here = report["large"], report["machine"]
    header = ["work", "A : B", "A", "B", "A/B", "asked", "control loop, A/B", "anonymous memory of A's largest worker, or process"]
    start, date, versions = report["start"], report["date"], ", ".join(f"{n} {v}" for n, v in report["versions"].items())
    machine = f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB, {here['system']}"
    size, limit = (f"{large[key] / 1e9:.2f} GB" for key in ("bytes", "limit")) if large else ("", "")
    of_large = (
        large
        and f"""
One HDF5 file of {size}, {large["transitions"]:,} transitions, in one process that may have {limit} of data (RLIMIT_DATA):
{large["seconds"]:.0f} s, {large["anonymous_mb"]:,.0f} MB of anonymous memory at most.
"""
    )
    return f"""# Pipeline

{table(header, rows)}

Medians and ranges of {report["repeat"]} pairs, in turn, Ray warm: it took {start:.1f} s to start. The control loop is fixed work
timed beside each measurement, as A's speed over B's: at 1.00 both sides had the same machine.
{of_large or ""}
{machine}; load average {here["load_average"]:.2f} where it began.
{date}. {versions}.
"""


ROWS = {"ingest": ingest_of_files, "from_ray": rows_from_ray, "map_of_store": map_of_store}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What the data pipeline costs.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="pairs of measurements")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=None, help="tables; those of some are printed only")
    parser.add_argument("--folder", default=None, help="where files are written; they are deleted at the end")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    report: dict[str, Any] = {"machine": machine(), "versions": versions(), "repeat": options.repeat}
    report["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
    with tempfile.TemporaryDirectory(prefix="d3ray-pipeline-", dir=options.folder) as folder:
        report["large"] = None if options.only else large_file(Path(folder), options.scale)
        begin = time.perf_counter()
        with ray_session(num_cpus=2):
            report["start"] = time.perf_counter() - begin
            quiet_ray_data()
            report["rows"] = [ROWS[name](Path(folder), options.scale, options.repeat) for name in options.only or ROWS]
    if options.scale >= 1 and not options.only:
        (RESULTS / "pipeline.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        (RESULTS / "pipeline.md").write_text(markdown(report))
    print(markdown(report))


if __name__ == "__main__":
    if LARGE in sys.argv:
        read_large(*sys.argv[2:])
    else:
        main()
