"""Prioritised draws against priorities kept in a list, weights worked by hand, and frequencies."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling import Mixture, PrioritizedEpisodeSampler, PrioritizedSampler, SumTree, TransitionSampler
from d3ray.data.sampling.sum_tree import compiled

from .slow_experience import Story, as_buffer, as_dataset, stories

quick = settings(max_examples=40, deadline=None)
FIVE = [Story(0, 5, "terminated")]


@quick
@given(st.integers(1, 200), st.integers(1, 3), st.integers(0, 10_000))
def test_a_sum_tree_finds_what_a_running_sum_finds(n: int, trees: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, values = SumTree(n, trees), rng.integers(0, 4, (trees, n)).astype(float)
    tree.fill(values)
    for _ in range(4):
        index, new = rng.integers(0, n, (trees, 9)), rng.integers(0, 5, (trees, 9)).astype(float)
        tree.set(index, new)
        for k in range(trees):
            for at, value in zip(index[k], new[k], strict=True):
                values[k, at] = value
        assert (tree.values == values).all()
        assert (tree.total == values.sum(1)).all()
        share = rng.random((trees, 50))
        found = tree.find(share)
        for k in range(trees):
            if values[k].any():
                sums = np.cumsum(values[k])
                assert found[k].tolist() == np.searchsorted(sums, share[k] * sums[-1], side="right").tolist()


def test_what_has_no_priority_is_never_found_whatever_the_rounding() -> None:
    tree = SumTree(4097)
    values = np.zeros((1, 4097))
    values[0, [3, 700, 2048]] = 0.1, 1e-9, 1e9
    tree.fill(values)
    shares = np.concatenate([[0.0, 1 - 2**-53], np.nextafter(0.1 / values.sum() * np.ones(3), [0, 0.05, 1])])
    assert set(tree.find(shares[None])[0].tolist()) <= {3, 700, 2048}
    assert tree.find(np.array([[0.0, 1 - 2**-53]]))[0].tolist() == [3, 2048]
    rng = np.random.default_rng(0)
    for _ in range(200):  # sums of sums round otherwise than running sums, so the end of a group may lie before what is looked for
        several, parts = SumTree(256), rng.random((1, 16, 16)) ** 9
        parts[:, :, 11:] = 0
        parts[:, 13:] = 0
        several.fill(parts.reshape(1, 256))
        edges = np.cumsum(parts.sum(-1)) / parts.sum()
        shares = np.concatenate([[1 - 2**-53], edges, np.nextafter(edges, 0), np.nextafter(edges, 1)]).clip(0, 1 - 2**-53)
        assert several.values[0, several.find(shares[None])[0]].all()


def test_an_index_outside_of_a_tree_is_refused() -> None:
    tree = SumTree(5, 2)
    for wrong in (-1, 5):
        with pytest.raises(IndexError, match="outside of the tree"):
            tree.set(np.array([[0], [wrong]]), np.ones((2, 1)))
        assert not tree.values[1].any()


def p_of(error: float, alpha: float, eps: float, low: float | None, high: float | None) -> float:
    size = abs(error)
    size = size if low is None else max(size, low)
    size = size if high is None else min(size, high)
    return (size + eps) ** alpha


@pytest.mark.parametrize("stratified", [True, False])
def test_draws_are_in_proportion_to_priorities(stratified: bool) -> None:
    sampler = PrioritizedSampler(as_dataset(FIVE), 64, (1, 2), alpha=0.7, eps=0.02, error_max=3.0, stratified=stratified)
    errors = torch.tensor([[0.0, -0.5, 1.0, 2.0, 9.0], [1.0, 0.0, 0.0, 0.0, 0.3]])
    sampler.update(torch.arange(5).expand(2, 5), errors)
    drawn = torch.cat([sampler.sample(step).index for step in range(300)], 1)
    for k in range(2):
        p = np.array([p_of(float(e), 0.7, 0.02, 0.0, 3.0) for e in errors[k]])
        counts = np.bincount(drawn[k], minlength=5)
        expected = p / p.sum() * counts.sum()
        if stratified:  # each batch is as near to its shares as can be, so counts vary less than independent ones
            assert np.abs(counts - expected).max() < 300 * 0.5
        else:
            assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3
    alone = PrioritizedSampler(as_dataset(FIVE), 64, 2, alpha=0.7, eps=0.02, error_max=3.0, stratified=stratified)
    alone.update(torch.arange(5), errors[1])
    assert torch.equal(alone.sample(299).index, drawn[1, -64:])


def test_a_stratified_batch_has_every_part_of_the_sum() -> None:
    sampler = PrioritizedSampler(as_dataset(FIVE), 5, 1)
    assert all(sampler.sample(step).index.tolist() == [0, 1, 2, 3, 4] for step in range(50))  # all alike: one each
    independent = PrioritizedSampler(as_dataset(FIVE), 5, 1, stratified=False)
    assert any(len(set(independent.sample(step).index.tolist())) < 5 for step in range(50))


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_part_of_a_batch_is_drawn_as_a_whole_one_is(size: int, stratified: bool) -> None:
    sampler = PrioritizedSampler(
        as_dataset(FIVE), 8, (1, 2), alpha=1.0, eps=0.0, stratified=stratified, normalize_by_max=False, beta0=1.0
    )
    p = np.array([0.1, 0.2, 0.3, 0.4, 1.0])
    sampler.update(torch.arange(5).expand(2, 5), torch.from_numpy(p).expand(2, 5))
    batches = [sampler.sample(step, size) for step in range(2400 // size)]
    for k in range(2):
        drawn = torch.cat([batch.index[k] for batch in batches])
        counts = np.bincount(drawn, minlength=5)
        # strata only make counts vary less, so the bound of independent draws holds for both
        assert scipy.stats.chisquare(counts, p / p.sum() * counts.sum()).pvalue > 1e-3
        weights = torch.cat([batch.weight[k] for batch in batches if batch.weight is not None])
        assert weights.tolist() == pytest.approx((p.sum() / (5 * p[drawn])).tolist(), rel=1e-5)  # 1 / (N P)
    both = Mixture([sampler, TransitionSampler(as_dataset(FIVE), 8, (1, 2))], [1, 1])
    mixed = torch.cat([both.sample(step).index for step in range(600)], 1)
    counts = np.bincount(mixed[0][mixed[0] < 5], minlength=5)
    assert scipy.stats.chisquare(counts, p / p.sum() * counts.sum()).pvalue > 1e-3


@pytest.mark.parametrize("normalize_by_max", [True, "batch", "memory", False])
@pytest.mark.parametrize("step", [0, 50, 100, 5000])
def test_importance_weights_worked_by_hand(normalize_by_max: Any, step: int) -> None:
    sampler = PrioritizedSampler(
        as_dataset(FIVE), 3, 1, alpha=1.0, beta0=0.4, betasteps=100, eps=0.0, normalize_by_max=normalize_by_max, dtype=torch.float64
    )
    p = [0.1, 0.2, 0.3, 0.4, 1.0]  # their sum is 2
    sampler.update(torch.arange(5), torch.tensor([-0.1, 0.2, -0.3, 0.4, 7.0]))  # errors above 1 count as 1
    beta = {0: 0.4, 50: 0.7, 100: 1.0, 5000: 1.0}[step]
    batch = sampler.sample(step)
    assert batch.weight is not None
    weights = [(5 * p[i] / 2) ** -beta for i in batch.index.tolist()]
    largest = {"memory": (5 * 0.1 / 2) ** -beta, False: 1.0}.get(normalize_by_max, max(weights))
    assert batch.weight.tolist() == pytest.approx([w / largest for w in weights], rel=1e-6)
    mean = sum(p[i] / 2 * (5 * p[i] / 2) ** -1.0 for i in range(5))
    assert mean == pytest.approx(1.0)  # with β 1 the weighted mean is the plain mean: what the weights are for


def test_new_items_come_first_and_errors_that_are_no_numbers_change_nothing() -> None:
    sampler = PrioritizedSampler(as_dataset(FIVE), 4, (1, 2), alpha=0.5, eps=0.25, error_max=None)
    state = sampler.state()
    assert (state["priorities"] == 1).all()
    assert state["maximum"].tolist() == [1, 1]
    sampler.update(torch.tensor([[0, 0, 1, 2], [4, 3, 2, 1]]), torch.tensor([[5.0, 2.0, torch.nan, torch.inf], [0, 0, 0, 0.0]]))
    state = sampler.state()
    assert state["priorities"][0].tolist() == [1.5, 1, 1, 1, 1]  # (2 + 1/4)^½: of an item drawn twice the last error counts
    assert state["priorities"][1].tolist() == [1, 0.5, 0.5, 0.5, 0.5]
    assert state["maximum"].tolist() == [5.25**0.5, 1.0]


@quick
@given(stories(), st.integers(3, 25), st.integers(1, 3), st.integers(0, 1000))
def test_priorities_follow_a_ring(told: list[Story], rows: int, td_steps: int, seed: int) -> None:
    """Beside a dict from slots to priorities, that loses and gains them as the buffer's windows do."""
    rng = np.random.default_rng(seed)
    played = as_buffer([], rows)
    buffer = played.buffer
    sampler = PrioritizedSampler(buffer, 6, 1, td_steps=td_steps, eps=0.0, alpha=1.0, error_max=None)
    slow: dict[int, float] = {}
    written, maximum, known = 0, 1.0, {}  # slot → how often it had been written when its window was seen
    for s in told:
        for t in range(s.steps):
            last = t == s.steps - 1
            final = None if s.end == "blind" or not last else np.array([s.observation(s.steps)])
            buffer.add(np.array([s.observation(t)]), np.array([s.action(t)]), 0.0, last and s.end == "terminated", last, final)
            written += 1 + last
            there = {int(slot): (written - 1 - int(slot)) // rows for slot in buffer.windows(td_steps).all()}
            slow = {slot: slow[slot] if known.get(slot) == age and slot in slow else maximum for slot, age in there.items()}
            known = there
            if rng.random() < 0.6:
                continue  # several steps between two draws
            if not there:
                with pytest.raises(DataError, match="no window"):
                    sampler.sample(0)
                continue
            batch = sampler.sample(int(rng.integers(100)))
            assert set(batch.index.tolist()) <= slow.keys()
            errors = rng.integers(1, 9, 6).astype(float)
            sampler.update(batch.index, torch.from_numpy(errors))
            for slot, error in zip(batch.index.tolist(), errors, strict=True):
                slow[slot] = error
            maximum = max(maximum, errors.max())
            kept = sampler.state()["priorities"][0]
            assert {int(slot): kept[slot] for slot in np.flatnonzero(kept)} == slow


def test_a_state_goes_on_bit_for_bit() -> None:
    played = as_buffer([Story(e, 4, "terminated") for e in range(6)], 25)
    one = PrioritizedSampler(played.buffer, 8, (1, 2))
    for _ in range(7):
        batch = one.sample()
        one.update(batch.index, batch.reward)
    other = as_buffer([], 25).buffer
    two = PrioritizedSampler(other, 8, (1, 2))
    other.load_state(played.buffer.state())
    two.load_state(one.state())
    for _ in range(5):
        ours, theirs = one.sample(), two.sample()
        assert torch.equal(ours.index, theirs.index)
        assert ours.weight is not None
        assert torch.equal(ours.weight, theirs.weight)
        for sampler, buffer in ((one, played.buffer), (two, other)):
            sampler.update(ours.index, ours.reward * 2)
            buffer.add(np.zeros(1), np.zeros(1), 1.0)
    with pytest.raises(DataError, match="no state of a sampler with priorities"):
        two.load_state(PrioritizedSampler(as_dataset(FIVE), 8).state())


def test_episodes_by_priority() -> None:
    told = [Story(0, 3, "terminated"), Story(1, 1, "blind"), Story(2, 6, "truncated"), Story(3, 2, "terminated")]
    for source in (as_dataset(told), as_buffer(told, 60).buffer):
        sampler = PrioritizedEpisodeSampler(
            source,
            50,
            3,
            max_length=2,
            alpha=1.0,
            eps=0.0,
            uniform_ratio=0.25,
            default_priority_func=len,
            wait_priority_after_sampling=False,
            normalize_by_max=False,
            beta0=1.0,
            dtype=torch.float64,
        )
        steps = [sampler.sample(step) for step in range(200)]
        numbers = (torch.cat([got.observation[:, 0, 0] for got in steps]).numpy().astype(int) - 1) // 16
        shares = 0.75 * np.array([3, 1, 6, 2]) / 12 + 0.25 / 4
        counts = np.bincount(numbers, minlength=4)
        assert np.abs(counts / counts.sum() - shares).max() < 0.01
        weights = torch.cat([got.weight for got in steps if got.weight is not None]).numpy()
        np.testing.assert_allclose(weights, 1 / (4 * shares[numbers]))
        assert all(got.mask.shape == (50, 2) for got in steps)
        part = torch.cat([sampler.sample(step, 25).observation[:, 0, 0] for step in range(200)]).numpy().astype(int)
        assert np.abs(np.bincount((part - 1) // 16, minlength=4) / 5000 - shares).max() < 0.02
    waiting = PrioritizedEpisodeSampler(as_dataset(told), 4, return_sample_weights=False)
    drawn = waiting.sample()
    assert drawn.weight is None
    with pytest.raises(ConfigError, match="errors of the last batch are awaited"):
        waiting.sample()
    waiting.update(drawn.index, torch.ones(4))
    waiting.sample()


def test_settings_that_cannot_be_are_refused() -> None:
    data = as_dataset(FIVE)
    for settings_ in ({"alpha": -1}, {"beta0": 2}, {"betasteps": 0}, {"eps": -1}):
        with pytest.raises(ConfigError, match=next(iter(settings_))):
            PrioritizedSampler(data, 4, **settings_)
    with pytest.raises(ConfigError, match="normalize_by_max is 'mean'"):
        PrioritizedSampler(data, 4, normalize_by_max="mean")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="unique goes with uniform"):
        PrioritizedSampler(data, 4, unique=True)


def total(x: Any) -> Any:
    found = 0.0
    for k in range(len(x)):
        found += x[k]
    return found


def test_a_loop_is_compiled_anew_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    njit = numba.njit

    def without_cache(function: Any, **options: Any) -> Any:
        if function is total:  # numba compiles others on the way
            made.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(numba, "njit", without_cache)
    call = compiled(total)
    assert [call(np.arange(5.0)), call(np.arange(3.0))] == [10.0, 3.0]
    assert made == [{"cache": True, "nogil": True}, {"nogil": True}]  # once for both calls
