"""The doctor's page: everything on it is the data's, nothing is fetched, and a browser shows it in light and dark."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.doctor import Histogram
from d3ray.jobs.command.running import run_command
from d3ray.platform.report import svg

from .test_report_seen import CHROMIUM, browse, pixels


def dataset(name: str = "walk") -> Dataset:
    """300 steps in 10 episodes, all of which end terminated after 30 steps."""
    rng = np.random.default_rng(0)
    ends = np.arange(300) % 30 == 29
    arrays = (rng.normal(size=(300, 3)), rng.uniform(-1, 1, (300, 2)), rng.normal(size=300), ends)
    return Dataset.from_arrays(*arrays, name=name)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    dataset().write(tmp_path / "set")
    assert run_command("inspect", [str(tmp_path / "set"), f"html={tmp_path}/page.html"]) == 0
    return tmp_path / "page.html"


class Outside(HTMLParser):
    """Collects what a page would fetch, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "style", "onclick")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: Path) -> Outside:
    found = Outside()
    found.feed(page.read_text())
    return found


def test_a_page_needs_nothing_but_itself(page: Path) -> None:
    found = read(page)
    assert found.fetched == []
    text = " ".join(found.text)
    assert "10 of 10 terminated episodes end after exactly 30 steps" in text
    assert "timeout_at=30" in found.text
    assert "300 transitions in 10 episodes" in text
    assert page.read_text().count("<svg") == 3 + 1 + 2 + 1 + 3  # episodes, reward, actions, states, observations
    style = re.search(r"<style>(.*?)</style>", page.read_text(), re.DOTALL)
    assert style is not None
    assert style[1] == (Path(svg.__file__).parent / "page.css").read_text()  # one look for all pages


def test_names_from_data_are_escaped(tmp_path: Path) -> None:
    hostile = '<script>alert("x")</script>'
    dataset(hostile).write(tmp_path / "set")
    assert run_command("inspect", [str(tmp_path / "set"), f"html={tmp_path}/page.html"]) == 0
    assert "<script" not in (tmp_path / "page.html").read_text()
    assert hostile in read(tmp_path / "page.html").text


def test_the_same_data_give_the_same_page(page: Path, tmp_path: Path) -> None:
    before = page.read_bytes()
    assert run_command("inspect", [str(tmp_path / "set"), f"html={page}"]) == 0
    assert page.read_bytes() == before


def test_bars_are_as_tall_as_their_counts() -> None:
    one = Histogram("x", (0.0, 1.0, 2.0, 3.0), (4, 0, 2), second=(1, 0, 2), second_title="ended")
    drawn = svg.histogram(one)
    bars = re.findall(r'<rect class="(bar second|bar)" x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', drawn)
    tall = [(name, float(height)) for name, _, _, height in bars]
    assert tall == [("bar", 90.0), ("bar second", 30.0), ("bar second", 60.0)]
    bottoms = [float(y) + float(height) for _, _, y, height in bars]
    assert bottoms == [98.0, 128.0, 128.0]  # the second part stands on the axis, the rest on it
    assert re.findall(r">([^<>]+)</text>", drawn) == ["0", "1.5", "3"]
    whole = svg.histogram(Histogram("x", (-0.5, 0.5, 1.5), (3, 1), whole=True))
    assert re.findall(r">([^<>]+)</text>", whole) == ["0", "1"]


def test_charts_stand_any_numbers() -> None:
    for values in ([], [float("nan")], [1.0], [1e-300, 1e300], [5.0, 5.0]):
        assert "nan" not in svg.line(values, "x", "a", "b")
    assert "<rect" not in svg.heat_map([[0, 0], [0, 0]], "x")
    assert svg.number(-1234.5) == "−1,234"
    assert svg.number(-1e-9, 1.0) == "0"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_page_without_complaint(page: Path, tmp_path: Path) -> None:
    dom, complaints = browse(page, "--dump-dom")
    assert complaints == ""
    assert "Time limits stored as terminals" in dom
    shots: list[np.ndarray] = []
    for scheme in (1, 0):
        shot = tmp_path / f"{scheme}.png"
        browse(page, f"--screenshot={shot}", "--window-size=1100,2000", f"--blink-settings=preferredColorScheme={scheme}")
        shots.append(pixels(shot.read_bytes()))
    assert tuple(shots[0][5, 5]) == (255, 255, 255)
    assert tuple(shots[1][5, 5]) == (0x14, 0x17, 0x1C)
    for shot, blue in zip(shots, ("0072b2", "2f93d6"), strict=True):
        for color in (blue, "d55e00"):  # bars, and those of terminated episodes
            assert (shot == tuple(bytes.fromhex(color))).all(-1).sum() > 1000, f"{color} is not to be seen"


def test_a_page_without_findings_says_so(tmp_path: Path) -> None:
    assert run_command("inspect", ["d3ray/pendulum-replay", f"html={tmp_path}/page.html"]) == 0
    assert "Nothing was found." in (tmp_path / "page.html").read_text()
