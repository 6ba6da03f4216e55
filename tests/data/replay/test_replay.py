"""The replay buffer against a slow one made of lists, which walks every window step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.random import fold, integers, root_key
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import Box, Dict, Discrete, Spec

SPEC = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,)))
GAMMA = 0.5


@dataclass
class SlowRing:
    """Rows as dicts; the last `size` of them are kept. Knows nothing of slots but their number."""

    size: int
    rows: list[dict[str, Any]] = field(default_factory=list)

    def step(self, observation: float, action: float, reward: float, end: str | None, final: float | None) -> None:
        self.rows.append({"o": observation, "a": action, "r": reward, "end": end, "closing": False})
        if end is not None:
            self.rows.append({"o": observation if final is None else final, "a": 0.0, "closing": True, "known": final is not None})

    def windows(self, n: int, until: str = "observation") -> dict[int, tuple[float, ...]]:
        """Slot of each window's first row → observation, action, reward, discount, next observation, next action."""
        oldest, found = max(0, len(self.rows) - self.size), {}
        for start in range(oldest, len(self.rows)):
            if self.rows[start]["closing"]:
                continue
            total, at, m = 0.0, start, 0
            while m < n and at < len(self.rows) and not self.rows[at]["closing"]:
                total += GAMMA**m * self.rows[at]["r"]
                at, m = at + 1, m + 1
            if at == len(self.rows):
                continue  # what follows is not yet written
            terminated = self.rows[at - 1]["end"] == "terminated"
            if self.rows[at]["closing"] and not terminated and (until == "action" or not self.rows[at]["known"]):
                continue
            if until == "end" and not any(row["closing"] for row in self.rows[start:]):
                continue
            discount = 0.0 if terminated else GAMMA**m
            here, there = self.rows[start], self.rows[at]
            found[start % self.size] = (here["o"], here["a"], total, discount, there["o"], there["a"])
        return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, list[list[tuple[str | None, bool]]]]:
    """Rows of a ring, environments, and for every step and environment how it ends and whether the final observation is known."""
    n_envs = draw(st.integers(1, 3))
    end = st.sampled_from([None, None, None, "terminated", "truncated"])
    known = draw(st.lists(st.booleans(), min_size=0, max_size=40))
    steps = [[(draw(end), k) for _ in range(n_envs)] for k in known]
    return draw(st.integers(2, 20)), n_envs, steps


UNTIL = ("observation", "action", "end")


def played(rows: int, n_envs: int, steps: list[list[tuple[str | None, bool]]], drawn: tuple[int, ...] = ()) -> Any:
    """The buffer and the slow rings after the same steps. `drawn`: td_steps whose windows are kept from the start."""
    buffer, slow = ReplayBuffer(rows * n_envs, SPEC, n_envs), [SlowRing(rows) for _ in range(n_envs)]
    for n in drawn:
        for until in UNTIL:
            buffer.windows(n, 1, until)
        buffer.whole()
    for t, ends in enumerate(steps):
        value = np.array([100.0 * e + t for e in range(n_envs)])
        observation, final = np.stack([value, -value], 1), np.stack([value + 0.5, -value - 0.5], 1)
        known = ends[0][1]
        for e, (end, _) in enumerate(ends):
            slow[e].step(value[e], t + 1.0, value[e] % 7, end, value[e] + 0.5 if known else None)
        buffer.append(
            observation,
            np.full((n_envs, 1), t + 1.0),
            value % 7,
            np.array([end == "terminated" for end, _ in ends]),
            np.array([end == "truncated" for end, _ in ends]),
            final if known else None,
        )
    return buffer, slow


def expected(slow: list[SlowRing], n: int, until: str = "observation") -> dict[int, tuple[float, ...]]:
    return {e * ring.size + slot: window for e, ring in enumerate(slow) for slot, window in ring.windows(n, until).items()}


def check_windows(buffer: ReplayBuffer, slow: list[SlowRing], n: int) -> None:
    for until in UNTIL:
        assert sorted(buffer.windows(n, 1, until).all()) == sorted(expected(slow, n, until)), until
    wanted = expected(slow, n)
    assert buffer.n_windows(n) == len(wanted)
    if not wanted:
        with pytest.raises(DataError, match="no window"):
            buffer.sample(4, 0, td_steps=n)
        return
    slots = buffer.windows(n).locate(torch.arange(len(wanted))).rows
    assert sorted(slots.tolist()) == sorted(wanted)
    batch = buffer.sample(4 * len(wanted), 3, gamma=GAMMA, td_steps=n)
    assert (batch.observation[:, 0] == -batch.observation[:, 1]).all()
    assert (batch.next_observation[:, 0] == -batch.next_observation[:, 1]).all()
    columns = (
        batch.observation[:, 0],
        batch.action[:, 0],
        batch.reward,
        batch.discount,
        batch.next_observation[:, 0],
        batch.next_action[:, 0],
    )
    for k, slot in enumerate(batch.index.tolist()):
        assert tuple(float(column[k]) for column in columns) == pytest.approx(wanted[slot])


@settings(max_examples=120, deadline=None)
@given(runs(), st.integers(1, 3))
def test_windows_are_those_of_a_buffer_of_lists(run: Any, n: int) -> None:
    buffer, slow = played(*run, drawn=(n,))  # kept step by step
    check_windows(buffer, slow, n)
    check_windows(*played(*run), n)  # found when all is there
    assert buffer.n_transitions == sum(not row["closing"] for ring in slow for row in ring.rows[-ring.size :])


@settings(max_examples=60, deadline=None)
@given(runs(), st.integers(1, 3))
def test_windows_found_afterwards_are_those_kept_step_by_step_also_after_loading(run: Any, n: int) -> None:
    kept, _ = played(*run, drawn=(n,))
    found, _ = played(*run)
    loaded, _ = played(run[0], run[1], [[("terminated", True)] * run[1]] * 3, drawn=(n,))  # held something else before
    loaded.load_state({name: array.copy() for name, array in kept.state().items()})
    for other in (found, loaded):
        number = torch.arange(kept.n_windows(n))
        assert other.n_windows(n) == len(number)
        ours, theirs = (buffer.windows(n).locate(number, before=True) for buffer in (kept, other))
        for name in ("index", "rows", "left", "before"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for _ in range(run[0] + 3):  # and both go on alike, around the ring
        for buffer in (kept, loaded):
            buffer.append(np.ones((run[1], 2)), np.ones((run[1], 1)), np.ones(run[1]), np.zeros(run[1]), np.zeros(run[1]))
    assert kept.n_transitions == loaded.n_transitions
    if kept.n_windows(n):
        ours, theirs = (buffer.sample(16, 5, td_steps=n) for buffer in (kept, loaded))
        assert torch.equal(ours.index, theirs.index)
        assert torch.equal(ours.next_observation, theirs.next_observation)


@settings(max_examples=60, deadline=None)
@given(runs())
def test_the_dataset_of_a_buffer_holds_every_step_that_is_kept(run: Any) -> None:
    buffer, slow = played(*run)
    kept = [row for ring in slow for row in ring.rows[-ring.size :]]
    if not any(not row["closing"] for row in kept):
        with pytest.raises(DataError, match="no transition"):
            buffer.to_dataset()
        return
    dataset = buffer.to_dataset("mine")
    steps = ~dataset.columns["closing"]
    assert dataset.columns["reward"][steps].tolist() == [row["r"] for row in kept if not row["closing"]]
    assert dataset.columns["observation"][steps, 0].tolist() == [row["o"] for row in kept if not row["closing"]]
    ends: list[tuple[str | None, bool]] = []
    for ring in slow:
        rows = ring.rows[-ring.size :]
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if not row["closing"] and (row["end"] or following is None):
                ends.append((row["end"], following is not None and following["known"]))
    assert dataset.episodes.terminated.tolist() == [end == "terminated" for end, _ in ends]
    assert dataset.episodes.final_recorded.tolist() == [known for _, known in ends]


def test_draws_are_those_of_a_transition_sampler_over_the_same_rows() -> None:
    steps = [[("truncated" if t % 7 == 6 else "terminated" if t % 11 == 10 else None, True)] for t in range(69)]
    buffer, _ = played(200, 1, [*steps, [("truncated", True)]])
    for n in (1, 3):
        other = TransitionSampler(buffer.to_dataset(), 32, seed=4, gamma=GAMMA, td_steps=n)
        for step in (0, 1, 63, 64, 1000):
            ours, theirs = buffer.sample(32, step, seed=4, gamma=GAMMA, td_steps=n), other.sample(step)
            for name in ("observation", "action", "reward", "next_observation", "next_action", "discount"):
                assert torch.equal(getattr(ours, name), getattr(theirs, name)), name


def test_a_draw_is_addressed_by_seed_and_step_alone() -> None:
    buffer, slow = played(50, 2, [[(None, True), ("terminated" if t % 5 == 4 else None, True)] for t in range(40)])
    numbers = integers(fold(fold(root_key(9), "sample"), 77), 16, len(expected(slow, 1)))
    slots = buffer.windows(1).locate(numbers).rows
    assert torch.equal(buffer.sample(16, 77, seed=9).index, slots)
    stack = buffer.sampler(16, (8, 9))
    stack.sample(3)
    assert torch.equal(stack.sample(77).index[1], slots)
    assert not torch.equal(stack.sample(77).index[0], slots)


def test_draws_are_uniform_over_rings_of_unequal_length() -> None:
    steps = [[("truncated" if t % 3 == 2 else None, True), (None, True)] for t in range(60)]
    buffer, slow = played(40, 2, steps)  # both have turned around; the first has closing rows in it, so fewer windows
    sizes = [len(ring.windows(1)) for ring in slow]
    assert sizes[0] < sizes[1]
    sampler = buffer.sampler(256, 0)
    drawn = torch.cat([sampler.sample(step).index for step in range(200)])
    counts = torch.bincount(drawn, minlength=80)[sorted(expected(slow, 1))].numpy()
    assert counts.sum() == 256 * 200  # nothing else was drawn
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_cutting_completes_windows_only_where_the_final_observation_is_known() -> None:
    for final, windows in ((None, 3), (np.array([[9.0, -9.0]]), 4)):
        buffer, _ = played(10, 1, [[(None, True)]] * 4, drawn=(1,))
        assert buffer.n_windows() == 3
        buffer.cut_episodes(final)
        buffer.cut_episodes(final)  # nothing is open any more
        assert buffer.n_windows() == windows
        dataset = buffer.to_dataset()
        assert dataset.n_episodes == 1
        assert dataset.episodes.final_recorded.tolist() == [final is not None]
        assert dataset.columns["truncated"].tolist() == [False, False, False, True, False]


def test_dict_observations_pixels_and_discrete_actions_keep_their_types() -> None:
    spec = Spec(
        observation=Dict(spaces={"image": Box(shape=(2, 2), dtype="uint8"), "speed": Box(shape=(1,))}), action=Discrete(n=3)
    )
    buffer = ReplayBuffer(8, spec)
    for t in range(3):
        seen = {"image": np.full((1, 2, 2), t), "speed": np.full((1, 1), t / 2)}
        buffer.append(seen, np.array([t]), [1.0], [t == 2], [False], seen)
    assert buffer.columns["observation/image"].dtype == np.uint8
    assert buffer.columns["action"].dtype == np.int64
    batch = buffer.sample(8, 0)
    assert batch.action.dtype == torch.int64
    assert torch.equal(batch.observation["speed"][:, 0] * 2, batch.observation["image"][:, 0, 0])
    assert buffer.to_dataset().spec == spec
    with pytest.raises(DataError, match="observation columns"):
        buffer.append({"image": seen["image"]}, np.array([0]), [1.0], [False], [False])


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match="capacity 3 has no 2 rows for each of 2 environments"):
        ReplayBuffer(3, SPEC, n_envs=2)
    buffer = ReplayBuffer(10, SPEC)
    with pytest.raises(DataError, match=r"observation has shape \[2\]; \[1, 2\] is needed"):
        buffer.append(np.zeros(2), np.zeros((1, 1)), [0.0], [False], [False])
    with pytest.raises(DataError, match=r"action has shape \[1\]; \[1, 1\] is needed"):
        buffer.append(np.zeros((1, 2)), np.zeros(1), [0.0], [False], [False])
    with pytest.raises(DataError, match="they have 2, 1, 1"):
        buffer.append(np.zeros((1, 2)), np.zeros((1, 1)), [0.0, 1.0], [False], [False])
    with pytest.raises(ConfigError, match="td_steps is 0"):
        buffer.sample(4, 0, td_steps=0)
    other, _ = played(4, 2, [[(None, True)] * 2])
    with pytest.raises(DataError, match="is needed"):
        buffer.load_state(other.state())
    with pytest.raises(DataError, match="'head' does not fit"):
        buffer.load_state({name: array for name, array in other.state().items() if name != "head"})
