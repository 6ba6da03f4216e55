"""A benchmark end to end: `micro`, what is missing, what may grow, what a budget ends; from MLflow and the folders, not from us."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient

from d3ray.data.errors import ConfigError, DataError
from d3ray.jobs.command.options import resolve
from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.jobs.training.benchmark import BenchmarkConfig
from d3ray.platform.benchmark.data import Obtained, obtain, stood_in
from d3ray.platform.benchmark.gate import protocol, read_bands, write_bands
from d3ray.platform.benchmark.run import BenchmarkResult, benchmark_work, cell_trials
from d3ray.platform.benchmark.suite import SUITES, SuiteConfig
from d3ray.platform.driver.budget import Spent
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.planning.rehearsal import proposed, rehearsal
from d3ray.platform.results.experiment import results_of
from d3ray.platform.settings.config import Limits
from d3ray.platform.storage.experiments import Experiment

pytestmark = pytest.mark.long

SMALL = {"hidden_units": [8]}


def suite(storage: Path, **said: Any) -> SuiteConfig:
    return SuiteConfig.checked({"suite": "micro", "storage": str(storage), **said}, title="benchmark")


def runs_of(storage: Path) -> list[Any]:
    client = MlflowClient(f"sqlite:///{storage}/mlflow.db")
    experiment = client.get_experiment_by_name("d3ray")
    assert experiment is not None
    return client.search_runs([experiment.experiment_id])


@pytest.fixture(scope="module")
def micro(local_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The storage in which `d3ray benchmark micro` was run, with a dataset beside its own that nobody serves."""
    storage = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patched:
        entry = {"files": [{"url": "file:///nowhere/arm.hdf5"}], "format": "d4rl", "environment": {"id": "Pendulum-v1"}}
        (storage.parent / "catalog.json").write_text(json.dumps({"entries": {"team/arm": entry}}))
        patched.setenv("D3RAY_CATALOG", str(storage.parent / "catalog.json"))
        assert run_command("benchmark", ["micro", f"storage={storage}", "datasets=*,team/arm"]) == 1  # a part of it is missing
        yield storage


def test_micro_runs_end_to_end(micro: Path) -> None:
    with (micro / "micro" / "report" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    seeds = [(row["dataset"], row["algorithm"], row["seed"]) for row in rows if row["dataset"] != "team/arm"]
    algorithms = {"BC", "TD3PlusBC", "IQL"}
    assert sorted(seeds) == sorted(("d3ray/pendulum-replay", name, seed) for name in algorithms for seed in "01")
    trained = [row for row in rows if row["status"] == "FINISHED"]
    assert {(row["suite"], row["step"], row["episodes"], row["n_evaluations"]) for row in trained} == {("micro", "300", "2", "3")}
    assert len(trained) == 6
    assert all(-2000 < float(row["return"]) < 0 for row in trained)  # Pendulum's worst is -16.3 a step, of 200


def test_a_dataset_that_cannot_be_had_is_named_on_the_run_and_in_the_folder(micro: Path) -> None:
    (parent,) = [run for run in runs_of(micro) if "mlflow.parentRunId" not in run.data.tags]
    missing = json.loads(parent.data.tags["d3ray.missing"])
    assert list(missing) == ["team/arm"]
    assert "/nowhere/arm.hdf5" in missing["team/arm"]
    assert json.loads((micro / "micro" / "experiment.json").read_text())["tags"]["d3ray.missing"] == json.dumps(missing)


def test_runs_say_of_which_cell_they_are(micro: Path) -> None:
    parents = [run for run in runs_of(micro) if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs_of(micro) if "mlflow.parentRunId" in run.data.tags]
    (parent,) = parents
    tags = parent.data.tags
    assert (tags["d3ray.kind"], tags["d3ray.suite"], tags["d3ray.experiment"]) == ("experiment", "micro", "micro")
    definition = json.loads(tags["d3ray.suite_definition"])
    assert (definition["datasets"], definition["n_steps"]) == (["d3ray/pendulum-replay", "team/arm"], 300)
    assert [entry["label"] for entry in definition["algorithms"]] == ["BC", "TD3PlusBC", "IQL"]
    assert parent.data.metrics == {}  # a mean over different algorithms says nothing
    assert len(children) == 6
    for run in children:
        of = (run.data.tags["d3ray.suite"], run.data.tags["d3ray.dataset"], run.data.tags["d3ray.cell"])
        assert of == ("micro", "d3ray/pendulum-replay", run.data.tags["d3ray.algorithm"])
        assert run.info.run_name == f"micro {of[2]} on {of[1]} seed {run.data.tags['d3ray.seed']}"
        assert run.info.status == "FINISHED"
        assert "evaluation/return" in run.data.metrics


def test_bands_around_a_run_say_which_it_was(micro: Path, tmp_path: Path) -> None:
    config, file = suite(micro, datasets="*,team/arm"), str(tmp_path / "bands.yaml")
    ran = BenchmarkResult(results_of(Experiment.look(str(micro), "micro")), {}, None)
    bands = write_bands(ran, config, file)
    assert read_bands(file) == bands
    bands.check_protocol(protocol(config))
    assert bands.recorded is not None
    assert (bands.recorded.seeds, bands.seeds) == ((0, 1), 2)
    assert bands.recorded.versions["torch"] == torch.__version__
    assert "CPU" in bands.recorded.machine
    assert list(bands.cells) == ["d3ray/pendulum-replay"]  # what could not be had has none
    for metrics in bands.cells["d3ray/pendulum-replay"].values():  # random actions return about -1,200 in Pendulum
        assert metrics["evaluation/return"].chance == pytest.approx(-1200, abs=100)
        assert all(band.chance is None for name, band in metrics.items() if name != "evaluation/return")


def test_the_same_again_is_refused(micro: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("benchmark", ["micro", f"storage={micro}"]) == BAD_INPUT
    assert "There is an experiment 'micro' in" in capsys.readouterr().err


def test_a_resumed_benchmark_leaves_scores_as_they_are_byte_for_byte(micro: Path) -> None:
    before = (micro / "micro" / "report" / "scores.csv").read_bytes()
    (micro / "micro" / "report" / "scores.csv").unlink()
    assert run_command("benchmark", ["micro", f"storage={micro}", "datasets=*,team/arm", "--resume"]) == 1
    assert (micro / "micro" / "report" / "scores.csv").read_bytes() == before


# ---- trials, without training


@pytest.fixture
def data(tmp_path: Path) -> Obtained:
    return obtain(suite(tmp_path))


def trials(experiment: Experiment, config: SuiteConfig, data: Obtained) -> list[Any]:
    cells = [cell for cell in config.cells() if cell.dataset in data.found]
    return cell_trials(experiment, config, cells, {label: describe_dataset(one, label) for label, one in data.found.items()})


def test_the_first_seeds_of_all_cells_come_first(tmp_path: Path, data: Obtained) -> None:
    config = suite(tmp_path, seeds=[0, 1, 2, 3], seeds_per_trial=2)
    with rehearsal(benchmark_work(config, data)) as experiment:
        found = [(trial.tags["d3ray.cell"], trial.seeds) for trial in trials(experiment, config, data)]
    assert found == [(name, seeds) for seeds in ((0, 1), (2, 3)) for name in ("BC", "TD3PlusBC", "IQL")]


def test_stacks_that_are_split_are_trials_of_fewer_seeds(tmp_path: Path, data: Obtained) -> None:
    work = benchmark_work(suite(tmp_path, seeds=[0, 1, 2]), data).stacked(2)
    with rehearsal(work) as experiment:
        found, _ = proposed(work, experiment, 100)
        made = [(trial.tags["d3ray.cell"], trial.seeds) for trial in found]
    assert made == [(name, seeds) for seeds in ((0, 1), (2,)) for name in ("BC", "TD3PlusBC", "IQL")]


def test_algorithms_may_be_added_and_nothing_else_changed(tmp_path: Path, data: Obtained) -> None:
    config = suite(tmp_path, algorithms=["IQL"])
    with rehearsal(benchmark_work(config, data)) as experiment:
        (first,) = trials(experiment, config, data)
        more = trials(experiment, suite(tmp_path, algorithms=["BC", "IQL"]), data)
        assert {trial.tags["d3ray.cell"]: trial.number for trial in more} == {"IQL": 0, "BC": 1}
        assert first.key in {trial.key for trial in more}  # the same trial, and its runs in MLflow
        with pytest.raises(ConfigError, match=r"was begun with BC on d3ray/pendulum-replay too: name it as well"):
            trials(experiment, config, data)
        other = suite(tmp_path, algorithms=["BC", {"name": "IQL", "preset": "paper", "expectile": 0.9}])
        with pytest.raises(ConfigError, match=r"with IQL on d3ray/pendulum-replay.algorithm.expectile 0.7, and now"):
            trials(experiment, other, data)


def test_protocols_are_compared_before_anything_runs(tmp_path: Path, data: Obtained) -> None:
    def begin(config: SuiteConfig, **how: bool) -> Experiment:
        work = benchmark_work(config, data)
        return Experiment.begin(str(tmp_path), "micro", work.configuration, work.about, tags=work.tags, **how)

    begin(suite(tmp_path)).close()
    with pytest.raises(ConfigError, match=r"was begun with evaluation.episodes 2, and now evaluation.episodes is 5"):
        begin(suite(tmp_path, evaluation={"episodes": 5, "every": 100}), resume=True)
    again = begin(suite(tmp_path, datasets=["*", "d4rl/hopper-medium-v2"], budget={"hours": 3}), resume=True)
    assert "d4rl/hopper-medium-v2" in again.tags["d3ray.suite_definition"]
    again.close()


def test_a_budget_begins_nothing_new(tmp_path: Path, data: Obtained) -> None:
    config, now = suite(tmp_path, seeds_per_trial=1), [0.0]
    with rehearsal(benchmark_work(config, data)) as experiment:
        spent = Spent(experiment.folder, Limits(hours=1), lambda: now[0])
        proposer = benchmark_work(config, data).propose(experiment, spent)
        first = proposer.next()
        assert first is not None
        spent.began(first.identity)
        now[0] = 3599.0
        assert proposer.next() is not None
        now[0] = 3601.0
        with pytest.raises(StopIteration):
            proposer.next()
        proposer.ended(first)
        assert not proposer.has_more()


# ---- plans of what is not here


@pytest.fixture
def unserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two datasets of one environment, and one of which nothing says where it is played; nobody serves their files."""
    served = {"files": [{"url": "file:///nowhere/arm.hdf5"}], "format": "d4rl"}
    car = {"environment": {"id": "MountainCarContinuous-v0"}}
    known: dict[str, dict[str, Any]] = {"team/arm": car, "team/leg": car, "team/eye": {}}
    entries = {name: {**served, **more} for name, more in known.items()}
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": entries}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))


def test_random_experience_stands_in_for_data_that_are_not_here(unserved: None, tmp_path: Path) -> None:
    storage = tmp_path / "results"
    config = suite(storage, datasets=["team/arm", "d3ray/pendulum-replay", "team/leg", "team/eye"])
    with stood_in(config, obtain(config, only_here=True)) as data:
        assert list(data.missing) == ["team/eye"]
        assert data.stand_ins["team/arm"] == data.stand_ins["team/leg"]  # one for an environment
        random = data.found["team/arm"]
        assert (random.n_transitions, random.environment and random.environment.id) == (10_000, "MountainCarContinuous-v0")
        assert [random.kinds[name][1] for name in ("observation", "action")] == [(2,), (1,)]
        places = {cell.dataset: cell.config.dataset_place for cell in data.cells(config)}
        assert places["team/leg"] == data.stand_ins["team/leg"]
        assert places["d3ray/pendulum-replay"] == "d3ray/pendulum-replay"
        with rehearsal(benchmark_work(config, data)) as experiment:
            trials = cell_trials(experiment, config, data.cells(config), {name: {"fingerprint": ""} for name in places})
            assert len(trials) == len(config.groups()) * 9
    assert not storage.exists()


def test_a_plan_of_nothing_that_can_be_measured_says_how_to_get_the_data(unserved: None, tmp_path: Path) -> None:
    config = suite(tmp_path / "results", datasets=["team/eye"])
    data = obtain(config, only_here=True)
    with pytest.raises(DataError) as error, stood_in(config, data):
        pass
    assert str(error.value).startswith("No dataset of micro is here, and nothing says in which environment to play in their place")
    assert "the same command without --plan gets them first. team/eye: " in str(error.value)
    assert not (tmp_path / "results").exists()


def test_the_plan_of_a_suite_of_which_nothing_is_here(unserved: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["datasets=team/arm,team/leg,team/eye", "algorithms=BC", f"storage={tmp_path / 'results'}"]
    assert run_command("benchmark", ["micro", "--plan", *named]) == 0
    said = capsys.readouterr().out
    assert "micro would take:" in said
    assert "2 configurations, 2 trials of 2 seeds" in said  # arm and leg, stacked
    assert "team/arm and 1 other dataset are not here; their cells were measured on 10,000 steps of random actions" in said
    assert "team/eye is not here, and not counted" in said
    assert not (tmp_path / "results").exists()


def test_every_value_says_where_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "benchmark.yaml"
    file.write_text("suite: micro\nseeds: [5]\nevaluation: {episodes: 4, every: 200}\n")
    assert run_command("benchmark", ["--config", str(file), "--print-config", "evaluation.every=300", "algorithms=*BC"]) == 0
    said = capsys.readouterr().out
    assert "n_steps: 300  # suite micro" in said
    assert f"seeds: [5]  # {file}:2" in said
    assert f"  episodes: 4  # {file}:3" in said
    assert "  every: 300  # command line" in said
    assert "  holdout: 0.0  # default" in said
    assert "algorithms: [{name: BC, preset: d3rlpy}, {name: TD3PlusBC, preset: paper}]  # command line" in said


def test_the_example_is_a_suite_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("benchmark", ["--example"]) == 0
    (tmp_path / "example.yaml").write_text(capsys.readouterr().out)
    config, _ = resolve(BenchmarkConfig, tmp_path / "example.yaml")
    assert config.cells() == SuiteConfig.checked({"suite": "micro"}, title="benchmark").cells()


def test_files_that_a_submitted_run_needs(tmp_path: Path) -> None:
    suite, bands = tmp_path / "ours.yaml", tmp_path / "bands.yaml"
    suite.write_text((SUITES / "micro.yaml").read_text())
    bands.write_text("")
    config, _ = resolve(BenchmarkConfig, None, [str(suite), "--check", str(bands)])
    assert config.files() == (str(suite), str(bands))
    config, _ = resolve(BenchmarkConfig, None, ["gate", "--check", "gate"])
    assert config.files() == ()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["mikro"], "There is no suite 'mikro'; did you mean 'micro'?\n"),
        (
            ["micro", "datasets=*cart*"],
            "d3ray benchmark: datasets: nothing of the suite micro has the pattern '*cart*'; choose from",
        ),
        (["micro", "algorithms=IQl"], "algorithms: nothing of the suite micro has the name 'IQl'; did you mean 'IQL'?\n"),
        (["micro", "algorithms=DQN"], "DQN on d3ray/pendulum-replay: DQN "),
        (["micro", "budget.hours=0"], "budget.hours is 0"),
        (["mini", "name=a/b"], "The name 'a/b' cannot be a folder's"),  # before a dataset is made
        (["mini", "name=a/b", "--plan"], "The name 'a/b' cannot be a folder's"),
        (["micro", "--resume", "--replace"], "say one of them"),
        ([], "d3ray benchmark needs 'suite': name of a suite"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("benchmark", [*arguments, f"storage={tmp_path / 'results'}"]) == BAD_INPUT
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "results").exists()
