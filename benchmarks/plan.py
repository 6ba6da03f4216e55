"""Plans beside what happened: `d3ray sweep --plan` of a grid, then the sweep itself, three times.

    python benchmarks/plan.py [--steps 6000] [--times 3] [--wide]

A grid of four configurations with two seeds each, or of six with three, no early stop, with evaluations and checkpoints. Planned is
what the plan says of the wall time and of the disk; happened is the whole command, from its start to its end, and what then lies in
the storage. Plans are to be within 25 % in the median of three. The result goes to `benchmarks/results/plan.json` when three or
more were made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers import HERE, control, machine, table, versions

RESULT = HERE / "results" / "plan.json"


def config(folder: Path, n_steps: int, *, wide: bool = False) -> Path:
    """The sweep's file. YAML reads JSON."""
    settings = {
        "name": "planned",
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "encoder": {"hidden_units": [64, 64]}},
        "n_steps": n_steps,
        "n_steps_per_epoch": n_steps // 6,
        "seeds": [0, 1, 2] if wide else [0, 1],
        "evaluation": {"environment": "CartPole-v1", "episodes": 10},
        "search": {"algorithm.batch_size": {"grid": [32, 64, 128] if wide else [32, 128]}, "algorithm.n_critics": {"grid": [1, 2]}},
        "searcher": "grid",
        "storage": str(folder / "results"),
    }
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(settings))
    return file


def command(*arguments: str) -> tuple[float, str]:
    """Seconds of a `d3ray` command, and what it printed."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "d3ray.jobs", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    return time.perf_counter() - begin, done.stdout


def once(n_steps: int, *, wide: bool) -> dict[str, Any]:
    """One plan and one sweep."""
    with tempfile.TemporaryDirectory(prefix="plan-") as scratch:
        file = str(config(Path(scratch), n_steps, wide=wide))
        before = control()
        probing, text = command("sweep", "--config", file, "--plan", "format=json")
        plan = json.loads(text)
        between = control()
        happened, _ = command("sweep", "--config", file)
        storage = Path(scratch) / "results"
        written = sum(path.stat().st_size for path in storage.rglob("*") if path.is_file() and "tune" not in path.parts)
        return {
            "planned_seconds": plan["wall_seconds"],
            "seconds": happened,
            "planned_bytes": plan["disk_bytes"],
            "bytes": written,
            "probe_seconds": probing,
            "at_once": plan["at_once"],
            "control_seconds": [before, between, control()],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=6000, help="gradient steps of a seed")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--wide", action="store_true", help="six configurations of three seeds")
    options = parser.parse_args()
    found = [once(options.steps, wide=options.wide) for _ in range(options.times)]
    rows = [
        [
            f"{one['planned_seconds']:.0f}",
            f"{one['seconds']:.0f}",
            f"{one['planned_seconds'] / one['seconds'] - 1:+.0%}",
            f"{one['planned_bytes'] / 1e6:.1f}",
            f"{one['bytes'] / 1e6:.1f}",
            f"{one['probe_seconds']:.0f}",
            " ".join(f"{c:.2f}" for c in one["control_seconds"]),
        ]
        for one in found
    ]
    print(table(["planned, s", "happened, s", "", "planned, MB", "happened, MB", "--plan took, s", "control loop, s"], rows))
    off = statistics.median(one["planned_seconds"] / one["seconds"] - 1 for one in found)
    print(f"the median plan is off by {off:+.0%} (goal: within 25 %)")
    if options.times >= 3:
        about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions()}
        RESULT.write_text(
            json.dumps({**about, "n_steps": options.steps, "wide": options.wide, "off": off, "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
