"""A report's page: honest scores, nothing but itself, and fit to be looked at."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.platform.record.results import RETURN, ConfigurationResult, Report
from d3ray.platform.report import charts, series
from d3ray.platform.report.experiment import CURVES, LOSSES, MODELS, SCORES, compose, report
from d3ray.platform.report.model_charts import model_charts
from d3ray.platform.report.page import PAGE
from d3ray.platform.report.sweep_text import _space  # pyright: ignore[reportPrivateUsage]
from d3ray.platform.report.tasks import group, label, panels
from d3ray.platform.report.text import decimals, number, run_link
from d3ray.platform.results.experiment import read_results
from d3ray.platform.results.mlflow_pages import mlflow_command
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.words import value_text

from ..results.fake_experiment import DATASET, write_experiment

Write = Callable[..., Experiment]
NAN = float("nan")


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Writes an experiment into the storage, which is `tmp_path`."""
    return lambda name, returns, **options: write_experiment(monkeypatch, tmp_path, name, returns, **options)


class Page(HTMLParser):
    """Tags with attributes, the cells of each row, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell = self._silent = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("style", "script")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.text += data
        if self._cell:
            self.rows[-1][-1] += data.strip()

    def row(self, first: str) -> list[str]:
        """The first row that begins with a cell."""
        return next(row for row in self.rows if row and row[0] == first)


def read(made: Report) -> tuple[Page, list[dict[str, str]]]:
    """The page and the lines of scores.csv."""
    page = Page(Path(made.page).read_text())
    return page, list(csv.DictReader((Path(made.folder) / SCORES).open()))


def only(storage: Path, name: str) -> ConfigurationResult:
    """The one configuration of an experiment."""
    (found,) = read_results(str(storage), name).configurations
    return found


# ---- scores


def test_the_score_is_the_mean_over_seeds_at_the_last_step(write: Write, tmp_path: Path) -> None:
    write("good", {0: [10, 20, 90, 30], 1: [10, 20, 30, 40], 2: [10, 20, 30, 80]})
    page, lines = read(report(str(tmp_path), ["good"]))
    # mean 50; deviations -20, -10, 30: variance 1400 / 2, standard error sqrt(700 / 3) = 15.275; best 90, 40, 80: mean 70
    # D4RL: 100 (50 + 20.272305) / 3254.572305 = 2.16
    cells = page.row("TD3PlusBC")
    assert cells[:4] == ["TD3PlusBC", "3", "50.00", "± 15.28"]
    assert cells[5:] == ["2.2", "70.00", "400", "102"]  # the median of 101, 102, 103, 104 is 102.5, shown to the even digit
    low, high = map(float, cells[4].removesuffix("†").split(" to "))
    assert 30 <= low < 50 < high <= 80
    assert "† 3 seeds are too few for an interval of 95 %: it cannot reach beyond" in page.text
    assert page.row("the data itself")[2:4] == ["60.00", "mean of 4 episodes"]
    assert [(line["seed"], line["score"], line["best"], line["best_step"], line["counted"]) for line in lines] == [
        ("0", "30.0", "90.0", "300", "1"),
        ("1", "40.0", "40.0", "400", "1"),
        ("2", "80.0", "80.0", "400", "1"),
    ]


def test_costs_stand_beside_the_scores_where_the_environment_tells_them(write: Write, tmp_path: Path) -> None:
    write("costly", {0: [10, 20], 1: [10, 20]}, n_points=2, also={"evaluation/cost": [4.0, 8.0]})
    page, _ = read(report(str(tmp_path), ["costly"]))
    head = page.row("Configuration")
    assert page.row("TD3PlusBC")[head.index("Cost")] == "6.000 ± 2.000"
    write("free", {0: [10, 20]}, n_points=2)
    assert "Cost" not in read(report(str(tmp_path), ["free"]))[0].row("Configuration")


def test_a_seed_that_was_trained_too_long_is_said_and_no_other(write: Write, tmp_path: Path) -> None:
    rising = [10.0 * k for k in range(12)]
    write("long", {0: rising, 1: [*rising[:5], 50, 50, 40, 30, 20, 10, 10]}, n_points=12)
    text = read(report(str(tmp_path), ["long"]))[0].text
    # of seed 1 the best three evaluations are 40, 50, 50 at steps 500, 600, 700
    assert "TD3PlusBC, seed 1: stop at epoch 6, step 600: the return was 46.67 there and is 13.33 at the end" in text
    assert "TD3PlusBC, seed 0: stop" not in text
    write("short", {0: rising}, n_points=12)
    assert "Trained too long" not in read(report(str(tmp_path), ["short"]))[0].text


def test_failed_stopped_and_nan_seeds_are_named_and_never_averaged(write: Write, tmp_path: Path) -> None:
    curves = {0: [1, 2, 3, 4.0], 1: [1, 2, 3, 6.0], 2: [1, 2, 3000.0], 3: [1, 4000.0], 4: [1, 2, 3, NAN], 5: [1, 2, 3, None]}
    status = {2: ("FAILED", "diverged at step 297"), 3: ("KILLED", "")}
    write("sick", curves, status=status, overall="FAILED")
    page, lines = read(report(str(tmp_path), ["sick"]))
    assert page.row("TD3PlusBC")[1:3] == ["2 of 6", "5.00"]
    assert "Not in the mean of TD3PlusBC: seed 2, which failed: diverged at step 297." in page.text
    assert "seed 3, which was stopped, at step 200 of 400." in page.text
    assert "seed 4, which measured nan at step 400." in page.text
    assert "seed 5, which has no evaluation/return at step 400." in page.text
    assert "Of 6 seeds in all, 1 failed and 1 was stopped, and are in no mean." in page.text
    assert [line["counted"] for line in lines] == ["1", "1", "0", "0", "0", "0"]
    assert [line["status"] for line in lines] == ["FINISHED"] * 2 + ["FAILED", "KILLED"] + ["FINISHED"] * 2
    assert [row[4] for row in page.rows if row[2:3] in (["finished"], ["failed"], ["stopped"])] == [
        "4",
        "6",
        "3,000",
        "4,000",
        "nan",
        "3",
    ]


def test_a_killed_experiment_is_scored_where_all_its_seeds_have_been_and_says_so(write: Write, tmp_path: Path) -> None:
    status = {0: ("KILLED", ""), 1: ("KILLED", ""), 2: ("FAILED", "it diverged")}
    write("dead", {0: [1, 10, 100], 1: [3, 20], 2: [1000]}, status=status, overall="KILLED")
    score = only(tmp_path, "dead").score(RETURN)
    assert (score.step, score.is_final, score.values) == (200, False, {0: 10.0, 1: 20.0})
    assert score.left_out == {2: "failed: it diverged"}
    page, _ = read(report(str(tmp_path), ["dead"]))
    assert page.row("TD3PlusBC")[2] == "15.00"
    assert "200 of 400" in page.row("TD3PlusBC")
    assert "At step 200 of 400, the policy reaches a return of 15.00 ± 5.00" in page.text


def test_a_running_experiment_is_not_taken_for_a_dead_one(write: Write, tmp_path: Path) -> None:
    running = write("running", {0: [1, 2], 1: [3, 4, 5, 6]}, status={0: ("KILLED", "")}, overall="RUNNING")
    assert running.lock.acquire()
    try:
        page, lines = read(report(str(tmp_path), ["running"]))
    finally:
        running.lock.release()
    assert [line["status"] for line in lines] == ["RUNNING", "FINISHED"]
    assert "seed 0, which is still running, at step 200 of 400." in page.text
    assert page.row("TD3PlusBC")[1:3] == ["1 of 2", "6.00"]
    assert "running is still running." in page.text


def test_nothing_is_made_up_where_every_seed_failed(write: Write, tmp_path: Path) -> None:
    write("lost", {0: [1, NAN], 1: [2]}, status={0: ("FAILED", "a"), 1: ("FAILED", "b")}, overall="FAILED")
    page, _ = read(report(str(tmp_path), ["lost"]))
    assert page.row("TD3PlusBC")[1:4] == ["0 of 2", "–", "–"]
    assert "No seed has a value of evaluation/return that counts." in page.text


def test_losses_are_best_where_they_are_smallest(write: Write, tmp_path: Path) -> None:
    write("loss", {2.0: {0: [5, 1, 3, 4]}, 9.0: {0: [5, 2, 3, 3]}}, metric="holdout/td_error", environment=None)
    made = report(str(tmp_path), ["loss"])
    page, lines = read(made)
    assert [(line["best"], line["best_step"]) for line in lines] == [("1.0", "200"), ("2.0", "200")]
    assert [row[0] for row in page.rows if row[0].startswith("TD3PlusBC alpha")][:2] == [
        "TD3PlusBC alpha 9.0",
        "TD3PlusBC alpha 2.0",
    ]


def test_without_a_score_the_page_shows_losses(write: Write, tmp_path: Path) -> None:
    write("blind", {0: [None] * 4}, environment=None)
    made = report(str(tmp_path), ["blind"])
    assert sorted(path.name for path in Path(made.folder).iterdir()) == sorted([LOSSES, SCORES, PAGE])
    assert "Nothing was scored" in read(made)[0].text


def test_models_have_a_picture_of_their_errors_and_others_none(write: Write, tmp_path: Path) -> None:
    """Means over seeds where training ended, by the steps ahead, beside how much lay where it was expected."""
    errors = {"holdout/error_1": [0.1, 0.3], "holdout/error_5": [0.4, 0.8], "holdout/error_10": [1.0, 2.0]}
    covered = {"holdout/coverage_50": [0.4, 0.6], "holdout/coverage_90": [0.8, 0.9]}
    write("model", {0: [None] * 4, 1: [None] * 4}, algorithm="ProbabilisticEnsemble", environment=None, also=errors | covered)
    write("policy", {0: [1.0] * 4})
    made = report(str(tmp_path), ["model"])
    assert (Path(made.folder) / MODELS).read_bytes().startswith(b"\x89PNG")
    page, _ = read(made)
    assert "What the models are worth" in page.text
    drawn = model_charts(panels(group([read_results(str(tmp_path), "model")]), None)[0])
    assert [(chart.marks[0].x.tolist(), chart.marks[0].y.tolist()) for chart in drawn] == [
        ([1, 5, 10], pytest.approx([0.2, 0.6, 1.5])),
        ([50, 90], pytest.approx([0.5, 0.85])),
    ]
    assert not (Path(report(str(tmp_path), ["policy"]).folder) / MODELS).exists()
    assert (Path(report(str(tmp_path), ["policy", "model"]).folder) / MODELS).exists()


# ---- several configurations and experiments


def test_configurations_are_told_apart_by_what_differs(write: Write, tmp_path: Path) -> None:
    write("alphas", {1.0: {0: [1] * 4}, 2.5: {0: [3] * 4}, 4.0: {0: [2] * 4}})
    page, _ = read(report(str(tmp_path), ["alphas"]))
    ranked = [row[0] for row in page.rows if row[0].startswith("TD3PlusBC")][:3]
    assert ranked == ["TD3PlusBC alpha 2.5", "TD3PlusBC alpha 4.0", "TD3PlusBC alpha 1.0"]  # the best first
    assert "the best of them" not in page.text  # one seed each shows no difference
    assert "the highest of them, TD3PlusBC alpha 2.5, reaches a return of 3.00" in page.text
    assert "That it differs from TD3PlusBC alpha 4.0 and TD3PlusBC alpha 1.0 is not shown." in page.text


def test_the_best_is_called_so_where_seeds_show_that_it_is(write: Write, tmp_path: Path) -> None:
    apart = {seed: [value] * 4 for seed, value in enumerate((1.0, 1.1, 1.2))}
    alike = {seed: [value + 0.01] * 4 for seed, value in enumerate((1.0, 1.1, 1.2))}
    write("alphas", {1.0: apart, 2.5: {seed: [9 * value for value in curve] for seed, curve in apart.items()}})
    page, _ = read(report(str(tmp_path), ["alphas"]))
    assert "the best of them, TD3PlusBC alpha 2.5, reaches" in page.text
    assert "is not shown" not in page.text
    write("near", {1.0: apart, 2.5: alike})
    page, _ = read(report(str(tmp_path), ["near"]))
    assert "the highest of them, TD3PlusBC alpha 2.5, reaches" in page.text
    assert "That it differs from TD3PlusBC alpha 1.0 is not shown." in page.text


def test_experiments_on_the_same_data_share_a_table_and_others_do_not(write: Write, tmp_path: Path) -> None:
    other = {**DATASET, "name": "walker", "fingerprint": "99" * 32}
    write("a", {0: [1] * 4})
    write("b", {0: [2] * 4})
    write("c", {0: [2] * 4}, algorithm="IQL")
    write("d", {0: [2] * 4}, dataset=other, environment="Walker2d-v4")
    made = report(str(tmp_path), ["a", "b", "c", "d"])
    assert Path(made.folder) == tmp_path / "reports" / "a+b+c+d"
    tasks = group([read_results(str(tmp_path), name) for name in "abcd"])
    assert [(task.title, [c.label for c in task.configurations]) for task in tasks] == [
        ("hopper-medium-v2", ["TD3PlusBC (a)", "TD3PlusBC (b)", "IQL"]),
        ("walker", ["TD3PlusBC"]),
    ]
    page, _ = read(made)
    assert sum(row[:1] == ["the data itself"] for row in page.rows) == 2


def test_figures_hold_the_best_lines_only_and_say_so(write: Write, tmp_path: Path) -> None:
    write("many", {float(k): {0: [k] * 4} for k in range(series.MOST + 3)})
    made = report(str(tmp_path), ["many"])
    drawn, left_out = panels(group([read_results(str(tmp_path), "many")]), RETURN)
    assert left_out == 3
    assert {s.configuration.settings["algorithm"]["alpha"] for s in drawn[0].series} == {
        float(k) for k in range(3, series.MOST + 3)
    }
    assert len({(charts.color_of(s.style, charts.LIGHT), str(charts.dash_of(s.style))) for s in drawn[0].series}) == series.MOST
    assert "3 more are in the table only" in read(made)[0].text


# ---- the page


def test_the_page_escapes_what_comes_from_runs(write: Write, tmp_path: Path) -> None:
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    dataset = {**DATASET, "name": evil, "source": evil}
    status = {1: ("FAILED", evil)}
    write("evil", {0: [1] * 4, 1: [2]}, dataset=dataset, algorithm="<script>", status=status, losses=[evil], uri=f"https://{evil}")
    write("worse", {0: [1] * 4}, dataset={**dataset, "fingerprint": "$"}, algorithm="_$\\frac{", losses=["$x$ {"])
    html = Path(report(str(tmp_path), ["evil", "worse"]).page).read_text()
    page = Page(html)
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert "<script" not in html
    assert "_$\\frac{" in page.text
    assert evil in page.text


def test_the_page_needs_nothing_but_itself(write: Write, tmp_path: Path) -> None:
    write("alone", {0: [1] * 4, 1: [2] * 4}, uri="sqlite:////results/mlflow.db")
    html = Path(report(str(tmp_path), ["alone"]).page).read_text()
    page = Page(html)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    fetched = [str(a[k]) for _, a in page.tags for k in ("src", "srcset", "poster", "background") if k in a]
    assert len(fetched) == 4  # two figures, light and dark
    assert all(source.startswith("data:image/png;base64,") for source in fetched)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_the_page_can_be_read_without_eyes(write: Write, tmp_path: Path) -> None:
    write("heard", {0: [1] * 4, 1: [2] * 4})
    page = Page(Path(report(str(tmp_path), ["heard"]).page).read_text())
    assert ("html", {"lang": "en"}) in page.tags
    alts = [str(a.get("alt")) for tag, a in page.tags if tag == "img"]
    assert alts == [f"{what} of TD3PlusBC on hopper-medium-v2 over gradient steps." for what in ("Learning curves", "Losses")]
    assert all(a.get("scope") in ("col", "row", "colgroup") for tag, a in page.tags if tag == "th")
    assert sum(tag == "caption" for tag, _ in page.tags) == sum(tag == "table" for tag, _ in page.tags) == 2


def test_the_same_results_give_the_same_bytes(write: Write, tmp_path: Path) -> None:
    write("same", {k: [1, 2, 3, 4 + k] for k in range(6)})
    first, again = (compose([read_results(str(tmp_path), "same")], RETURN) for _ in range(2))
    assert first == again
    assert set(first) == {CURVES, LOSSES, SCORES, PAGE}
    assert "2026-09-21 14:13 UTC to 2026-09-21 14:1" in first[PAGE].decode()


def test_a_newer_report_replaces_an_older_one_whole(write: Write, tmp_path: Path) -> None:
    write("a", {0: [1] * 4})
    write("b", {0: [None] * 4}, environment=None)
    first = report(str(tmp_path), ["a"], out=str(tmp_path / "out"))
    assert (tmp_path / "out" / CURVES).exists()
    report(str(tmp_path), ["b"], out=str(tmp_path / "out"))
    assert not (tmp_path / "out" / CURVES).exists()
    assert "<h1>b</h1>" in Path(first.page).read_text()
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    named = report(str(tmp_path), ["a"], out=str(tmp_path / "pages" / "mine.html"))
    assert named.page == str(tmp_path / "pages" / "mine.html")
    assert Path(named.page).exists()


def test_runs_have_addresses_without_passwords() -> None:
    tracking = {"uri": "https://me:secret@mlflow.example:8443/base/?token=t", "experiment_id": "7"}
    assert run_link(tracking, "abc") == "https://mlflow.example:8443/base/#/experiments/7/runs/abc"
    assert (
        run_link({"uri": "sqlite:////r/mlflow.db", "experiment_id": "7"}, "abc") == "http://127.0.0.1:5000/#/experiments/7/runs/abc"
    )
    assert run_link({"uri": "javascript:alert(1)", "experiment_id": "7"}, "abc") == ""
    assert run_link({}, "abc") == run_link(tracking, None) == ""
    assert mlflow_command("postgresql://me:secret@db/mlflow") == "postgresql://db/mlflow"
    assert mlflow_command("sqlite:////a b/mlflow.db") == "mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db'"


def test_numbers_are_written_for_people() -> None:
    assert number(-1556.94, 1) == "−1,556.9"
    assert number(None, 1) == "–"
    assert number(NAN, 1) == "nan"
    assert [decimals([value]) for value in (12345.0, 1500.0, 150.0, 0.03, 0.0)] == [0, 0, 1, 5, 2]


# ---- refusals


def test_refusals_name_what_is_nearest(write: Write, tmp_path: Path) -> None:
    write("hopper-first", {0: [1] * 4})
    with pytest.raises(ConfigError, match=r"no experiment 'hopper-frist' in .*; did you mean 'hopper-first'\?"):
        report(str(tmp_path), ["hopper-frist"])
    with pytest.raises(ConfigError, match=r"did not measure 'evaluation/retrun'; did you mean 'evaluation/return'\?"):
        report(str(tmp_path), ["hopper-first"], metric="evaluation/retrun")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        report(str(tmp_path), ["hopper-first"], out=str(tmp_path / "file" / "out"))
    Experiment.begin(str(tmp_path), "new", {}, DATASET).close()
    with pytest.raises(DataError, match="has no trials yet"):
        report(str(tmp_path), ["new"])


def test_a_dead_command_is_settled_in_mlflow_too(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from d3ray.platform.tracking.runs import Tracking

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write("died", {0: [1, 2]}, status={0: ("KILLED", "")}, overall="RUNNING")
    made = report(str(tmp_path), ["died"])
    assert made.remark == ""
    assert "was stopped" in Path(made.page).read_text()
    tracking = Tracking.open(str(tmp_path))
    runs = tracking.client.search_runs([tracking.experiment_id])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]
    assert read_results(str(tmp_path), "died").state == "KILLED"


def test_the_configuration_on_the_page_is_json(write: Write, tmp_path: Path) -> None:
    write("again", {3: [1] * 4, 5: [1] * 4})
    page, _ = read(report(str(tmp_path), ["again"]))
    text = page.text[page.text.index("{") : page.text.rindex("}") + 1]
    config = json.loads(text)
    assert config["name"] == "again-again"
    assert config["seeds"] == [3, 5]
    assert "d3ray train --config again-again.json" in page.text


def test_prose_has_values_in_words_and_no_json(write: Write, tmp_path: Path) -> None:
    assert value_text({"hidden_units": [64, 64], "activation": "relu", "dropout": None}) == (
        "hidden_units [64, 64], activation relu and dropout none"
    )
    assert value_text([True, 1e-4]) == "[true, 0.0001]"
    assert _space({"choice": [[64, 64], {"hidden_units": [32]}]}) == "choice of [64, 64] or hidden_units [32]"
    assert _space({"loguniform": [1e-4, 1e-2]}) == "loguniform [0.0001, 0.01]"
    write("one", {0: [1.0, 2.0]})
    (results,) = (read_results(str(tmp_path), "one"),)
    sizes = ([64, 64], [32])
    searched = [
        results.configurations[0].model_copy(update={"number": k, "choice": {"algorithm.encoder": {"hidden_units": size}}})
        for k, size in enumerate(sizes)
    ]
    assert [one.label for one in label([(results, one) for one in searched])] == [
        "0: TD3PlusBC encoder hidden_units [64, 64]",
        "1: TD3PlusBC encoder hidden_units [32]",
    ]
