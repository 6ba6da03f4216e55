"""What is seen of pages in Chromium at the width of a telephone, a tablet and a screen: nothing that matters is beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..results.fake_experiment import write_experiment
from .site_server import Served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
    pytest.mark.timeout(300),
]
WIDTHS = (400, 1000, 1400)
ESTIMATORS = ("DM", "IS", "WIS", "PDIS", "WPDIS", "DR", "a-long-name-of-WDR", "MAGIC")
LONG = "sweep-of-a-rather-long-name"


@pytest.fixture
def tab(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A tab on a sweep over alpha, an experiment whose curves are flat, and a judgement."""
    storage = Path(served.site.storage)
    curves = {alpha: {seed: [alpha, alpha + seed] for seed in (0, 1)} for alpha in (0.5, 2.0, 4.0)}
    flat = {0: [10_012.4, 10_012.9]}
    for name, returns in ((LONG, curves), ("flat", flat), ("judged", flat)):
        with monkeypatch.context() as patch:
            experiment = write_experiment(patch, storage, name, returns)
    row = {"value": -12_345.678, "interval": [-13_000.5, -11_000.2], "ess": 12.3, "caveat": None, "refused": None}
    verdict = {"estimates": {"rows": dict.fromkeys(ESTIMATORS, row), "warnings": [], "n_episodes": 40, "data": row}, "played": []}
    verdicts = [{**verdict, "label": f"{LONG} seed {seed}"} for seed in range(3)]
    experiment.folder.write_json("judgement.json", {"dataset": "logs", "trusted": ESTIMATORS[6], "verdicts": verdicts})
    with playwright.sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_context().new_page()
        page.goto(served.site.link)
        yield page
        browser.close()


def is_within(tab: Any, what: Any) -> bool:
    """Whether a thing is seen whole, and nothing of the page is beside the screen."""
    box, width = what.bounding_box(), tab.viewport_size["width"]
    clipped = what.evaluate(
        "e => { const s = e.closest('.scroll, figure'); return s ? s.getBoundingClientRect().right : Infinity }"
    )
    beside = tab.evaluate("document.documentElement.scrollWidth") - width
    return box["x"] >= 0 and box["x"] + box["width"] <= min(width, clipped) + 1 and beside <= 0


@pytest.mark.parametrize("width", WIDTHS)
def test_what_matters_is_within_the_screen(tab: Any, served: Served, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{served.url}/experiments")
    best = tab.get_by_text("evaluation/return").first
    assert is_within(tab, best)
    tab.goto(f"{served.url}/experiments/judged")
    assert is_within(tab, tab.get_by_text(f"{ESTIMATORS[6]}, which decides"))
    assert is_within(tab, tab.locator("#judged ~ .scroll td").nth(2))
    tab.goto(f"{served.url}/experiments/{LONG}/report")
    assert is_within(tab, tab.locator("img").first)


def test_curves_have_a_key_that_tells_every_colour(tab: Any, served: Served) -> None:
    tab.goto(f"{served.url}/experiments/{LONG}")
    key = tab.locator("#legend li")
    playwright.expect(key).to_have_count(3)
    assert sorted(map(str.strip, key.all_inner_texts())) == ["alpha=0.5", "alpha=2", "alpha=4"]
    colours = key.locator("i").evaluate_all("lines => lines.map(one => getComputedStyle(one).backgroundColor)")
    assert len(set(colours)) == 3
    tab.goto(f"{served.url}/compare?of=flat&of={LONG}")
    playwright.expect(key).to_have_count(4)
    assert [text.strip().partition(",")[0] for text in key.all_inner_texts()] == [
        "flat",
        LONG,
        LONG,
        LONG,
    ]  # as the address has them


def test_what_is_mistyped_is_told_at_its_field(tab: Any, served: Served) -> None:
    served.post("/datasets/shipped", {"name": "cartpole-replay"})
    served.until("/datasets", "ready")
    tab.goto(f"{served.url}/experiments/new")
    tab.fill("#n_steps", "10k")
    playwright.expect(tab.locator("#n_steps-error")).to_have_text("Gradient steps is '10k'; write a number.")
    assert tab.locator("#n_steps").get_attribute("aria-invalid") == "true"
    playwright.expect(tab.locator("#start")).to_be_disabled()
    tab.fill("#n_steps", "100")
    playwright.expect(tab.locator("#n_steps-error")).to_have_text("")
    playwright.expect(tab.locator("#start")).to_be_enabled()


def test_what_never_changes_is_said_and_not_drawn(tab: Any, served: Served) -> None:
    served.post("/datasets", {"name": "flat", "upload": served.upload("flat.csv", FLAT.encode())})
    served.until("/datasets", "ready")
    tab.goto(f"{served.url}/datasets/flat")
    figures = tab.locator("figure.bars")
    playwright.expect(figures.first).to_be_visible(timeout=120_000)
    texts = {figure.splitlines()[0]: figure for figure in figures.all_inner_texts()}
    assert "always 0.25" in texts["observation 0"]
    assert "always 3" in texts["steps of an episode"]
    assert "2\n4" in texts["return of an episode"].replace("\n\n", "\n")  # whole numbers, and not the ends of their bins


FLAT = "\n".join(
    ["episode,observation:0,observation:1,action:0,reward"]
    + [f"{e},0.25,{t * e},{0.1 * t},{int(t > 0) + int(t > 0) * (e > 2)}" for e in range(5) for t in range(3)]
)
