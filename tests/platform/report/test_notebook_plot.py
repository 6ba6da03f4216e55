"""`d3ray.plot`: what was trained in a program beside experiments, as lines with names, in a notebook and as a file."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import d3ray
import d3ray.experiments
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.platform.storage.experiments import Experiment

from ..results.fake_experiment import write_experiment

CONTINUOUS = tiny_dataset(discrete=False)
LOSS, RETURN = "train/critic_loss", "evaluation/return"
Make = Callable[..., Any]


def fitted(seed: int = 0, **settings: Any) -> Any:
    evaluators = {"evaluation": lambda a, epoch: {"return": 10.0 * epoch + a.seed}}
    return maker(d3ray.TD3)(seed=seed, **settings).fit(CONTINUOUS, 4, 2, evaluators=evaluators)


def lines(plot: Any) -> dict[str, list[int]]:
    """By label the seeds of each line."""
    return {s.label: [one.seed for one in s.configuration.seeds] for panel in plot.panels for s in panel.series}


def test_equal_settings_are_seeds_of_a_line_and_others_are_named_by_what_differs() -> None:
    runs = [fitted(seed) for seed in (0, 1)]
    plot = d3ray.plot(*runs, fitted(gamma=0.5).history_)
    assert plot.metrics == (RETURN,)
    assert lines(plot) == {"TD3 gamma 0.99": [0, 1], "TD3 gamma 0.5": [0]}
    (panel,) = plot.panels
    found = panel.series[0].band(RETURN)
    assert found is not None
    assert (found[0].tolist(), found[1].mean.tolist()) == ([2, 4], [10.5, 20.5])
    assert panel.data_return == pytest.approx(CONTINUOUS.statistics.return_.mean)
    with pytest.raises(ConfigError, match=f"did you mean '{LOSS}'"):
        d3ray.plot(*runs, metrics="train/critic_los")
    assert d3ray.plot(*runs, metrics=[LOSS, RETURN], window=2).metrics == (LOSS, RETURN)


def test_a_stack_is_a_band_and_rows_that_differ_are_lines() -> None:
    seeds = d3ray.Stack(maker(d3ray.TD3)(), (3, 7)).fit(CONTINUOUS, 4, 2)
    assert lines(d3ray.plot(seeds)) == {"TD3": [3, 7]}
    rows = d3ray.Stack(maker(d3ray.TD3)(), (3, 3), rows=[{"gamma": 0.9}, {"gamma": 0.5}]).fit(CONTINUOUS, 4, 2)
    assert lines(d3ray.plot(rows.history_)) == {"TD3 gamma 0.9": [3], "TD3 gamma 0.5": [3]}


def test_names_of_ones_own_and_experiments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment: Experiment = write_experiment(monkeypatch, tmp_path, "first", {0: [1] * 4, 1: [2] * 4}, algorithm="TD3")
    handle = d3ray.experiments.open(experiment.name, storage=str(tmp_path))
    ours: Any = fitted()
    plot = d3ray.plot({"mine": ours, "theirs": handle}, storage=str(tmp_path))
    assert lines(plot) == {"mine": [0], "theirs": [0, 1]}
    assert lines(d3ray.plot("first", storage=str(tmp_path))) == lines(d3ray.plot(handle)) == {"TD3": [0, 1]}
    assert lines(d3ray.plot({"both": [ours, fitted(1)]})) == {"both": [0, 1]}
    for nothing, sentence in ((3, "3 has no metrics"), ("frist", "did you mean 'first'")):
        with pytest.raises(ConfigError, match=sentence):
            d3ray.plot(nothing, storage=str(tmp_path))
    with pytest.raises(ConfigError, match="Say what to plot"):
        d3ray.plot()
    with pytest.raises(ConfigError, match="window is 0"):
        d3ray.plot(ours, window=0)
    with pytest.raises(DataError, match="TD3: nothing has been measured yet"):
        d3ray.plot(maker(d3ray.TD3)().build_with_dataset(CONTINUOUS))


def test_a_notebook_shows_a_picture_and_a_file_is_one(tmp_path: Path) -> None:
    plot = d3ray.plot(fitted())
    shown = plot._repr_svg_()
    assert ET.fromstring(shown).tag == "{http://www.w3.org/2000/svg}svg"
    plot.save(tmp_path / "made" / "curves.svg")
    assert (tmp_path / "made" / "curves.svg").read_text() == shown
    plot.save(str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert repr(plot) == 'Plot(evaluation/return of TD3; .save("curves.svg") writes it)'
    with pytest.raises(ConfigError, match=r"a picture ends in \.png, \.svg or \.pdf"):
        plot.save(tmp_path / "curves.gif")
