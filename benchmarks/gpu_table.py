"""The GPU table in words: medians and ranges, ratios round by round, and what was asked for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from gpu_rows import OURS, ROWS, Target
from workers import table

Found = dict[str, Any]
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
    return "; ".join(verdict(target, found, beside(cells, found), judge=judge) for target in targets)


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


def page(report: Found) -> str:
    """The whole as Markdown."""
    judge, cells = report["device"].startswith("cuda"), report["cells"]
    about = report["about"]
    used = ", ".join(f"{name} {value}" for name, value in about["versions"].items())
    parts = ["# GPU", "", "<!-- Written by benchmarks/gpu.py. -->", ""]
    if cells:
        parts += [table(HEADER, [row(cells, found, judge=judge) for found in cells]), ""]
    parts += [*trial_lines(report["trials"], judge=judge), ""] if report["trials"] else []
    parts += [
        f"Medians and ranges of {report['rounds']} measurements of about {report['seconds']:g} s, in turn over all who are ready;",
        "ratios round by round. d3ray and d3rlpy: whole calls of `fit` with the draws of their batches, d3ray with its preset",
        "`d3rlpy`. Bare torch and JAX: a program of that one update, which draws its rows too; JAX's products are in its default",
        "precision, TF32 on such a card. The first step comes with what is compiled and copied for it, while other contenders get",
        "ready beside it. Kernels, launches and device time are the profiler's, of what 2n updates have beyond n. The control loop",
        "is a fixed product on the device, just before each measurement. Targets are of an H200.",
        "",
        f"{about['where']}; {report['rows']:,} rows. {about['date']}. {used}. The whole took {report['took']:.0f} s.",
        "",
    ]
    return "\n".join(parts)
