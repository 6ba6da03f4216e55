"""CSV files of metrics: those that trials and `CSVLogger` write, and d3rlpy's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d3ray
from d3ray.algos.saving.loggers import CSVLogger
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import DataError
from d3ray.platform.results.csv_files import is_metrics, read_csv, read_file
from d3ray.platform.tracking.metric_files import MetricFiles

from .fake_experiment import write_experiment


def write_run(folder: Path, params: dict[str, Any] | None, **metrics: list[float]) -> None:
    """A run's folder, with a point of each metric every 100 steps."""
    folder.mkdir(parents=True)
    if params is not None:
        (folder / "params.json").write_text(json.dumps(params))
    for name, values in metrics.items():
        lines = [f"{k},{100 * k},{value}\n" for k, value in enumerate(values, 1)]
        (folder / f"{name}.csv").write_text("".join(lines))


def test_what_a_trial_writes_reads_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment = write_experiment(monkeypatch, tmp_path, "first", {1.0: {0: [1, 2], 1: [3, 5]}, 2.0: {0: [7]}}, n_points=2)
    MetricFiles(experiment, ("csv",)).update(experiment.trials())
    found = read_csv(tmp_path / "first" / "csv")
    of_one, of_two = sorted(found.configurations, key=lambda one: one.settings["algorithm"]["alpha"])
    assert [(run.seed, run.status, run.step, run.n_steps) for run in of_one.seeds] == [
        (0, "FINISHED", 200, 200),
        (1, "FINISHED", 200, 200),
    ]
    assert (of_two.seeds[0].status, of_two.seeds[0].step) == ("RUNNING", 100)
    score = of_one.score("evaluation/return")
    assert (score.step, score.values) == (200, {0: 2.0, 1: 5.0})
    assert of_one.algorithm == "TD3PlusBC"
    assert of_one.data == {"name": "hopper-medium-v2"}


def test_what_a_logger_writes_reads_back(tmp_path: Path) -> None:
    epochs = maker(d3ray.TD3)().fitter(tiny_dataset(discrete=False), 4, 2, logger=CSVLogger(tmp_path / "log"))
    losses = [metrics["train/critic_loss"] for _, metrics in epochs]
    (one,) = read_csv(tmp_path / "log").configurations
    curve = one.seeds[0].curves["train/critic_loss"]
    assert (one.algorithm, curve.steps.tolist(), curve.values.tolist()) == ("TD3", [2, 4], losses)
    (alone,) = read_csv(tmp_path / "log" / "train" / "critic_loss.csv").configurations
    assert list(alone.seeds[0].curves) == ["train/critic_loss"]


@pytest.mark.parametrize(
    "params",
    [
        {"observation_shape": [3], "action_size": 1, "config": {"type": "cql", "params": {"alpha": 5.0}}},
        {"algorithm": "cql", "alpha": 5.0},
    ],
    ids=["2", "1"],
)
def test_runs_of_d3rlpy_with_equal_settings_are_seeds(tmp_path: Path, params: dict[str, Any]) -> None:
    write_run(tmp_path / "logs" / "CQL_1", params, environment=[1.0, 2.0], loss=[5.0, 4.0])
    write_run(tmp_path / "logs" / "CQL_2", params, environment=[3.0, 6.0, 9.0])
    write_run(tmp_path / "logs" / "CQL_3", json.loads(json.dumps(params).replace("5.0", "6.0")), environment=[0.0])
    both, other = read_csv(tmp_path / "logs").configurations
    assert (both.algorithm, len(both.seeds), len(other.seeds)) == ("cql", 2, 1)
    score = both.score("environment")  # of runs that may go on: where all have been
    assert (score.step, score.values) == (200, {0: 2.0, 1: 6.0})
    assert read_csv(tmp_path / "logs" / "CQL_1" / "loss.csv").name == "CQL_1"


def test_a_folder_without_settings_is_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "mine", None, score=[1.0, float("nan"), float("inf")])
    (one,) = read_csv(tmp_path / "mine").configurations
    assert one.algorithm == "mine"
    np.testing.assert_array_equal(one.seeds[0].curves["score"].values, [1.0, np.nan, np.inf])
    assert not is_metrics(tmp_path)
    assert is_metrics(tmp_path / "mine")


def test_what_a_kill_cut_short_is_left_out_and_what_is_no_metric_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,100,2.5\n2,200")
    assert read_file(file) == [(100, 2.5)]
    for text, sentence in (
        ("1,100,2.5\n2,200\n3,300,1\n", "line 2 is '2,200', and lines are `epoch,step,value`"),
        ("observation:0,reward\n1,2\n", "line 1 is 'observation:0,reward'"),
        ("", "is empty"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=sentence):
            read_csv(file)
