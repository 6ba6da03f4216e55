"""The speed table: d3ray beside d3rlpy 2.8.1, and beside itself.

    make peer && make benchmark-speed        or: python benchmarks/speed.py [--repeat 5] [--threads 2] [--only dqn …]

The two sides of a row run in processes of their own, on the same arrays and with the same number of threads, and are measured in
turn: A B A B …. A ratio is taken pair by pair, so that what else the machine does at that time touches both; the table gives the
median of the pairs and their range. A control loop of fixed work runs before and after each measurement: where its times differ
between the sides, so may the ratio. Both sides are warmed up, by updates that are not counted. Results go to
`benchmarks/results/speed.json` and `speed.md`. Where there is a CUDA device the rows that can use one are measured there too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arrays import cartpole_like, for_peer, hopper_like
from workers import HERE, Worker, machine, table

from d3ray.data.dataset import Dataset

RESULTS = HERE / "results"
HIDDEN = {"td3+bc": (256, 256), "dqn": (256, 256), "stack": (64, 64)}
Measure = Callable[[], dict[str, float]]


@dataclass(frozen=True)
class Side:
    """One side of a row: what it is called, what measures it, and how much work a measurement is."""

    label: str
    measure: Measure
    amount: int


@dataclass(frozen=True)
class Row:
    """One row: A over B in units a second, and what the ratio should be."""

    label: str
    unit: str
    a: Side
    b: Side
    at_least: float | None = None
    at_most: float | None = None  # B's time for one unit as a share of A's


class Bench:
    """The options of a run and the files that its processes read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.threads, self.scale = folder, options.threads, options.scale
        self.log = folder / "workers.log"
        os.environ["D3RAY_CACHE"] = str(folder / "cache")  # node maps are built here, and go with it

    def amount(self, n: int) -> int:
        return max(8, int(n * self.scale))

    def worker(self, script: str) -> Worker:
        return Worker(script, self.threads, self.log)

    def data(self, name: str, make: Callable[[int], Dataset], n: int) -> tuple[str, str, str]:
        """The same transitions as a dataset of one shard, as one of four shards (which has a node map), and for the peer."""
        one, four, peer = (self.folder / f"{name}-{kind}" for kind in ("one", "four", "peer.npz"))
        if not peer.exists():
            dataset = make(n)
            dataset.write(one, n_shards=1)
            dataset.write(four, n_shards=4)
            for_peer(dataset, peer)
        return str(one), str(four), str(peer)


def measure(row: Row, repeat: int) -> dict[str, Any]:
    """A B A B …, `repeat` of each."""
    runs = {"a": [], "b": []}
    for _ in range(repeat):
        for name, side in (("a", row.a), ("b", row.b)):
            runs[name].append({**(found := side.measure()), "per_second": side.amount / found["seconds"]})
    ratios = [a["per_second"] / b["per_second"] for a, b in zip(runs["a"], runs["b"], strict=True)]
    controls = [b["control"] / a["control"] for a, b in zip(runs["a"], runs["b"], strict=True)]
    value = statistics.median(ratios)
    met = None
    if row.at_least is not None:
        met = value >= row.at_least
    elif row.at_most is not None:
        met = 1 / value <= row.at_most
    return {
        "label": row.label,
        "unit": row.unit,
        "sides": {"a": row.a.label, "b": row.b.label},
        "runs": runs,
        "ratio": {"median": value, "min": min(ratios), "max": max(ratios), "pairs": ratios},
        "processor_ratio": processor_ratio(row, runs),
        "control": {"median": statistics.median(controls), "min": min(controls), "max": max(controls)},
        "at_least": row.at_least,
        "at_most": row.at_most,
        "met": met,
    }


def processor_ratio(row: Row, runs: dict[str, list[dict[str, float]]]) -> float | None:
    """A over B by processor time in place of wall-clock time: what other work on the machine disturbs least. None: not measured."""
    if any("cpu_seconds" not in run for side in runs.values() for run in side):
        return None
    amounts = {"a": row.a.amount, "b": row.b.amount}
    speed = {side: statistics.median(amounts[side] / run["cpu_seconds"] for run in found) for side, found in runs.items()}
    return speed["a"] / speed["b"]


# ---- rows


@contextmanager
def td3_plus_bc(bench: Bench, device: str) -> Iterator[list[Row]]:
    ours, _, theirs = bench.data("hopper", hopper_like, 1_000_000)
    nets = {"hidden_units": HIDDEN["td3+bc"]}
    with bench.worker("ours.py") as a, bench.worker("peer.py") as b:
        choice = {"name": "TD3PlusBC", "batch_size": 256, "actor_encoder": nets, "critic_encoder": nets}
        a("set_up_fit", dataset=ours, algorithm=choice, device=device, warm=100)
        b("set_up_fit", dataset=theirs, name="TD3PlusBC", settings={"batch_size": 256, **nets}, device=device, warm=100)
        n, m = bench.amount(1_000), bench.amount(600)
        yield [
            Row(
                "TD3+BC, batch 256, 256×256: whole `fit`",
                "updates/s",
                Side("d3ray", lambda: a("fit", n=n), n),
                Side("d3rlpy", lambda: b("fit", n=m), m),
                at_least=1.65,
            )
        ]


@contextmanager
def dqn(bench: Bench, device: str) -> Iterator[list[Row]]:
    ours, _, theirs = bench.data("cartpole", cartpole_like, 100_000)
    nets = {"hidden_units": HIDDEN["dqn"]}
    with bench.worker("ours.py") as a, bench.worker("peer.py") as b:
        choice = {"name": "DQN", "preset": "d3rlpy", "batch_size": 32, "encoder": nets}
        a("set_up_fit", dataset=ours, algorithm=choice, device=device, warm=500)
        b("set_up_fit", dataset=theirs, name="DQN", settings={"batch_size": 32, **nets}, device=device, warm=500)
        n, m = bench.amount(6_000), bench.amount(2_000)
        yield [
            Row(
                "DQN, batch 32, 256×256: whole `fit`",
                "updates/s",
                Side("d3ray", lambda: a("fit", n=n), n),
                Side("d3rlpy", lambda: b("fit", n=m), m),
                at_least=2.5,
            )
        ]


@contextmanager
def stack(bench: Bench, device: str) -> Iterator[list[Row]]:
    ours, _, _ = bench.data("cartpole", cartpole_like, 100_000)
    choice = {"name": "DQN", "batch_size": 32, "encoder": {"hidden_units": HIDDEN["stack"]}}
    with bench.worker("ours.py") as a, bench.worker("ours.py") as b:
        a("set_up_fit", dataset=ours, algorithm=choice, device=device, warm=200, seeds=8)
        b("set_up_fit", dataset=ours, algorithm=choice, device=device, warm=500)
        n, m = bench.amount(1_500), bench.amount(5_000)
        yield [
            Row(
                "DQN, batch 32, 64×64: eight stacked seeds and one",
                "seed-updates/s",
                Side("8 seeds", lambda: a("fit", n=n), 8 * n),
                Side("1 seed", lambda: b("fit", n=m), m),
                at_least=1.8,
            )
        ]


@contextmanager
def draws(bench: Bench, device: str) -> Iterator[list[Row]]:
    one, four, theirs = bench.data("hopper", hopper_like, 1_000_000)
    nets = {"hidden_units": HIDDEN["td3+bc"]}
    with bench.worker("ours.py") as shard, bench.worker("ours.py") as node_map, bench.worker("peer.py") as peer:
        shard("set_up_draws", dataset=one, batch_size=256, device=device, warm=500)
        node_map("set_up_draws", dataset=four, batch_size=256, device=device, warm=500)
        peer("set_up_draws", dataset=theirs, batch_size=256, device=device, warm=50)
        choice = {"name": "TD3PlusBC", "batch_size": 256, "actor_encoder": nets, "critic_encoder": nets}
        node_map("set_up_fit", dataset=four, algorithm=choice, device=device, warm=100)
        n, m, k = bench.amount(20_000), bench.amount(800), bench.amount(600)
        rival = Side("d3rlpy", lambda: peer("draw", n=m), m)
        mapped = Side("d3ray", lambda: node_map("draw", n=n), n)
        yield [
            Row("a batch of 256 from 1 M rows, node map", "batches/s", mapped, rival, at_least=15),
            Row(
                "a batch of 256 from 1 M rows, one shard",
                "batches/s",
                Side("d3ray", lambda: shard("draw", n=n), n),
                rival,
                at_least=15,
            ),
            Row(
                "that batch (node map) beside a TD3+BC update",
                "per second",
                Side("draw", mapped.measure, n),
                Side("update", lambda: node_map("fit", n=k), k),
                at_most=0.05,
            ),
        ]


@contextmanager
def trial(bench: Bench, device: str) -> Iterator[list[Row]]:
    ours, _, _ = bench.data("hopper", hopper_like, 1_000_000)
    epochs, steps = 4, bench.amount(1_000)
    work = {
        "dataset": ours,
        "algorithm": {"name": "TD3PlusBC", "preset": "d3rlpy", "batch_size": 256},
        "n_epochs": epochs,
        "n_steps_per_epoch": steps,
    }
    counted = (epochs - 1) * steps
    with bench.worker("in_tune.py") as a, bench.worker("in_tune.py") as b:
        a("start_ray", threads=bench.threads)
        for side, extra in ((a, {"threads": bench.threads}), (b, {})):  # imports, first files of Ray, page cache
            side("inside" if extra else "outside", **{**work, "n_epochs": 2, "n_steps_per_epoch": 50}, **extra)
        yield [
            Row(
                "TD3+BC: a trial inside Tune and the same outside",
                "updates/s",
                Side("inside", lambda: a("inside", **work, threads=bench.threads), counted),
                Side("outside", lambda: b("outside", **work), counted),
                at_least=0.95,
            )
        ]


GROUPS = {"td3+bc": td3_plus_bc, "dqn": dqn, "stack": stack, "draws": draws, "trial": trial}
CUDA = ("td3+bc", "dqn", "stack", "draws")


# ---- the table


def target(result: dict[str, Any]) -> str:
    """What was asked for and whether it was reached."""
    if result["met"] is None:
        return ""
    bound = f"≥ {result['at_least']:g}" if result["at_least"] is not None else f"≤ {result['at_most']:.0%}"
    return f"{bound}: {'met' if result['met'] else 'NOT met'}"


def as_shown(result: dict[str, Any], ratio: float) -> str:
    """A ratio, or the time of one of A as a share of one of B where the target is such a share."""
    return f"{1 / ratio:.1%}" if result["at_most"] is not None else f"{ratio:.2f}"


def markdown(report: dict[str, Any]) -> str:
    """The table, and what it was measured on."""
    rows = []
    for result in report["results"]:
        speeds = [sorted(run["per_second"] for run in result["runs"][side]) for side in ("a", "b")]
        cells = [f"{statistics.median(s):,.0f} ({s[0]:,.0f}–{s[-1]:,.0f})" for s in speeds]
        ratio, noise = result["ratio"], result["control"]
        shown, *ends = (as_shown(result, ratio[key]) for key in ("median", "min", "max"))
        low, high = ends if result["at_most"] is None else ends[::-1]
        sides = " : ".join(result["sides"].values())
        rows.append(
            [
                f"{result['label']}, {result['unit']}",
                result["device"],
                sides,
                *cells,
                f"{shown} ({low}–{high})",
                target(result),
                "" if result["processor_ratio"] is None else as_shown(result, result["processor_ratio"]),
                f"{noise['median']:.2f} ({noise['min']:.2f}–{noise['max']:.2f})",
            ]
        )
    there, used = report["machine"], report["versions"]
    both = "; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in used.items())
    accelerators = ", ".join(there["accelerators"]) or "none"
    return "\n".join(
        [
            "# Speed",
            "",
            table(["work", "device", "A : B", "A", "B", "A/B", "target", "A/B by processor time", "control loop, A/B"], rows),
            "",
            f"Medians and ranges of {report['repeat']} measurements a side, in turn; A/B pair by pair.",
            f"{report['threads']} threads a side. A percentage is the time of one of A as a share of one of B. The control loop is",
            "fixed work timed beside each measurement, as A's speed over B's: at 1.00 both sides had the same machine.",
            "",
            f"{there['cpu']}, {there['cores']} cores, {there['memory_gib']} GiB, {there['system']}; accelerators: {accelerators};",
            f"load average {there['load_average']} at the start. {report['date']}.",
            f"{both}.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Speed beside d3rlpy 2.8.1.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="measurements a side")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side")
    parser.add_argument(
        "--only", nargs="+", choices=[*GROUPS], default=[*GROUPS], help="rows to measure; fewer than all are printed only"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "versions": {}, "repeat": options.repeat, "threads": options.threads}
    report["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="d3ray-speed-") as folder:
        bench = Bench(Path(folder), options)
        for side, script in (("d3ray", "ours.py"), ("d3rlpy", "peer.py")):
            with bench.worker(script) as worker:
                report["versions"][side] = worker("versions")
        for device in ("cpu", *(["cuda:0"] if report["machine"]["accelerators"] else [])):
            for name in options.only:
                if device != "cpu" and name not in CUDA:
                    continue
                try:
                    with GROUPS[name](bench, device) as rows:
                        for row in rows:
                            result = {"group": name, "device": device, **measure(row, options.repeat)}
                            results.append(result)
                            print(
                                f"{row.label} [{device}]: {as_shown(result, result['ratio']['median'])} {target(result)}",
                                flush=True,
                            )
                except RuntimeError as error:
                    print(f"{error}\n{bench.log.read_text()[-2_000:]}")
                    raise SystemExit(1) from None
    report["results"] = results
    write(report, options)
    print("\n" + markdown(report))


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Keeps the report. A run of some rows, or of less work, is printed only."""
    if options.scale < 1 or set(options.only) != set(GROUPS):
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "speed.md").write_text(markdown(report))


if __name__ == "__main__":
    main()
