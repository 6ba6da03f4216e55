"""Who decided how often, and why the fallback did."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import compute

from ..record.watch import Traffic

COLUMNS = ("policy", "version", "role", "episode", "time", "reason")
FALLBACK = "fallback"


def traffic(decisions: Any) -> tuple[Traffic, ...]:
    """Count the decisions of a log by version and role, the oldest first."""
    if not len(decisions):
        return ()
    grouped = decisions.group_by(["version", "role"]).aggregate(
        [("episode", "count"), ("episode", "count_distinct"), ("time", "min"), ("time", "max")]
    )
    found = [
        Traffic(
            version=row["version"],
            role=row["role"],
            decisions=row["episode_count"],
            episodes=row["episode_count_distinct"],
            first=row["time_min"].timestamp(),
            last=row["time_max"].timestamp(),
        )
        for row in grouped.to_pylist()
    ]
    return tuple(sorted(found, key=lambda one: (one.first, one.version, one.role)))


def reasons(decisions: Any) -> dict[str, int]:
    """Count why the fallback acted, most often first."""
    of: Any = compute
    acted = decisions.filter(of.equal(decisions["role"], FALLBACK))
    counts: Any = of.value_counts(
        acted["reason"].combine_chunks() if isinstance(acted["reason"], pa.ChunkedArray) else acted["reason"]
    )
    found = {one["values"] or "no reason given": one["counts"] for one in counts.to_pylist()}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))
