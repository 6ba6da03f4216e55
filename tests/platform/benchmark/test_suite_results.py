"""Benchmarks as they are read back from MLflow: cells, protocols, what is missing."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.benchmark.formats import SCORES_HEAD, scores_csv, statistics_csv
from d3ray.platform.benchmark.reading import find_benchmark, read_benchmark
from d3ray.platform.benchmark.results import Benchmark, grouped
from d3ray.platform.benchmark.tables import Tables
from d3ray.platform.tracking.runs import Tracking

from .fake_benchmark import CUBE, HOPPER, MAZE, WALKER, write_benchmark

V4 = "D4RL-normalised return in gymnasium v4"


def read(tracking: Tracking, parent: str) -> Benchmark:
    return read_benchmark(tracking, tracking.client.get_run(parent))


def lines(benchmark: Benchmark) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(scores_csv(benchmark))))


def test_scores_are_a_line_a_seed_with_every_digit_and_nothing_else(tracking: Tracking) -> None:
    third = 100 / 3
    cells = {(HOPPER, "IQL"): {0: [third, 70.0, 0.1], 2: [1.0, math.nan, 2.0]}, (HOPPER, "BC"): {0: [1.0, 2.0]}}
    about = {"datasets": [HOPPER, WALKER], "algorithms": ["IQL", "BC"], "seeds": [0, 2], "n_steps": 1500}
    ended = {(HOPPER, "BC", 0): ("FAILED", "diverged at step 1,001")}
    parent = write_benchmark(tracking, cells, suite="lines", definition=about, n_evaluations=3, ended=ended)
    found = lines(read(tracking, parent))
    assert tuple(found[0]) == SCORES_HEAD
    places = [(line["dataset"], line["algorithm"], line["seed"], line["status"], line["step"]) for line in found]
    assert places == [
        (HOPPER, "IQL", "0", "FINISHED", "1500"),
        (HOPPER, "IQL", "2", "FINISHED", "1500"),
        (HOPPER, "BC", "0", "FAILED", "1000"),
        (HOPPER, "BC", "2", "MISSING", ""),
        *((WALKER, label, seed, "MISSING", "") for label in ("IQL", "BC") for seed in "02"),
    ]
    first = found[0]
    assert first["normalized"] == "0.1"
    assert float(first["return"]) == -20.272305 + 0.1 * (3234.3 + 20.272305) / 100
    assert first["best_return"] == repr(-20.272305 + 70.0 * (3234.3 + 20.272305) / 100)
    assert (first["best_step"], first["n_evaluations"], first["episodes"]) == ("1000", "3", "10")
    assert found[1]["best_step"] == "1500"  # what is not finite is no best
    assert first["best_normalized"] == "70.0"
    assert [first[name] for name in ("environment", "unit", "every", "n_warm_up")] == ["Hopper-v4", V4, "500", "0"]
    assert {tuple(line[name] for name in SCORES_HEAD[4:]) for line in found if line["status"] == "MISSING"} == {
        ("MISSING",) + ("",) * 12
    }
    again = write_benchmark(tracking, cells, suite="lines", name="another", definition=about, n_evaluations=3, ended=ended)
    assert scores_csv(read(tracking, again)) == scores_csv(read(tracking, parent))
    assert parent not in scores_csv(read(tracking, parent))


def test_a_policy_that_diverges_at_the_end_changes_no_unit_and_is_said_to_be_nan(tracking: Tracking) -> None:
    cells = {
        (HOPPER, "IQL"): {0: [10.0, math.nan], 1: [5.0, math.nan]},
        (HOPPER, "BC"): {0: [3.0, 4.0], 1: [4.0, 5.0]},
        (WALKER, "IQL"): {0: [math.nan, math.nan], 1: [math.nan, math.nan]},
        (WALKER, "BC"): {0: [3.0, 4.0], 1: [4.0, 5.0]},
    }
    found = read(tracking, write_benchmark(tracking, cells, suite="diverged", n_evaluations=2))
    assert {cell.unit for cell in found.cells} == {V4}
    (group,) = grouped(found.cells)
    assert (group.unit, group.datasets) == (V4, [HOPPER, WALKER])
    assert found.cells[0].final == {}
    assert found.cells[0].score.left_out == dict.fromkeys((0, 1), "measured nan at step 1,000")


def test_runs_of_another_protocol_or_other_data_are_another_column(tracking: Tracking) -> None:
    parent = write_benchmark(
        tracking, {(HOPPER, "IQL"): {0: [1.0, 2.0]}, (WALKER, "IQL"): {0: [5.0]}}, suite="mixed", n_evaluations=2
    )
    other = {(HOPPER, "IQL"): "ff00" * 16}
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [7.0, 8.0]}}, suite="mixed", parent=parent, n_evaluations=2, fingerprints=other)
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [50.0]}}, suite="mixed", parent=parent, n_evaluations=1)
    found = read(tracking, parent)
    hopper = {cell.label: (cell.final, cell.is_current) for cell in found.cells if cell.dataset == HOPPER}
    longer = "1,000 gradient steps, 10 episodes every 500 steps"
    assert hopper == {
        "IQL": ({0: 50.0}, True),
        f"IQL · {longer}": ({0: 2.0}, False),
        f"IQL · {longer} · data ff00ff00": ({0: 8.0}, False),
    }
    # on the other dataset IQL trained for 1,000 steps: the two are not averaged
    assert [group.datasets for group in grouped(found.cells)] == [[HOPPER], [WALKER]]


def test_algorithms_may_train_for_different_times_and_stand_in_one_table(tracking: Tracking) -> None:
    cells = {(d, label): {0: [1.0, 2.0]} for d in (HOPPER, WALKER) for label in ("IQL", "EDAC")}
    params = {"EDAC": {"n_steps": "3000000"}}
    found = read(tracking, write_benchmark(tracking, cells, suite="uneven", n_evaluations=2, params=params))
    (group,) = grouped(found.cells)
    assert (
        group.protocol
        == "1,000 gradient steps, 10 episodes every 500 steps; EDAC: 3,000,000 gradient steps, 10 episodes every 500 steps"
    )


def test_a_name_is_an_experiments_first_then_a_suites_newest(tracking: Tracking, tmp_path: Path) -> None:
    cell = {(HOPPER, "IQL"): {0: [1.0]}}
    first = write_benchmark(tracking, cell, suite="named", name="old", storage=tmp_path)
    second = write_benchmark(tracking, cell, suite="named", name="new", storage=tmp_path)
    third = write_benchmark(tracking, cell, suite="new", name="third")
    elsewhere = write_benchmark(tracking, cell, suite="named", name="old", storage=tmp_path / "other")

    def found(name: str, folder: str = "") -> str:
        return find_benchmark(tracking, name, folder).info.run_id

    assert found("old", f"{tmp_path}/old") == first
    assert found("old") == elsewhere
    assert found("new") == second
    assert found("third") == third
    assert found("named") == elsewhere
    with pytest.raises(ConfigError, match=r"There is no benchmark 'nemed' in sqlite:.*; did you mean 'named'\?"):
        find_benchmark(tracking, "nemed")
    tracking.client.delete_run(elsewhere)
    assert found("named") == second


def test_other_runs_are_not_taken_for_benchmarks(tracking: Tracking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "others")
    tracking = Tracking(tracking.uri, None)
    tags = {"d3ray.kind": "experiment", "d3ray.experiment": "alone"}
    data = {"name": "d", "fingerprint": "f", "source": "s", "schema": {}, "n_transitions": 1, "n_episodes": 1, "environment": None}
    tracking.run("k", "alone", tags, {}, data)
    with pytest.raises(ConfigError, match=r"There is no benchmark 'alone' in .*; no benchmark has been run yet"):
        find_benchmark(tracking, "alone")


def test_an_empty_benchmark_and_one_without_a_definition_are_read(tracking: Tracking) -> None:
    about = {"datasets": [HOPPER], "algorithms": ["IQL"], "seeds": [0, 1]}
    empty = read(
        tracking, write_benchmark(tracking, {}, suite="empty", definition=about, missing={HOPPER: "no network"}, status="KILLED")
    )
    assert (empty.cells, empty.n_runs, dict(empty.missing)) == ((), 2, {HOPPER: "no network"})
    assert [line["status"] for line in lines(empty)] == ["MISSING", "MISSING"]
    parent = write_benchmark(tracking, {(HOPPER, "IQL"): {3: [1.0]}}, suite="bare", n_evaluations=1)
    tracking.set_tags(parent, {"d3ray.suite_definition": json.dumps({"datasets": ["x"]})[:-1]})  # as one that was cut
    bare = read(tracking, parent)
    assert (bare.datasets, bare.labels, bare.seeds, bare.n_runs) == ((HOPPER,), ("IQL",), (3,), 1)


def test_ogbench_is_compared_by_the_share_of_episodes_that_were_solved(tracking: Tracking) -> None:
    cells = {
        (CUBE, "FQL"): {0: [10.0, 90.0, 80.0], 1: [0.0, 60.0, 70.0]},
        (CUBE, "BC"): {0: [5.0, 5.0, 0.0], 1: [0.0, 10.0, 10.0]},
        (MAZE, "FQL"): {0: [50.0, 100.0, 100.0], 1: [0.0, 40.0, 100.0]},
        (MAZE, "BC"): {0: [0.0, 0.0, 20.0], 1: [0.0, 0.0, 0.0]},
    }
    found = read(tracking, write_benchmark(tracking, cells, suite="cubes", n_evaluations=3, data_returns={CUBE: -46.4}))
    cell = found.cell(CUBE, "FQL")
    assert cell is not None
    assert (cell.unit, cell.final, cell.best) == ("success rate in %", {0: 80.0, 1: 70.0}, {0: 90.0, 1: 70.0})
    assert cell.reference is cell.data_score is None
    (group,) = grouped(found.cells)
    assert (group.unit, group.datasets) == ("success rate in %", [CUBE, MAZE])
    line = lines(found)[0]
    assert [line[name] for name in ("normalized", "best_normalized", "unit")] == ["80.0", "90.0", "success rate in %"]
    tables = Tables(found)
    assert tables.scores[0].caption.startswith("Success rate in % at the last evaluation: mean ± standard error over seeds")
    assert tables.aggregates[0].rows[0][0].text == "FQL"  # IQM of 80, 70, 100, 100
    assert tables.aggregates[0].rows[0][1][0].text == "90.0"


def test_shares_of_solved_episodes_stand_by_task_where_tasks_come_in_turn(tracking: Tracking) -> None:
    cells = {(MAZE, label): {seed: [10.0, 20.0] for seed in (0, 1)} for label in ("HIQL", "GCBC")}
    parent = write_benchmark(tracking, cells, suite="tasks", n_evaluations=2)
    solved = {("HIQL", 0): (1.0, 0.5), ("HIQL", 1): (0.5, 0.5), ("GCBC", 0): (0.0, 1.0), ("GCBC", 1): (0.5, 0.0)}
    for run in tracking.client.search_runs([tracking.experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'"):
        shares = solved[run.data.tags["d3ray.cell"], int(run.data.tags["d3ray.seed"])]
        for task, share in zip((2, 10), shares, strict=True):
            tracking.client.log_metric(run.info.run_id, f"evaluation/success_task{task}", 1 - share, step=500)  # not the last
            tracking.client.log_metric(run.info.run_id, f"evaluation/success_task{task}", share, step=1000)
    found = read(tracking, parent)
    hiql = found.cell(MAZE, "HIQL")
    assert hiql is not None
    assert hiql.tasks == {2: {0: 100.0, 1: 50.0}, 10: {0: 50.0, 1: 50.0}}
    (table,) = Tables(found).by_task
    assert [head.text for head in table.columns] == ["Task 2", "Task 10"]
    shown = {head.text: [(entry.text, entry.strong) for entry in entries] for head, entries in table.rows}
    assert shown == {
        f"HIQL on {MAZE}": [("75.0 ± 25.0", True), ("50.0 ± 0.0", True)],  # 100 and 50: s = 35.36, over √2
        f"GCBC on {MAZE}": [("25.0 ± 25.0", False), ("50.0 ± 50.0", True)],
    }
    lines_of_tasks = [
        line
        for line in statistics_csv(Tables(found)).splitlines()
        if line.startswith("mean of seeds, task") or "seeds, task" in line
    ]
    assert len(lines_of_tasks) == 4
    assert table in Tables(found).all


def test_what_others_tell_of_success_leaves_their_scores_as_they_are(tracking: Tracking) -> None:
    parent = write_benchmark(tracking, {(HOPPER, "BC"): {0: [3.0, 4.0]}}, n_evaluations=2)
    run = tracking.client.search_runs([tracking.experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'")[0]
    tracking.client.log_metric(run.info.run_id, "evaluation/success", 0.5, step=1000)
    (cell,) = read(tracking, parent).cells
    assert (cell.unit, cell.final) == (V4, {0: 4.0})
