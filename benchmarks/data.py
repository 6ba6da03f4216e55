"""The data table and the pipeline table: what opening, importing, drawing and mapping cost, and what Ray makes of large files.

    make peer && make benchmark-data        or: python benchmarks/data.py [--repeat 5] [--only draws …] [--map-gib 8]
    python benchmarks/data.py --only large files from_ray store        the pipeline: minutes, and 12 GB of disk

The two sides of a row are measured in turn, A B A B …; a ratio is taken pair by pair, and a table gives the median of the pairs
and their range. A control loop of fixed work runs before and after each measurement. Every side has one thread. Files are in the
page cache but where the row says otherwise. Rows of the pipeline are measured in this process, whose Ray is warm; memory is the
anonymous memory of a process, read 20 times a second: mapped files and the object store are not in it. Results go to
`benchmarks/results/data.json` and `data.md`, `pipeline.json` and `pipeline.md`; a run of some rows leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the server of an object store is one of the tests'

from pairs import Row, Run, Side, as_shown, measure, noise, ratio, sides, speeds, target
from tasks import for_peer, hopper_like
from workers import Worker, control, keep, kept, machine, page, table, today, versions

import d3ray
from d3ray.data.dataset import Dataset
from d3ray.data.storage.flat import put_in_order, steps_from_flat
from d3ray.data.storage.shards import ShardRecord, write_shard
from d3ray.data.storage.writing import Draft
from d3ray.platform.cluster.session import quiet_ray_data, ray_session
from d3ray.platform.datasets.ingest import ingest

FRAME = (1, 84, 84)
STEPS = 500  # of an episode of frames, and about so many of one in a large file
LIMIT = 1_500_000_000  # bytes of data that the large file is read in
LARGE = "--large"
PIECE = 8 << 20  # bytes of a range
COLUMNS = (("observations", 27, "f4"), ("actions", 8, "f4"), ("rewards", 0, "f4"), ("terminals", 0, "?"), ("timeouts", 0, "?"))


class Bench:
    """The options of a run, and the files that its processes read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.scale, self.map_gib = folder, options.scale, options.map_gib
        self.log = folder / "workers.log"
        os.environ["D3RAY_CACHE"] = str(folder / "cache")
        self.facts: dict[str, Any] = {}  # by group

    def amount(self, n: int) -> int:
        return max(4, int(n * self.scale))

    def worker(self, script: str = "data_side.py") -> Worker:
        return Worker(script, 1, self.log)

    def hopper(self) -> tuple[str, str]:
        """One million transitions as a dataset of four shards, which has a node map, and for the peer."""
        ours, peer = self.folder / "hopper", self.folder / "hopper.npz"
        if not peer.exists():
            dataset = hopper_like(1_000_000)
            dataset.write(ours, n_shards=4)
            for_peer(dataset, peer)
        return str(ours), str(peer)

    def frames(self, name: str, n: int, n_shards: int) -> str:
        """`n` transitions with frames of 84 × 84 bytes, written a shard at a time."""
        folder, rng = self.folder / name, np.random.default_rng(0)
        lengths = [len(part) for part in np.array_split(np.empty(-(-n // STEPS)), n_shards)]
        with Draft(folder) as draft:
            records: list[ShardRecord] = []
            for k, episodes in enumerate(lengths):
                steps = episodes * STEPS
                end = np.arange(1, steps + 1) % STEPS == 0
                frames = np.frombuffer(rng.bytes(steps * 7056), np.uint8).reshape(steps, *FRAME)
                made = Dataset.from_arrays(frames, rng.integers(0, 6, steps), rng.standard_normal(steps, np.float32), end)
                first = sum(lengths[:k])
                records.append(write_shard(draft.folder, k, n_shards, made.to_steps(), first_episode=first))
            draft.commit(records, name=name)
        return str(folder)


# ---- the data table


@contextmanager
def opening(bench: Bench) -> Iterator[list[Row]]:
    folder, n = bench.hopper()[0], bench.amount(50)
    with bench.worker() as a:
        a("open_folder", folder=folder, n=5)
        ours = Side("d3ray", lambda: a("open_folder", folder=folder, n=n), n)
        allowed = Side("50 ms", lambda: {"seconds": 0.05 * n, "control": a("control")}, n)
        yield [Row("open 1 M transitions, columns mapped", "opened/s", ours, allowed, 1)]


@contextmanager
def importing(bench: Bench) -> Iterator[list[Row]]:
    file, n = bench.folder / "hopper.hdf5", 1_000_000
    write_hopper(file, n)
    size = f"{file.stat().st_size / 1e6:,.0f} MB"
    bench.facts["ingest"] = f"The HDF5 file has {n:,} steps in {size}, gzip as D4RL's hopper-medium-v2."
    with bench.worker() as a, bench.worker() as b:
        for side in (a, b):
            side("one_core")
            side("read_hdf5", file=str(file))
        work = {"file": str(file), "target": str(bench.folder / "ingested")}
        a("ingest_hdf5", **work)
        ours = Side("d3ray ingest", lambda: a("ingest_hdf5", **work), n)
        theirs = Side("h5py reads it", lambda: b("read_hdf5", file=str(file)), n)
        yield [Row("ingest of a gzip HDF5 of Hopper's size, on one core", "steps/s", ours, theirs, 0.4)]


@contextmanager
def draws(bench: Bench) -> Iterator[list[Row]]:
    ours, theirs = bench.hopper()
    frames = bench.frames("frames", bench.amount(40_000), 2)
    with bench.worker() as a, bench.worker() as b, bench.worker("d3rlpy_side.py") as peer:
        for side, name, batch, more in (
            (a, "uniform", 256, {}),
            (b, "uniform", 256, {}),
            (a, "five steps", 256, {"td_steps": 5}),
            (a, "prioritised", 256, {"kind": "prioritised"}),
            (b, "gather", 256, {"kind": "gather"}),
            (a, "stacked", 32, {"frames": 4}),
            (b, "gather frames", 32, {"kind": "gather frames", "frames": 4}),
        ):
            side("set_up", name=name, folder=frames if batch == 32 else ours, batch_size=batch, **more)
        peer("set_up_draws", dataset=theirs, batch_size=256, device="cpu", warm=50)

        def drawn(worker: Worker, label: str, name: str, n: int) -> Side:
            n = bench.amount(n)
            return Side(label, lambda: worker("draw", name=name, n=n), n)

        n, unit = bench.amount(800), "batches/s"
        uniform, rival = drawn(a, "uniform", "uniform", 20_000), Side("d3rlpy", lambda: peer("draw", n=n), n)
        plain, bare = drawn(b, "uniform", "uniform", 20_000), drawn(b, "bare gather", "gather", 20_000)
        five, one = drawn(a, "5 steps", "five steps", 10_000), drawn(b, "1 step", "uniform", 20_000)
        priority = drawn(a, "prioritised", "prioritised", 4_000)
        stacked, bare_frames = drawn(a, "stacked", "stacked", 2_000), drawn(b, "bare gather", "gather frames", 2_000)
        yield [
            Row("256 of 1 M, uniform", unit, uniform, rival, 20),
            Row("256 of 1 M, uniform", unit, uniform, bare, 1 / 1.5),
            Row("256 of 1 M, 5-step returns", unit, five, one, 1 / 2),
            Row("256 of 1 M, drawn by priority and updated", unit, priority, plain, 1 / 6),
            Row("32 stacks of 4 Atari frames", unit, stacked, bare_frames, 1 / 1.5),
        ]


@contextmanager
def memory(bench: Bench) -> Iterator[list[Row]]:
    folder, n = bench.frames("many", bench.amount(150_000), 1), bench.amount(400)
    with bench.worker() as a, bench.worker() as b:
        size = b("set_up_training", folder=folder, n=n)["bytes"]
        a("set_up_training", folder=folder, n=n, growth=int(size / 4))
        bench.facts["memory"] = f"Memory of its own was limited by the kernel to a quarter of those {size / 2**30:.1f} GiB."
        limited, free = Side("4 times the allowed memory", lambda: a("train"), n), Side("all in memory", lambda: b("train"), n)
        yield [Row("DQN on frames, batch 32, 64×64", "updates/s", limited, free)]


@contextmanager
def cold(bench: Bench) -> Iterator[list[Row]]:
    folder = bench.frames("large", int(bench.map_gib * 2**30 / 7056), max(2, round(bench.map_gib * 4)))
    with bench.worker() as a:
        known = a("set_up_cold", folder=folder, batch_size=256)
        for file in Path(folder).glob("data-*.arrow"):  # all is in the map by now
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        n, reads = bench.amount(20), bench.amount(4_000)
        a("cold_draw", n=2)
        label = f"256 frames of a map of {known['bytes'] / 2**30:.1f} GiB, its pages dropped before each draw"
        drawn = Side("drawn", lambda: a("cold_draw", n=n), round(n * known["pages"]))
        yield [Row(label, "pages of 4 KiB/s", drawn, Side("random reads", lambda: a("cold_read", n=reads), reads))]
        bench.facts["cold"] = f"A batch of the large map touches {known['pages']:,.0f} pages of 4 KiB."


def write_hopper(file: Path, n: int) -> None:
    """A file with the arrays of D4RL's hopper-medium-v2, as h5py's gzip writes them: noise, which packs as badly."""
    rng = np.random.default_rng(0)
    wide = {"observations": 11, "next_observations": 11, "actions": 3, "infos/qpos": 6, "infos/qvel": 6}
    with h5py.File(file, "w") as out:
        for name, width in wide.items():
            out.create_dataset(name, data=rng.standard_normal((n, width), np.float32), compression="gzip")
        out["next_observations"][:] = np.roll(out["observations"][:], -1, 0)
        for name in ("rewards", "infos/action_log_probs"):
            out.create_dataset(name, data=rng.standard_normal(n, np.float32), compression="gzip")
        for name, at in (("terminals", 299), ("timeouts", 999)):
            out.create_dataset(name, data=np.arange(n) % 1000 == at, compression="gzip")


# ---- the pipeline table


def hdf5(path: Path, n: int, seed: int) -> Path:
    """`n` steps of 27 observations and 8 actions in D4RL's layout, a million at a time."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        for name, width, dtype in COLUMNS:
            array = file.create_dataset(name, (n, width) if width else (n,), dtype)
            for start in range(0, n, 1_000_000):
                m = min(1_000_000, n - start)
                ends = rng.random(m, np.float32) < 0.5 / STEPS
                array[start : start + m] = ends if dtype == "?" else rng.standard_normal((m, width) if width else m, np.float32)
    return path


@contextmanager
def anonymous() -> Iterator[dict[str, float]]:
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


def here(label: str, work: Callable[[], Any], amount: float) -> Side:
    """A side that is measured in this process."""

    def run() -> Run:
        before = control()
        with anonymous() as most:
            begin = time.perf_counter()
            work()
            seconds = time.perf_counter() - begin
        return {"seconds": seconds, "control": (before + control()) / 2, **most}

    return Side(label, run, amount)


@contextmanager
def files(bench: Bench) -> Iterator[list[Row]]:
    """Ingest on Ray beside one process."""
    sources = [hdf5(bench.folder / f"{k}.hdf5", bench.amount(1_420_000), k) for k in range(8)]
    size = sum(file.stat().st_size for file in sources) / 1e6

    def write(parallel: bool) -> str:
        place = bench.folder / f"set-{parallel}"
        shutil.rmtree(place, ignore_errors=True)
        return ingest(sources, place, parallel=parallel).dataset.fingerprint

    assert write(True) == write(False)  # which warms both
    one, other = here("on Ray", lambda: write(True), size), here("one process", lambda: write(False), size)
    yield [Row(f"ingest of eight HDF5 files, {size:,.0f} MB", "MB/s", one, other, 1.2)]
    for path in (*sources, bench.folder / "set-True", bench.folder / "set-False"):
        path.unlink() if path.is_file() else shutil.rmtree(path)


@contextmanager
def from_ray(bench: Bench) -> Iterator[list[Row]]:
    """Transitions in 40 blocks in random order, whose borders cut episodes and whose rows are reversed."""
    import pyarrow as pa
    import ray.data

    from d3ray.data.storage.shards import to_arrow

    n, folder = bench.amount(1_500_000), bench.folder
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

    def in_memory() -> str:
        rows = put_in_order({name: np.concatenate([block[name] for block in blocks]) for name in columns})
        return Dataset.from_steps(steps_from_flat(rows), name="here").write(folder / "here", overwrite=True).fingerprint

    assert there() == in_memory()
    size = sum(column.nbytes for column in columns.values()) / 1e6
    label = f"{n:,} transitions in any order to a folder, {size:,.0f} MB"
    yield [Row(label, "MB/s", here("from_ray", there, size), here("in memory", in_memory, size), 0.1)]


@contextmanager
def store(bench: Bench) -> Iterator[list[Row]]:
    """2 GB behind a server on loopback (moto, in a process of its own): a node map, and 32 ranges of 8 MiB at a time by obstore."""
    import obstore
    from object_store import Server
    from obstore.store import S3Store

    from d3ray.data.storage.stores.base import side_by_side
    from tests.platform.object_store import KEYS

    os.environ.update(KEYS)
    server, n, before = Server(), bench.amount(13_700_000), os.environ["D3RAY_CACHE"]
    try:
        rng, ends = np.random.default_rng(0), np.arange(n) % STEPS == STEPS - 1
        arrays = [rng.standard_normal((n, width) if width else n, np.float32) for width in (27, 8, 0)]
        where = server.uri("set")
        Dataset.from_arrays(*arrays, ends).write(where, n_shards=max(1, round(16 * bench.scale)))
        del arrays
        endpoint = "http://" + where.partition("endpoint_override=")[2].partition("&")[0]
        place = S3Store("bucket", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
        found = [one for some in obstore.list(place, "set") for one in some if one["path"].endswith(".arrow")]
        ranges = [(one["path"], k, min(k + PIECE, one["size"])) for one in found for k in range(0, one["size"], PIECE)]

        def mapped() -> None:
            with tempfile.TemporaryDirectory(dir=bench.folder) as cache:
                os.environ["D3RAY_CACHE"] = cache
                Dataset.open(where).prepare()

        def read() -> None:
            side_by_side(lambda part: len(obstore.get_range(place, part[0], start=part[1], end=part[2])), ranges)

        size = sum(one["size"] for one in found) / 1e6
        label = f"{size:,.0f} MB of an object store"
        yield [Row(label, "MB/s", here("node map", mapped, size), here("plain read", read, size), 0.6)]
    finally:
        server.close()
        os.environ["D3RAY_CACHE"] = before


@contextmanager
def large(bench: Bench) -> Iterator[list[Row]]:
    """One file of 4 GB in a process that may have 1.5 GB of data; no row, but a sentence."""
    file = hdf5(bench.folder / "large.hdf5", bench.amount(27_400_000), 0)
    command = [sys.executable, __file__, LARGE, str(file), str(bench.folder / "read")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found, size = json.loads(done.stdout.splitlines()[-1]), file.stat().st_size
    bench.facts["large"] = (
        f"One HDF5 file of {size / 1e9:.2f} GB, {found['transitions']:,} transitions, in one process that may have "
        f"{LIMIT / 1e9:.2f} GB of data (RLIMIT_DATA):\n{found['seconds']:.0f} s, {found['anonymous_mb']:,.0f} MB of anonymous "
        "memory at most."
    )
    shutil.rmtree(bench.folder / "read")
    file.unlink()
    yield []


def read_large(file: str, place: str) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    begin = time.perf_counter()
    with anonymous() as most:
        dataset = ingest(file, place, parallel=False).dataset
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "anonymous_mb": most["process"], "transitions": dataset.n_transitions}))


GROUPS: dict[str, dict[str, Any]] = {
    "data": {"open": opening, "ingest": importing, "draws": draws, "memory": memory, "cold": cold},
    "pipeline": {"large": large, "files": files, "from_ray": from_ray, "store": store},
}


# ---- pages


def markdown(name: str, report: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    rows: list[list[str]] = []
    for one in report["results"]:
        last = [] if name == "pipeline" else [as_shown(one, one["processor_ratio"])]
        row = [f"{one['label']}, {one['unit']}", sides(one), *speeds(one), ratio(one), target(one), *last, noise(one)]
        if name == "pipeline":  # a node map needs no worker
            who = "process" if one["sides"]["a"] == "node map" else "worker"
            row.append(f"{max(run.get(who, 0) for run in one['runs']['a']):,.0f} MB")
        rows.append(row)
    there, used = report["machine"], report["versions"]
    loads, dates = sorted(r["load_average"] for r in report["results"]), sorted({r["date"] for r in report["results"]})
    header = ["work", "A : B", "A", "B", "A/B", "target", "A/B by processor time", "control loop, A/B"]
    if name == "pipeline":
        header = [*header[:6], header[7], "anonymous memory of A's largest worker, or process"]
    return page(
        name,
        table=table(header, rows),
        repeat=report["repeat"],
        facts="\n".join(str(report["facts"][group]) for group in ("start", *GROUPS[name]) if group in report["facts"]),
        machine=f"{there['cpu']}, {there['cores']} cores, {there['memory_gib']} GiB, {there['system']}",
        loads=f"{loads[0]:.2f} to {loads[-1]:.2f}" if loads else "",
        dates=", ".join(dates),
        versions="; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in used.items()),
    )


def merged(name: str, new: dict[str, Any], groups: list[str]) -> dict[str, Any]:
    """What was measured now, with the rows of other groups as they are kept."""
    old, order = kept(name, {"results": [], "facts": {}}), list(GROUPS[name])
    others = [row for row in old["results"] if row["group"] not in groups]
    rows = sorted([*others, *new["results"]], key=lambda row: order.index(row["group"]))
    return {**new, "results": rows, "facts": {**old["facts"], **new["facts"]}}


def run(name: str, groups: list[str], bench: Bench, repeat: int) -> dict[str, Any]:
    """Measures some rows of a page."""
    report: dict[str, Any] = {"machine": machine(), "versions": {"d3ray": versions()}, "repeat": repeat, "results": []}
    if name == "data":
        with bench.worker("d3rlpy_side.py") as worker:
            report["versions"]["d3rlpy"] = worker("versions")
    for group in groups:
        with GROUPS[name][group](bench) as rows:
            for row in rows:
                when = {"group": group, "date": today(), "load_average": machine()["load_average"]}
                result = {**when, **measure(row, repeat)}
                report["results"].append(result)
                print(f"{row.label}, {sides(result)}: {ratio(result)} {target(result)}", flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="What data costs.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    every = [group for groups in GROUPS.values() for group in groups]
    parser.add_argument("--repeat", type=int, default=5, help="measurements a side")
    parser.add_argument("--only", nargs="+", choices=every, default=[*GROUPS["data"]], help="rows to measure")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    parser.add_argument("--map-gib", type=float, default=8.0, help="size of the large map; it needs twice that on the disk")
    parser.add_argument("--folder", default=None, help="where files are written; they are deleted at the end")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="d3ray-data-", dir=options.folder) as folder:
        for name, makers in GROUPS.items():
            if not (groups := [group for group in makers if group in options.only]):
                continue
            bench = Bench(Path(folder), options)
            try:
                if name == "data":
                    report = run(name, groups, bench, options.repeat)
                else:
                    begin = time.perf_counter()
                    with ray_session(num_cpus=2):
                        bench.facts["start"] = f"Ray took {time.perf_counter() - begin:.1f} s to start."
                        quiet_ray_data()
                        report = run(name, groups, bench, options.repeat)
            except RuntimeError as error:
                sys.exit(f"{error}\n{bench.log.read_text()[-2_000:]}")
            report["facts"] = bench.facts
            if options.scale >= 1 and options.map_gib >= 8:
                report = merged(name, report, groups)
                keep(name, report, markdown(name, report))
            print("\n" + markdown(name, report))


if __name__ == "__main__":
    if LARGE in sys.argv:
        read_large(*sys.argv[2:])
    else:
        main()
