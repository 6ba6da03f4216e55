"""The GPU table: d3ray beside d3rlpy, a program of bare torch and one of JAX, on one card and in one run of under five minutes.

    python benchmarks/gpu.py [--device cuda:0] [--only td3+bc iql …] [--seconds 0.5] [--within 290] [--out FOLDER]
    python benchmarks/gpu.py --device cpu --rows 20000 --only td3+bc       to see that it runs

Every contender at every kind of work (`gpu.yaml`) is a process of its own. They get ready side by side and are then measured in
turn, in several rounds, with a control loop before each measurement; then the profiler looks at an update. What is not installed,
fails or is not ready in time has the reason in its place. Last come trials through Ray on shares of the GPU, beside one alone and
beside what the plan says of them. Results of a CUDA device go to `benchmarks/results/gpu.md` and `gpu.json`; those of the CPU are
printed, and written where `--out` says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tasks import cartpole_like, for_peer, frames_like, hopper_like
from workers import RESULTS, Worker, machine, page, peer_place, table, today, told

SCRIPT = "gpu_side.py"
TRIAL_SECONDS = 5.0  # that one alone trains, about
RESERVE = 80.0  # for Ray, the plan and two experiments
NO_PACKAGE = "No module named "
FRAME_ROWS = 10_000
DATA = {"hopper": hopper_like, "cartpole": cartpole_like, "frames": frames_like}
TRIALS = "trials"  # the row beside those of the file: four shares of a GPU through Ray
Found = dict[str, Any]


# ---- rows

# Who does the work: a class for `gpu_side.py`, and whether its graphs are compiled by its own setting for that.
CONTENDERS = {
    "d3ray": (".Ours", False),
    "d3ray, compile_graph": (".Ours", True),
    "d3rlpy": (".Theirs", False),
    "d3rlpy, compile_graph": (".Theirs", True),
    "bare torch": ("gpu_bare.Bare", False),
    "JAX": ("gpu_jax.Jax", False),
}
OURS = ("d3ray", "d3ray, compile_graph")
PEERS = ("d3rlpy", "d3rlpy, compile_graph")


@dataclass(frozen=True)
class Target:
    """At least so many a second; or so many times the speed of a contender."""

    at_least: float
    over: str = ""

    def __str__(self) -> str:
        return f"≥ {self.at_least:g} × {self.over}" if self.over else f"≥ {self.at_least:,.0f}"


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Attributes:
        label: what the table calls it.
        algorithm: by its name in the registry; d3rlpy's is the same.
        ours: its settings.
        theirs: d3rlpy's.
        data: by a name in `DATA`; "": it makes its own by acting.
        hidden: layers of every network; []: as the settings have them.
        contenders: who does it.
        seeds: that are stacked.
        targets: of d3ray: at least so many a second, or so many times the speed of a contender.
        unit: of the rates.
        plain: the label of the same work in float32, which it is compared with; "": it is in float32.
    """

    label: str
    algorithm: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    data: str
    hidden: list[int]
    contenders: list[str]
    seeds: int = 1
    targets: list[list[Any]] = field(default_factory=list[list[Any]])
    unit: str = "updates/s"
    plain: str = ""

    def told(self, contender: str) -> dict[str, Any]:
        """What its process is told."""
        who, compiled = CONTENDERS[contender]
        return {**asdict(self), "who": who, "compiled": compiled}


TOLD = told("gpu.yaml")
ROWS = {name: Work(**(TOLD["same"] | own)) for name, own in TOLD["rows"].items()}


def written(name: str, rows: int, folder: Path) -> dict[str, str]:
    """The files of some data, made where they are not there: as `Contender.build` in gpu_side.py takes them."""
    if not name:
        return {}
    ours, theirs = folder / name, folder / f"{name}.npz"
    if not theirs.exists():
        dataset = DATA[name](min(rows, FRAME_ROWS) if name == "frames" else rows)
        dataset.write(ours, n_shards=1)
        for_peer(dataset, theirs)
    return {"ours": str(ours), "theirs": str(theirs)}


# ---- how it is measured


class Clock:
    """The time that the whole may take."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.monotonic()
        self.end = self.begin + seconds

    def left(self) -> float:
        return self.end - time.monotonic()

    def since(self) -> float:
        return time.monotonic() - self.begin


class Patient(Worker):
    """A worker that is ended where an answer takes too long."""

    def ask(self, limit: float, task: str, **arguments: Any) -> Any:
        """The answer of a task. Raises RuntimeError when it failed or took longer than `limit` seconds."""
        stdout = self._process.stdout
        assert stdout is not None
        self.send(task, arguments)
        if not select.select([stdout], [], [], max(limit, 0.1))[0]:
            self._process.kill()
            raise RuntimeError(f"`{task}` was not done after {limit:.0f} s")
        return self.answer(task)

    def last_words(self) -> str:
        """The last line that it wrote beside its answers."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.is_file() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")

    def leave(self) -> None:
        """Lets it end, without waiting for that."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


@dataclass
class Cell:
    """A contender at a kind of work, and what came of it."""

    work: Work
    contender: str
    reason: str = ""  # why there is no number
    found: dict[str, Any] = field(default_factory=dict[str, Any])
    runs: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    worker: Patient | None = None

    def fail(self, error: BaseException | str) -> None:
        """Notes why it goes no further; its process ends."""
        self.reason = str(error).split("; its output is in ")[0].replace("\n", " ")
        if self.reason.endswith("the process died") and self.worker is not None:
            self.reason += f": {self.worker.last_words()}"
        if NO_PACKAGE in self.reason:
            self.reason = f"not installed: {self.reason.rpartition(NO_PACKAGE)[2]}".replace("'", "")
        self.reason = self.reason[:200]
        self.close()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.leave()

    def told(self) -> dict[str, Any]:
        """What is kept of it."""
        kept = {"work": self.work.label, "contender": self.contender, "unit": self.work.unit, "seeds": self.work.seeds}
        kept |= {"plain": self.work.plain} if self.work.plain else {}
        return {**kept, "reason": self.reason, **self.found, "runs": self.runs}


class Bench:
    """The options of a run, the folder of its data and logs, and the clock of the whole."""

    def __init__(self, given: argparse.Namespace, folder: Path, clock: Clock) -> None:
        self.given, self.folder, self.clock, self.device = given, folder, clock, given.device
        self.on_cuda = given.device.startswith("cuda")
        self.at_once = given.at_once or max(len(os.sched_getaffinity(0)) - 2, 1)  # that get ready side by side
        self.alive = given.alive or (64 if self.on_cuda else 1)  # processes that are there at once
        self.reserve = min(RESERVE, given.within / 3) if TRIALS in given.only else 0.0  # seconds that are left for what follows
        self.measuring = 0.0  # seconds that the measurements of a wave take, which getting ready leaves to them

    def left(self) -> float:
        return self.clock.left() - self.reserve

    def worker(self, name: str, python: str | None = None) -> Patient:
        """A process that works."""
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        environment |= {"D3RAY_CACHE": str(self.folder / "cache")}
        environment |= {} if self.on_cuda else {"JAX_PLATFORMS": "cpu"}
        return Patient(SCRIPT, self.given.threads, self.folder / f"{name}.log", environment, python)

    def measure(self, rows: Sequence[tuple[str, Work]], contenders: Sequence[str]) -> Iterator[Cell]:
        """All cells, as they are done."""
        waiting = [[Cell(work, name) for name in work.contenders if name in contenders] for _, work in rows]
        control = self.worker("control")
        with control:
            while waiting:
                wave = waiting.pop(0)
                while waiting and len(wave) + len(waiting[0]) <= self.alive:
                    wave += waiting.pop(0)
                yield from self.wave(wave, control)

    def wave(self, cells: list[Cell], control: Patient) -> list[Cell]:
        """Cells side by side: all get ready, then each is measured in every round, then traced."""
        for data in dict.fromkeys(cell.work.data for cell in cells):
            written(data, self.given.rows, self.folder)
        self.measuring = 1.3 * self.given.seconds * self.given.rounds * len(cells)
        with ThreadPoolExecutor(self.at_once) as pool:  # what takes longest to compile comes last: no other is late by it
            list(pool.map(self.prepare, sorted(cells, key=lambda cell: cell.contender == OURS[1])))
        for _ in range(self.given.rounds):
            for cell in cells:
                self.look(cell, control)
        for cell in cells:
            self.trace(cell)
            if not cell.runs and not cell.reason:
                cell.reason = "no time was left to measure it"
            cell.close()
        for cell in cells:
            if cell.worker is not None:
                cell.worker.__exit__()
        return cells

    def prepare(self, cell: Cell) -> None:
        """Starts a cell's process, does its first update, and finds out how many a measurement has."""
        if self.left() - self.measuring < 5:
            cell.reason = "no time was left to begin it"
        elif cell.contender == PEERS[1] and not self.on_cuda:
            cell.reason = "it compiles for a CUDA device alone"
        if cell.reason:
            return
        begin = time.monotonic()
        name = "".join(c if c.isalnum() else "-" for c in f"{cell.work.label}-{cell.contender}")
        python = str(peer_place()) if cell.contender in PEERS and peer_place().is_file() else None
        try:
            cell.worker = self.worker(name, python)
            data = written(cell.work.data, self.given.rows, self.folder)
            told = {"work": cell.work.told(cell.contender), "device": self.device, "data": data, "rows": self.given.rows}
            cell.found |= cell.worker.ask(min(self.given.limit, self.left() - self.measuring), "begin", **told)
            left = min(self.given.limit - (time.monotonic() - begin), self.left() - self.measuring)
            warm = cell.worker.ask(left, "warm", seconds=self.given.seconds)
            cell.found |= {"n": warm["n"], "warm": warm["took"], "ready": time.monotonic() - begin}
            cell.found["versions"] = cell.worker.ask(30, "versions")
        except (OSError, RuntimeError, ValueError) as error:
            cell.fail(error)

    def look(self, cell: Cell, control: Patient) -> None:
        """One measurement, and the control loop just before it."""
        if cell.reason or (self.left() < 2 and cell.runs) or self.left() < 0:
            return
        assert cell.worker is not None
        try:
            product = control.ask(30, "product", device=self.device)
            found = cell.worker.ask(min(30 + 10 * self.given.seconds, self.left() + 10), "measure", n=cell.found["n"])
            cell.runs.append({**found, "control_ms": product})
            cell.found["memory_mib"] = cell.worker.ask(10, "memory")
        except (OSError, RuntimeError, ValueError) as error:
            cell.fail(error)

    def trace(self, cell: Cell) -> None:
        """Launches and device time of what is torch's."""
        if cell.reason or not cell.runs or cell.contender == "JAX":
            return
        if not self.on_cuda:
            cell.found["untraced"] = "no CUDA device"
        elif self.left() < 8:
            cell.found["untraced"] = "no time was left"
        else:
            assert cell.worker is not None
            quick = cell.runs[-1]["per_second"] / cell.work.seeds > 1_000
            try:
                cell.found |= cell.worker.ask(min(20, self.left()), "trace", n=100 if quick else 20)
            except (OSError, RuntimeError, ValueError) as error:
                cell.found["untraced"] = str(error).split("; its output is in ")[0][:100]


# ---- the page

HEADER = [
    *("batch 256, 256×256", "who", "a second", "d3ray over it", "target", "first step (ready after), s"),
    *("kernels an update", "launches an update", "device, µs an update", "MiB", "control loop, ms"),
]


def spread(values: Sequence[float], places: int = 0) -> str:
    """Median, and least and most where they differ."""
    middle, low, high = (f"{value:,.{places}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def rates(found: Found) -> list[float]:
    return [run["per_second"] for run in found["runs"]]


def ratios(one: Found, other: Found) -> list[float]:
    """Round by round."""
    return [a / b for a, b in zip(rates(one), rates(other), strict=False)]


def beside(cells: Sequence[Found], found: Found) -> dict[str, Found]:
    """Who does the same work, by name."""
    return {one["contender"]: one for one in cells if one["work"] == found["work"] and one["runs"]}


def judged(cells: Sequence[Found], found: Found, *, judge: bool) -> str:
    """What is asked of d3ray in this row, and where `judge` says so whether it was reached."""
    targets = next((work.targets for work in ROWS.values() if work.label == found["work"]), ())
    if found["contender"] not in OURS:
        return ""
    return "; ".join(verdict(Target(*target), found, beside(cells, found), judge=judge) for target in targets)


def verdict(target: Target, found: Found, others: dict[str, Found], *, judge: bool) -> str:
    if not judge:
        return str(target)
    if not found["runs"] or (target.over and target.over not in others):
        return f"{target}: not measured"
    values = ratios(found, others[target.over]) if target.over else rates(found)
    value = statistics.median(values)
    shown = f" ({value:.2f})" if target.over else ""
    return f"{target}: {'met' if value >= target.at_least else 'NOT met'}{shown}"


def row(cells: Sequence[Found], found: Found, *, judge: bool) -> list[str]:
    """A line of the table."""
    who = [found["work"], found["contender"]]
    if not found["runs"]:
        return [*who, f"– {found['reason']}", "", judged(cells, found, judge=judge), *[""] * 6]
    ours = beside(cells, found).get(OURS[0])
    over = spread(ratios(ours, found), 2) if ours is not None and found is not ours else ""
    traced = [f"{found[name]:,.1f}" if name in found else "" for name in ("kernels", "launches", "device_us")]
    if "untraced" in found:
        traced[0] = f"– {found['untraced']}"
    memory = "" if found.get("memory_mib") is None else f"{found['memory_mib']:,.0f}"
    speed = f"{spread(rates(found))} {found['unit'].removesuffix('/s')}{beside_float32(cells, found)}"
    speed += f"; then {found['reason']}" if found["reason"] else ""
    first, control = f"{found['first']:.1f} ({found['ready']:.0f})", spread([run["control_ms"] for run in found["runs"]], 1)
    return [*who, speed, over, judged(cells, found, judge=judge), first, *traced, memory, control]


def beside_float32(cells: Sequence[Found], found: Found) -> str:
    """What another precision gains over float32, and what it costs."""
    if not found.get("plain"):
        return ""
    same = [one for one in cells if (one["work"], one["contender"]) == (found["plain"], found["contender"]) and one["runs"]]
    gain = f"; {spread(ratios(found, same[0]), 2)} × float32" if same else ""
    return f"{gain}; parameters {found['gap']:.1e} off after 20 updates" if "gap" in found else gain


def trial_lines(trials: Found, *, judge: bool) -> list[str]:
    """What came of four trials on shares of 0.25."""
    if not trials:
        return []
    header = ["TD3+BC through Ray", "updates/s, all together", "the whole, s", ""]
    lines: list[list[str]] = []
    for name in ("alone", "together", "alone again", "plan"):
        one = trials.get(name, {"reason": trials.get("reason", "not reached")})
        named = {"together": "four, each on a share of 0.25", "plan": "the plan of the four"}.get(name, f"one {name}")
        if "reason" in one:
            lines.append([named, f"– {one['reason']}", "", ""])
            continue
        lines.append([named, f"{one['per_second']:,.0f}", f"{one['seconds']:.1f}", remark(name, trials, judge=judge)])
    started = f"Ray was up before each, after {trials['ray']:.1f} s. " if "ray" in trials else ""
    return [table(header, lines), "", f"{started}A rate is from the end of a trial's first epoch to that of its last."]


def remark(name: str, trials: Found, *, judge: bool) -> str:
    """What a line is beside another one."""
    if name == "plan":
        came = trials.get("together", {})
        took = f"it took {trials['plan']['took']:.0f} s"
        return f"{trials['plan']['seconds'] / came['seconds'] - 1:+.0%} beside what came; {took}" if "seconds" in came else took
    alone = [trials[one]["per_second"] for one in ("alone", "alone again") if "per_second" in trials.get(one, {})]
    if name != "together" or not alone:
        return ""
    ratio = trials["together"]["per_second"] / statistics.mean(alone)
    state = f": {'met' if ratio >= 0.9 else 'NOT met'}" if judge else ""
    return f"{ratio:.2f} of what they make one after another; ≥ 0.9{state}"


def markdown(report: Found) -> str:
    """The whole as Markdown."""
    judge, cells, about = report["device"].startswith("cuda"), report["cells"], report["about"]
    parts = [table(HEADER, [row(cells, found, judge=judge) for found in cells]), ""] if cells else []
    parts += [*trial_lines(report["trials"], judge=judge), ""] if report["trials"] else []
    return page(
        "gpu",
        tables="".join(f"{part}\n" for part in parts),
        rounds=report["rounds"],
        seconds=f"{report['seconds']:g}",
        where=about["where"],
        rows=f"{report['rows']:,}",
        date=about["date"],
        versions=", ".join(f"{name} {value}" for name, value in about["versions"].items()),
        took=f"{report['took']:.0f}",
    )


# ---- the whole


def versions() -> dict[str, str]:
    """What runs: of packages, CUDA and the driver."""
    import d3ray

    found = {"python": platform.python_version(), "d3ray": d3ray.__version__, "torch": torch.__version__}
    for name in ("triton", "numpy", "ray"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    if torch.version.cuda:
        found["CUDA"] = torch.version.cuda
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
        found["driver"] = done.stdout.split("\n")[0].strip()
    return found


def trials(bench: Bench, cells: list[Cell]) -> Found:
    """The trials on shares; what was reached of them, and the reason where something was not."""
    bench.reserve = 0.0
    rate = next((statistics.median(r["per_second"] for r in c.runs) for c in cells if c.work is ROWS["td3+bc"] and c.runs), None)
    per_second = rate or (2_000.0 if bench.on_cuda else 50.0)
    n_steps, four = int(per_second * TRIAL_SECONDS), [1, 2, 3, 4]
    found: Found = {"n_steps": n_steps}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("alone", "train", {"name": "alone", "seeds": [0], "n_steps": n_steps}),
        ("together", "train", {"name": "together", "seeds": four, "n_steps": n_steps}),
        ("plan", "plan", {"seeds": four, "n_steps": n_steps}),
        ("alone again", "train", {"name": "again", "seeds": [0], "n_steps": n_steps}),
    ]
    dataset = written("hopper", bench.given.rows, bench.folder)["ours"]
    with bench.worker(TRIALS) as worker:
        begun = Cell(ROWS["td3+bc"], "d3ray", worker=worker)
        try:
            found |= worker.ask(bench.left(), "start_ray", dataset=dataset, folder=str(bench.folder), device=bench.device)
        except (OSError, RuntimeError, ValueError) as error:
            begun.fail(error)
            return {**found, "reason": begun.reason}
        for name, task, arguments in asked:
            if bench.left() < (15 if bench.on_cuda else 0):
                found[name] = {"reason": "no time was left"}
                continue
            try:
                found[name] = worker.ask(bench.left(), task, **arguments)
            except (OSError, RuntimeError, ValueError) as error:
                begun.fail(error)
                return {**found, "reason": begun.reason}
            print(f"trials, {name}: {found[name]['per_second']:,.0f} updates/s, {found[name]['seconds']:.1f} s", flush=True)
    return found


def options() -> argparse.Namespace:
    on_cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0" if on_cuda else "cpu", help="as torch names it, with its index")
    parser.add_argument("--only", nargs="+", choices=[*ROWS, TRIALS], default=[*ROWS, TRIALS], metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--contenders", nargs="+", choices=[*CONTENDERS], default=[*CONTENDERS], metavar="WHO")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a measurement, about")
    parser.add_argument("--rounds", type=int, default=3, help="of measurements")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the data")
    parser.add_argument("--within", type=float, default=290.0, help="seconds of the whole")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds in which a contender has to be ready")
    parser.add_argument("--at-once", type=int, help="contenders that get ready side by side; by the cores")
    parser.add_argument("--alive", type=int, help="processes that are there at once; 64 on a GPU, else one row's")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--out", type=Path, help="folder of gpu.md and gpu.json; benchmarks/results for a GPU")
    return parser.parse_args()


def main() -> None:
    given = options()
    clock = Clock(given.within)
    report: Found = {"device": given.device, "rows": given.rows, "rounds": given.rounds, "seconds": given.seconds}
    there = machine()
    where = f"{', '.join(there['accelerators']) or there['cpu']}, {there['cores']} cores of {there['cpu']}"
    about: Found = {"date": today(), "where": where, "machine": there, "versions": versions()}
    report["about"] = about
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="d3ray-gpu-") as scratch:
        bench = Bench(given, Path(scratch), clock)
        for cell in bench.measure([(name, work) for name, work in ROWS.items() if name in given.only], given.contenders):
            cells.append(cell)
            speed = [run["per_second"] for run in cell.runs]
            result = f"{spread(speed)} {cell.work.unit}" if speed else cell.reason
            print(f"{clock.since():4.0f} s | {cell.work.label} | {cell.contender} | {result}", flush=True)
        report["trials"] = trials(bench, cells) if TRIALS in given.only else {}
    told = [cell.found.get("versions", {}) for cell in cells]
    about["versions"] |= {name: one[name] for one in told for name in ("d3rlpy", "jax") if name in one}
    report |= {"cells": [cell.told() for cell in cells], "took": clock.since()}
    text = markdown(report)
    print("\n" + text)
    out: Path | None = given.out or (RESULTS if given.device.startswith("cuda") else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gpu.md").write_text(text, encoding="utf-8")
        (out / "gpu.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
