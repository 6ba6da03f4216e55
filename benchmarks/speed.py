"""The speed table: d3ray beside d3rlpy 2.8.1, and beside itself.

    make peer && make benchmark-speed        or: python benchmarks/speed.py [--repeat 5] [--threads 2] [--only dqn …]

The two sides of a row (`speed.yaml`) run in processes of their own, on the same arrays and with the same number of threads, and
are measured in turn: A B A B …. A ratio is taken pair by pair, so that what else the machine does at that time touches both; the
table gives the median of the pairs and their range. A control loop of fixed work runs before and after each measurement: where its
times differ between the sides, so may the ratio. Both sides are warmed up, by updates that are not counted. A second table says
where an update's time goes (`spent` in `ours.py`). Results go to `benchmarks/results/speed.json` and `speed.md`; a run of some rows
replaces those and leaves the others as they are. Where there is a CUDA device the rows that can use one are measured there too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairs import Row, Side, as_shown, measure, noise, ratio, sides, speeds, target
from tasks import cartpole_like, for_peer, frames_like, hopper_like
from workers import Worker, keep, kept, machine, page, table, today, told

from d3ray.algos.registry import algorithm_class
from d3ray.data.dataset import Dataset

SHARED_AT_LEAST = 1.5
CPU_ONLY = ("trial", "fql-jax")


class Bench:
    """The options of a run and the files that its processes read."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.threads, self.scale = folder, options.threads, options.scale
        self.log = folder / "workers.log"
        os.environ["D3RAY_CACHE"] = str(folder / "cache")  # node maps are built here, and go with it

    def amount(self, n: int) -> int:
        return max(4, int(n * self.scale))

    def worker(self, script: str) -> Worker:
        return Worker(script, self.threads, self.log)

    def data(self, make: Callable[[int], Dataset], n: int) -> tuple[str, str, str]:
        """The same transitions as a dataset of one shard, as one of four shards (which has a node map), and for the peer."""
        one, four, peer = (self.folder / f"{make.__name__}-{kind}" for kind in ("one", "four", "peer.npz"))
        if not peer.exists():
            dataset = make(n)
            dataset.write(one, n_shards=1)
            dataset.write(four, n_shards=4)
            for_peer(dataset, peer)
        return str(one), str(four), str(peer)

    def hopper(self) -> tuple[str, str, str]:
        return self.data(hopper_like, 1_000_000)

    def cartpole(self) -> tuple[str, str, str]:
        return self.data(cartpole_like, 100_000)


@dataclass(frozen=True)
class Work:
    """A row of whole `fit` calls of an algorithm.

    Attributes:
        label: what the table calls it, before the `sizes`.
        ours: name and settings of ours, but for the networks.
        theirs: of d3rlpy's; None: those of ours without preset.
        n: our updates of a measurement, which takes about two seconds; `m`: d3rlpy's.
        at_least: how many times as fast it is to be.
        discrete: whether actions are.
        hidden: layers of every network.
        kind: what stands beside it: "fit", d3rlpy's; "beside", ours of the row `base`; "stacked", one seed beside `seeds`;
            "bfloat16", ours in float32; or one of the functions below.
        how: "compiled" or "in bfloat16", where ours is not as it stands.
        more: further settings of both sides; `their_more`: of d3rlpy's, where they are others.
    """

    label: str = ""
    sizes: str = "batch 256, 256×256"
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] | None = None
    n: int = 0
    m: int = 0
    at_least: float | None = None
    discrete: bool = False
    hidden: tuple[int, ...] = (256, 256)
    kind: str = "fit"
    base: str = ""
    seeds: int = 8
    how: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    their_more: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str | None:
        return self.ours.get("name")

    @property
    def named(self) -> str:
        return f"{self.label}, {self.sizes}"

    def chosen(self) -> dict[str, Any]:
        """Ours, less the networks, which the label has."""
        return {**self.ours, **self.more}

    def settings(self) -> dict[str, Any]:
        """Ours, with the networks of the row."""
        fields = algorithm_class(self.ours["name"]).Config.model_fields
        apart = [name for name in fields if name.endswith("_encoder") and name != "share_encoder"]
        nets = ["encoder"] if "encoder" in fields else apart
        run = {"in bfloat16": {"matmul_precision": "bfloat16"}, "compiled": {"compile_graph": True}}.get(self.how, {})
        return {**self.chosen(), **{name: {"hidden_units": self.hidden} for name in nets}, **run}

    def settings_of_peer(self) -> dict[str, Any]:
        theirs = self.ours if self.theirs is None else self.theirs
        same = {key: value for key, value in theirs.items() if key != "preset"}
        return {**same, **self.more, **self.their_more, "hidden_units": self.hidden}

    @contextmanager
    def __call__(self, bench: Bench, device: str) -> Iterator[list[Row]]:
        dataset, _, for_peers = bench.cartpole() if self.discrete else bench.hopper()
        at_least = None if "bfloat16" in (self.kind, self.how[3:]) and device == "cpu" and not has_bfloat16() else self.at_least
        with bench.worker("ours.py") as a, bench.worker("d3rlpy_side.py" if self.kind == "fit" else "ours.py") as b:

            def side(worker: Worker, label: str, settings: dict[str, Any], n: int, seeds: int = 1) -> Side:
                n, more = bench.amount(n), {} if worker.script != "ours.py" else {"seeds": seeds}
                given = {"device": device, "warm": max(4, n // 8), "dataset": dataset if more else for_peers}
                own = {"algorithm": settings} if more else {"name": settings.pop("name"), "settings": settings}
                worker("set_up_fit", **given, **own, **more)
                return Side(label, lambda: worker("fit", n=n), seeds * n)

            mine, unit, label = self.settings(), "updates/s", f"{self.named}: whole `fit`"
            if self.kind == "fit":
                label += f", ours {self.how}" if self.how else ""
                both = side(a, "d3ray", mine, self.n), side(b, "d3rlpy", self.settings_of_peer(), self.m)
            elif self.kind == "beside":
                base = WORKS[self.base]
                label += f", beside {base.label}"
                both = side(a, self.label, mine, self.n), side(b, base.label, base.settings(), base.n)
            elif self.kind == "stacked":
                label, unit = f"{self.named}: {self.seeds} stacked seeds and one", "seed-updates/s"
                both = side(a, f"{self.seeds} seeds", mine, self.n, self.seeds), side(b, "1 seed", mine, self.n)
            else:
                label, kinds = f"{self.named}: bfloat16 and float32", ((a, "bfloat16"), (b, "float32"))
                both = tuple(side(worker, kind, {**mine, "matmul_precision": kind}, self.n) for worker, kind in kinds)
            yield [Row(label, unit, *both, at_least=at_least)]


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices by instructions of its own."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text() if cpuinfo.is_file() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


@contextmanager
def draws(bench: Bench, device: str) -> Iterator[list[Row]]:
    """Batches, beside d3rlpy's, and beside an update."""
    one, four, theirs = bench.hopper()
    with bench.worker("ours.py") as shard, bench.worker("ours.py") as node_map, bench.worker("d3rlpy_side.py") as peer:
        for worker, dataset, warm in ((shard, one, 500), (node_map, four, 500), (peer, theirs, 50)):
            worker("set_up_draws", dataset=dataset, batch_size=256, device=device, warm=warm)
        node_map("set_up_fit", dataset=four, algorithm=WORKS["td3+bc"].settings(), device=device, warm=100)
        n, m, k = bench.amount(20_000), bench.amount(500), bench.amount(300)
        rival, whole = Side("d3rlpy", lambda: peer("draw", n=m), m), Side("d3ray", lambda: shard("draw", n=n), n)
        mapped = Side("d3ray", lambda: node_map("draw", n=n), n)
        draw, update = Side("draw", mapped.measure, n), Side("update", lambda: node_map("fit", n=k), k)
        yield [
            Row("a batch of 256 from 1 M rows, node map", "batches/s", mapped, rival, at_least=15),
            Row("a batch of 256 from 1 M rows, one shard", "batches/s", whole, rival, at_least=15),
            Row("that batch (node map) beside a TD3+BC update", "per second", draw, update, at_most=0.05),
        ]


@contextmanager
def trial(bench: Bench, device: str) -> Iterator[list[Row]]:
    """What a trial costs inside Tune."""
    epochs, steps = 4, bench.amount(400)
    work = {"dataset": bench.hopper()[0], "algorithm": WORKS["td3+bc"].settings(), "n_epochs": epochs, "n_steps_per_epoch": steps}
    short, counted = {**work, "n_epochs": 2, "n_steps_per_epoch": 50}, (epochs - 1) * steps
    with bench.worker("ours.py") as a, bench.worker("ours.py") as b:
        a("start_ray", threads=bench.threads)
        a("inside", **short, threads=bench.threads)  # imports, first files of Ray, page cache
        b("outside", **short)
        inside = Side("inside", lambda: a("inside", **work, threads=bench.threads), counted)
        outside = Side("outside", lambda: b("outside", **work), counted)
        yield [Row("TD3+BC: a trial inside Tune and the same outside", "updates/s", inside, outside, at_least=0.95)]


@contextmanager
def pixels(bench: Bench, device: str) -> Iterator[list[Row]]:
    """DQN from stacks of four frames with the network of Mnih et al. 2015: beside d3rlpy, and beside bare torch."""
    ours, _, theirs = bench.data(frames_like, 10_000)
    algorithm = {"name": "DQN", "preset": "d3rlpy", "observation_scaler": "pixel", "sampler": {"name": "uniform", "frames": 4}}
    with bench.worker("ours.py") as a, bench.worker("d3rlpy_side.py") as peer, bench.worker("bare_torch.py") as bare:
        n, m, k = bench.amount(60), bench.amount(50), bench.amount(1_000)
        a("set_up_fit", dataset=ours, algorithm=algorithm, device=device, warm=max(4, n // 8))
        peer("set_up_fit", dataset=theirs, name="DQN", settings={"observation_scaler": "pixel"}, device=device, warm=4)
        bare("set_up_fit", dataset=theirs, batch_size=32, device=device, warm=4)
        label, fit = "DQN from 84×84×4 pixels, batch 32", Side("d3ray", lambda: a("fit", n=n), n)
        draw, update = Side("draw", lambda: a("draw_for_fit", n=k), k), Side("update", fit.measure, n)
        yield [
            Row(f"{label}: whole `fit`", "updates/s", fit, Side("d3rlpy", lambda: peer("fit", n=m), m), at_least=1.0),
            Row(f"{label}: whole `fit`", "updates/s", fit, Side("bare torch", lambda: bare("fit", n=n), n), at_least=0.9),
            Row(f"{label}: a batch of it beside an update", "per second", draw, update, at_most=0.10),
        ]


@contextmanager
def beside_jax(bench: Bench, device: str) -> Iterator[list[Row]]:
    """FQL beside a program of JAX with the same networks."""
    ours, _, theirs = bench.hopper()
    work = WORKS["fql-jax"]
    one = "false" if bench.threads == 1 else "true"
    own = {"XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={one}", "JAX_PLATFORMS": "cpu"}
    with bench.worker("ours.py") as a, Worker("fql_jax.py", bench.threads, bench.log, own) as b:
        n, m = bench.amount(work.n), bench.amount(work.m)
        a("set_up_fit", dataset=ours, algorithm=work.chosen(), device=device, warm=max(4, n // 8), seeds=1)
        b("set_up_fit", dataset=theirs, batch_size=work.ours["batch_size"], hidden=work.hidden, warm=max(4, m // 8))
        both = Side("d3ray", lambda: a("fit", n=n), n), Side("JAX", lambda: b("fit", n=m), m)
        yield [Row(f"{work.named}, beside JAX: whole `fit`", "updates/s", *both, at_least=work.at_least)]


def works() -> dict[str, Work]:
    """The rows of the file by name."""
    found: dict[str, dict[str, Any]] = {}
    for name, one in TOLD["rows"].items():
        found[name] = {**found.get(one.get("of", ""), {}), **{key: value for key, value in one.items() if key != "of"}}
    return {name: Work(**one) for name, one in found.items()}


TOLD = told("speed.yaml")
WORKS = works()
OTHERS = {"draws": draws, "trial": trial, "pixels": pixels, "jax": beside_jax}


# ---- the page


def ratio_row(result: dict[str, Any]) -> list[str]:
    what = [f"{result['label']}, {result['unit']}", result["device"], f"{result['cpu']}, {result['date']}", sides(result)]
    processor = as_shown(result, result["processor_ratio"])
    return [*what, *speeds(result), ratio(result), target(result), processor, noise(result)]


def spent_row(found: dict[str, Any]) -> list[str]:
    whole = found["update"]
    rest = whole - found["draw"] - found["products"] - found["optimizers"]
    reached = found["flop"] / found["products"]
    return [
        found["label"],
        found["device"],
        f"{found['cpu']}, {found['date']}",
        f"{whole * 1e3:,.2f}",
        *(f"{part / whole:.0%}" for part in (found["draw"], found["products"], found["optimizers"], rest)),
        f"{found['flop'] / 1e9:,.3f}",
        f"{reached / 1e9:,.0f}",
        f"{found['large'] / 1e9:,.0f}",
        f"{found['flop'] / found['large'] / whole:.0%}",
        f"{max(1.0, whole * found['large'] / found['flop']):.2f}",
    ]


def shared_mean(results: list[dict[str, Any]]) -> list[str]:
    """One line a machine: the geometric mean over the algorithms that both sides have, once all are measured there."""
    lines, shared = [], TOLD["shared"]
    for device, cpu in dict.fromkeys((result["device"], result["cpu"]) for result in results):
        found = [r["ratio"]["median"] for r in results if r["group"] in shared and (r["device"], r["cpu"]) == (device, cpu)]
        if len(found) == len(shared):
            mean = statistics.geometric_mean(found)
            said = "met" if mean >= SHARED_AT_LEAST else "NOT met"
            lines.append(
                f"Geometric mean over the {len(shared)} continuous algorithms that both have, {device} ({cpu}): "
                f"{mean:.2f} (≥ {SHARED_AT_LEAST}: {said})."
            )
    return lines


def while_shared(report: dict[str, Any]) -> list[str]:
    """Names the rows that were measured on a busy machine."""
    most = 2 * report["machine"]["cores"]
    busy = [f"{one['label'].partition(',')[0]} ({one['cpu']})" for one in report["results"] if one["load_average"] > most]
    if not busy:
        return []
    return [f"Other work shared the machine with {', '.join(busy)}:", "there only ratios hold, those by processor time best."]


def markdown(report: dict[str, Any]) -> str:
    """The tables, and what they were measured on."""
    there, everything = report["machine"], [*report["results"], *report["spent"]]
    loads, dates = sorted(r["load_average"] for r in everything), sorted({r["date"] for r in everything})
    versions = [f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in report["versions"].items()]
    header = ["work", "device", "processor, day", "A : B", "A", "B", "A/B", "target", "A/B by processor time", "control loop, A/B"]
    spent = ["update of", "device", "processor, day", "ms", "draw", "products", "optimisers", "the rest"]
    spent += ["GFLOP of its products", "GFLOP/s in them", "in a product of 2048²", "of that limit", "what it leaves"]
    return page(
        "speed",
        results=table(header, [ratio_row(result) for result in report["results"]]),
        repeat=report["repeat"],
        means="".join(f"{line}\n" for line in shared_mean(report["results"])),
        shared="".join(f"{line}\n" for line in while_shared(report)),
        threads=report["threads"],
        spent=table(spent, [spent_row(found) for found in report["spent"]]),
        machine=f"{there['cpu']}, {there['cores']} cores, {there['memory_gib']} GiB, {there['system']}",
        accelerators=", ".join(there["accelerators"]) or "none",
        loads=f"{loads[0]:.2f} to {loads[-1]:.2f}",
        dates=", ".join(dates),
        versions="; ".join(versions),
    )


def merged(new: dict[str, Any]) -> dict[str, Any]:
    """What is kept, with the rows that were measured now in place of theirs; those of another processor stay beside them."""
    old, names = kept("speed", {}), list(WORKS)
    for kind in ("results", "spent"):
        fresh = {(r["group"], r["device"], r["cpu"]) for r in new[kind]}
        same = [
            r for r in old.get(kind, []) if r["group"] in names and all(r.get(key) == new[key] for key in ("repeat", "threads"))
        ]
        others = [r for r in same if (r["group"], r["device"], r["cpu"]) not in fresh]
        new[kind] = sorted([*others, *new[kind]], key=lambda r: (r["device"], names.index(r["group"]), r["cpu"]))
    return new


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Speed beside d3rlpy 2.8.1.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="measurements a side")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side")
    parser.add_argument("--only", nargs="+", choices=[*WORKS], default=[*WORKS], metavar="ROW", help="rows to measure")
    parser.add_argument("--spent", action="store_true", help="only the second table")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "versions": {}, "repeat": options.repeat, "threads": options.threads}
    report |= {"results": [], "spent": []}
    with tempfile.TemporaryDirectory(prefix="d3ray-speed-") as folder:
        bench = Bench(Path(folder), options)
        try:
            for side, script in (("d3ray", "ours.py"), ("d3rlpy", "d3rlpy_side.py")):
                with bench.worker(script) as worker:
                    report["versions"][side] = worker("versions")
            for device in ("cpu", *(["cuda:0"] if report["machine"]["accelerators"] else [])):
                for name in options.only:
                    if device == "cpu" or name not in CPU_ONLY:
                        run(name, bench, device, report, options)
        except RuntimeError as error:
            print(f"{error}\n{bench.log.read_text()[-2_000:]}")
            raise SystemExit(1) from None
    if options.scale >= 1:
        report = merged(report)
        keep("speed", report, markdown(report))
    print("\n" + markdown(report))


def run(name: str, bench: Bench, device: str, report: dict[str, Any], options: argparse.Namespace) -> None:
    """Measures one row, and where its updates' time goes."""
    work, there = WORKS[name], machine()
    when = {"group": name, "device": device, "repeat": options.repeat, "threads": options.threads}
    when |= {"algorithm": work.algorithm, "settings": work.chosen()}
    when |= {"date": today(), "load_average": there["load_average"], "cpu": there["cpu"]}
    if not options.spent:
        with OTHERS.get(work.kind, work)(bench, device) as rows:
            for row in rows:
                result = {**when, **measure(row, options.repeat)}
                report["results"].append(result)
                print(f"{row.label} [{device}]: {as_shown(result, result['ratio']['median'])} {target(result)}", flush=True)
    if name in TOLD["spent"]:
        dataset = (bench.cartpole() if work.discrete else bench.hopper())[0]
        with bench.worker("ours.py") as worker:
            found = worker("spent", dataset=dataset, algorithm=work.settings(), device=device)
        report["spent"].append({**when, "label": work.named, **found})
        print(f"{work.named} [{device}]: products {found['products'] / found['update']:.0%} of an update", flush=True)


if __name__ == "__main__":
    main()
