"""What looks on while training runs is called when it should be, can end it cleanly, and changes nothing that is learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import d3ray
from d3ray.algos.learning.callbacks import StopTraining
from d3ray.algos.testing import maker, tiny_dataset

CONTINUOUS = tiny_dataset(discrete=False)


def same(a: Any, b: Any) -> bool:
    a, b = a.state()[0], b.state()[0]
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Log:
    """A logger that remembers the order of things."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def begin(self, algorithm: Any, part: str) -> Log:
        self.calls.append(("begin", part, algorithm.seed, algorithm.step))
        return self

    def __call__(self, algorithm: Any, epoch: int, metrics: Any) -> None:
        self.calls.append(("log", algorithm.seed, epoch, metrics["step"], "score/x" in metrics))

    def close(self) -> None:
        self.calls.append("close")


def test_each_is_called_in_its_turn() -> None:
    calls: list[Any] = []
    algorithm = maker(d3ray.TD3)(seed=4).fit(CONTINUOUS, 1)
    algorithm.fit(
        CONTINUOUS,
        4,
        3,
        evaluators={"score": lambda a, epoch: calls.append(("evaluate", a.step)) or {"x": epoch}},
        callbacks=[lambda a, epoch, metrics: calls.append(("epoch", epoch, metrics["step"], metrics["score/x"]))],
        callback=lambda a, epoch, step: calls.append(("step", epoch, step, a is algorithm)),
        epoch_callback=lambda a, epoch, step: calls.append(("by step", epoch, step)),
        logger=Log(calls),
    )
    assert calls == [
        ("begin", "", 4, 1),
        *[("step", 1, 2, True), ("step", 1, 3, True)],
        *[("evaluate", 3), ("log", 4, 1, 3.0, True), ("epoch", 1, 3.0, 1.0), ("by step", 1, 3)],
        *[("step", 2, 4, True), ("step", 2, 5, True)],
        *[("evaluate", 5), ("log", 4, 2, 5.0, True), ("epoch", 2, 5.0, 2.0), ("by step", 2, 5)],
        "close",
    ]
    assert algorithm.eval_results_ == {"score/x": [1.0, 2.0]}


def test_nobody_changes_what_is_learned_and_nobody_stays() -> None:
    watched = maker(d3ray.TD3)().fit(CONTINUOUS, 9, 4, callback=lambda *_: None, logger=Log([]), show_progress=True)
    assert watched.fit_.after_update is None
    assert same(watched, maker(d3ray.TD3)().fit(CONTINUOUS, 9, 4))


@pytest.mark.parametrize("where", ["callback", "epoch_callback", "callbacks", "logger"])
def test_training_is_stopped_once_all_that_is_due_is_done(where: str) -> None:
    calls: list[Any] = []

    def stop(*arguments: Any) -> None:
        step = arguments[0].step
        calls.append(step)
        if step >= 4:
            raise StopTraining

    class Stopper(Log):
        def __call__(self, algorithm: Any, epoch: int, metrics: Any) -> None:
            stop(algorithm)

    given: dict[str, Any] = {where: {"callbacks": [stop], "logger": Stopper([])}.get(where, stop)}
    after: list[Any] = []
    given["callbacks"] = [*given.get("callbacks", []), lambda a, epoch, metrics: after.append((epoch, metrics["step"]))]
    algorithm = maker(d3ray.TD3)()
    epochs = list(algorithm.fitter(CONTINUOUS, 20, 3, evaluators={"e": lambda a, epoch: {"x": 1.0}}, **given))
    end = 4 if where == "callback" else 6
    assert calls == (list(range(1, 5)) if where == "callback" else [3, 6])
    assert after == [(1, 3.0), (2, float(end))]
    assert [(epoch, metrics["step"], metrics["e/x"]) for epoch, metrics in epochs] == [(1, 3.0, 1.0), (2, float(end), 1.0)]
    assert same(algorithm, maker(d3ray.TD3)().fit(CONTINUOUS, end))
    assert algorithm.fit(CONTINUOUS, 2).step == end + 2  # the next call is not stopped


def test_other_errors_of_a_callback_come_through_and_logs_are_closed() -> None:
    calls: list[Any] = []

    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    for where in ("callback", "epoch_callback"):
        with pytest.raises(ZeroDivisionError):
            maker(d3ray.TD3)().fit(CONTINUOUS, 2, 2, logger=Log(calls), **{where: fails})
    assert calls == [("begin", "", 0, 0), "close", ("begin", "", 0, 0), ("log", 0, 1, 2.0, False), "close"]


def test_rows_of_a_stack_are_looked_at_one_by_one() -> None:
    calls: list[Any] = []
    stack = d3ray.Stack(maker(d3ray.TD3)(), (3, 7), rows=[{}, {"critic_learning_rate": 1e35}])
    stack.fit(
        CONTINUOUS,
        40,
        20,
        callbacks=[lambda a, epoch, metrics: calls.append(("epoch", a.seed, epoch, "first_bad_step" in metrics))],
        callback=lambda s, epoch, step: calls.append((s is stack, step)) if step % 20 == 1 else None,
        logger=Log(calls),
    )
    assert calls == [
        *[("begin", "seed-3", 3, 0), ("begin", "seed-7", 7, 0)],
        (True, 1),
        *[("log", 3, 1, 20.0, False), ("epoch", 3, 1, False), ("log", 7, 1, 20.0, False), ("epoch", 7, 1, True)],
        (True, 21),
        *[("log", 3, 2, 40.0, False), ("epoch", 3, 2, False)],  # what has failed is left alone
        *["close", "close"],
    ]
    assert list(stack.failed) == [7]


def test_one_row_stops_the_stack() -> None:
    def stop(algorithm: Any, epoch: int, step: int) -> None:
        if algorithm.seed == 7:
            raise StopTraining

    for given in (
        {"epoch_callback": stop},
        {"callback": lambda s, epoch, step: stop(s.seed(1), epoch, step) if step == 5 else None},
    ):
        assert d3ray.Stack(maker(d3ray.TD3)(), (3, 7)).fit(CONTINUOUS, 20, 5, **given).step == 5


def test_rows_with_the_same_seed_are_logged_apart() -> None:
    calls: list[Any] = []
    d3ray.Stack(maker(d3ray.TD3)(), (0, 0), rows=[{}, {"tau": 0.1}]).fit(CONTINUOUS, 0, logger=Log(calls))
    assert calls[:2] == [("begin", "row-0", 0, 0), ("begin", "row-1", 0, 0)]


# ---- the display


def test_off_a_terminal_progress_is_silent_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    maker(d3ray.TD3)().fit(CONTINUOUS, 6, 3)
    assert capsys.readouterr().err == ""
    maker(d3ray.TD3)().fit(CONTINUOUS, 6, 3, show_progress=True)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "training: 1 of 6 (17%)"
    assert last.startswith("training: 6 of 6 (100%)  critic_loss ")
    assert "actor_loss " in last


def test_on_a_terminal_progress_is_a_bar_with_loss_and_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    algorithm = maker(d3ray.TD3)().fit(CONTINUOUS, 5, 5, show_progress=False)
    assert capsys.readouterr().err == ""
    algorithm.fit(CONTINUOUS, 60, 30)  # steps are counted from where it begins
    shown = capsys.readouterr().err
    assert "60/60" in shown
    assert "/s" in shown
    assert "critic_loss " in shown


# ---- online


def test_online_they_are_called_and_stop_as_offline() -> None:
    calls: list[Any] = []

    def stop(algorithm: Any, epoch: int, step: int) -> None:
        calls.append(("step", epoch, step))
        if step == 5:
            raise StopTraining

    algorithm = maker(d3ray.DQN)()
    algorithm.fit_online(
        "CartPole-v1",
        n_steps=20,
        n_steps_per_epoch=3,
        random_steps=5,
        callback=stop,
        callbacks=[lambda a, epoch, metrics: calls.append(("epoch", epoch, metrics["step"]))],
        logger=Log(calls),
        show_progress=True,
    )
    assert algorithm.step == 5
    assert [call for call in calls if call[0] in ("step", "epoch")] == [
        *[("step", 1, 1), ("step", 1, 2), ("step", 1, 3), ("epoch", 1, 3.0)],
        *[("step", 2, 4), ("step", 2, 5), ("epoch", 2, 5.0)],
    ]
    assert [call for call in calls if call[0] not in ("step", "epoch")] == [
        *[("begin", "", 0, 0), ("log", 0, 1, 3.0, False), ("log", 0, 2, 5.0, False), "close"]
    ]
