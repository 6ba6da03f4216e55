"""`d3ray plot RUN ...`: curves of metrics, means and bands over seeds, in the terminal or as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.errors import ConfigError, DataError
from ..command.base import Result, option
from ..command.console import note, say
from .named_runs import RunsConfig, read

if TYPE_CHECKING:
    from ...platform.report.series import Panel

ENDINGS = (".png", ".svg", ".pdf")
_ROWS, _SMALL_ROWS = 24, 12  # of a panel in the terminal, and of one of several


class PlotConfig(RunsConfig):
    """What is drawn, and where to."""

    metrics: str | tuple[str, ...] | None = option(
        None, "what is drawn, or all; null: the return or what was measured in its place, else the losses", also="metric"
    )
    output: Path | None = option(None, "picture ending in .png, .svg or .pdf; null: into the terminal", also="save")
    window: int = option(1, "every point is the mean of so many, itself and those before it", gt=0)


@dataclass(frozen=True, kw_only=True)
class PlotResult(Result):
    """What was drawn."""

    metrics: tuple[str, ...]


def run(config: PlotConfig) -> PlotResult:
    """Draws the curves.

    Raises:
        ConfigError: there is no such run or metric, the nearest of which is said, or the picture's ending cannot be written.
        DataError: a CSV file holds no metrics, or a run has measured nothing yet.
        StorageError: something cannot be read or written.
    """
    from ...data.storage.files import storage_errors, write_atomically
    from ...platform.report.plot import figure, metrics_of, panels_of

    if config.output is not None and config.output.suffix not in ENDINGS:
        raise ConfigError(f"output is {config.output}: a picture ends in .png, .svg or .pdf.")
    results, whose = read(config), ", ".join(config.names)
    asked = [config.metrics] if isinstance(config.metrics, str) else config.metrics
    metrics = metrics_of(results, asked)
    drawn, left_out = panels_of(results, metrics, config.window) if metrics else ([], 0)
    if not drawn:
        raise DataError(f"{whose}: nothing has been measured yet.")
    for one in results:
        if not any(metric in c.metrics() for c in one.configurations for metric in metrics):
            note(f"{one.name} did not measure {' or '.join(metrics)}, and is not drawn.")
    rest = f" {left_out} configurations are left out: a figure holds no more lines." if left_out else ""
    if config.output is None:
        _into_terminal(drawn, metrics)
        return PlotResult(made=rest.strip(), metrics=tuple(metrics))
    content = figure(results, drawn, metrics, config.output.suffix[1:])
    with storage_errors("written", config.output):
        config.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(config.output, content)
    made = f"Drew {', '.join(metrics)} of {whose}.{rest}"
    return PlotResult(made=made, look={"picture": str(config.output)}, metrics=tuple(metrics))


def _into_terminal(drawn: list[Panel], metrics: list[str]) -> None:
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
