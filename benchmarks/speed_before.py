"""What a change costs: an update of d3ray beside one of an earlier commit, for the pages of the speed table.

    python benchmarks/speed_before.py COMMIT [--pairs 32] [--only TD3PlusBC …]

Networks are tiny, so that nearly all of an update is d3ray's own work and not the products that both share; what it took longer is
then held against an update of the speed table's row. Both run in processes of their own on one thread, new ones every eight pairs,
and are measured in turn, A B B A A B …, in seconds of the processor, which what else the machine does disturbs least. Of two pairs,
A B and B A, the mean difference is taken, since whoever comes second is slower. Bounds are those of the median of these with 95 %,
by the sign test: neighbours on a shared machine make outliers. Rows of `results/speed_before.json` for the two commits are kept.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from scipy.stats import binom
from speed import WORKS
from workers import HERE, Worker, keep, kept, machine, table

LEAST = 0.97
SECONDS = 0.3  # of a measurement, about
EACH = 8  # pairs of two processes


def compared(page: str, log: Path, sides: dict[str, Path], pairs: int) -> dict[str, list[float]]:
    """Microseconds of an update of both, pair by pair."""
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(-(-pairs // EACH)):  # a process may be slower than its like for where its memory lies
        workers = {name: Worker("ours.py", 1, log, {"PYTHONPATH": str(place)}) for name, place in sides.items()}
        with workers["now"], workers["before"]:
            for worker in workers.values():
                worker("set_up_tiny", page=page)
            n = max(8, int(SECONDS / workers["now"]("fit", n=100)["cpu_seconds"] * 100))
            for k in range(EACH):
                for name in ("now", "before") if k % 2 else ("before", "now"):
                    took[name].append(1e6 * workers[name]("fit", n=n)["cpu_seconds"] / n)
    return took


def longer(row: dict[str, list[float]]) -> tuple[float, float]:
    """By how many microseconds an update is longer, the median of pairs of pairs, and what it lies below with 95 %."""
    pairs = [now - before for now, before in zip(row["now"], row["before"], strict=True)]
    apart = sorted((first + second) / 2 for first, second in zip(pairs[::2], pairs[1::2], strict=True))
    return statistics.median(apart), apart[min(int(binom.ppf(0.95, len(apart), 0.5)) + 1, len(apart) - 1)]


def rates() -> dict[str, float]:
    """Of each page the most updates a second that the speed table has of it on a CPU: there its own work weighs most."""
    found: dict[str, float] = {}
    for row in kept("speed", {"results": []})["results"]:
        work = WORKS.get(row["group"])
        if work and work.algorithm and work.kind in ("fit", "beside") and work.how != "compiled" and row["device"] == "cpu":
            rate = statistics.median(one["per_second"] for one in row["runs"]["a"])
            found[work.algorithm] = max(rate, found.get(work.algorithm, 0.0))
    return found


def written(known: dict[str, Any]) -> str:
    """The page of the results."""
    heads = [
        "page",
        "before, µs",
        "now",
        "longer by",
        "at most",
        "the table's row, updates/s",
        f"now : before there, at least (≥ {LEAST:g})",
    ]
    cells: list[list[str]] = []
    for page, row in known["rows"].items():
        (median, most), rate = longer(row), known["rates"][page]
        least = 1 / (1 + max(most, 0.0) * 1e-6 * rate)
        numbers = [statistics.median(row["before"]), statistics.median(row["now"]), median, most, rate]
        cells.append([page, *(f"{one:,.0f}" for one in numbers), f"{least:.3f}" + ("" if least >= LEAST else ": NOT met")])
    told = f"`python benchmarks/speed_before.py {known['before']}`: {known['now']} beside {known['before']}"
    about = f"{told}, updates of tiny networks on one thread of {known['machine']['cpu']}."
    return "\n\n".join(["# Speed beside an earlier commit", about, table(heads, cells)]) + "\n"


def commit(name: str) -> str:
    """The short hash of a commit."""
    asked = ["git", "-C", str(HERE), "rev-parse", "--short=8", name]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measures the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument("--pairs", type=int, default=32)
    parser.add_argument("--only", nargs="*", help="pages; none: all")
    asked = parser.parse_args()
    before, now = commit(asked.commit), commit("HEAD")
    known: dict[str, Any] = kept("speed_before", {})
    if (known.get("before"), known.get("now")) != (before, now):
        known = {"before": before, "now": now, "machine": machine(), "rates": rates(), "rows": {}}
    with tempfile.TemporaryDirectory(prefix="d3ray-before-") as folder:
        places = {name: Path(folder) / name for name in ("before", "now")}
        for place in places.values():
            place.mkdir()
        (places["now"] / "d3ray").symlink_to(HERE.parent)
        earlier = str(places["before"] / "d3ray")
        subprocess.run(["git", "-C", str(HERE), "worktree", "add", "-q", "--detach", earlier, before], check=True)
        try:
            for page in known["rates"]:
                if page not in known["rows"] and (not asked.only or page in asked.only):
                    known["rows"][page] = compared(page, Path(folder) / "workers.log", places, asked.pairs)
                    print(page, *longer(known["rows"][page]), flush=True)
                    keep("speed_before", known, written(known))
        finally:
            subprocess.run(["git", "-C", str(HERE), "worktree", "remove", "--force", earlier], check=True)


if __name__ == "__main__":
    main()
