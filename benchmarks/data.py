"""The data table: what opening, importing and drawing cost.

    make peer && make benchmark-data        or: python benchmarks/data.py [--repeat 5] [--only draws …]

The two sides of a row are measured in turn, A B A B …; a ratio is taken pair by pair, and the table gives the median of the pairs
and their range. A control loop of fixed work runs before and after each measurement. Every side has one thread. Files are in the
page cache. Results go to `benchmarks/results/data.json` and `data.md`; a run of some rows leaves
the others as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from pairs import Row, Side, as_shown, measure, noise, ratio, sides, speeds, target
from tasks import for_peer, hopper_like
from workers import Worker, keep, kept, machine, page, table, today, versions

from d3ray.data.dataset import Dataset
from d3ray.data.storage.shards import ShardRecord, write_shard
from d3ray.data.storage.writing import Draft

FRAME = (1, 84, 84)
STEPS = 500  # of an episode of frames


class Bench:
    """The options of a run, and the files that its processes read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.scale = folder, options.scale
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


GROUPS = {"open": opening, "ingest": importing, "draws": draws}
CLOSED = ("memory", "cold")  # whose rows are kept: training with less memory than data, draws from a cold map


# ---- the page


def markdown(report: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    rows = [
        [
            *(f"{one['label']}, {one['unit']}", sides(one), *speeds(one), ratio(one), target(one)),
            *(as_shown(one, one["processor_ratio"]), noise(one)),
        ]
        for one in report["results"]
    ]
    there, used = report["machine"], report["versions"]
    loads, dates = sorted(r["load_average"] for r in report["results"]), sorted({r["date"] for r in report["results"]})
    header = ["work", "A : B", "A", "B", "A/B", "target", "A/B by processor time", "control loop, A/B"]
    return page(
        "data",
        table=table(header, rows),
        repeat=report["repeat"],
        facts="\n".join(str(report["facts"][group]) for group in (*GROUPS, *CLOSED) if group in report["facts"]),
        machine=f"{there['cpu']}, {there['cores']} cores, {there['memory_gib']} GiB, {there['system']}",
        loads=f"{loads[0]:.2f} to {loads[-1]:.2f}" if loads else "",
        dates=", ".join(dates),
        versions="; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in used.items()),
    )


def merged(new: dict[str, Any], groups: list[str]) -> dict[str, Any]:
    """What was measured now, with the rows of other groups as they are kept."""
    old, order = kept("data", {"results": [], "facts": {}}), [*GROUPS, *CLOSED]
    others = [row for row in old["results"] if row["group"] not in groups]
    rows = sorted([*others, *new["results"]], key=lambda row: order.index(row["group"]))
    return {**new, "results": rows, "facts": {**old["facts"], **new["facts"]}}


def run(groups: list[str], bench: Bench, repeat: int) -> dict[str, Any]:
    """Measures some rows of the page."""
    report: dict[str, Any] = {"machine": machine(), "versions": {"d3ray": versions()}, "repeat": repeat, "results": []}
    with bench.worker("d3rlpy_side.py") as worker:
        report["versions"]["d3rlpy"] = worker("versions")
    for group in groups:
        with GROUPS[group](bench) as rows:
            for row in rows:
                when = {"group": group, "date": today(), "load_average": machine()["load_average"]}
                result = {**when, **measure(row, repeat)}
                report["results"].append(result)
                print(f"{row.label}, {sides(result)}: {ratio(result)} {target(result)}", flush=True)
    return {**report, "facts": bench.facts}


def main() -> None:
    parser = argparse.ArgumentParser(description="What data costs.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="measurements a side")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=[*GROUPS], help="rows to measure")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    parser.add_argument("--folder", default=None, help="where files are written; they are deleted at the end")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    groups = [group for group in GROUPS if group in options.only]
    with tempfile.TemporaryDirectory(prefix="d3ray-data-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options)
        try:
            report = run(groups, bench, options.repeat)
        except RuntimeError as error:
            sys.exit(f"{error}\n{bench.log.read_text()[-2_000:]}")
    if options.scale >= 1:
        report = merged(report, groups)
        keep("data", report, markdown(report))
    print("\n" + markdown(report))


if __name__ == "__main__":
    main()
