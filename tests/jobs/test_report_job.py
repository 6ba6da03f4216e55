"""`d3ray report` on an experiment that `d3ray train` has run: its numbers are MLflow's, and its recipe trains again."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

from d3ray.jobs.command.options import resolve
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.jobs.results.report import ReportConfig
from d3ray.jobs.training.train import TrainConfig
from d3ray.platform.report.experiment import CURVES, LOSSES, SCORES
from d3ray.platform.report.page import PAGE

TRAIN = ["d3ray/cartpole-replay", "algorithm=DQN", "n_steps=40", "n_steps_per_epoch=20", "seeds=[0, 1]", "evaluation.episodes=2"]


@pytest.fixture(scope="module")
def storage(local_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two seeds that were trained as one stack."""
    folder = tmp_path_factory.mktemp("results")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    assert run_command("train", [*TRAIN, "seeds_per_trial=2", "name=tiny", f"storage={folder}"]) == 0
    return folder


def test_the_report_says_what_mlflow_says(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("report", ["tiny", f"storage={storage}"]) == 0
    folder = storage / "tiny" / "report"
    said = capsys.readouterr().out
    assert f"page:      {folder / PAGE}" in said
    assert sorted(path.name for path in folder.iterdir()) == sorted([CURVES, LOSSES, PAGE, SCORES])
    with (folder / SCORES).open() as file:
        lines = list(csv.DictReader(file))
    with sqlite3.connect(storage / "mlflow.db") as database:
        query = "select run_uuid, value from metrics where key = 'evaluation/return' and step = 40"
        logged = dict(database.execute(query).fetchall())
        states = dict(database.execute("select run_uuid, status from runs").fetchall())
    assert {line["run_id"] for line in lines} <= set(logged)
    for line in lines:
        assert float(line["score"]) == logged[line["run_id"]]
        assert line["status"] == states[line["run_id"]] == "FINISHED"
    text = html.unescape((folder / PAGE).read_text())
    mean = sum(float(line["score"]) for line in lines) / 2
    assert f"reaches a return of {mean:.2f} ± " in text
    assert "the data’s own episodes return 73.28 on average" in text
    assert "48,000 transitions in 655 episodes" in text
    assert re.search(r"torch \d+\.\d+", text)
    assert f"mlflow ui --backend-store-uri sqlite:///{storage}/mlflow.db" in text
    assert re.search(rf'href="http://127\.0\.0\.1:5000/#/experiments/\d+/runs/{lines[0]["run_id"]}"', text)


def test_the_recipe_on_the_page_trains_the_same(storage: Path, tmp_path: Path) -> None:
    assert run_command("report", ["tiny", f"storage={storage}", f"out={tmp_path / 'page.html'}"]) == 0
    text = html.unescape((tmp_path / "page.html").read_text())
    recipe = tmp_path / "tiny-again.json"
    recipe.write_text(re.search(r"<code>(\{.*?\n\})</code>", text, re.DOTALL)[1])  # type: ignore[index]
    again, _ = resolve(TrainConfig, recipe)
    kept = json.loads((storage / "tiny" / "experiment.json").read_text())["configuration"]
    assert {**again.configuration(), "seeds": list(again.seeds), "seeds_per_trial": again.seeds_per_trial} == kept
    assert again.name == "tiny-again"
    assert again.dataset == "d3ray/cartpole-replay"


def test_several_experiments_and_settings_may_be_named_in_any_order() -> None:
    config, _ = resolve(ReportConfig, arguments=["a", "metric=evaluation/length", "b", "storage=s3://results"])
    assert config.experiments == ("a", "b")
    assert (config.metric, config.storage, config.out) == ("evaluation/length", "s3://results", None)
    assert resolve(ReportConfig, arguments=["a"])[0].experiments == "a"


def test_what_cannot_be_reported_is_refused_in_a_sentence(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("report", ["tinny", f"storage={storage}"]) == BAD_INPUT
    assert capsys.readouterr().err == f"There is no experiment 'tinny' in {storage}; did you mean 'tiny'?\n"
    assert run_command("report", ["tiny", f"storage={storage}", "metric=evaluation/lenght"]) == BAD_INPUT
    assert capsys.readouterr().err == "tiny did not measure 'evaluation/lenght'; did you mean 'evaluation/length'?\n"
