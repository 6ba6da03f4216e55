"""What is to be seen of a report: its figures, and its page in a browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from d3ray.platform.record.results import RETURN
from d3ray.platform.report import charts
from d3ray.platform.report.experiment import CURVES, report
from d3ray.platform.report.series import Series
from d3ray.platform.report.tasks import group, panels
from d3ray.platform.results.experiment import read_results
from d3ray.platform.storage.experiments import Experiment

from ..results.fake_experiment import write_experiment

Write = Callable[..., Experiment]
NAN = float("nan")


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Writes an experiment into the storage, which is `tmp_path`."""
    return lambda name, returns, **options: write_experiment(monkeypatch, tmp_path, name, returns, **options)


def test_a_mean_has_a_gap_where_a_seed_has_no_number(write: Write, tmp_path: Path) -> None:
    write("gap", {0: [1, NAN, 3, 4], 1: [3, 4, None, 6]})
    found = Series("x", 0, read_results(str(tmp_path), "gap").configurations[0]).band(RETURN)
    assert found is not None
    steps, over = found
    assert steps.tolist() == [100, 200, 400]
    assert over.mean[[0, 2]].tolist() == [2.0, 5.0]
    assert np.isnan(over.mean[1])


def pixels(png: bytes) -> np.ndarray:
    """RGB [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.mark.parametrize("theme", charts.THEMES)
def test_figures_stand_on_the_ground_of_the_page_and_show_every_line(write: Write, tmp_path: Path, theme: str) -> None:
    write("seen", {1.0: {0: [1, 2, 3, 4], 1: [2, 3, 4, 5]}, 2.0: {0: [9] * 4}})
    drawn, _ = panels(group([read_results(str(tmp_path), "seen")]), RETURN)
    colors = charts.THEMES[theme]
    image = pixels(charts.png(charts.learning_curves(drawn, RETURN, "return", colors)))
    ground = tuple(bytes.fromhex(colors.ground[1:]))
    assert tuple(image[0, 0]) == ground
    assert 0.7 < (image == ground).all(-1).mean() < 0.99
    for series in drawn[0].series:
        color = np.array(list(bytes.fromhex(charts.color_of(series.style, colors)[1:])))
        assert (np.abs(image.astype(int) - color).max(-1) < 12).sum() > 200, f"{series.label} is not to be seen"
    css = (Path(charts.__file__).parent / "page.css").read_text()
    assert all(charts.color_of(series.style, colors).lower() in css for series in drawn[0].series)
    assert f"--ground: {colors.ground}" in css


@pytest.mark.parametrize("curves", [{0: [5.0]}, {0: [NAN, NAN]}, {0: [float("inf"), 1.0]}, {0: [1e-9, 1e9], 1: [1.0, 2.0]}])
def test_figures_stand_any_numbers(write: Write, tmp_path: Path, curves: Any) -> None:
    write("odd", curves, n_points=len(curves[0]))
    made = report(str(tmp_path), ["odd"])
    assert pixels((Path(made.folder) / CURVES).read_bytes()).shape[1] == 1920


CHROMIUM = shutil.which("chromium")


def browse(page: Path, *options: str) -> tuple[str, str]:
    """What Chromium prints about a page and complains of."""
    profile = page.parent / "profile"
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={profile}",
    ]
    done = subprocess.run([*command, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if ":CONSOLE" in line)


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_page_without_complaint(write: Write, tmp_path: Path) -> None:
    write("shown", {0: [1, 2, 3, 4], 1: [2, 3, 4, 5]}, uri="sqlite:////r/mlflow.db")
    made = report(str(tmp_path), ["shown"])
    dom, complaints = browse(Path(made.page), "--dump-dom")
    assert complaints == ""
    assert re.search(r"<table>.*TD3PlusBC</th><td class=\"n\">2</td>.*</table>", dom, re.DOTALL)
    shots: list[np.ndarray] = []
    for scheme in (1, 0):
        shot = tmp_path / f"{scheme}.png"
        browse(
            Path(made.page), f"--screenshot={shot}", "--window-size=1100,2000", f"--blink-settings=preferredColorScheme={scheme}"
        )
        shots.append(pixels(shot.read_bytes()))
    assert tuple(shots[0][5, 5]) == (255, 255, 255)
    assert tuple(shots[1][5, 5]) == (0x14, 0x17, 0x1C)
    for shot in shots:
        assert len(np.unique(shot.reshape(-1, 3), axis=0)) > 200  # text and curves
    broken = tmp_path / "broken.html"
    broken.write_text(
        re.sub("<main>", '<main style="color: red"><img src="https://example.invalid/x.png">', Path(made.page).read_text())
    )
    assert "Content Security Policy" in browse(broken, "--dump-dom")[1]
