"""Goals in hindsight: each draw against loops in NumPy, which goals come how often, and that seeds and steps draw alone."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.goal_conditioned.gcbc import GCBC
from d3ray.algos.goal_conditioned.gciql import GCIQL
from d3ray.algos.goal_conditioned.hindsight import GoalMixture
from d3ray.algos.goal_conditioned.hiql import HIQL
from d3ray.algos.goal_conditioned.sharsa import SHARSA
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.random import fold, integers, uniform
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler
from d3ray.data.scalers.observation import KeywiseScaler

LENGTHS = (1, 2, 7, 30, 3, 57)
MIXED = GoalMixture(current=0.2, future=0.5, geometric=True)
EVEN = GoalMixture(current=0.1, future=0.6)


def counted(lengths=LENGTHS, *, final=True):
    """Episodes that show the number of a step, and at their ends its negative, which is no goal; then the number squared."""
    n, ends = sum(lengths), np.cumsum(lengths) - 1
    seen = np.arange(n, dtype=np.float32)
    last = np.zeros(n, bool)
    last[ends] = True
    shown, after = (np.stack((x, x**2 / 100), 1) for x in (seen, -1 - ends.astype(np.float32)))
    actions = np.linspace(-0.5, 0.5, 2 * n, dtype=np.float32).reshape(n, 2)
    final_observations = after if final else None
    return Dataset.from_arrays(shown, actions, seen, np.zeros(n, bool), last, final_observations=final_observations, name="counted")


def source_of(algorithm, data, seeds=3, **settings):
    """What it draws from, in numbers that are exact, and its batch."""
    made = maker(algorithm, batch_size=64, **settings)(dtype="float64", seed=seeds)
    made.fit(data, n_steps=0)
    return made.fit_.sampler(data)


def shown(goal):
    """The numbers of goals, [B, 2] or [B, 1]."""
    return goal[..., 0].numpy().round().astype(int)


def slow_goals(mixture, numbers, last, key, n, gamma):
    """Number by number, with the numbers that are drawn at the address `key`."""
    which, share = (uniform(fold(key, name), (len(numbers),), torch.float64).tolist() for name in ("which", "share"))
    anywhere, goals = integers(fold(key, "anywhere"), len(numbers), n).tolist(), []
    for i, number in enumerate(numbers):
        if which[i] < mixture.current:
            goals.append(number)
        elif which[i] >= mixture.current + mixture.future:
            goals.append(anywhere[i])
        elif mixture.geometric:
            k = 1
            while share[i] < gamma**k:  # P(more than k steps) = γᵏ
                k += 1
            goals.append(min(number + k, last[i]))
        else:
            goals.append(round(min(number + 1, last[i]) * share[i] + last[i] * (1 - share[i])))
    return np.array(goals)


def ends_of(lengths=LENGTHS):
    """The number of the last step of each step's episode."""
    return np.repeat(np.cumsum(lengths) - 1, lengths)


@pytest.mark.parametrize(("values", "actor"), [(MIXED, EVEN), (EVEN, GoalMixture(future=0.8, geometric=True))])
@pytest.mark.parametrize("negative", [True, False])
def test_goals_rewards_and_discounts_are_those_of_a_loop(values, actor, negative):
    source = source_of(GCIQL, counted(), value_goals=values, actor_goals=actor, negative_rewards=negative, gamma=0.9)
    for step in range(5):
        batch, key = source.sample(step), fold(source._key, step)
        numbers = batch.index.numpy()
        last = ends_of()[numbers]
        goal = slow_goals(values, numbers, last, fold(key, "value"), sum(LENGTHS), 0.9)
        np.testing.assert_array_equal(shown(batch.observation["observation"]), numbers)
        np.testing.assert_array_equal(shown(batch.observation["goal"]), goal)
        np.testing.assert_array_equal(batch.observation["goal"], batch.next_observation["goal"])
        at_goal = goal == numbers
        assert 0 < at_goal.sum() < len(numbers)
        np.testing.assert_allclose(batch.reward, np.where(at_goal, 0, -1) if negative else np.where(at_goal, 1, 0))
        np.testing.assert_allclose(batch.discount, np.where(at_goal, 0, 0.9))
        wanted = slow_goals(actor, numbers, last, fold(key, "actor"), sum(LENGTHS), 0.9)
        np.testing.assert_array_equal(shown(batch.extra["actor_goal"]), wanted)


@pytest.mark.parametrize("actor", [GoalMixture(), GoalMixture(future=0.5, geometric=True)])
def test_subgoals_are_those_of_a_loop(actor):
    source = source_of(HIQL, counted(), actor_goals=actor, subgoal_steps=5, gamma=0.9)
    anywhere = 0
    for step in range(5):
        batch, key = source.sample(step), fold(source._key, step)
        numbers = batch.index.numpy()
        last = ends_of()[numbers]
        goals = slow_goals(actor, numbers, last, fold(key, "actor"), sum(LENGTHS), 0.9)
        ahead = [min(number + 5, end) for number, end in zip(numbers, last, strict=True)]
        targets = []
        for number, end, goal, later in zip(numbers, last, goals, ahead, strict=True):
            targets.append(min(later, goal) if number <= goal <= end else later)
            anywhere += not number <= goal <= end
        np.testing.assert_array_equal(shown(batch.extra["low_goal"]), ahead)
        np.testing.assert_array_equal(shown(batch.extra["high_goal"]), goals)
        np.testing.assert_array_equal(shown(batch.extra["high_target"]), targets)
        np.testing.assert_array_equal(shown(batch.extra["high_state"]["observation"]), targets)
    assert (anywhere > 0) == (actor.future < 1)


@pytest.mark.parametrize("values", [MIXED, EVEN])
def test_leaps_reach_a_subgoal_or_the_goal_and_count_their_steps(values):
    source = source_of(SHARSA, counted(), value_goals=values, subgoal_steps=5, gamma=0.9)
    ended = 0
    for step in range(5):
        batch, key = source.sample(step), fold(source._key, step)
        numbers = batch.index.numpy()
        last = ends_of()[numbers]
        goals, reached = slow_goals(values, numbers, last, fold(key, "value"), sum(LENGTHS), 0.9), []
        for number, end, goal in zip(numbers, last, goals, strict=True):
            ahead = min(number + 5, end)
            reached.append(min(ahead, goal) if number <= goal <= end else ahead)
            ended += reached[-1] == end < number + 5 and goal != end
        steps, there = np.array(reached) - numbers, np.array(reached) == goals
        np.testing.assert_array_equal(shown(batch.next_observation["observation"]), reached)
        np.testing.assert_array_equal(shown(batch.next_observation["goal"]), goals)
        np.testing.assert_array_equal(shown(batch.extra["value_subgoal"]), reached)
        np.testing.assert_allclose(batch.reward, 0.9**steps * there)
        np.testing.assert_allclose(batch.discount, 0.9 ** np.maximum(steps, 1) * ~there)
    assert ended  # an episode's end that is no goal is bootstrapped from


@pytest.mark.parametrize("geometric", [True, False])
@pytest.mark.parametrize("final", [True, False])
def test_future_goals_stay_in_their_episode_and_are_later(geometric, final):
    """The last step of an episode whose end was not recorded is not drawn where losses look at it, and is no goal there."""
    data = counted(final=final)
    lengths = LENGTHS if final else tuple(n - 1 for n in LENGTHS)
    starts = np.cumsum(LENGTHS) - LENGTHS
    rows = np.concatenate([start + np.arange(n) for start, n in zip(starts, lengths, strict=True)])
    ends = np.concatenate([np.full(n, start + n - 1) for start, n in zip(starts, lengths, strict=True)])
    source = source_of(GCIQL, data, value_goals=GoalMixture(geometric=geometric))
    for step in range(10):
        batch = source.sample(step)
        row = rows[batch.index.numpy()]
        np.testing.assert_array_equal(shown(batch.observation["observation"]), row)
        goal, end = shown(batch.observation["goal"]), ends[batch.index.numpy()]
        assert (goal <= end).all()
        assert (goal >= np.minimum(row + 1, end)).all()


def many(algorithm, data, **settings):
    """Numbers, their episodes' last ones and value goals of some ten thousand draws."""
    source = source_of(algorithm, data, **settings)
    batches = [source.sample(step) for step in range(200)]
    numbers = np.concatenate([batch.index.numpy() for batch in batches])
    return numbers, np.concatenate([shown(batch.observation["goal"]) for batch in batches])


def test_current_future_and_random_come_as_often_as_they_should():
    """In one of a thousand episodes of two steps: 0.2 themselves, 0.5 the next, 0.3 anywhere."""
    lengths = (2,) * 1000
    numbers, goals = many(GCIQL, counted(lengths), value_goals=MIXED)
    first = numbers % 2 == 0
    shares = [np.mean(goals[first] == numbers[first] + k) for k in (0, 1)]
    deviation = 3 / math.sqrt(first.sum()) / 2
    assert abs(shares[0] - 0.2) < deviation
    assert abs(shares[1] - 0.5) < deviation
    elsewhere = goals[(goals != numbers) & (goals != numbers + 1)]
    assert abs(len(elsewhere) / len(numbers) - 0.3) < deviation
    assert abs(elsewhere.mean() - 1000) < 3 * 2000 / math.sqrt(12 * len(elsewhere))  # from one end to the other alike


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_steps_to_a_geometric_goal_have_the_geometric_law(gamma):
    numbers, goals = many(GCIQL, counted((5000,)), value_goals=GoalMixture(geometric=True), gamma=gamma)
    ahead = (goals - numbers)[numbers < 4800]
    assert ahead.min() == 1
    assert ahead.mean() == pytest.approx(1 / (1 - gamma), rel=0.05)
    for k in (1, 2, 5):
        assert np.mean(ahead == k) == pytest.approx((1 - gamma) * gamma ** (k - 1), abs=0.02)


def test_steps_to_a_uniform_goal_are_alike_up_to_the_last():
    """But the nearest and the last, which rounding gives half as often, as in OGBench's code."""
    numbers, goals = many(GCIQL, counted((6,) * 500), value_goals=GoalMixture())
    begun = numbers % 6 == 0
    shares = [np.mean(goals[begun] - numbers[begun] == k) for k in range(7)]
    np.testing.assert_allclose(shares, [0, 1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8, 0], atol=0.03)


@pytest.mark.parametrize("algorithm", [GCIQL, HIQL, GCBC, SHARSA])
def test_a_stack_draws_as_each_seed_alone_and_steps_at_once_as_one_by_one(algorithm):
    data, seeds = counted(), [4, 9]
    made = maker(algorithm, batch_size=8)(dtype="float64")
    stack = Stack(made, seeds, [{"gamma": 0.5}, {"gamma": 0.9}])
    stack.fit(data, n_steps=0)
    both = stack.fit_.sampler(data)
    alone = [source_of_one(algorithm, data, seed, gamma) for seed, gamma in zip(seeds, (0.5, 0.9), strict=True)]
    for step in range(3):
        together = flat(both.sample(step))
        for k, one in enumerate(alone):
            own = flat(one.sample(step))
            assert own.keys() == together.keys()
            for name, tensor in own.items():
                torch.testing.assert_close(together[name][k], tensor, rtol=0, atol=0, msg=name)
    for source in (both, alone[0]):
        for step, batch in zip((3, 4, 7), source.along(torch.tensor([3, 4, 7])), strict=True):
            wanted, found = flat(source.sample(step)), flat(batch)
            assert wanted.keys() == found.keys()
            for name, tensor in wanted.items():
                torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, msg=name)


def source_of_one(algorithm, data, seed, gamma):
    made = maker(algorithm, batch_size=8, gamma=gamma)(dtype="float64", seed=seed)
    made.fit(data, n_steps=0)
    return made.fit_.sampler(data)


def flat(batch):
    """Its tensors by name."""
    found = {name: getattr(batch, name) for name in ("action", "reward", "discount", "index")}
    for name, parts in (("observation", batch.observation), ("next", batch.next_observation), ("extra", batch.extra)):
        for key, part in parts.items():
            within = {f"/{inner}": x for inner, x in part.items()} if isinstance(part, dict) else {"": part}
            found |= {f"{name}/{key}{inner}": x for inner, x in within.items()}
    return found


def test_a_few_are_the_first_of_a_batch():
    source = source_of(GCIQL, counted(), value_goals=MIXED)
    whole, few = flat(source.sample(2)), flat(source.sample(2, 5))
    for name, tensor in few.items():
        torch.testing.assert_close(tensor, whole[name][:5], rtol=0, atol=0, msg=name)


def test_goals_may_be_entries_and_are_scaled_as_what_is_reached():
    data = counted()
    source = source_of(GCIQL, data, goal_part=(1,), observation_scaler="standard", value_goals=GoalMixture(current=1.0, future=0.0))
    batch = source.sample(0)
    assert batch.observation["goal"].shape == (64, 1)
    torch.testing.assert_close(batch.observation["goal"], batch.observation["observation"][:, 1:], rtol=0, atol=0)
    moments, numbers = data.statistics.observation, batch.index.numpy()
    wanted = (numbers**2 / 100 - moments.mean[1]) / (moments.std[1] + 1e-3)
    np.testing.assert_allclose(batch.observation["goal"][:, 0], wanted, rtol=1e-5, atol=1e-6)


def test_probabilities_that_are_more_than_1_are_refused():
    with pytest.raises(ConfigError, match=r"current and future are probabilities, and add up to 1\.2"):
        GCIQL(value_goals={"current": 0.5, "future": 0.7}).check_settings()


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ("prioritized", "choose uniform, epoch or weighted"),
        ("stream", "in an order of its own, which cannot stream: leave sampler out"),
        ("recurrent", "for recurrent encoders, and no encoder is one"),
    ],
)
def test_samplers_without_numbers_are_refused(sampler, said):
    with pytest.raises(ConfigError, match=said):
        source_of(GCIQL, counted(), sampler=sampler)


def test_a_replay_buffer_has_no_goals_in_hindsight():
    data = counted()
    made = maker(GCIQL)(seed=3).fit(data, n_steps=0)
    with pytest.raises(ConfigError, match="Goals are drawn in hindsight from a dataset"):
        made.fit_.sampler(ReplayBuffer(100, data.with_goals().spec))


@pytest.mark.parametrize("sampler", ["epoch", "weighted", {"name": "uniform", "unique": True}])
def test_other_samplers_have_goals_too(sampler):
    batch = source_of(GCIQL, counted(), sampler=sampler).sample(0)
    assert batch.observation["goal"].shape == (64, 2)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("seeds", [3, (3, 4)])
def test_a_goal_is_what_the_transition_shows_and_nothing_else_is_gathered(frames, seeds, monkeypatch):
    rng, n = np.random.default_rng(0), 40
    images = rng.integers(0, 255, (n, 2, 4, 4), dtype=np.uint8)
    data = Dataset.from_arrays(images, np.zeros((n, 1)), np.zeros(n), np.arange(n) % 9 == 8, name="images").with_goals()
    sampler = TransitionSampler(data, 6, seeds, frames=frames, observation_scaler=KeywiseScaler(scalers={"observation": "pixel"}))
    numbers = torch.from_numpy(rng.integers(0, sampler.n_windows, (*((2,) if isinstance(seeds, tuple) else ()), 6)))
    wanted, columns = sampler.at(numbers).observation["observation"], []
    take = sampler._gather.take
    monkeypatch.setattr(sampler._gather, "take", lambda name, rows: columns.append((name, rows.numel())) or take(name, rows))
    torch.testing.assert_close(sampler.shown_at(numbers, "observation"), wanted, rtol=0, atol=0)
    assert columns == [("observation/observation", numbers.numel() * frames)]
