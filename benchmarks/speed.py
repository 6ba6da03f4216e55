"""The speed table: d3ray beside d3rlpy 2.8.1, and beside itself.

    make peer && make benchmark-speed        or: python benchmarks/speed.py [--repeat 5] [--threads 2] [--only dqn …]

The two sides of a row (`speed_rows.py`) run in processes of their own, on the same arrays and with the same number of threads, and
are measured in turn: A B A B …. A ratio is taken pair by pair, so that what else the machine does at that time touches both; the
table gives the median of the pairs and their range. A control loop of fixed work runs before and after each measurement: where its
times differ between the sides, so may the ratio. Both sides are warmed up, by updates that are not counted. A second table says
where an update's time goes (`time_spent.py`). Results go to `benchmarks/results/speed.json` and `speed.md`; a run of some rows
replaces those and leaves the others as they are. Where there is a CUDA device the rows that can use one are measured there too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speed_bench import Bench, Row
from speed_rows import CPU_ONLY, GROUPS, SHARED, SHARED_AT_LEAST, SPENT, Fits
from workers import HERE, machine, table

RESULTS = HERE / "results"
SAMPLED = (
    "CQL and BCQ, which products bound: one pass of the critics sees all sampled actions of a state, nothing is differentiated",
    "that a loss does not train, and BCQ's passes without a gradient go by parts that a cache holds. Not done, because it was",
    "measured: the first layer's product with the state, shared among a state's actions, is 4 to 6% of the products, and what",
    "adds it to each action's costs as much as it saves ([speed_sampled.md](speed_sampled.md)). Nor is CQL's Q(s, a), which its",
    "squared error and its gap both ask for, worked out once: that is one row of the critics' in 32, and the gap has expected",
    "values, where a distributional critic's error needs more. So only fewer products, or products in bfloat16, make these two",
    "much faster. Images pass the convolutions, and the affine layer after them, once for all actions of a state.",
)


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


def ratio_row(result: dict[str, Any]) -> list[str]:
    speeds = [sorted(run["per_second"] for run in result["runs"][side]) for side in ("a", "b")]
    cells = [f"{statistics.median(s):,.0f} ({s[0]:,.0f}–{s[-1]:,.0f})" for s in speeds]
    ratio, noise = result["ratio"], result["control"]
    shown, *ends = (as_shown(result, ratio[key]) for key in ("median", "min", "max"))
    low, high = ends if result["at_most"] is None else ends[::-1]
    return [
        f"{result['label']}, {result['unit']}",
        result["device"],
        f"{result['cpu']}, {result['date']}",
        " : ".join(result["sides"].values()),
        *cells,
        f"{shown} ({low}–{high})",
        target(result),
        "" if result["processor_ratio"] is None else as_shown(result, result["processor_ratio"]),
        f"{noise['median']:.2f} ({noise['min']:.2f}–{noise['max']:.2f})",
    ]


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
    lines = []
    for device, cpu in dict.fromkeys((result["device"], result["cpu"]) for result in results):
        found = [r["ratio"]["median"] for r in results if r["group"] in SHARED and (r["device"], r["cpu"]) == (device, cpu)]
        if len(found) == len(SHARED):
            mean = statistics.geometric_mean(found)
            said = "met" if mean >= SHARED_AT_LEAST else "NOT met"
            lines.append(
                f"Geometric mean over the {len(SHARED)} continuous algorithms that both have, {device} ({cpu}): "
                f"{mean:.2f} (≥ {SHARED_AT_LEAST}: {said})."
            )
    return lines


def while_shared(report: dict[str, Any]) -> list[str]:
    """Names the rows that were measured on a busy machine."""
    most = 2 * report["machine"]["cores"]
    busy = [
        f"{result['label'].partition(',')[0]} ({result['cpu']})" for result in report["results"] if result["load_average"] > most
    ]
    if not busy:
        return []
    return [f"Other work shared the machine with {', '.join(busy)}:", "there only ratios hold, those by processor time best."]


def markdown(report: dict[str, Any]) -> str:
    """The tables, and what they were measured on."""
    there, used = report["machine"], report["versions"]
    both = "; ".join(f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in used.items())
    accelerators = ", ".join(there["accelerators"]) or "none"
    loads = sorted(r["load_average"] for r in [*report["results"], *report["spent"]])
    dates = sorted({r["date"] for r in [*report["results"], *report["spent"]]})
    header = ["work", "device", "processor, day", "A : B", "A", "B", "A/B", "target", "A/B by processor time", "control loop, A/B"]
    spent = ["update of", "device", "processor, day", "ms", "draw", "products", "optimisers", "the rest"]
    spent += ["GFLOP of its products", "GFLOP/s in them", "in a product of 2048²", "of that limit", "what it leaves"]
    return "\n".join(
        [
            "# Speed",
            "",
            table(header, [ratio_row(result) for result in report["results"]]),
            "",
            f"Medians and ranges of {report['repeat']} measurements a side, in turn; A/B pair by pair.",
            *shared_mean(report["results"]),
            "Beside d3rlpy both sides have its settings (our preset `d3rlpy`), with the batch and layers of the label and",
            "without a warm-up. They are not always our defaults: BCQ's goal takes the best of 100 actions there, of 10 by",
            "default. An algorithm that no peer has stands beside the one of ours that it is made of, with its defaults but for",
            "batch, layers and warm-up; AWR's phases are of 1 and 5 updates there. A row is there for each kind of",
            "processor that it was measured on, whose ratios are not to be compared with another one's.",
            *while_shared(report),
            f"{report['threads']} threads a side. A percentage is the time of one of A as a share of one of B. The control loop is",
            "fixed work timed beside each measurement, as A's speed over B's: at 1.00 both sides had the same machine.",
            "",
            "Where an update's time goes. Its matrix products, the draw of its batch and its optimisers' steps are timed on their",
            "own; the rest is element-wise work, autograd and Python. Of that limit: products at the speed of a large one would",
            "take this share of the update's time. What it leaves: how many times as fast the update were with those alone, all",
            "else for nothing.",
            "",
            table(spent, [spent_row(found) for found in report["spent"]]),
            "",
            *SAMPLED,
            "",
            f"The last run was on {there['cpu']}, {there['cores']} cores, {there['memory_gib']} GiB, {there['system']};",
            f"accelerators: {accelerators};",
            f"load average {loads[0]:.2f} to {loads[-1]:.2f} where rows began. {', '.join(dates)}.",
            f"{both}.",
            "",
        ]
    )


def merged(new: dict[str, Any]) -> dict[str, Any]:
    """What is kept, with the rows that were measured now in place of theirs; those of another processor stay beside them."""
    path = RESULTS / "speed.json"
    old = json.loads(path.read_text()) if path.is_file() else {}
    groups = list(GROUPS)
    for kind in ("results", "spent"):
        fresh = {(r["group"], r["device"], r["cpu"]) for r in new[kind]}
        alike = [
            r for r in old.get(kind, []) if r["group"] in groups and all(r.get(key) == new[key] for key in ("repeat", "threads"))
        ]
        kept = [r for r in alike if (r["group"], r["device"], r["cpu"]) not in fresh]
        new[kind] = sorted([*kept, *new[kind]], key=lambda r: (r["device"], groups.index(r["group"]), r["cpu"]))
    return new


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Speed beside d3rlpy 2.8.1.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="measurements a side")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side")
    parser.add_argument("--only", nargs="+", choices=[*GROUPS], default=[*GROUPS], metavar="ROW", help="rows to measure")
    parser.add_argument("--spent", action="store_true", help="only the second table")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual work; below 1 it is printed only")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "versions": {}, "repeat": options.repeat, "threads": options.threads}
    report |= {"results": [], "spent": []}
    with tempfile.TemporaryDirectory(prefix="d3ray-speed-") as folder:
        bench = Bench(Path(folder), options)
        try:
            for side, script in (("d3ray", "ours.py"), ("d3rlpy", "peer.py")):
                with bench.worker(script) as worker:
                    report["versions"][side] = worker("versions")
            for device in ("cpu", *(["cuda:0"] if report["machine"]["accelerators"] else [])):
                for name in options.only:
                    if device == "cpu" or name not in CPU_ONLY:
                        run(name, bench, device, report, options)
        except RuntimeError as error:
            print(f"{error}\n{bench.log.read_text()[-2_000:]}")
            raise SystemExit(1) from None
    if options.scale < 1:
        print("\n" + markdown(report))
        return
    report = merged(report)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "speed.md").write_text(markdown(report))
    print("\n" + markdown(report))


def run(name: str, bench: Bench, device: str, report: dict[str, Any], options: argparse.Namespace) -> None:
    """Measures one group, and where its updates' time goes."""
    group = GROUPS[name]
    when = {"group": name, "device": device, "repeat": options.repeat, "threads": options.threads}
    when |= {"algorithm": getattr(group, "algorithm", None)}  # None: of no one
    when |= {"settings": getattr(group, "ours", {})}  # less the networks, which the label has
    there = machine()
    when |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "load_average": there["load_average"], "cpu": there["cpu"]}
    if not options.spent:
        with group(bench, device) as rows:
            for row in rows:
                result = {**when, **measure(row, options.repeat)}
                report["results"].append(result)
                print(f"{row.label} [{device}]: {as_shown(result, result['ratio']['median'])} {target(result)}", flush=True)
    if name in SPENT and isinstance(group, Fits):
        dataset = (bench.cartpole() if group.discrete else bench.hopper())[0]
        with bench.worker("time_spent.py") as worker:
            found = worker("spent", dataset=dataset, algorithm=group.settings(), device=device)
        report["spent"].append({**when, "label": group.label, **found})
        print(f"{group.label} [{device}]: products {found['products'] / found['update']:.0%} of an update", flush=True)


if __name__ == "__main__":
    main()
