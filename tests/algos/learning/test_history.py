"""The history of an algorithm: every epoch once, offline, online and stacked, as a table for notebooks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d3ray
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

CONTINUOUS = tiny_dataset(discrete=False)
LOSS = "train/critic_loss"


def test_every_epoch_of_every_fit_is_a_row() -> None:
    algorithm = maker(d3ray.TD3)(seed=3)
    with pytest.raises(ConfigError, match="has not been trained yet"):
        _ = algorithm.history_
    seen: list[int] = []
    first = list(
        algorithm.fitter(CONTINUOUS, 6, 4, callbacks=[lambda a, *_: seen.append(len(a.history_))])  # with the epoch that ends
    )
    early = algorithm.history_
    second = list(algorithm.fitter(CONTINUOUS, 4, 4, evaluators={"score": lambda a, epoch: {"x": epoch / 2}}))
    history = algorithm.history_
    assert (seen, len(early), len(history)) == ([1, 2], 2, 4)  # what was asked for stays as it was
    assert history.columns[:3] == ["seed", "epoch", "step"]
    assert history["seed"].tolist() == [3] * 4
    assert history["epoch"].tolist() == [epoch for epoch, _ in first + second] == [1, 2, 2, 3]
    assert history["step"].tolist() == [4, 6, 8, 10]
    assert history[LOSS].tolist() == [metrics[LOSS] for _, metrics in first + second]
    np.testing.assert_array_equal(history["score/x"], [np.nan, np.nan, 1.0, 1.5])
    assert [row["step"] for row in history] == [4.0, 6.0, 8.0, 10.0]
    with pytest.raises(ConfigError, match="did you mean 'train/critic_loss'"):
        history["train/critic_los"]
    assert "score/x" in algorithm.eval_results_


def test_it_is_a_table_of_arrow_and_pandas_and_shown_by_notebooks() -> None:
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 4, 2).fit(CONTINUOUS, 2, 2, evaluators={"score": lambda a, epoch: {"x": epoch}})
    table, frame = algorithm.history_.to_arrow(), algorithm.history_.to_pandas()
    assert table.column_names == list(frame.columns) == algorithm.history_.columns
    assert table["score/x"].to_pylist() == [None, None, 3.0]
    assert (str(frame["epoch"].dtype), frame["step"].tolist()) == ("int64", [2, 4, 6])
    assert frame[LOSS].tolist() == algorithm.history_[LOSS].tolist()
    shown: Any = algorithm.history_
    assert shown._repr_html_().count("<tr") == 4  # a heading and three epochs
    assert "3 epochs" in repr(shown)


def test_rows_of_a_stack_have_their_seed_and_what_they_differ_in() -> None:
    stack = d3ray.Stack(maker(d3ray.TD3)(), (3, 7), rows=[{"gamma": 0.9}, {"gamma": 0.5}])
    with pytest.raises(ConfigError, match="has not been trained yet"):
        _ = stack.history_
    epochs = [metrics for _, metrics in stack.fitter(CONTINUOUS, 4, 2, evaluators={"score": lambda a, epoch: {"x": a.seed}})]
    history = stack.history_
    assert history.columns[:4] == ["seed", "gamma", "epoch", "step"]
    rows = [tuple(row[name] for name in ("seed", "gamma", "step", "score/x")) for row in history]
    assert rows == [(3, 0.9, 2, 3), (3, 0.9, 4, 3), (7, 0.5, 2, 7), (7, 0.5, 4, 7)]
    assert history[LOSS].tolist() == [rows[k][LOSS] for k in range(2) for rows in epochs]
    one = stack.seed(1).fit(CONTINUOUS, 2, 2)
    assert one.history_["step"].tolist() == [2, 4, 6]
    assert len(stack.history_) == 4  # what follows is the row's own


def test_a_row_that_failed_ends_there() -> None:
    stack = d3ray.Stack(maker(d3ray.TD3)(), (3, 7), rows=[{}, {"critic_learning_rate": 1e35}]).fit(CONTINUOUS, 6, 2)
    failed, other = stack.seed(1).history_, stack.seed(0).history_
    assert len(failed) < len(other) == 3
    assert failed["first_bad_step"][-1] == stack.failed_rows[1]


def test_online_epochs_follow_offline_ones(tmp_path: Path) -> None:
    data = d3ray.Dataset.open("d3ray/cartpole-replay")
    dqn = d3ray.DQN(batch_size=8).fit(data, 4, 2)
    dqn.fit_online("CartPole-v1", n_steps=4, n_steps_per_epoch=2, random_steps=10)
    assert dqn.history_["step"].tolist() == [2, 4, 6, 8]
    assert np.isnan(dqn.history_["train/environment_steps"]).tolist() == [True, True, False, False]
    assert copy.deepcopy(dqn).history_["step"].tolist() == [2, 4, 6, 8]  # as what joblib brings back from its workers
    dqn.save(tmp_path / "saved")
    again = d3ray.load(tmp_path / "saved")
    assert len(again.history_) == 0
    assert again.fit(data, 2, 2).history_["step"].tolist() == [10]
    assert len(dqn.build_with_dataset(data).history_) == 0
