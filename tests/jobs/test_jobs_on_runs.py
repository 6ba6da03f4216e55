"""`d3ray plot`, `stats` and `compare` on experiments as trials leave them, and on d3rlpy's CSV files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.stats

from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.storage.experiments import Experiment

from ..platform.results.fake_experiment import write_experiment
from ..platform.results.test_csv_files import write_run

Write = Callable[..., Experiment]
RETURN = "evaluation/return"
LOW, HIGH = [10.0, 12.0, 14.0], [20.0, 21.0, 25.0]  # final returns, by seed


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Writes an experiment into the storage, which is the folder that the command is called in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # a terminal's size decides which numbers stand beside a curve
    monkeypatch.setenv("LINES", "25")
    return lambda name, returns, **options: write_experiment(
        monkeypatch, tmp_path / "d3ray_results", name, returns, n_points=2, **options
    )


def curves(finals: list[float]) -> dict[int, list[float | None]]:
    """Half of it, then all of it, by seed."""
    return {seed: [final / 2, final] for seed, final in enumerate(finals)}


def test_plot_draws_in_the_terminal_or_into_a_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("low", curves(LOW))
    write("high", curves(HIGH), algorithm="IQL")
    assert run_command("plot", ["low", "high"]) == 0
    said = capsys.readouterr().out
    assert f"{RETURN} · hopper-medium-v2\n    25 ┤" in said
    assert "  A TD3PlusBC  (3 seeds, 12 at step 200)\n  B IQL  (3 seeds, 22 at step 200)\n" in said
    assert run_command("plot", ["low", "high", "--save", "new/curves.svg", "--window", "2"]) == 0
    assert "picture: new/curves.svg" in capsys.readouterr().out
    assert b"<svg" in Path("new/curves.svg").read_bytes()
    assert run_command("plot", ["low", f"metrics=[{RETURN}, train/critic_loss]"]) == 0
    said = capsys.readouterr().out
    assert said.index(f"{RETURN} ·") < said.index("train/critic_loss ·")
    assert run_command("plot", ["low", "metrics=all"]) == 0
    assert capsys.readouterr().out.count(" · hopper-medium-v2\n") == 4


def test_plot_takes_the_csv_files_of_d3rlpy(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "d3rlpy_logs" / "CQL_1", {"algorithm": "cql"}, environment=[1.0, 2.0], critic_loss=[9.0])
    write("low", curves(LOW))
    assert run_command("plot", ["d3rlpy_logs/CQL_1/environment.csv"]) == 0
    assert "  ━━ cql  (1 seed, 2 at step 200)\n" in capsys.readouterr().out
    assert run_command("plot", ["low", "d3rlpy_logs"]) == 0
    assert capsys.readouterr().err == "d3rlpy_logs did not measure evaluation/return, and is not drawn.\n"
    assert run_command("stats", ["d3rlpy_logs/CQL_1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("cql of CQL_1: 1 seed, 200 steps\n")
    assert "  environment" in told


def test_stats_by_hand(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("first", {0: [8.0, 2.0], 1: [1.0, 4.0], 2: [9.0, 9.0]}, status={2: ("FAILED", "diverged")})
    assert run_command("stats", ["first", f"metrics={RETURN}", "last=1", "format=json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert {seed: about["status"] for seed, about in one["seeds"].items()} == {"0": "FINISHED", "1": "FINISHED", "2": "FAILED"}
    found = one["metrics"][RETURN]
    assert (found["step"], found["final"]["mean"], found["final"]["standard_error"]) == (200, 3.0, 1.0)
    assert (found["best"]["mean"], found["best_steps"]) == (6.0, {"0": 100, "1": 200})
    assert (found["recent"]["mean"], found["n_recent"]) == (3.0, 1)  # of 2 and 4; of 5 and 2.5 below, where both points count
    assert (found["low"], found["high"]) == (1.0, 8.0)
    assert found["left_out"] == {"2": "failed: diverged"}
    assert run_command("stats", ["first", f"metrics={RETURN}"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("TD3PlusBC of first: 3 seeds, 197 to 200 of 200 steps")
    assert told[1].split("  ")[-1] == "largest"
    assert told[2].split() == f"{RETURN} 3 ± 1 2 to 4 6 ± 2 3.75 ± 1.2 1 8".split()
    assert told[3] == "  2 seeds are too few for an interval of 95 %: it cannot reach beyond the lowest and the highest of them."
    assert told[4] == "  Not counted: seed 2 failed: diverged."
    assert "interval below 95 %" in told[1]
    assert "mean of last 2" in told[1]  # there are no ten
    write("five", curves([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert run_command("stats", ["five", f"metrics={RETURN}", "last=1"]) == 0
    told = capsys.readouterr().out
    assert "  95 % interval  " in told
    assert "mean of last 1 " in told
    assert "too few" not in told


def test_compare_says_whether_the_difference_is_shown(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("low", curves(LOW))
    write("high", curves(HIGH), algorithm="IQL")
    assert run_command("compare", ["low", "high", "format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == {"name": ["TD3PlusBC", "IQL"]}
    (verdict,) = found["verdicts"]
    theirs = scipy.stats.ttest_ind(HIGH, LOW, equal_var=False)
    assert verdict["mean"] == 10.0
    assert verdict["p"] == verdict["corrected_p"] == pytest.approx(theirs.pvalue)
    assert verdict["interval"] == pytest.approx(list(theirs.confidence_interval()))
    assert verdict["is_shown"]
    assert run_command("compare", ["low", "high"]) == 0
    told, (low, high) = capsys.readouterr().out, theirs.confidence_interval()
    assert told.startswith(  # before the table
        f"IQL is better than TD3PlusBC by 10 in evaluation/return (95 % interval of the difference {low:.5g} to {high:.5g}, "
        f"Welch's p = {theirs.pvalue:.2g}, 3 and 3 seeds): the difference is shown.\n"
    )
    rows = {line[:29].strip(): line[29:].split("  ") for line in told.splitlines()[2:]}
    assert [cell.strip() for cell in rows[RETURN] if cell] == ["12 ± 1.2", "22 ± 1.5"]
    assert rows["algorithm"][-1].strip() == "IQL"


def test_compare_leaves_out_what_one_side_alone_has(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("low", curves(LOW))
    write("errors", curves(LOW), metric="holdout/td_error")
    asked = ["low", "errors", "metric=train/critic_loss"]
    assert run_command("compare", asked) == 0
    verdict, empty, *rows = capsys.readouterr().out.splitlines()
    assert "the difference is" in verdict or "the same train/critic_loss" in verdict
    assert not empty
    assert not [row for row in rows if row.endswith("  –") or "  –  " in row]
    (left_out,) = [row for row in rows if row.startswith("Of one side alone, and left out: ")]
    assert RETURN in left_out
    assert "holdout/td_error" in left_out
    assert left_out.endswith("; format=json has all.")
    assert run_command("compare", [*asked, "format=json"]) == 0
    assert {RETURN, "holdout/td_error"} <= json.loads(capsys.readouterr().out)["metrics"].keys()


def test_compare_says_what_stands_in_the_way(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("low", curves(LOW))
    write("alike", curves([11.0, 12.0, 14.0]))
    write("one", curves([30.0]))
    write("elsewhere", curves(HIGH), environment="Walker2d-v4")
    write("running", {0: [3.0], 1: [4.0]}, status=dict.fromkeys((0, 1), ("KILLED", "")))
    write("errors", curves(LOW), metric="holdout/td_error")
    write("fewer-errors", curves([1.0, 1.5]), metric="holdout/td_error")
    write("several", {1.0: curves(LOW), 2.0: curves(HIGH), 3.0: curves([9.0, 8.0])})

    def said(*arguments: str) -> str:
        assert run_command("compare", arguments) == 0
        return capsys.readouterr().out

    assert "seeds): the difference is not shown.\n" in said("low", "alike")
    assert "whether they differ is not shown: that needs two seeds of each, and there are 1 and 3.\n" in said("low", "one")
    apart = said("low", "elsewhere")
    assert "scored in different environments (" in apart
    assert "is better" not in apart
    assert "(running) has not ended: its evaluation/return is that at step 100 of 200.\n" in said("low", "running")
    assert "(fewer-errors) is better than " in said("errors", "fewer-errors")  # of errors less is better
    three = said("several")
    assert three.count("corrected by Holm") == 2
    three = three.partition("\n\n")[2]
    assert three.index("alpha 2.0") < three.index("alpha 1.0") < three.index("alpha 3.0")  # beside the best
    assert "alpha 2.0 is the best of 3 configurations of several, which flatters it." in said("low", "several")


def test_what_is_wrong_is_said_in_a_sentence(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("low", curves(LOW))
    write("none", {0: []}, status={0: ("KILLED", "")})
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    for arguments, sentence in (
        (["plot", "lowe"], "did you mean 'low'?"),
        (["plot", "data.csv"], "data.csv holds no metric: line 1 is 'a,b', and lines are `epoch,step,value`."),
        (["plot", "low", "output=curves.gif"], "output is curves.gif: a picture ends in .png, .svg or .pdf."),
        (["plot", "low", "metric=evaluation/retrun"], "low did not measure 'evaluation/retrun'; did you mean 'evaluation/return'?"),
        (["plot", "none"], "none: nothing has been measured yet."),
        (["stats", "none"], "none: nothing has been measured yet."),
        (["stats", "low", "metrics=[x]"], "low did not measure 'x'"),
        (["compare", "low"], "low has one configuration: name another run to compare it with."),
        (["compare", "low", "models:/x"], "mlflow.db: name the tracking server"),
    ):
        assert run_command(arguments[0], arguments[1:]) == BAD_INPUT
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
