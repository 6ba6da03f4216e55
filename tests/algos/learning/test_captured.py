"""Steps that are captured and replayed teach what they teach as they stand, bit for bit: every page, plain and stacked.

What captures here is a stand-in for CUDA graphs (`captured.py`), which replays operations on the memory they were captured with: a
number of the host that an update takes is then that of the step at which it was captured, and shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, cast

import pytest
import torch

import d3ray
from d3ray.algos.learning import programs
from d3ray.algos.learning.learner import Learner
from d3ray.algos.learning.programs import LONGEST, Programs, pattern
from d3ray.algos.learning.recording import Recording
from d3ray.algos.registry import algorithm_class, algorithm_names
from d3ray.algos.stack import Stack
from d3ray.algos.testing import data_for, largest_difference, maker
from d3ray.algos.testing.errors import Make
from d3ray.algos.values.dqn import DQN
from d3ray.data.tracing import traced

from .captured import GraphsOnHost

SETTINGS: dict[str, Any] = {
    "TD3PlusBC": {
        "critic_optimizer": {"name": "adam", "schedule": {"name": "cosine", "duration": 30, "warm_up": 5}, "max_grad_norm": 0.5},
        "actor_optimizer": {"name": "adamw", "schedule": {"name": "linear", "duration": 30}},
    },
    "SAC": {"td_steps": 3, "gamma": 0.9},
    "TD3": {"critic_optimizer": "muon"},
    "DDPG": {"actor_optimizer": {"name": "rmsprop", "schedule": {"name": "warm_up", "warm_up": 30}}},
    "DQN": {"encoder": {"hidden_units": [8], "normalization": "batch", "dropout_rate": 0.2}, "target_update_interval": 7},
}


# Of each page one cell is run always, and the other with what takes longer.
CELLS = [
    pytest.param(name, seeds, marks=[pytest.mark.long] if bool(seeds) == bool(k % 2) and name not in SETTINGS else [])
    for k, name in enumerate(algorithm_names())
    for seeds in (None, (3, 4))
]


@contextlib.contextmanager
def by_tensors() -> Generator[None]:
    """Within it steps take no shortcut over the host, as programs do not."""
    with traced("replayed"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "_on_host", False)
        yield


def trained(make: Make, seeds: tuple[int, ...] | None, *, captured: bool, n_steps: int = 40) -> tuple[Any, list[Any], Any]:
    """A training in epochs of ten steps, its metrics, and what was captured. Both go the way of tensors, which a CPU need not."""
    made, data = cast("Any", make(seed=1) if seeds is None else Stack(make(), seeds)), data_for(make)
    with by_tensors():
        made.fit(data, 0)
        graphs = GraphsOnHost()
        if captured:
            made.fit_.programs = Programs(made.fit_.learner, compiled=False, graphs=graphs)
        rows = [epoch.metrics for epoch in made.fitter(data, n_steps, 10)]
    return made, [_untimed(row) for row in rows], graphs


def _untimed(row: Any) -> Any:
    if isinstance(row, list):
        return [_untimed(one) for one in row]
    return {name: value for name, value in sorted(row.items()) if not name.startswith("time/")}


@pytest.mark.parametrize(("name", "seeds"), CELLS)
def test_replayed_steps_are_eager_ones(name: str, seeds: tuple[int, ...] | None) -> None:
    make = maker(algorithm_class(name), **SETTINGS.get(name, {}))
    assert make().reads_values is None
    eager, told, _ = trained(make, seeds, captured=False)
    replayed, told_again, graphs = trained(make, seeds, captured=True)
    assert graphs.captures
    where, gap = largest_difference(replayed.state()[0], eager.state()[0])
    assert gap == 0, where
    assert str(told_again) == str(told)  # NaN is equal to itself here


@pytest.mark.parametrize("name", ["TD3PlusBC", "Rainbow"])
def test_a_coefficient_that_changes_needs_no_new_program(name: str) -> None:
    """As under PBT: learning rates, γ and coefficients are read where they lie."""
    make, rate = maker(algorithm_class(name)), "critic_learning_rate" if name == "TD3PlusBC" else "learning_rate"
    states, captures = list[Any](), list[int]()
    for captured, changes in ((False, True), (True, True), (True, False)):
        made, _, graphs = trained(make, None, captured=captured)
        if changes:
            made.fit_.set_coefficients({"gamma": 0.5, rate: 0.02})
        with by_tensors():
            made.fit(made.fit_.sources.given, 20, 10)
        states.append(made.state()[0])
        captures.append(graphs.captures)
    assert captures[1] == captures[2]
    where, gap = largest_difference(*states[:2])
    assert gap == 0, where
    assert largest_difference(*states[1:])[1] > 0


def test_rows_that_come_to_differ_have_programs_of_their_own() -> None:
    make, states = maker(algorithm_class("TD3PlusBC")), []
    for captured in (False, True):
        made, _, graphs = trained(make, (3, 4), captured=captured)
        before = graphs.captures
        with by_tensors():
            made.fit_.learner.set_hyper("actor_learning_rate", [0.02, 0.01])
            made.fit(made.fit_.sources.given, 30, 10)
        assert not captured or graphs.captures > before
        states.append(made.state()[0])
    where, gap = largest_difference(*states)
    assert gap == 0, where


def test_a_run_goes_on_at_any_step() -> None:
    """A checkpoint in the middle of a period, of which other programs are made afterwards."""
    make = maker(algorithm_class("TD3PlusBC"))
    whole, _, _ = trained(make, None, captured=True)
    part, _, _ = trained(make, None, captured=True, n_steps=25)
    again = make(seed=1).load_state(*part.state())
    with by_tensors():
        again.fit_.programs = Programs(again.fit_.learner, compiled=False, graphs=GraphsOnHost())
        again.fit(data_for(make), 15, 10)
    where, gap = largest_difference(again.state()[0], whole.state()[0])
    assert gap == 0, where


def test_who_looks_on_sees_every_step() -> None:
    make, steps = maker(algorithm_class("TD3PlusBC")), list[int]()
    made, _, graphs = trained(make, None, captured=True)
    made.fit(data_for(make), 20, 10, callback=lambda algorithm, epoch, step: steps.append(step))
    assert steps == list(range(41, 61))
    assert graphs.captures


@pytest.mark.parametrize("extra", [{"sampler": "prioritized"}, {"sampler": "epoch"}, {"sampler": "weighted"}])
def test_every_sampler_feeds_programs(extra: dict[str, Any]) -> None:
    make = maker(algorithm_class("DQN"), **extra)
    (eager, told, _), (replayed, again, graphs) = (trained(make, None, captured=captured) for captured in (False, True))
    assert graphs.captures
    assert largest_difference(replayed.state()[0], eager.state()[0])[1] == 0
    assert again == told


@pytest.mark.parametrize(
    ("name", "settings", "n_steps"),
    [
        ("PPO", {"update_interval": 32, "batch_size": 16, "n_passes": 2}, 100),
        ("A2C", {}, 60),
        ("ACER", {}, 40),
        ("REINFORCE", {}, 120),  # of whole episodes, whose lengths differ
        ("DQN", {"batch_size": 8}, 50),
        ("TRPO", {"update_interval": 32}, 100),
    ],
)
def test_training_online_is_replayed_too(
    name: str, settings: dict[str, Any], n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what says that it reads values."""
    states, graphs = list[Any](), GraphsOnHost()
    monkeypatch.setattr(programs, "_KEPT", 3)
    for captured in (False, True):
        if captured:
            monkeypatch.setattr(programs, "on_accelerator", lambda device: True)
            monkeypatch.setattr(programs, "CudaGraphs", lambda device: graphs)
        with by_tensors():
            made = getattr(d3ray, name)(seed=1, **settings).fit_online("CartPole-v1", n_steps=n_steps)
        states.append(made.state()[0])
    assert (graphs.captures == 0) == (made.reads_values is not None)
    assert graphs.captures <= 3
    where, gap = largest_difference(*states)
    assert gap == 0, where


@pytest.mark.parametrize(
    ("every", "step", "most", "length", "period"),
    [
        ({"critic": 1}, 0, 100, LONGEST, 1),
        ({"critic": 1, "actor": 2}, 0, 100, 32, 2),
        ({"critic": 1, "actor": 2}, 7, 5, 4, 2),
        ({"critic": 1, "actor": 3}, 0, 100, 24, 3),
        ({"critic": 1, "actor": 2}, 0, 1, 1, 0),  # what is left of a period
        ({"critic": 1, "copy": 100}, 90, 100, 8, 1),
        ({"critic": 1, "copy": 100}, 99, 100, 1, 0),  # due at this step alone
    ],
)
def test_steps_go_as_far_as_the_same_few_repeat(every: dict[str, int], step: int, most: int, length: int, period: int) -> None:
    def schedule(at: int) -> tuple[str, ...]:
        return tuple(kind for kind, n in every.items() if (at + 1) % n == 0)

    kinds, found = pattern(schedule, step, most)
    assert (len(kinds), found) == (length, period)
    assert list(kinds) == [schedule(step + k) for k in range(length)]


class Reads(DQN):
    """Looks at a value in its updates, and does not say so."""

    def critic(self, learner: Any, batch: Any) -> None:
        self.seen = float(batch.reward.mean())
        super().critic(learner, batch)


def test_what_cannot_be_captured_trains_as_it_stands() -> None:
    make, states = maker(Reads), []
    for captured in (False, True):
        with contextlib.nullcontext() if not captured else pytest.warns(UserWarning, match="^Reads cannot be captured as a graph"):
            made, _, _ = trained(make, None, captured=captured)
        states.append(made.state()[0])
    assert largest_difference(*states)[1] == 0


def test_what_cannot_be_compiled_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> None:
        raise RuntimeError("Cannot find a working triton installation.")

    monkeypatch.setattr(Recording, "compiled", fails)
    make, states = maker(DQN), []
    for captured in (False, True):
        made, data, graphs = make(seed=1), data_for(make), GraphsOnHost()
        with by_tensors():
            made.fit(data, 0)
            if captured:
                made.fit_.programs = Programs(made.fit_.learner, compiled=True, graphs=graphs)
            with contextlib.nullcontext() if not captured else pytest.warns(UserWarning, match=r"DQN cannot be compiled for cpu"):
                made.fit(data, 170, 42)
        assert bool(graphs.captures) == captured
        states.append(made.state()[0])
    assert largest_difference(*states)[1] < 1e-6


def test_the_stand_in_would_show_a_number_of_the_host() -> None:
    """What a CUDA graph would bake in is baked in here too, and a captured run does nothing before it is replayed."""
    total, at = torch.zeros(()), 1.0
    captured = GraphsOnHost().capture(lambda: total.add_(at))
    assert total == 0
    at = 5.0
    captured.replay()
    captured.replay()
    assert total == 2
