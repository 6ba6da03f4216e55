"""The documents as a site: every public name and every page has its place, and a browser finds them without asking elsewhere.

What is dead among links and cross references ends `make docs`, which continuous integration runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import d3ray
from d3ray.algos.registry import algorithm_names, online_names

from .source_tree import ROOT

SITE = ROOT / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def build() -> Any:
    """docs/site/build.py, imported."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "site" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def groups(build: Any) -> list[dict[str, Any]]:
    return [group for about in build.sections().values() for group in about["names"]]


def test_the_reference_has_every_public_name(build: Any, groups: list[dict[str, Any]]) -> None:
    shown = {(group["from"], name) for group in groups for name in build.names_of(group)}
    modules = {"d3ray.experiments", "d3ray.metrics", "d3ray.datasets", "d3ray.data.scalers", "d3ray.data.augmentation"}
    for module in modules | {
        "d3ray.data.sampling",
        "d3ray.data.replay",
        "d3ray.algos.networks.q_functions",
        "d3ray.algos.optimizers",
    }:
        missing = {(module, name) for name in importlib.import_module(module).__all__} - shown
        assert missing <= {("d3ray.data.replay", "ReplayBuffer")}, "name it in docs/site/reference.yaml"
    of_root = (
        set(d3ray.__all__) - {name for name in (*algorithm_names(), *online_names()) if hasattr(d3ray.algos, name)} - {"datasets"}
    )
    assert of_root - {name for module, name in shown if module == "d3ray"} == set(), "name it in docs/site/reference.yaml"


def test_names_of_the_reference_are_what_is_imported(build: Any, groups: list[dict[str, Any]]) -> None:
    for group in groups:
        for name, path in build.names_of(group).items():
            home, _, last = (path := path.replace(".facades.", ".")).rpartition(".")
            offered = getattr(importlib.import_module(group["from"]), name)
            defined = importlib.import_module(path) if name == "datasets" else getattr(importlib.import_module(home), last)
            assert offered is defined, path


def test_every_document_has_a_place_in_the_navigation(build: Any) -> None:
    made = build.pages()
    named = list(build._leaves(build.navigation(made)))
    assert len(named) == len(set(named))
    assert set(named) <= made.keys()
    documents = {file.relative_to(ROOT).as_posix() for pattern in build.DOCUMENTS for file in ROOT.glob(pattern)}
    assert documents - set(named) == set(), "name it in docs/site/navigation.yaml"


def test_links_to_files_lead_to_pages_that_show_them(build: Any) -> None:
    made = build.pages()
    page = made["docs/algorithms/DQN.md"]
    assert "](../../algos/values/dqn.py.md)" in page
    assert made["algos/values/dqn.py.md"].count((ROOT / "algos/values/dqn.py").read_text().rstrip()) == 1
    assert "](suites/published.csv.md)" in made["platform/benchmark/suites.md"]
    assert "](docs/datasets.md)" in made["README.md"]
    assert [name for name, text in made.items() if re.search(r"^```\w+ no-run|^<!-- not run", text, re.MULTILINE)] == []
    linked: set[str] = set()
    text = "[a](b.py#L3) `[c](d.py)`\n```sh\n[e](f.py)\n```\n[g](h.md) ![i](j.png) [k](https://l.m/n.py)\n"
    found = build._with_links(text, Path("docs"), {"docs/h.md"}, linked)
    assert found == text.replace("b.py#L3", "b.py.md").replace("d.py", "d.py.md")
    assert "docs/b.py" in linked


# ---- the built site, in a browser


@pytest.fixture
def tab() -> Iterator[Any]:
    if CHROMIUM is None or not (SITE / "index.html").exists():
        pytest.skip("there is no browser, or no site: make docs builds it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as found:
        browser = found.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.asked, page.complaints = [], []
        page.on("request", lambda one: page.asked.append(one.url))
        page.on("pageerror", lambda one: page.complaints.append(str(one)))
        yield page
        assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
        assert page.complaints == []
        browser.close()


@pytest.mark.long
def test_search_works_from_the_disk(tab: Any) -> None:
    tab.goto((SITE / "index.html").as_uri())
    tab.get_by_role("textbox", name="Search").press_sequentially("MLflowLogger")
    tab.locator(".md-search-result__link").filter(has_text="MLflowLogger").first.click()
    tab.wait_for_url("**/reference/looking_on.html*")
    assert tab.locator("h2", has_text="MLflowLogger").is_visible()


@pytest.mark.long
def test_settings_are_told_with_what_they_are_by_default(tab: Any) -> None:
    tab.goto((SITE / "reference" / "scalers_and_augmentation.html").as_uri())
    shown = tab.locator(".doc-class", has=tab.locator("h2", has_text="StandardScaler")).inner_text()
    assert "epsilon: float = 0.001" in shown
    assert "Added to the standard deviation. Default: TD3+BC, section 4." in shown


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_can_be_read(tab: Any, width: int, scheme: Any) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    for page in ("index", "docs/datasets", "docs/algorithms/TD3PlusBC", "reference/networks", "algos/values/dqn.py"):
        tab.goto((SITE / f"{page}.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page
        assert tab.evaluate("document.body.dataset.mdColorScheme") == ("slate" if scheme == "dark" else "default")
        assert tab.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 0)"), page
