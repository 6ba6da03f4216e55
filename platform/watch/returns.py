"""What the episodes of a log returned, over time."""

from __future__ import annotations

import numpy as np

from ...data.dataset import Dataset
from ..record.watch import Returns
from ..statistics import summarise
from .episodes import acted, begun


def returns_over_time(data: Dataset, versions: tuple[str, ...], windows: int) -> tuple[Returns, ...]:
    """Cut episodes, in the order in which they began, into windows of as many each; give the mean of each with its interval."""
    when, who, made = begun(data), acted(data), list[Returns]()
    for some in np.array_split(np.argsort(when, kind="stable"), min(windows, len(when))):
        summary, there = summarise(data.episodes.returns[some]), np.unique(who[some])
        made.append(
            Returns(
                begin=float(when[some[0]]),
                end=float(when[some[-1]]),
                version=versions[int(there[0])] if len(there) == 1 and int(there[0]) < len(versions) else "",
                episodes=len(some),
                mean=summary.mean,
                interval=summary.interval,
            )
        )
    return tuple(made)
