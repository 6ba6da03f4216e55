"""What a change costs: the speed table's rows of whole `fit` calls, as the code is and as an earlier commit had it.

    python benchmarks/speed_before.py COMMIT [--pairs 40] [--only td3-plus-bc …]

Both run in processes of their own on the same arrays, one thread each, new ones every eight pairs, and are measured in turn: A B B
A A B …, in seconds of the processor, which what else the machine does disturbs least. The table has the median ratio of the pairs,
and the bound that it lies above with 95 % (by the sign test: neighbours on a shared machine make outliers). Rows of
`results/speed_before.json` for the two commits are kept; one whose bound is below 0.97 is measured on, and all of its pairs count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from scipy.stats import binom
from speed_bench import Bench
from speed_rows import GROUPS, Fits
from workers import HERE, Worker, machine, table

RESULT = HERE / "results" / "speed_before.json"
LEAST = 0.97
SECONDS = 0.25  # of a measurement, about
EACH = 8  # pairs of two processes


def compared(fits: Fits, bench: Bench, sides: dict[str, Path], pairs: int) -> dict[str, Any]:
    """Updates a second of both, and their ratio."""
    data = (bench.cartpole() if fits.discrete else bench.hopper())[0]
    settings, n = {"compile_graph": False, **fits.settings()}, max(4, int(fits.n / 2 * SECONDS))
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(-(-pairs // EACH)):  # a process may be slower than its like for where its memory lies
        workers = {name: Worker("ours.py", 1, bench.log, {"PYTHONPATH": str(place)}) for name, place in sides.items()}
        with workers["now"], workers["before"]:
            for worker in workers.values():
                worker("set_up_fit", dataset=data, algorithm=settings, device="cpu", warm=max(4, n // 4))
            for k in range(EACH):
                for name in ("now", "before") if k % 2 else ("before", "now"):
                    speeds[name].append(n / workers[name]("fit", n=n)["cpu_seconds"])
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    ratios = [a / b for a, b in zip(speeds["now"], speeds["before"], strict=True)]
    return {"label": fits.label, **medians, "ratios": ratios}


def bound(row: dict[str, Any]) -> float:
    """What the median ratio lies above with 95 %."""
    ratios = sorted(row["ratios"])
    return ratios[max(int(binom.ppf(0.05, len(ratios), 0.5)) - 1, 0)]


def written(known: dict[str, Any]) -> str:
    """The page of the results."""
    heads = [
        "whole `fit` on one thread of a CPU",
        "before, updates per CPU second",
        "now",
        "now : before",
        "pairs",
        f"at least (95 %), ≥ {LEAST:g}",
    ]
    cells = [
        [
            row["label"],
            f"{row['before']:.0f}",
            f"{row['now']:.0f}",
            f"{statistics.median(row['ratios']):.3f}",
            f"{len(row['ratios'])}",
            f"{bound(row):.3f}" + ("" if bound(row) >= LEAST else ": NOT met"),
        ]
        for row in known["rows"].values()
    ]
    told = f"`python benchmarks/speed_before.py {known['before']}`: {known['now']} beside {known['before']}"
    about = f"{told}, {known['machine']['cpu']}."
    return "\n\n".join(["# Speed beside an earlier commit", about, table(heads, cells)]) + "\n"


def commit(name: str) -> str:
    """The short hash of a commit."""
    asked = ["git", "-C", str(HERE), "rev-parse", "--short=8", name]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measures the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--only", nargs="*", help="names of rows; none: all")
    asked = parser.parse_args()
    before, now = commit(asked.commit), commit("HEAD")
    known: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    if (known.get("before"), known.get("now")) != (before, now):
        known = {"before": before, "now": now, "machine": machine(), "rows": {}}
    rows = {name: group for name, group in GROUPS.items() if isinstance(group, Fits) and not group.mixed and not group.compiled}
    with tempfile.TemporaryDirectory(prefix="d3ray-before-") as folder:
        places = {name: Path(folder) / name for name in ("before", "now")}
        for name, place in places.items():
            place.mkdir()
            if name == "now":
                (place / "d3ray").symlink_to(HERE.parent)
        subprocess.run(
            ["git", "-C", str(HERE), "worktree", "add", "-q", "--detach", str(places["before"] / "d3ray"), before], check=True
        )
        try:
            bench = Bench(Path(folder), argparse.Namespace(threads=1, scale=1.0))
            for name, fits in rows.items():
                row = known["rows"].get(name)
                if (row is None or bound(row) < LEAST) and (not asked.only or name in asked.only):
                    found = compared(fits, bench, places, asked.pairs)
                    found["ratios"] += row["ratios"] if row else []
                    known["rows"][name] = found
                    print(
                        name, len(found["ratios"]), round(statistics.median(found["ratios"]), 3), round(bound(found), 3), flush=True
                    )
                    RESULT.write_text(json.dumps(known, indent=1) + "\n")
                    RESULT.with_suffix(".md").write_text(written(known))
        finally:
            removed = ["git", "-C", str(HERE), "worktree", "remove", "--force", str(places["before"] / "d3ray")]
            subprocess.run(removed, check=True)


if __name__ == "__main__":
    main()
