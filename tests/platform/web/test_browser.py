"""The page in Chromium: from a file to a policy, two browsers at once, light and dark, wide and narrow, and what axe finds."""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from ..results.fake_experiment import write_experiment
from .site_server import Served, serving

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
    pytest.mark.timeout(900),
]
MOST_BYTES = 500_000  # of a page with all that it loads
SECONDS = 240_000  # milliseconds, that a training is waited for


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any, served: Served) -> Iterator[Any]:
    """A tab that was let in; whatever a browser complains of fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(served.site.link)
    yield page
    context.close()
    assert complaints == []


def vectors(n_episodes: int, steps: int) -> str:
    """Logs of a point that is pushed to the middle: CSV, with the header as MINERVA's sample has it, blanks and all."""
    rng = np.random.default_rng(0)
    rows = ["episode, observation:0, observation:1, action:0, reward"]
    for episode in range(n_episodes):
        x = rng.normal(size=2)
        for _ in range(steps):
            action = float(np.clip(-x[0] + 0.5 * rng.normal(), -1, 1))
            rows.append(f"{episode}, {x[0]:.4f}, {x[1]:.4f}, {action:.4f}, {-(x[0] ** 2):.4f}")
            x = np.array([x[0] + 0.1 * action, 0.9 * x[1] + 0.1 * x[0]])
    return "\n".join(rows) + "\n"


def bring_in(tab: Any, url: str, name: str, *files: Path) -> None:
    tab.goto(f"{url}/datasets")
    tab.set_input_files("#files", [str(file) for file in files])
    playwright.expect(tab.locator("#bring-say")).to_have_text("All files are here.", timeout=60_000)
    tab.fill("#name", name)
    tab.click("#bring-button")
    tab.wait_for_url(re.compile(f"/datasets/{name}$"))
    playwright.expect(tab.locator("#doctor")).to_be_visible(timeout=120_000)


def begin(tab: Any, url: str, dataset: str, algorithm: str, steps: int, epoch: int) -> None:
    tab.goto(f"{url}/experiments/new?dataset={dataset}&algorithm={algorithm}")
    tab.fill("#n_steps", str(steps))
    tab.fill("#n_steps_per_epoch", str(epoch))
    playwright.expect(tab.locator("#yaml")).to_contain_text(f"n_steps: {steps}")
    tab.click("#start")
    tab.wait_for_url(re.compile(f"/experiments/{algorithm}-{dataset}$"))


def test_from_a_file_to_a_policy(tab: Any, served: Served, tmp_path: Path) -> None:
    """Three algorithms train at once; one is stopped and gone on with; a policy is taken away and runs alone."""
    (tmp_path / "log.csv").write_text(vectors(500, 200))
    bring_in(tab, served.url, "mine", tmp_path / "log.csv")
    assert tab.locator("dd").nth(1).inner_text() == "100,000"
    tab.goto(f"{served.url}/datasets/mine/episodes/3")
    playwright.expect(tab.locator("#charts canvas")).to_have_count(4)
    begin(tab, served.url, "mine", "IQL", 100_000, 200)  # which is stopped
    begin(tab, served.url, "mine", "BC", 600, 200)
    begin(tab, served.url, "mine", "TD3PlusBC", 600, 200)
    tab.goto(f"{served.url}/experiments/IQL-mine")
    tab.wait_for_selector("#charts canvas", timeout=SECONDS)
    first = tab.locator("#charts figcaption output").first.inner_text()
    playwright.expect(tab.locator("#charts figcaption output").first).not_to_have_text(first, timeout=SECONDS)  # curves move
    tab.click("#now >> text=Stop")
    tab.wait_for_selector("#now .state.killed", timeout=SECONDS)
    tab.wait_for_selector("#now >> text=Go on", timeout=SECONDS)
    tab.click("text=Go on")
    tab.wait_for_selector("#now .state.running", timeout=SECONDS)
    tab.goto(f"{served.url}/experiments/BC-mine")
    tab.wait_for_selector("#charts[data-ended]", timeout=SECONDS)
    tab.goto(f"{served.url}/experiments/IQL-mine")
    tab.click("#now >> text=Stop")
    tab.wait_for_selector("#now >> text=Go on", timeout=SECONDS)
    tab.goto(f"{served.url}/compare?of=IQL-mine&of=BC-mine")
    tab.wait_for_selector("#charts canvas")
    playwright.expect(tab.locator("#legend li")).to_have_count(2)
    tab.goto(f"{served.url}/experiments/BC-mine/policy")
    tab.fill("#observation", "0.5, 0.1")
    tab.click("text=What would it do?")
    said = float(tab.locator("output.big").inner_text())
    with tab.expect_download() as got:
        tab.click("a:text-is('onnx')")
    got.value.save_as(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    (action,) = session.run(None, {session.get_inputs()[0].name: np.array([[0.5, 0.1]], np.float32)})
    assert said == pytest.approx(action.item(), abs=1e-3)


def test_images_of_a_zip(tab: Any, served: Served, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "frames.zip", "w") as archive:
        for k in range(500):
            out = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(out, "PNG")
            archive.writestr(f"image{k}.png", out.getvalue())
    rows = [f"{k // 25}, image{k}.png , {k % 3} , {k % 2}" for k in range(500)]
    (tmp_path / "frames.csv").write_text("\n".join(["episode, observation:0, action:0, reward", *rows]) + "\n")
    bring_in(tab, served.url, "frames", tmp_path / "frames.csv", tmp_path / "frames.zip")
    tab.goto(f"{served.url}/datasets/frames/episodes/2")
    image = tab.locator(".strip img").first
    playwright.expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 24
    tab.goto(f"{served.url}/experiments/new?dataset=frames")
    offered = tab.locator("#algorithm option").all_inner_texts()
    assert "DQN" in offered
    assert "TD3PlusBC" not in offered


def test_curves_that_do_not_come_leave_the_others(tab: Any, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "gone", "bad", "last"):
        with monkeypatch.context() as patch:
            write_experiment(patch, Path(served.site.storage), name, {0: [1.0, 2.0], 1: [2.0, 3.0]})
    tab.route("**/gone/rows.json", lambda route: route.fulfill(body="<html>"))
    tab.route("**/bad/rows.json", lambda route: route.fulfill(json={"detail": "The storage cannot be read."}))
    tab.goto(f"{served.url}/compare?of=first&of=gone&of=bad&of=last")
    playwright.expect(tab.locator("#legend li")).to_have_text(["first", "last"])
    playwright.expect(tab.locator("#stream")).to_have_text("No curves came of gone, bad: load this page again.")


def test_two_browsers_see_the_same(chromium: Any, tab: Any, served: Served) -> None:
    tab.goto(f"{served.url}/datasets")
    other = chromium.new_context().new_page()
    other.goto(served.site.link)
    playwright.expect(other.locator("text=There is no dataset yet")).to_be_visible()
    tab.click("text=cartpole-replay")
    playwright.expect(other.locator("a:text-is('cartpole-replay')")).to_be_visible(timeout=60_000)
    other.context.close()


def test_people_come_in_and_go_out(chromium: Any, tmp_path: Path) -> None:
    """In one tab; another one that is open is led to the way in by itself."""
    pytest.importorskip("argon2", reason="argon2 is not installed")
    with serving(tmp_path, accounts=True) as served:
        served.site.people.add("ottilie", "a long password", "viewer")  # pyright: ignore[reportOptionalMemberAccess]
        context = chromium.new_context(viewport={"width": 400, "height": 900})
        page, other = context.new_page(), context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{served.url}/datasets")
        page.fill("#name", "ottilie")
        page.fill("#password", "a long password")
        page.click("button:text-is('Come in')")
        playwright.expect(page.locator(".where")).to_contain_text("ottilie")
        playwright.expect(page.locator("#files")).to_have_count(0)
        for path in ("/experiments", "/compare", "/datasets"):
            page.goto(served.url + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
        other.goto(f"{served.url}/experiments")
        page.click("text=Go out")
        playwright.expect(page.locator("h1")).to_have_text("Come in")
        other.wait_for_url("**/login", timeout=60_000)
        page.goto(served.site.link)  # the owner, in the same browser
        page.click("text=Go out")
        playwright.expect(page.locator("h1")).to_have_text("Come in")
        context.close()
        assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 390])
def test_pages_fit_and_are_accessible(
    chromium: Any, served: Served, monkeypatch: pytest.MonkeyPatch, scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    with monkeypatch.context() as patch:
        write_experiment(patch, Path(served.site.storage), "done", {a: {0: [1.0, a], 1: [2.0, a]} for a in (1.0, 2.0, 4.0)})
    served.post("/datasets/shipped", {"name": "pendulum-replay"})
    served.until("/datasets", "ready")
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(served.site.link)
    sizes: dict[str, float] = {}
    for path in (
        "/datasets",
        "/datasets/pendulum-replay",
        "/datasets/pendulum-replay/episodes/1",
        "/experiments",
        "/experiments/new",
        "/compare",
    ):
        page.goto(served.url + path, wait_until="load")
        if path.endswith(("done", "episodes/1")):
            page.wait_for_selector("canvas", timeout=60_000)
        if path.endswith("replay"):
            page.wait_for_selector("#doctor", timeout=60_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        sizes[path] = page.evaluate("performance.getEntries().reduce((sum, one) => sum + (one.decodedBodySize ?? 0), 0)")
        found = axe.run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == [], path
    assert max(sizes.values()) < MOST_BYTES
    context.close()


def test_a_file_comes_in_chunks_that_say_what_they_hold(tab: Any, served: Served, tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(np.random.default_rng(0).bytes(9 << 20))
    sent: list[str] = []
    tab.on("request", lambda asked: sent.append(asked.headers.get("upload-checksum", "")) if asked.method == "PATCH" else None)
    tab.goto(f"{served.url}/datasets")
    tab.set_input_files("#files", str(file))
    playwright.expect(tab.locator("#bring-say")).to_have_text("All files are here.", timeout=60_000)
    assert [one.startswith("sha256 ") for one in sent] == [True, True]
    ((upload, _),) = served.site.uploads.all()
    assert served.site.uploads.file(upload.id).read_bytes() == file.read_bytes()
