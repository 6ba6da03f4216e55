"""The report on a benchmark: its tables, its files, its page."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from d3ray.jobs.command.running import BAD_INPUT, run_command
from d3ray.platform.benchmark.charts import budget_figure, curves_figure, profiles_figure, styles
from d3ray.platform.benchmark.formats import latex, markdown_table
from d3ray.platform.benchmark.report import BUDGET, CURVES, PROFILES, SCORES, compose, page, write
from d3ray.platform.benchmark.results import Benchmark
from d3ray.platform.benchmark.tables import Entry, Head, Table, Tables
from d3ray.platform.report import charts, series
from d3ray.platform.tracking.runs import Tracking

from ..report.test_report_seen import CHROMIUM, browse
from .fake_benchmark import CUBE, HOPPER, MACHINE, PENDULUM, VERSIONS, WALKER, read, write_benchmark

V4 = "D4RL-normalised return in gymnasium v4"
CELLS = {
    (HOPPER, "IQL"): {0: [10, 30, 60, 50], 1: [10, 30, 50, 52], 2: [10, 20, 40, 57]},
    (HOPPER, "BC"): {0: [30, 31, 32, 33], 1: [28, 29, 30, 31], 2: [20, 40, 36, 35]},
    (WALKER, "IQL"): {0: [20, 40, 70, 80], 1: [25, 45, 75, 90], 2: [1, 2, 3, 100]},
    (WALKER, "BC"): {0: [50, 50, 50, 50], 1: [50, 60, 70, 60], 2: [50, 55, 60, 70]},
    (PENDULUM, "IQL"): {0: [-1200, -300, -150, -200], 1: [-1000, -900, -800, -300], 2: [-1500, -1400, -200, -250]},
    (PENDULUM, "BC"): {0: [-900, -900, -900, -910], 1: [-900, -900, -900, -900], 2: [-900, -900, -900, -920]},
}


@pytest.fixture(scope="module")
def whole(tracking: Tracking) -> Benchmark:
    return read(tracking, CELLS, suite="whole")


@pytest.fixture(scope="module")
def files(whole: Benchmark) -> dict[str, bytes]:
    return compose(whole)


def of(benchmark: Benchmark) -> Tables:
    return Tables(benchmark, styles(benchmark.labels))


def places(table: Table) -> dict[tuple[str, str], Entry]:
    return {(row.text, head.text): e for row, entries in table.rows for head, e in zip(table.columns, entries, strict=True)}


def shown(tables: Tables, figures: Mapping[str, Any] | None = None) -> str:
    return html.unescape(page(tables, figures or {})).replace("<wbr>", "")


# ---- tables


def test_scores_are_means_with_errors_and_intervals_and_raw_returns_stand_apart(whole: Benchmark) -> None:
    normalized, raw = of(whole).scores
    assert normalized.caption.startswith(f"{V4} at the last evaluation")
    found = places(normalized)
    # 50 52 57: mean 53, deviations -3 -1 4: 26 / 2 = 13, √(13 / 3) = 2.08
    assert found[HOPPER, "IQL"].text == "53.0 ± 2.1"
    assert found[HOPPER, "IQL"].strong
    assert not found[HOPPER, "BC"].strong
    assert found[HOPPER, "IQL"].below == ("50.0 to 57.0",)
    assert {row.text for row, _ in raw.rows} == {PENDULUM}
    assert places(raw)[PENDULUM, "IQL"].text == "−250.0 ± 28.9"
    assert any("no reference score" in note for note in raw.notes)
    assert any("3 seeds are too few for an interval of 95 %" in note for note in normalized.notes)


def test_aggregates_are_over_normalised_datasets_and_comparisons_over_all(whole: Benchmark) -> None:
    (aggregates,) = of(whole).aggregates
    assert aggregates.caption == f"{V4} over 2 datasets, 3 seeds each, by IQM"
    found = places(aggregates)
    # 50 52 57 80 90 100 without one at each end: 52 57 80 90
    assert found["IQL", "IQM"].text == "69.8"
    assert found["IQL", "Mean"].text == "71.5"
    assert found["IQL", "Optimality gap"].text == "28.5"
    assert [row.text for row, _ in aggregates.rows] == ["IQL", "BC"]
    (improvements,) = of(whole).improvements
    assert "3 datasets" in improvements.caption
    assert places(improvements)["IQL", "BC"].text == "1.00"
    assert places(improvements)["BC", "IQL"].text == "0.00"
    assert places(improvements)["BC", "BC"].text == ""


def test_only_numbers_that_are_there_are_explained(whole: Benchmark, tracking: Tracking) -> None:
    assert "Over datasets" in shown(of(whole))
    assert "The optimality gap is" in shown(of(whole))
    raw = {cell: seeds for cell, seeds in CELLS.items() if cell[0] == PENDULUM}
    one = of(read(tracking, raw, suite="one-dataset"))
    assert one.improvements
    assert not one.aggregates
    assert "Over datasets" not in shown(one)
    assert "A probability of improvement is" in shown(one)
    assert "optimality gap" not in shown(one)
    assert "optimality gap" not in compose(one.benchmark)["report.md"].decode()


def test_what_is_missing_or_failed_or_not_finished_is_shown_and_in_no_mean(tracking: Tracking) -> None:
    cells = {**CELLS, (HOPPER, "BC"): {0: [1, 2, 3, 4], 1: [1, 2]}, (WALKER, "BC"): {0: [9], 1: [8, 9]}}
    about = {"datasets": [HOPPER, WALKER, PENDULUM, "d4rl/pen-human-v1"], "algorithms": ["IQL", "BC", "CQL"], "seeds": [0, 1, 2]}
    ended = {
        (HOPPER, "BC", 1): ("FAILED", "diverged at step 1,100: the critic's loss is not finite."),
        (WALKER, "BC", 0): ("RUNNING", ""),
        (WALKER, "BC", 1): ("RUNNING", ""),
    }
    why = {"d4rl/pen-human-v1": "rail.eecs.berkeley.edu does not answer."}
    half = read(tracking, cells, suite="half", definition=about, ended=ended, missing=why, status="RUNNING")
    tables = of(half)
    found = places(tables.scores[0])
    assert (found[HOPPER, "BC"].text, found[HOPPER, "BC"].below) == ("4.0", ("1 of 3 seeds",))
    assert (found[WALKER, "BC"].text, found[WALKER, "BC"].below, found[WALKER, "BC"].quiet) == ("8.5", ("at step 500",), True)
    assert (found[HOPPER, "CQL"].text, found[HOPPER, "CQL"].below) == ("–", ("no run yet",))
    assert found["d4rl/pen-human-v1", "IQL"].below == ("missing",)
    notes = " ".join(tables.scores[0].notes)
    assert "d4rl/pen-human-v1 is missing: rail.eecs.berkeley.edu does not answer." in notes
    assert f"BC on {HOPPER}, seed 1 failed and is in no mean: diverged at step 1,100" in notes
    assert "2 runs have not finished" in notes
    (aggregates,) = tables.aggregates
    assert "1 dataset" in aggregates.caption  # that which both have finished
    assert aggregates.notes[0] == f"Not in it, because not every algorithm has finished there: {WALKER}."
    assert any("single seed" in note for note in aggregates.notes)
    text = shown(tables)
    assert "Of 36 runs 13 have finished; 1 failed, 2 still running and 20 not begun." in text
    assert 'class="status running"' in text
    assert "What follows is of the runs that there are." in text


def test_published_scores_stand_beside_with_their_seeds(tracking: Tracking) -> None:
    cells = {
        ("d4rl/hopper-medium-v2", "IQL"): {0: [67.0, 66.0], 1: [60.0, 70.0]},
        ("d4rl/hopper-medium-v2", "tenth"): {0: [50.0, 55.0]},
        (HOPPER, "IQL"): {0: [1.0, 2.0]},
    }
    settings = {"tenth": {"algorithm.sampler.by": "top"}}
    bench = read(tracking, cells, suite="beside", n_evaluations=2, algorithms={"tenth": "BC"}, params=settings)
    last, best = of(bench).published
    assert [head.text for head in last.columns] == ["here", "CORL, 4 seeds", "OfflineRL-Kit, 4 seeds", "JAX-CORL, 5 seeds"]
    rows = {row.text: [entry.text for entry in entries] for row, entries in last.rows}
    assert rows["IQL on d4rl/hopper-medium-v2"] == ["68.0 ± 2.0", "67.53 ± 3.78", "65.7 ± 8.1", "56.78 ± 3.50"]
    assert rows["tenth on d4rl/hopper-medium-v2"] == ["55.0", "55.48 ± 7.30", "–", "–"]
    assert rows[f"IQL on {HOPPER} beside hopper-medium-v2"][0] == "2.0"
    assert [head.text for head in best.columns] == ["here", "CORL, 4 seeds"]
    assert next(entries[0].text for row, entries in best.rows if row.text == "IQL on d4rl/hopper-medium-v2") == "68.5 ± 1.5"
    assert any("1,000,000 gradient steps" in note for note in last.notes)
    # the two datasets are not of one unit: mujoco-py's environment and gymnasium's
    assert {group.unit for group in of(bench).groups} == {V4, "D4RL-normalised return"}
    assert of(read(tracking, {(PENDULUM, "IQL"): {0: [1.0]}}, suite="none", n_evaluations=1)).published == []


def test_raw_returns_stand_beside_those_that_were_printed(tracking: Tracking) -> None:
    bench = read(tracking, {("d4rl/hopper-random-v0", "SAC"): {0: [20.0, 10.0], 1: [30.0, 12.0]}}, suite="raw", n_evaluations=2)
    last, best = of(bench).published
    for table, ours, raw, printed in ((last, "11.0 ± 1.0", "337.7", "5.8"), (best, "25.0 ± 5.0", "793.4", "466.2")):
        ((_, (here, *theirs)),) = table.rows
        assert (here.text, here.below) == (ours, (f"return {raw}", "2 seeds"))
        assert table.caption.endswith("below it the return as it is, where it was printed")
        assert theirs[0].below == (f"return {printed}",)


# ---- files


def test_the_files_of_a_report_and_that_they_repeat(files: dict[str, bytes], storage: Path) -> None:
    figures = {PROFILES, CURVES, BUDGET}
    assert set(files) == {"report.html", "report.md", "tables.tex", "scores.csv", "statistics.csv", *figures}
    made = write(str(storage), "whole")
    assert made.folder == str(storage / "whole" / "report")
    assert {path.name: path.read_bytes() for path in Path(made.folder).iterdir()} == files
    numbers = list(csv.DictReader(io.StringIO(files["statistics.csv"].decode())))
    (iqm,) = [line for line in numbers if line["statistic"] == "iqm" and line["algorithm"] == "IQL"]
    assert float(iqm["value"]) == (52 + 57 + 80 + 90) / 4
    assert iqm["unit"] == V4
    assert float(iqm["low"]) < float(iqm["value"]) < float(iqm["high"])
    (error,) = [n["standard_error"] for n in numbers if n["dataset"] == HOPPER and n["algorithm"] == "IQL" and n["standard_error"]]
    assert float(error) == pytest.approx((13 / 3) ** 0.5)


def test_the_page_says_of_every_number_what_it_is_of(whole: Benchmark, tracking: Tracking) -> None:
    text = shown(of(whole))
    assert "All 18 runs have finished." in text
    assert "IQL has the highest interquartile mean over 2 datasets, 3 seeds each: 69.8" in text
    assert f"<dt>Machine of the command</dt><dd>{MACHINE}</dd>" in text
    assert f"<dt>Versions</dt><dd>{VERSIONS}</dd>" in text
    assert f"<dt>{HOPPER}</dt><dd>1,200 transitions in 4 episodes; fingerprint ab12cd34ab12; scored in Hopper-v4; " in text
    assert "0 is a return of −20.3, 100 one of 3,234.3" in text
    runs = [run.run_id for cell in whole.cells for run in cell.runs.seeds]
    assert all(f"/runs/{run}" in text for run in [*runs, whole.run_id])
    assert f"IQL on {HOPPER} beside hopper-medium-v2" in text
    assert "made here by D4RL’s procedure: other data, in another version of the environment" in text
    assert f"mlflow ui --backend-store-uri {tracking.uri}" in text
    assert "D4RL score" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_page_without_complaint(files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(files["report.html"])
    dom, complaints = browse(tmp_path / "page.html", "--dump-dom")
    assert complaints == ""
    assert dom.count("<picture>") == 3


def test_runs_on_several_machines_are_told_apart(tracking: Tracking) -> None:
    cells = {(HOPPER, "IQL"): {0: [1.0], 1: [2.0], 2: [3.0]}}
    tags = {
        0: {"d3ray.node": "gpu-1"},
        1: {"d3ray.node": "gpu-1"},
        2: {"d3ray.node": "gpu-2", "d3ray.node_machine": "8 CPUs, H100", "d3ray.git_dirty": "true"},
    }
    text = shown(of(read(tracking, cells, suite="machines", n_evaluations=1, machines={2: "A GPU machine"}, more_tags=tags)))
    assert "<dt>Machine of the command A (2 runs)</dt>" in text
    assert "<dt>Machine of the command B (1 run)</dt><dd>A GPU machine</dd>" in text
    assert "<dt>Trained on the node A (2 runs)</dt><dd>gpu-1</dd>" in text
    assert "<dt>Trained on the node B (1 run)</dt><dd>gpu-2: 8 CPUs, H100</dd>" in text
    assert "<dt>Code in the command’s folder A (2 runs)</dt><dd>0123456789ab</dd>" in text
    assert "<dt>Code in the command’s folder B (1 run)</dt><dd>0123456789ab, with changes</dd>" in text
    assert f"<dt>Versions</dt><dd>{VERSIONS}</dd>" in text
    assert re.search(r"<td>A</td>.*<td>A</td>.*<td>B</td>", text, re.DOTALL)


@pytest.mark.long
def test_the_data_stands_beside_the_algorithms_and_is_never_the_best(tracking: Tracking) -> None:
    data = {HOPPER: -20.272305 + (3234.3 + 20.272305) * 0.9, PENDULUM: -100.0}
    marks = {(d, label): f"{k}d47a{k}" * 10 for k, d in enumerate((HOPPER, WALKER, PENDULUM)) for label in ("IQL", "BC")}
    bench = read(tracking, CELLS, suite="anchored", data_returns=data, fingerprints=marks)
    normalized, raw = of(bench).scores
    assert [head.text for head in normalized.columns] == ["the data", "IQL", "BC"]
    found = {**places(normalized), **places(raw)}
    assert (found[HOPPER, "the data"].text, found[HOPPER, "the data"].strong) == ("90.0", False)
    assert found[WALKER, "the data"].text == "–"  # a run that did not keep it
    assert found[PENDULUM, "the data"].text == "−100.0"
    assert found[HOPPER, "IQL"].strong
    made = compose(bench)
    numbers = list(csv.DictReader(io.StringIO(made["statistics.csv"].decode())))
    own = {line["dataset"]: float(line["value"]) for line in numbers if line["statistic"] == "mean of the data"}
    assert own == {HOPPER: pytest.approx(90.0), PENDULUM: -100.0}
    assert "mean return of its episodes 2,909;" in made["report.html"].decode()
    assert made[CURVES] != compose(read(tracking, CELLS, suite="unanchored"))[CURVES]  # a dashed line


def test_what_was_gained_online_stands_beside_what_was_learned_offline(tracking: Tracking) -> None:
    cells = {(CUBE, "IQL"): {0: [5.0, 10.0, 90.0], 1: [5.0, 30.0, 70.0]}, (CUBE, "RLPD"): {0: [0.0, 20.0, 40.0]}}
    bench = read(tracking, cells, suite="finetuned", n_evaluations=3, params={"IQL": {"online.pretrain": "1000"}})
    (table,) = of(bench).finetuned
    found = {row.text.partition(" ")[0]: [(one.text, one.below) for one in entries] for row, entries in table.rows}
    assert found["IQL"] == [("20.0 ± 10.0", ("at step 1,000",)), ("80.0 ± 10.0", ("at step 1,500",)), ("60.0 ± 20.0", ())]
    assert found["RLPD"] == [("–", ("acted from the beginning",)), ("40.0", ("at step 1,500",)), ("–", ())]
    made = compose(bench)
    assert "before and after learning online" in made["report.html"].decode()
    assert "before and after learning online" in made["report.md"].decode()
    assert of(read(tracking, cells, suite="offline", n_evaluations=3)).finetuned == []


def test_a_report_with_no_whole_curve_and_one_of_a_warm_up_alone_are_made(tracking: Tracking) -> None:
    gap = read(tracking, {(HOPPER, "IQL"): {0: [1.0, np.nan, 3.0], 1: [2.0, np.inf, 1.0]}}, suite="gap", n_evaluations=3)
    (table,) = of(gap).gaps
    assert table.caption.startswith("Best of 3 evaluations minus the last")
    assert (places(table)[HOPPER, "IQL"].text, places(table)[HOPPER, "IQL"].below) == ("0.5", ("2.5",))
    assert BUDGET not in compose(gap)
    cells = {(HOPPER, label): {0: [99.0, 10.0, 20.0]} for label in ("PLAS", "IQL", "never")}
    params = {"PLAS": {"algorithm.warmup_steps": "500"}, "never": {"algorithm.warmup_steps": "1500"}}
    warm = read(tracking, cells, suite="warmed", n_evaluations=3, params=params, algorithms={"never": "PLAS"})
    (table,) = of(warm).gaps
    found = places(table)
    assert (found[HOPPER, "PLAS"].below, found[HOPPER, "never"].text, found[HOPPER, "IQL"].below) == (("20.0",), "–", ("99.0",))
    assert table.caption.startswith("Best of 2 to 3 evaluations minus the last")
    assert table.notes[0].startswith("PLAS: 1 of 3 evaluations of a run came in its warm-up, the first 500 steps,")
    assert table.notes[1].startswith("never: 3 of 3 evaluations of a run came in its warm-up, the first 1,500 steps,")
    _, best = of(warm).published
    assert [(row.text.partition(" ")[0], entries[0].text) for row, entries in best.rows] == [
        ("PLAS", "20.0"),
        ("IQL", "99.0"),
        ("never", "–"),
    ]
    text = compose(warm)["report.html"].decode()
    assert re.search(r"<td>PLAS</td>.*?20\.0</td><td class=\"n\">20\.0</td><td class=\"quiet\">at 1,500</td>", text, re.DOTALL)


def test_an_empty_benchmark_is_shown_as_such(tracking: Tracking) -> None:
    about = {"datasets": [HOPPER], "algorithms": ["IQL"], "seeds": [0, 1]}
    empty = read(tracking, {}, suite="empty", definition=about, status="KILLED")
    made = compose(empty)
    assert not {PROFILES, CURVES, BUDGET} & set(made)
    text = made["report.html"].decode()
    assert "Of 2 runs none has finished; 2 not begun." in text
    assert "Nothing has been evaluated yet" in text
    assert "No run has begun." in text
    assert 'class="status stopped"' in text


def test_what_runs_are_called_is_no_markup(tracking: Tracking) -> None:
    evil = "<script>alert(1)</script> | *x* & 50 % $y_1$"
    tables = of(read(tracking, {(HOPPER, evil): {0: [1.0], 1: [2.0]}}, suite="evil", n_evaluations=1))
    assert "<script" not in page(tables, {})
    text = markdown_table(tables.scores[0])
    assert r"\<script\>alert(1)\</script\> \| \*x\* & 50 % \$y\_1\$" in text
    assert r"\textless{}script\textgreater{}alert(1)\textless{}/script\textgreater{} | *x* \& 50 \% \$y\_1\$" in latex(tables.all)


def test_tables_as_markdown_and_latex() -> None:
    rows = ((Head("a_1"), (Entry("1.0 ± 0.1", ("0.9 to 1.1",), strong=True), Entry("–"))), (Head("b"), (Entry("−2"), Entry(""))))
    table = Table("scores", "Scores of 2 %", "Dataset", (Head("IQL", 0), Head("BC")), rows)
    assert markdown_table(table).splitlines() == [
        "| Dataset | IQL | BC |",
        "| --- | ---: | ---: |",
        r"| a\_1 | **1.0 ± 0.1**<br>0.9 to 1.1 | – |",
        "| b | −2 |  |",
    ]
    text = latex([table])
    assert text.splitlines()[4:-2] == [
        r"\label{tab:scores}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"Dataset & IQL & BC \\",
        r"\midrule",
        r"a\_1 & \textbf{1.0 $\pm$ 0.1} & -- \\",
        r" & {\scriptsize 0.9 to 1.1} &  \\",
        r"b & $-$2 &  \\",
        r"\bottomrule",
    ]
    assert r"\caption{Scores of 2 \%.}" in text
    both = re.findall(r"\\label{(.*)}", latex([table, table, replace(table, name="gaps")]))
    assert both == ["tab:scores-1", "tab:scores-2", "tab:gaps"]


# ---- figures


def pixels(png: bytes | None) -> np.ndarray:
    assert png is not None
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_figures_show_every_algorithm_on_the_ground_of_the_page(whole: Benchmark, files: dict[str, bytes]) -> None:
    inside = re.findall(r'(srcset|src)="data:image/png;base64,([^"]+)"', files["report.html"].decode())
    pictures = [("dark" if kind == "srcset" else "light", base64.b64decode(text)) for kind, text in inside]
    assert {png for theme, png in pictures if theme == "light"} == {files[name] for name in (PROFILES, CURVES, BUDGET)}
    assert len(pictures) == 6
    for theme, png in pictures:
        colors, image = charts.THEMES[theme], pixels(png)
        assert tuple(image[0, 0]) == tuple(bytes.fromhex(colors.ground[1:]))
        for label, style in of(whole).styles.items():
            color = np.array(list(bytes.fromhex(charts.color_of(style, colors)[1:])))
            assert (np.abs(image.astype(int) - color).max(-1) < 12).sum() > 200, f"{label} is not to be seen"


def test_figures_are_of_what_there_is(tracking: Tracking) -> None:
    raw = of(read(tracking, {(PENDULUM, "IQL"): {0: [-3.0]}}, suite="raw", n_evaluations=1))
    assert profiles_figure(raw, charts.LIGHT) is None
    assert pixels(budget_figure(raw, charts.LIGHT)).shape[1] == 1920
    labels = {(HOPPER, f"L{k}"): {0: [1.0]} for k in range(series.MOST + 2)}
    many = of(read(tracking, labels, suite="many", n_evaluations=1))
    assert pixels(curves_figure(many, charts.LIGHT)).shape[1] == 1920
    assert "In the tables only, because more lines cannot be told apart: L12, L13." in shown(
        many, {CURVES: {"light": b"", "dark": b""}}
    )


# ---- the command


@pytest.mark.long
def test_the_command_reports_a_benchmark_by_experiment_and_by_suite(
    tracking: Tracking, storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [1.0]}}, suite="asked", name="first", storage=storage, n_evaluations=1)
    write_benchmark(tracking, {(HOPPER, "IQL"): {0: [2.0]}}, suite="asked", name="second", storage=storage, n_evaluations=1)
    assert run_command("report", ["first", f"storage={storage}"]) == 0
    assert f"page:      {storage}/first/report/report.html" in capsys.readouterr().out
    assert ",1.0," in (storage / "first" / "report" / SCORES).read_text()
    assert run_command("report", ["asked", f"storage={storage}", f"out={storage}/out"]) == 0
    assert "second" in (storage / "out" / "report.html").read_text()
    assert ",2.0," in (storage / "out" / SCORES).read_text()
    assert run_command("report", ["first", f"storage={storage}", "metric=evaluation/length"]) == BAD_INPUT
    assert "first is a benchmark, whose score is the return" in capsys.readouterr().err


def test_a_name_of_nothing_is_refused_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("report", ["nothing", f"storage={tmp_path}"]) == BAD_INPUT
    assert capsys.readouterr().err.startswith(f"There is no experiment 'nothing' in {tmp_path}")
    assert list(tmp_path.iterdir()) == []
