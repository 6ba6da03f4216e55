"""Metrics on their way: nothing that was rolled back is seen, nothing is written twice."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.outbox import Line, Outbox, lines, part_steps


def filled(folder: Folder, steps: tuple[int, ...], value: float = 1.0, committed: int = -1) -> Outbox:
    box = Outbox(folder)
    box.begin(committed)
    for step in steps:
        box.add(step, {"train/loss": value * step})
        box.write(step)
        box.written()
    return box


def seen(folder: Folder, upto: int = 10**9, after: int = -1) -> list[tuple[int, float]]:
    return [(line.step, line.metrics["train/loss"]) for line in lines(folder, after, upto)]


def test_lines_up_to_the_committed_step_are_given_in_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    filled(folder, (10, 20, 30))
    assert seen(folder, upto=20) == [(10, 10.0), (20, 20.0)]
    assert seen(folder, upto=30, after=10) == [(20, 20.0), (30, 30.0)]
    assert seen(folder, upto=9) == []


def test_a_part_holds_the_epochs_since_the_last(tmp_path: Path) -> None:
    folder, box = Folder(tmp_path), Outbox(Folder(tmp_path))
    box.begin(-1)
    for step in (10, 20, 30):
        box.add(step, {"train/loss": float(step)})
    box.write(30)
    assert part_steps(folder) == [30]
    assert [step for step, _ in seen(folder, after=10)] == [20, 30]
    assert [step for step, _ in seen(folder)] == [10, 20, 30]


def test_what_no_checkpoint_stands_for_is_rolled_back(tmp_path: Path) -> None:
    """Killed between the part of step 30 and its checkpoint; trained again from 20, another value comes out."""
    folder = Folder(tmp_path)
    filled(folder, (10, 20, 30))
    filled(folder, (30, 40), value=2.0, committed=20)
    assert seen(folder) == [(10, 10.0), (20, 20.0), (30, 60.0), (40, 80.0)]


def test_what_was_rolled_back_does_not_come_up_between_other_parts(tmp_path: Path) -> None:
    """As above, and checkpoints are further apart now: the part of step 30 would stand beside one of 30 and 40."""
    folder = Folder(tmp_path)
    filled(folder, (10, 20, 30))
    box = filled(folder, (), committed=20)
    for step in (30, 40):
        box.add(step, {"train/loss": 2.0 * step})
    box.write(40)
    assert seen(folder) == [(10, 10.0), (20, 20.0), (30, 60.0), (40, 80.0)]


def test_the_first_write_wins_where_it_was_delivered(tmp_path: Path) -> None:
    """The checkpoint of step 30 was damaged after its metrics had been delivered: training goes back to 20, the metrics do not."""
    folder = Folder(tmp_path)
    filled(folder, (10, 20, 30))
    before = list(lines(folder, -1, 30))
    filled(folder, (30, 40), value=2.0, committed=30)
    assert list(lines(folder, -1, 30)) == before
    assert seen(folder) == [(10, 10.0), (20, 20.0), (30, 30.0), (40, 80.0)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e-300, 0.1 + 0.2])
def test_every_number_comes_back(tmp_path: Path, value: float) -> None:
    box = filled(Folder(tmp_path), ())
    box.add(1, {"x": value})
    box.write(1)
    (line,) = lines(Folder(tmp_path), -1, 1)
    assert isinstance(line, Line)
    assert line.metrics["x"] == value or (math.isnan(value) and math.isnan(line.metrics["x"]))
    assert line.time > 1_600_000_000_000


def test_an_epoch_without_metrics_makes_no_part(tmp_path: Path) -> None:
    box = filled(Folder(tmp_path), ())
    box.write(10)
    assert part_steps(Folder(tmp_path)) == []
