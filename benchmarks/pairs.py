"""Measurements of two sides in turn: A B A B …, with a control loop of fixed work beside each, and what tables say of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Run = dict[str, float]


@dataclass(frozen=True)
class Side:
    """One side of a row: what it is called, what measures it, and how much work a measurement is."""

    label: str
    measure: Callable[[], Run]
    amount: float


@dataclass(frozen=True)
class Row:
    """One row: A over B in units a second, and what the ratio should be."""

    label: str
    unit: str
    a: Side
    b: Side
    at_least: float | None = None
    at_most: float | None = None  # B's time for one unit as a share of A's


def measure(row: Row, repeat: int) -> dict[str, Any]:
    """A B A B …, `repeat` of each; a ratio is taken pair by pair, so that what else the machine does then touches both."""
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    for _ in range(repeat):
        for name, side in (("a", row.a), ("b", row.b)):
            found = side.measure()
            runs[name].append({**found, "per_second": side.amount / found["seconds"]})
    ratios = [a["per_second"] / b["per_second"] for a, b in zip(runs["a"], runs["b"], strict=True)]
    controls = [b["control"] / a["control"] for a, b in zip(runs["a"], runs["b"], strict=True)]
    value, met = statistics.median(ratios), None
    if row.at_least is not None:
        met = value >= row.at_least
    elif row.at_most is not None:
        met = 1 / value <= row.at_most
    return {
        "label": row.label,
        "unit": row.unit,
        "sides": {"a": row.a.label, "b": row.b.label},
        "runs": runs,
        "ratio": {**middle(ratios), "pairs": ratios},
        "processor_ratio": processor_ratio(row, runs),
        "control": middle(controls),
        "at_least": row.at_least,
        "at_most": row.at_most,
        "met": met,
    }


def middle(values: Sequence[float]) -> Run:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def processor_ratio(row: Row, runs: dict[str, list[Run]]) -> float | None:
    """A over B by processor time in place of wall-clock time: what other work on the machine disturbs least. None: not measured."""
    if any("cpu_seconds" not in run for side in runs.values() for run in side):
        return None
    amounts = {"a": row.a.amount, "b": row.b.amount}
    speed = {side: statistics.median(amounts[side] / run["cpu_seconds"] for run in found) for side, found in runs.items()}
    return speed["a"] / speed["b"]


# ---- in words


def target(result: dict[str, Any]) -> str:
    """What was asked for and whether it was reached."""
    if result["met"] is None:
        return ""
    bound = f"≥ {result['at_least']:.3g}" if result["at_least"] is not None else f"≤ {result['at_most']:.0%}"
    return f"{bound}: {'met' if result['met'] else 'NOT met'}"


def as_shown(result: dict[str, Any], ratio: float | None) -> str:
    """A ratio, or the time of one of A as a share of one of B where the target is such a share."""
    if ratio is None:
        return ""
    return f"{1 / ratio:.1%}" if result["at_most"] is not None else f"{ratio:.2f}"


def speeds(result: dict[str, Any]) -> list[str]:
    """Of both sides, the median and the range."""
    found = [sorted(run["per_second"] for run in result["runs"][side]) for side in ("a", "b")]
    return [f"{statistics.median(s):,.0f} ({s[0]:,.0f}–{s[-1]:,.0f})" for s in found]


def ratio(result: dict[str, Any]) -> str:
    shown, low, high = (as_shown(result, result["ratio"][key]) for key in ("median", "min", "max"))
    return f"{shown} ({low}–{high})" if result["at_most"] is None else f"{shown} ({high}–{low})"


def noise(result: dict[str, Any]) -> str:
    found = result["control"]
    return f"{found['median']:.2f} ({found['min']:.2f}–{found['max']:.2f})"


def sides(result: dict[str, Any]) -> str:
    return " : ".join(result["sides"].values())
