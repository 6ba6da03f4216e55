"""What a plot shows: which metrics of which runs, averaged over seeds, smoothed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ...data.errors import ConfigError, DataError
from ...data.storage.files import storage_errors, write_atomically
from ..record.results import ConfigurationResult, Results, SeedResult
from ..storage.outbox import Line, lines_of_points
from ..storage.targets import ending, written_to
from .series import Panel
from .tasks import axis_name, check_metrics, choose_metric, group, measured, metric_names, panels

D3RLPY_RETURN = "environment"  # as d3rlpy's scripts call what an EnvironmentEvaluator gives
ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True, eq=False, repr=False)
class Plot:
    """Curves; they are drawn when they are shown or saved."""

    results: Sequence[Results]
    metrics: tuple[str, ...]  # what is drawn
    panels: Sequence[Panel]  # lines that share an axis, for each task one
    left_out: int  # how many configurations are not drawn, because a figure holds only so many lines

    def save(self, target: str | Path) -> None:
        """Writes the picture to a path or URI that ends in .png, .svg or .pdf. Raises ConfigError, StorageError."""
        check_ending(target)
        content = self.picture(ending(str(target))[1:])
        with storage_errors("written", str(target)), written_to(str(target)) as file:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content)

    def picture(self, kind: str) -> bytes:
        """The curves as a "png", "svg" or "pdf": one metric large, several small."""
        from .charts import LIGHT, image, learning_curves, losses  # matplotlib, which a terminal does without

        if len(self.metrics) == 1:
            (metric,) = self.metrics
            return image(learning_curves(self.panels, metric, axis_name(self.results, metric), LIGHT), kind)
        names = [name for name in metric_names(self.panels) if name in self.metrics]
        return image(losses([replace(panel, data_return=None) for panel in self.panels], names, LIGHT), kind)

    def __repr__(self) -> str:
        lines = dict.fromkeys(series.label for panel in self.panels for series in panel.series)
        return f'Plot({", ".join(self.metrics)} of {", ".join(lines)}; .save("curves.svg") writes it)'

    def _repr_svg_(self) -> str:
        return self.picture("svg").decode()


def check_ending(target: str | Path) -> None:
    """Raises ConfigError where a picture cannot be written as that."""
    if ending(str(target)) not in ENDINGS:
        raise ConfigError(f"output is {target}: a picture ends in .png, .svg or .pdf.")


def plot_of(results: Sequence[Results], asked: Sequence[str] | None = None, window: int = 1) -> Plot:
    """Make a plot of some results.

    Raises ConfigError: nothing measured what is asked for; DataError: nothing was measured yet.
    """
    metrics = metrics_of(results, asked)
    drawn, left_out = panels_of(results, metrics, window) if metrics else ([], 0)
    if not drawn:
        raise DataError(f"{', '.join(dict.fromkeys(one.name for one in results))}: nothing has been measured yet.")
    return Plot(results, tuple(metrics), drawn, left_out)


def metrics_of(results: Sequence[Results], asked: Sequence[str] | None) -> list[str]:
    """The metrics that are drawn: those asked for, or "all"; else the score; else losses; else all. Raises ConfigError."""
    if asked == ["all"]:
        return measured(results)
    if asked is not None:
        check_metrics(results, asked)
        return list(asked)
    known = measured(results)
    if (score := choose_metric(results, None)) is not None:
        return [score]
    if D3RLPY_RETURN in known:
        return [D3RLPY_RETURN]
    return [name for name in known if name.endswith("loss")] or known


def panels_of(results: Sequence[Results], metrics: Sequence[str], window: int = 1) -> tuple[list[Panel], int]:
    """Panels with those series that have any of the metrics, and how many were left out because a figure holds only so many.

    The first metric decides which lines are the best. Every point becomes the mean of the newest `window` points.
    """
    shown = [one.model_copy(update={"configurations": [smoothed(c, window) for c in one.configurations]}) for one in results]
    found, left_out = panels(group(shown), metrics[0])
    kept = [replace(p, series=[s for s in p.series if any(s.seeds(m) for m in metrics)]) for p in found]
    return [panel for panel in kept if panel.series], left_out


def smoothed(configuration: ConfigurationResult, window: int) -> ConfigurationResult:
    """A configuration whose curves are means over the newest points; for a window of 1 itself."""
    if window == 1:
        return configuration
    seeds = [run.model_copy().reading(partial(_smooth, run, window)) for run in configuration.seeds]
    return configuration.model_copy(update={"seeds": seeds})


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all; what is not finite is left out, and NaN where that is all."""
    good = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(good, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(good)])
    first = np.maximum(np.arange(len(values)) + 1 - window, 0)
    n = counts[1:] - counts[first]
    return np.where(n > 0, (sums[1:] - sums[first]) / np.maximum(n, 1), np.nan)


def _smooth(run: SeedResult, window: int) -> list[Line]:
    return lines_of_points(
        {
            name: zip(curve.steps.tolist(), trailing_mean(curve.values, window).tolist(), strict=True)
            for name, curve in run.curves.items()
        }
    )
