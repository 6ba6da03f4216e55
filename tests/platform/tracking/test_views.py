"""Links into MLflow's pages: the views that they open are tags of MLflow's experiment, and a browser shows what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from d3ray.jobs.command.console import say
from d3ray.platform.results.mlflow_pages import view_links
from d3ray.platform.tracking.place import keep_place
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.views import forget_views, keep_views

from .test_tracking import Case, server, storage, tracking

__all__ = ["server", "storage", "tracking"]  # fixtures


def tags(tracking: Tracking) -> dict[str, str]:
    return dict(tracking.client.get_experiment(tracking.experiment_id).tags)


def test_an_experiment_has_views_with_its_metric_and_what_it_searches(
    tracking: Tracking, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(tmp_path, "viewed")
    keep_place(case.experiment, tracking.place)
    case.experiment.configuration |= {
        "search": {"algorithm.learning_rate": {"grid": [1e-3]}, "seeds": {"grid": [0]}},
        "objective": {"metric": "holdout/td_error"},
    }
    key = f"d3ray-{case.experiment.key}"
    keep_views(tracking, case.experiment)
    there = tags(tracking)
    table, curves = (json.loads(there[f"mlflow.sharedViewState.{name}"]) for name in (key, f"{key}-curves"))
    assert table["searchFilter"] == "tags.`d3ray.kind` = 'seed' AND tags.`d3ray.experiment` = 'viewed'"
    assert (table["orderByKey"], table["orderByAsc"]) == ("metrics.`holdout/td_error`", True)
    columns = ["metrics.`holdout/td_error`", *(f"params.`{name}`" for name in ("algorithm", "algorithm.learning_rate", "seed"))]
    assert table["selectedColumns"] == [*columns, "params.`dataset`"]
    assert curves["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "algorithm.learning_rate"}]
    assert {chart["metricKey"] for chart in curves["compareRunCharts"]} == {"holdout/td_error"}
    every = json.loads(json.loads(there["mlflow.sharedViewState.d3ray-runs"])["state"])
    assert (every["orderByKey"], every["orderByAsc"]) == ("metrics.`evaluation/return`", False)
    note: Any = case.experiment.folder.read_json("tracking.json")
    page = f"#/experiments/{tracking.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={key}"
    assert view_links(note)["table"] == f"http://127.0.0.1:5000/{page}"
    at = {**note, "uri": "https://me:secret@lab.example/mlflow/"}
    assert view_links(at)["curves"] == f"https://lab.example/mlflow/{page}-curves&compareRunsMode=CHART"
    assert view_links({}) == {}
    for link in view_links(at).values():
        say(link)
        assert capsys.readouterr().out == f"{link}\n"  # with the view's key, which is no secret
    tracking.client.set_experiment_tag(tracking.experiment_id, "mlflow.note.content", "ours")
    keep_views(tracking, case.experiment)
    assert tags(tracking)["mlflow.note.content"] == "ours"  # a user's own
    forget_views(tracking, case.experiment)
    assert [name for name in tags(tracking) if key in name] == []


def shown(link: str, profile: Path) -> str:
    """The text of a page in a browser of its own."""
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--window-size=1600,1000"]
    command = [*browser, "--virtual-time-budget=20000", "--dump-dom", link]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    shutil.rmtree(profile, ignore_errors=True)
    return re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)


needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no browser here")


@pytest.mark.slow
@needs_browser
def test_a_browser_opens_the_table_and_the_curves(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh one, which has never been told which pages of MLflow to show, by the links as a terminal prints them."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server}")
    tracking = Tracking.open(str(tmp_path))
    case = Case(tmp_path, "viewed")
    keep_place(case.experiment, tracking.place)
    keep_views(tracking, case.experiment)
    case.train(10)
    case.deliver(tracking)
    links = dict[str, str]()
    for name, link in view_links(case.experiment.folder.read_json("tracking.json")).items():
        say(link)
        links[name] = capsys.readouterr().out.strip()
    table = shown(links["table"], tmp_path / "profile")
    for heading in ("Model training", "evaluation/return", "algorithm", "seed"):
        assert heading in table, table
    assert "seed 0" in table or "viewed" in table
    assert "evaluation/return" in shown(links["curves"], tmp_path / "profile")
    by_itself = shown(links["table"].replace("viewStateShareKey", "nothing"), tmp_path / "profile")
    assert "evaluation/return" not in by_itself  # as MLflow opens it without a view


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("metric", ["evaluation/return", "holdout/td_error"])
def test_a_browser_sorts_the_best_first_and_groups_curves(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server}")
    tracking = Tracking.open(str(tmp_path))
    case = Case(tmp_path, f"sorted-{metric[:4]}")
    keep_place(case.experiment, tracking.place)
    case.experiment.configuration |= {
        "search": {"algorithm.alpha": {"grid": [1.5, 2.5]}},
        "objective": {"metric": metric},
    }
    keep_views(tracking, case.experiment)
    values = {(1.5, 0): 51.25, (1.5, 1): 11.25, (2.5, 0): 91.25, (2.5, 1): 31.25}
    for (alpha, seed), value in values.items():  # in no order
        tags = {"d3ray.kind": "seed", "d3ray.experiment": case.experiment.name, "mlflow.runName": f"alpha {alpha} seed {seed}"}
        run = tracking.client.create_run(tracking.experiment_id, tags=tags).info.run_id
        for name, said in (("algorithm.alpha", alpha), ("algorithm", "TD3PlusBC"), ("seed", seed)):
            tracking.client.log_param(run, name, said)
        for step in (100, 200):
            tracking.client.log_metric(run, metric, value * step / 200, step=step)
        tracking.client.set_terminated(run)
    links = view_links(case.experiment.folder.read_json("tracking.json"))
    table = shown(links["table"], tmp_path / "profile")
    found = sorted(values.values(), key=lambda value: table.index(f"{value}"))
    assert found == sorted(values.values(), reverse=metric == "evaluation/return")
    best_first = ["2.5", "1.5"] if metric == "evaluation/return" else ["1.5", "2.5"]
    with playwright.sync_playwright() as found, found.chromium.launch(executable_path=shutil.which("chromium")) as browser:
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.goto(links["curves"])
        for alpha, mean in (("1.5", "31.25"), ("2.5", "61.25")):
            page.get_by_text(f"{alpha} ({metric})").first.wait_for(state="attached", timeout=90_000)  # a line
            page.get_by_text(mean, exact=True).first.wait_for(state="attached", timeout=90_000)  # a bar, of two seeds' mean
        groups = re.findall(r"Group: (\S+)", page.inner_text("body"))
    assert groups == best_first
