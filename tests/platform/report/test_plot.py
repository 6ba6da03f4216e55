"""What is plotted, of whatever a user names: curves by hand, smoothing beside a slow loop, pictures that repeat."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError
from d3ray.platform.report.plot import metrics_of, panels_of, plot_of, trailing_mean
from d3ray.platform.report.sources import read_source, read_sources
from d3ray.platform.storage.experiments import Experiment

from ..results.fake_experiment import write_experiment
from ..results.test_csv_files import write_run

Write = Callable[..., Experiment]
RETURN = "evaluation/return"


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Writes an experiment into the storage, which is `tmp_path`."""
    return lambda name, returns, **options: write_experiment(monkeypatch, tmp_path, name, returns, **options)


@given(st.lists(st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf])), st.integers(1, 8))
def test_smoothing_is_the_mean_of_the_newest_points(values: list[float], window: int) -> None:
    slow = [[v for v in values[max(k + 1 - window, 0) : k + 1] if math.isfinite(v)] for k in range(len(values))]
    found = trailing_mean(np.array(values), window)
    np.testing.assert_allclose(found, [np.mean(one) if one else np.nan for one in slow], atol=1e-9)


def test_a_panel_has_means_over_seeds_of_smoothed_curves(write: Write, tmp_path: Path) -> None:
    write("first", {0: [0, 2, 4, 6], 1: [2, 8, 2, 4]})
    results = [read_source("first", str(tmp_path))]
    (panel,), left_out = panels_of(results, [RETURN], window=2)
    found = panel.series[0].band(RETURN)
    assert found is not None
    steps, band = found
    assert (steps.tolist(), left_out) == ([100, 200, 300, 400], 0)
    assert band.mean.tolist() == [1.0, 3.0, 4.0, 4.0]  # of 0, 1, 3, 5 and 2, 5, 5, 3
    assert (band.low.tolist(), band.high.tolist()) == ([0, 1, 3, 3], [2, 5, 5, 5])
    (plain,), _ = panels_of(results, [RETURN])
    assert plain.series[0].configuration.score(RETURN).values == {0: 6.0, 1: 4.0}


def test_a_source_is_an_experiment_a_trial_or_files_wherever_it_lies(write: Write, tmp_path: Path) -> None:
    experiment = write("first", {0: [1] * 4, 1: [2] * 4})
    write_run(tmp_path / "logs" / "CQL_1", {"algorithm": "cql"}, environment=[1.0])
    storage, (trial, _) = str(tmp_path), experiment.trials()
    of_trial = [read_source(name, storage) for name in (f"first/{trial.identity}", trial.folder.name)]
    assert [[run.seed for run in one.configurations[0].seeds] for one in of_trial] == [[0], [0]]
    assert {one.name for one in of_trial} == {trial.identity}
    assert len(read_source(f"{tmp_path}/first/", "/nowhere").configurations[0].seeds) == 2
    assert read_source(f"{tmp_path}/logs/CQL_1/environment.csv", storage).name == "CQL_1"
    same = read_sources(["first", f"{tmp_path}/first"], storage)
    assert [one.name for one in same] == ["first", f"{tmp_path}/first"] == [one.configurations[0].experiment for one in same]


def test_what_is_no_source_is_refused_with_the_nearest(write: Write, tmp_path: Path) -> None:
    write("first", {0: [1] * 4})
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "manifest.json").write_text("{}")
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("")
    for source, sentence in (
        ("frist", "did you mean 'first'"),
        ("first/trial", "has no trial 'trial'"),
        (f"{tmp_path}/policy", "is a policy, which holds no metrics"),
        (f"{tmp_path}/empty", "holds neither runs nor metrics"),
        (f"{tmp_path}/notes.txt", "another kind of file"),
        ("runs:/abc", "mlflow.db: name the tracking server"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read_source(source, str(tmp_path))


def test_the_return_is_drawn_else_what_was_held_out_else_losses(write: Write, tmp_path: Path) -> None:
    write("scored", {0: [1] * 4})
    write("held", {0: [1] * 4}, metric="holdout/td_error")
    write("lost", {0: [None] * 4}, losses=("critic_loss", "temperature"))
    write_run(tmp_path / "d3rlpy", {"algorithm": "cql"}, environment=[1.0], critic_loss=[2.0])
    for name, metrics in (
        ("scored", [RETURN]),
        ("held", ["holdout/td_error"]),
        ("lost", ["train/critic_loss"]),
        ("d3rlpy", ["environment"]),
    ):
        source = f"{tmp_path}/d3rlpy" if name == "d3rlpy" else name
        assert metrics_of([read_source(source, str(tmp_path))], None) == metrics
    with pytest.raises(ConfigError, match="did you mean 'train/temperature'"):
        metrics_of([read_source("lost", str(tmp_path))], ["train/temprature"])


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_the_same_curves_make_the_same_picture(write: Write, tmp_path: Path, ending: str, begins: bytes) -> None:
    write("first", {0: [1, 2, 3, 4], 1: [2, 3, 4, 5]})
    results = [read_source("first", str(tmp_path))]
    picture = plot_of(results, [RETURN]).picture(ending)
    assert picture.startswith(begins)
    assert plot_of(results, [RETURN]).picture(ending) == picture
    assert plot_of(results, [RETURN], window=3).picture(ending) != picture
