"""Curves in a terminal, dot by dot."""

from __future__ import annotations

import numpy as np

from d3ray.jobs.views.curves_text import plot_text
from d3ray.platform.report.series import Mark


def drawn(lines: list[Mark], width: int, height: int, *, colors: bool = False) -> list[str]:
    return [text.plain for text in plot_text(lines, width, height, colors=colors)]


def test_a_straight_line_is_a_diagonal_of_dots() -> None:
    x = np.arange(5)
    rows = drawn([Mark(x, x * 2.0, 0)], 13, 5)
    # 10 columns of 2 x 4 dots: 20 dots across, 20 down, so one dot in each column and row
    assert rows == [
        "8 ┤        ⡠⠊",
        "  │      ⡠⠊",
        "4 ┤    ⡠⠊",
        "  │  ⡠⠊",
        "0 ┤⡠⠊",
        "  └0 4 gradient steps",
    ]


def test_a_gap_stays_a_gap_and_a_lone_point_is_a_dot() -> None:
    rows = drawn([Mark(np.arange(4), np.array([0.0, np.nan, np.inf, 3.0]), 0)], 13, 4)
    dots = [(row, column) for row, text in enumerate(rows[:-1]) for column, sign in enumerate(text[3:]) if sign.strip()]
    assert dots == [(0, 9), (3, 0)]
    assert [row[0] for row in rows[:4]] == ["3", " ", "1", "0"]


def test_lines_are_told_apart_by_letters_where_there_are_no_colors() -> None:
    x = np.arange(3)
    lines = [Mark(x, np.zeros(3), 0), Mark(x, np.full(3, 3.0), 1)]
    rows = drawn(lines, 13, 4)
    assert (rows[0], rows[3]) == ("3 ┤" + "B" * 10, "0 ┤" + "A" * 10)
    edged = drawn([Mark(x, np.full(3, 3.0), 1, "uncounted"), lines[0]], 13, 4)
    assert (edged[0].replace(" ", ""), edged[3]) == ("3┤bbbb", "0 ┤" + "A" * 10)
    colored = list(plot_text(lines, 13, 4, colors=True))
    assert {str(span.style) for span in colored[0].spans} == {"red"}
    assert {str(span.style) for span in colored[3].spans} == {"blue"}


def test_any_numbers_can_be_drawn() -> None:
    for x, y in (([], []), ([5], [3.0]), ([0, 1], [2.0, 2.0]), ([0, 1], [np.nan, np.nan]), ([0, 10**9], [-1e300, 1e-300])):
        assert len(drawn([Mark(np.array(x), np.array(y, float), 0)], 40, 6)) == 7
