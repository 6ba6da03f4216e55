"""Experiments side by side, and cells that a spreadsheet must not run."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from d3ray.platform.web.compare import HEIGHT, WIDTH, parallel
from d3ray.platform.web.site import as_cell

from ..results.fake_experiment import write_experiment
from .site_server import Served


def test_the_table_says_what_differs(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    write_experiment(monkeypatch, Path(served.site.storage), "sweep", {a: {0: [1.0, a], 1: [2.0, a]} for a in (1.0, 2.0, 4.0)})
    page = served.get("/compare?of=sweep").text
    assert page.count("<polyline") == 3
    assert "alpha" in page
    answer = served.get("/compare/table.csv?of=sweep")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    head, *rows = csv.reader(io.StringIO(answer.text))
    told = [dict(zip(head, row, strict=True)) for row in rows]
    assert {float(row["value"]) for row in told} == {1.0, 2.0, 4.0}
    assert {row["seeds"] for row in told} == {"2"}
    (alpha,) = [name for name in head if name.endswith("alpha")]
    assert [float(row[alpha]) for row in told] == [float(row["value"]) for row in told]


def test_intervals_of_few_seeds_are_called_alike_on_every_page(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, called in ((4, "interval below 95 %"), (5, "95 % interval")):
        with monkeypatch.context() as patch:
            write_experiment(patch, Path(served.site.storage), f"of-{n}", {seed: [1.0, 2.0 + seed] for seed in range(n)})
        for path in (f"/compare?of=of-{n}", f"/experiments/of-{n}"):
            assert called in served.get(path).text


def test_axes_along_which_nothing_differs_are_not_drawn(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that was not scored other settings differ, but nothing is drawn of it."""
    curves = {a: {0: [1.0, a], 1: [2.0, a]} for a in (1.0, 2.0, 4.0)}
    for name, metric, n in (("sweep", "evaluation/return", 2), ("unscored", "holdout/td_error", 3)):
        with monkeypatch.context() as patch:
            write_experiment(patch, Path(served.site.storage), name, curves, metric=metric, n_points=n)
    page = served.get("/compare?of=sweep&of=unscored").text
    axes = dict(re.findall(r"<p><strong>([^<]+)</strong><br>([^<]+)</p>", page))
    assert axes == {"algorithm.alpha": "1 … 4", "value": "1 … 4"}
    assert "<th>n_steps</th>" in page  # which the table shows


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\r=x", "'\r=x"),
        ("plain", "plain"),
        (-1.5, -1.5),
        (None, None),
        ([1, "=x"], '[1, "=x"]'),
    ],
)
def test_text_is_no_formula_and_numbers_are_numbers(value: object, cell: object) -> None:
    assert as_cell(value) == cell


def test_lines_through_axes() -> None:
    axes, lines = parallel([[1, "a", 10.0], [2, "b", 30.0], [3, "a", 20.0]], ["x", "kind", "value"])
    assert [(axis.name, axis.x, axis.low, axis.high) for axis in axes] == [
        ("x", 0, "1", "3"),
        ("kind", WIDTH / 2, "a", "b"),
        ("value", WIDTH, "10", "30"),
    ]
    mid, bottom = f"{HEIGHT / 2:.2f}", f"{HEIGHT:.2f}"
    assert lines == [
        f"0.00,{bottom} 50.00,{bottom} 100.00,{bottom}",
        f"0.00,{mid} 50.00,0.00 100.00,0.00",
        f"0.00,0.00 50.00,{bottom} 100.00,{mid}",
    ]
    assert parallel([[1, 2]] * 2, ["x", "value"]) == ([], [])  # two lines show nothing
    assert parallel([[1, 2]] * 3, ["x", "value"])[1] == [f"0.00,{mid} 100.00,{mid}"] * 3
    assert len(parallel([list(range(12))] * 3, [str(k) for k in range(12)])[0]) == 8
