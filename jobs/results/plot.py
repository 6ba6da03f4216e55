"""`d3ray plot RUN ...`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..command.base import Result, option
from ..command.console import note, say
from .named_runs import RunsConfig, read

if TYPE_CHECKING:
    from ...platform.report.series import Panel

_ROWS, _SMALL_ROWS = 24, 12  # of a panel in the terminal, and of one of several


class PlotConfig(RunsConfig):
    """Metrics to plot, and where to."""

    metrics: str | tuple[str, ...] | None = option(
        None, "what is drawn, or all; null: the return or what was measured in its place, else the losses", also="metric"
    )
    output: str | Path | None = option(
        None, "picture ending in .png, .svg or .pdf, a path or URI; null: into the terminal", also="save"
    )
    window: int = option(1, "every point is the mean of so many, itself and those before it", gt=0)


@dataclass(frozen=True, kw_only=True)
class PlotResult(Result):
    metrics: tuple[str, ...]


def run(config: PlotConfig) -> PlotResult:
    """Draws the curves.

    Raises ConfigError: there is no such run or metric, or the picture's ending cannot be written; DataError: nothing was measured;
    StorageError.
    """
    from ...platform.report.plot import check_ending, plot_of

    if config.output is not None:
        check_ending(config.output)
    results = read(config)
    drawn = plot_of(results, [config.metrics] if isinstance(config.metrics, str) else config.metrics, config.window)
    for one in results:
        if not any(metric in c.metrics() for c in one.configurations for metric in drawn.metrics):
            note(f"{one.name} did not measure {' or '.join(drawn.metrics)}, and is not drawn.")
    rest = f" {drawn.left_out} configurations are left out: a figure holds no more lines." if drawn.left_out else ""
    if config.output is None:
        _into_terminal(drawn.panels, drawn.metrics)
        return PlotResult(made=rest.strip(), metrics=drawn.metrics)
    drawn.save(config.output)
    made = f"Drew {', '.join(drawn.metrics)} of {', '.join(config.names)}.{rest}"
    return PlotResult(made=made, look={"picture": str(config.output)}, metrics=drawn.metrics)


def _into_terminal(drawn: Sequence[Panel], metrics: Sequence[str]) -> None:
    from rich.console import Console

    from ..views.curves_text import panel_text

    console = Console()
    several = len(metrics) * len(drawn) > 1
    rows = min(_SMALL_ROWS if several else _ROWS, max(console.height - 2, 8))
    for panel in drawn:
        for metric in metrics:
            if any(series.seeds(metric) for series in panel.series):
                for line in panel_text(panel, metric, console.width, rows, colors=console.color_system is not None):
                    say(line)
