"""The GPU table: d3ray beside d3rlpy, a program of bare torch and one of JAX, on one card and in one run of under five minutes.

    python benchmarks/gpu.py [--device cuda:0] [--only td3+bc iql …] [--seconds 0.5] [--within 290] [--out FOLDER]
    python benchmarks/gpu.py --device cpu --rows 20000 --only td3+bc       to see that it runs

Every contender at every kind of work (`gpu_rows.py`) is a process of its own. They get ready side by side and are then measured in
turn, in several rounds, with a control loop before each measurement; then the profiler looks at an update. What is not installed,
fails or is not ready in time has the reason in its place. Last come trials through Ray on shares of the GPU, beside one alone and
beside what the plan says of them. Results of a CUDA device go to `benchmarks/results/gpu.md` and `gpu.json`; those of the CPU are
printed, and written where `--out` says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from gpu_rows import CONTENDERS, ROWS, TRIALS, written
from gpu_run import Bench, Cell, Clock, cores
from gpu_table import Found, page, spread
from workers import HERE, machine

TRIAL_SECONDS = 5.0  # that one alone trains, about
RESERVE = 80.0  # for Ray, the plan and two experiments


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
    dataset = written("hopper", bench.rows, bench.folder)["ours"]
    with bench.worker("gpu_trials.py", TRIALS) as worker:
        begun = Cell(ROWS["td3+bc"], "d3ray", worker=worker)
        try:
            found |= worker.ask(bench.left(), "begin", dataset=dataset, folder=str(bench.folder), device=bench.device)
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
    on_cuda = given.device.startswith("cuda")
    report: Found = {"device": given.device, "rows": given.rows, "rounds": given.rounds, "seconds": given.seconds}
    there = machine()
    where = f"{', '.join(there['accelerators']) or there['cpu']}, {there['cores']} cores of {there['cpu']}"
    about: Found = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "where": where, "machine": there, "versions": versions()}
    report["about"] = about
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="d3ray-gpu-") as scratch:
        bench = Bench(
            given.device,
            given.rows,
            given.seconds,
            given.rounds,
            given.limit,
            given.at_once or max(cores() - 2, 1),
            given.alive or (64 if on_cuda else 1),
            given.threads,
            Path(scratch),
            clock,
            reserve=min(RESERVE, given.within / 3) if TRIALS in given.only else 0.0,
        )
        for cell in bench.measure([(name, work) for name, work in ROWS.items() if name in given.only], given.contenders):
            cells.append(cell)
            speed = [run["per_second"] for run in cell.runs]
            result = f"{spread(speed)} {cell.work.unit}" if speed else cell.reason
            print(f"{clock.since():4.0f} s | {cell.work.label} | {cell.contender} | {result}", flush=True)
        report["trials"] = trials(bench, cells) if TRIALS in given.only else {}
    told = [cell.found.get("versions", {}) for cell in cells]
    about["versions"] |= {name: one[name] for one in told for name in ("d3rlpy", "jax") if name in one}
    report |= {"cells": [cell.told() for cell in cells], "took": clock.since()}
    text = page(report)
    print("\n" + text)
    out: Path | None = given.out or (HERE / "results" if on_cuda else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gpu.md").write_text(text, encoding="utf-8")
        (out / "gpu.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
