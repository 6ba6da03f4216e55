"""Whether a sweep's best configuration differs from the next is said once, and the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from markupsafe import escape

from d3ray import experiments
from d3ray.jobs.command.running import run_command
from d3ray.jobs.training.sweep import describe
from d3ray.platform.report import verdicts
from d3ray.platform.report.verdicts import best_and_next
from d3ray.platform.results.experiment import read_results, results_of
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.web.watching import Watch

from ..experiment.in_process import trained
from ..sweep.small_sweep import sweep, write_data
from ..web.site_server import serving


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a sweep of three configurations over two datasets, and three seeds."""
    data, results = write_data(tmp_path_factory.mktemp("data")), tmp_path_factory.mktemp("results")
    search = {"algorithm.learning_rate": {"grid": [1e-5, 1e-3, 1e-2]}}
    trained(sweep(data, results, search=search, searcher="grid", seeds=(0, 1, 2), budget={}))
    return results


def test_compare_the_sweeps_end_and_the_api_say_the_same(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = best_and_next(read_results(str(storage), "first"))
    assert "in holdout/td_error (95 % interval of the difference " in said
    assert "corrected by Holm, 3 and 3 seeds): the difference is " in said
    assert run_command("compare", ["first", f"storage={storage}"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == said
    assert experiments.open("first", storage=str(storage)).verdicts() == [said]
    assert experiments.verdicts(["first"], storage=str(storage))[0] == said

    swept = results_of(Experiment.look(str(storage), "first"))
    told = describe(swept, [said]).made.splitlines()
    head, *rows = told[1:5]
    assert head.split() == ["learning_rate", "holdout/td_error", "interval", "below", "95", "%", "seeds"]
    values = [float(row.split()[3].replace(",", "")) for row in rows]
    assert values == sorted(values)
    (best,) = (swept.configurations[place] for place in swept.best.values())
    assert rows[0].startswith(f"  configuration {best.number} ")
    assert told[5].startswith(f"  best: configuration {best.number}, holdout/td_error ")
    assert told[-2] == f"  {said}"
    assert "does not rank policies" in told[-1]


def test_the_page_says_the_same(storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first, second = (str(escape(one)) for one in experiments.verdicts(["first"], storage=str(storage)))
    with serving(tmp_path, storage=str(storage)) as served:
        assert first in served.get("/experiments/first").text
        page = served.get("/compare?of=first").text
        assert first in page
        assert second in page


def test_a_page_reads_curves_for_it_once_until_another_trial_has_ended(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    read: list[str] = []
    monkeypatch.setattr(verdicts, "best_and_next", lambda results: (read.append(results.name), best_and_next(results))[-1])
    watch = Watch(str(storage), None, str(tmp_path / "datasets"))
    now = watch.status("first")
    said = watch.verdicts("first")
    assert said == experiments.open("first", storage=str(storage)).verdicts()
    del read[:]
    monkeypatch.setattr(watch, "status", lambda _: now)
    assert watch.verdicts("first") == said
    experiments.open("first", storage=str(storage)).results()
    assert read == []
    now = now.model_copy(update={"trials": now.trials[1:]})
    assert watch.verdicts("first") == said
    assert read == ["first"]
