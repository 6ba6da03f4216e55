"""Pairwise coverings: few cells in which every two levels of different factors come together once (greedy, as in AETG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

Cell = dict[str, str]  # the level of each factor
Pair = frozenset[tuple[str, str]]
STARTS = 12  # pairs that a cell is begun from, before the best is taken


def pairs_of(cell: Cell) -> set[Pair]:
    """The pairs that come together in a cell."""
    return {frozenset(pair) for pair in combinations(cell.items(), 2)}


def all_pairs(levels: Mapping[str, Sequence[str]]) -> set[Pair]:
    """Every pair of levels of different factors."""
    return {frozenset(((a, i), (b, j))) for a, b in combinations(levels, 2) for i in levels[a] for j in levels[b]}


def covering(levels: Mapping[str, Sequence[str]], most: int | None = None, known: Sequence[Cell] = ()) -> list[Cell]:
    """Cells that cover every pair that is not in a known one, those that cover most first; the same at every call.

    With `most` no more than so many.
    """
    left, cells = all_pairs(levels).difference(*map(pairs_of, known)), list[Cell]()
    while left and (most is None or len(cells) < most):
        ordered = sorted(left, key=sorted)
        starts = ordered[:: max(1, len(ordered) // STARTS)]
        cell = max((_grown(dict(start), levels, left) for start in starts), key=lambda cell: len(pairs_of(cell) & left))
        left -= pairs_of(cell)
        cells.append(cell)
    return cells


def _grown(cell: Cell, levels: Mapping[str, Sequence[str]], left: set[Pair]) -> Cell:
    """A cell with a level for every factor, each the one that covers most with those before it."""
    for name in levels:
        if name not in cell:
            gains = [sum(frozenset((own, (name, level))) in left for own in cell.items()) for level in levels[name]]
            cell[name] = levels[name][gains.index(max(gains))]
    return cell
