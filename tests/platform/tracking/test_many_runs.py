"""Sweeps in MLflow and on a report's page: the objective of configurations, what is gone, and ten thousand child runs."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.platform.report.experiment import report
from d3ray.platform.report.tasks import SHOWN
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.tracking import delivery as module
from d3ray.platform.tracking.delivery import deliver
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.settling import settle

from .many_runs import EPOCHS, NAME, SEEDS, NoPolicies, choice, count_calls, fails, generate, measure, score

CHILDREN = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of 30 configurations of two seeds."""
    folder = tmp_path_factory.mktemp("many") / "results"
    with pytest.MonkeyPatch.context() as patch:
        generate(folder, CHILDREN, lambda: patch.setattr(module, "register", NoPolicies()))
    return folder


@pytest.fixture
def storage(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sweep, as every test finds it."""
    monkeypatch.setattr(module, "register", NoPolicies())
    aside = made.with_name("aside")
    shutil.copytree(made, aside)
    yield made
    shutil.rmtree(made)
    aside.rename(made)


def children(tracking: Tracking, number: int) -> dict[str, Any]:
    """A configuration's runs by seed."""
    where = f"tags.`d3ray.kind` = 'seed' and tags.`d3ray.configuration` = '{number}'"
    found = tracking.client.search_runs([tracking.experiment_id], where)
    by_seed = {run.data.tags["d3ray.seed"]: run for run in found}
    assert len(by_seed) == len(found)
    return by_seed


def test_runs_have_their_objective_and_their_configurations(storage: Path) -> None:
    tracking = Tracking.open(str(storage))
    values = [score(0, seed) for seed in SEEDS]
    for seed, run in children(tracking, 0).items():
        metrics = run.data.metrics
        own = tracking.client.get_metric_history(run.info.run_id, "objective")
        assert [(metric.step, metric.value) for metric in own] == [(step, score(0, int(seed), step)) for step in EPOCHS]
        assert metrics["objective"] == values[int(seed)]
        assert metrics["configuration/objective"] == pytest.approx(np.mean(values))
        ends = metrics["configuration/objective_lowest"], metrics["configuration/objective_highest"]
        assert ends == (min(values), max(values))
        assert "configuration/objective_low" not in metrics  # so few seeds have no interval of 95 %
        assert run.data.params["algorithm.alpha"] == str(choice(0)["algorithm.alpha"])
    (parent,) = tracking.client.search_runs([tracking.experiment_id], "tags.`d3ray.kind` = 'sweep'")
    assert parent.data.params["search.algorithm.alpha.uniform"] == "[1.0, 5.0]"
    assert parent.data.params["objective.metric"] == "evaluation/return"
    history = tracking.client.get_metric_history(parent.info.run_id, "objective")
    assert [(metric.step, metric.value) for metric in history] == [(0, pytest.approx(np.mean(values)))]


def test_a_pass_over_what_has_ended_asks_for_two_runs_and_a_later_one_for_nothing(storage: Path) -> None:
    tracking = Tracking.open(str(storage))
    calls = count_calls(tracking)
    experiment = Experiment.look(str(storage), NAME)
    deliver(tracking, experiment, experiment.trials())
    assert calls == ["search_runs", "get_run", "search_runs"]  # the parent, its tags, those of its children that were deleted
    calls.clear()
    reads: list[str] = []
    trials = experiment.trials()
    for trial in trials:
        trial.folder = None  # type: ignore[assignment] - not looked at any more
    deliver(tracking, experiment, trials)
    assert (calls, reads) == ([], [])


def test_a_deleted_run_is_made_anew(storage: Path) -> None:
    tracking = Tracking.open(str(storage))
    gone = children(tracking, 3)["1"].info.run_id
    tracking.client.delete_run(gone)
    experiment = Experiment.look(str(storage), NAME)
    fresh = Tracking.open(str(storage))
    calls = count_calls(fresh)
    deliver(fresh, experiment, experiment.trials())
    assert calls.count("create_run") == 1
    run = children(tracking, 3)["1"]
    assert run.info.run_id != gone
    assert run.info.status == "FINISHED"
    assert [m.step for m in tracking.client.get_metric_history(run.info.run_id, "evaluation/return")] == EPOCHS
    assert run.data.metrics["objective"] == score(3, 1)
    assert len(children(tracking, 4)) == len(SEEDS)


def test_a_run_that_is_deleted_while_it_is_written_to_is_made_anew(storage: Path) -> None:
    experiment, tracking = Experiment.look(str(storage), NAME), Tracking.open(str(storage))
    trial = next(trial for trial in experiment.trials() if trial.number == 5 and trial.seeds == (0,))
    trial.folder.delete(["delivered.json"])
    deliver(tracking, experiment, [trial])
    gone = tracking.known[trial.runs[0]]
    tracking.client.delete_run(gone)
    tracking.settled.discard(trial.key)
    trial.folder.delete(["delivered.json"])
    deliver(tracking, experiment, [trial])  # meets the run that is not there
    deliver(tracking, experiment, [trial])
    assert tracking.known[trial.runs[0]] != gone
    assert children(tracking, 5)["0"].info.status == "FINISHED"


def test_the_next_command_settles_what_a_command_did_not_deliver(storage: Path) -> None:
    experiment, tracking = Experiment.look(str(storage), NAME), Tracking.open(str(storage))
    note = experiment.folder.read_json("tracking.json")
    tracking.set_status(note["run"], "RUNNING")
    experiment.folder.write_json("tracking.json", {**note, "status": "RUNNING"})  # it died while it delivered
    trial = next(trial for trial in experiment.trials() if trial.number == 6)
    (seed,) = trial.seeds
    run = trial.delivered[seed]["run"]
    tracking.set_status(run, "RUNNING")
    trial.note_delivered({seed: {**trial.delivered[seed], "status": "RUNNING", "step": 0}})
    assert settle(str(storage), Tracking.open(str(storage))) == [NAME]
    assert {tracking.client.get_run(one).info.status for one in (run, note["run"])} == {"FINISHED"}
    assert experiment.state["status"] == "FINISHED"
    assert settle(str(storage), Tracking.open(str(storage))) == []


@pytest.mark.long
def test_a_report_shows_the_best_and_counts_the_rest(storage: Path, tmp_path: Path) -> None:
    page = Path(report(str(storage), [NAME], out=str(tmp_path)).page).read_text()
    n = CHILDREN // len(SEEDS)
    failed = [number for number in range(n) if fails(number)]
    means = {number: np.mean([score(number, seed) for seed in SEEDS]) for number in range(n) if number not in failed}
    best = sorted(means, key=lambda number: -means[number])
    rows = re.findall(r'<th scope="row"><span class="swatch[^>]*></span>(\d+): TD3PlusBC|<th scope="row">(\d+): TD3PlusBC', page)
    assert [int(a or b) for a, b in rows] == best[:SHOWN]
    assert f"The best {SHOWN} of {n} configurations of TD3PlusBC" in page
    assert f"{n} configurations: {n - len(failed)} finished, {len(failed)} failed." in page
    assert f"diverged at step …: its losses are not finite: {2 * len(failed)} seeds, of configurations 7, 27." in page
    assert (tmp_path / "search.png").stat().st_size > 20_000
    with (tmp_path / "configurations.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["configuration"]) for line in lines] == list(range(n))
    for line in lines:
        number = int(line["configuration"])
        assert (line["ended"] == "failed") == (number in failed)
        assert line["objective"] == ("" if number in failed else repr(float(line["objective"])))
        assert number in failed or float(line["objective"]) == pytest.approx(means[number])
        assert float(line["algorithm.alpha"]) == choice(number)["algorithm.alpha"]


@pytest.mark.slow
@pytest.mark.timeout(3600)  # writing 160,000 files and 1,400,000 rows is most of it
def test_ten_thousand_children_stay_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = tmp_path / "results"
    generate(storage, 10_000, lambda: monkeypatch.setattr(module, "register", NoPolicies()))
    found = measure(storage)
    print("\n".join(f"{value:8.2f}   {what}" for what, value in found.items()))
    assert found["requests of it"] <= 4
    assert found["requests of a later one"] == 0
    assert found["later delivery pass"] < 1
    assert found["report"] < 60
    assert found["search by tags: a configuration"] < 2
    assert found["top 20 by objective"] < 20
