"""Datasets in memory: what they hold, statistics, splits, and putting them together."""

from __future__ import annotations

import numpy as np
import pytest

from d3ray import Dataset, MDPDataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Box, Dict, Discrete, Environment, Spec
from d3ray.data.storage import rows as rows_module
from d3ray.data.storage.statistics import count_outside

from .operations.derived import walk


def test_a_dataset_tells_what_it_holds() -> None:
    data = Dataset.from_arrays(
        np.arange(5.0)[:, None], [0, 2, 1, 0, 1], [1, 2, 3, 4, 5], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], name="five"
    )
    assert (data.n_transitions, data.n_episodes, data.n_rows) == (5, 3, 8)
    assert data.spec == Spec(observation=Box(shape=(1,)), action=Discrete(n=3))
    assert repr(data) == "Dataset('five': 5 transitions in 3 episodes)"
    assert [len(episode) for episode in data.episodes] == [2, 1, 2]
    assert data.episodes.returns.tolist() == [3, 3, 9]
    assert [episode.compute_return() for episode in data.episodes] == [3, 3, 9]
    assert data.episodes.transition_rows().tolist() == [0, 1, 3, 5, 6]
    assert data.episodes.rows().tolist() == list(range(8))
    last = data.episodes[-1]
    assert last.observations.tolist() == [[3], [4], [4]]
    assert last.actions.tolist() == [0, 1]
    assert last.rewards.tolist() == [4, 5]
    assert (last.terminated, last.final_recorded) == (False, False)
    assert [episode.terminated for episode in data.episodes[:2]] == [True, False]
    with pytest.raises(IndexError):
        data.episodes[3]


def test_columns_cannot_be_written() -> None:
    data = walk()
    with pytest.raises(ValueError, match="read-only"):
        data.columns["reward"][0] = 1


def test_dict_observations_are_a_column_a_key() -> None:
    image = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
    data = Dataset.from_arrays({"camera": image, "joint": np.ones((6, 2))}, np.zeros((6, 1)), np.zeros(6), [0, 0, 1] * 2)
    assert data.spec.observation == Dict(spaces={"camera": Box(shape=(4, 5), dtype="uint8"), "joint": Box(shape=(2,))})
    assert data.columns["observation/camera"].dtype == np.uint8
    assert set(data.episodes[1].observations) == {"camera", "joint"}
    assert (data.episodes[1].observations["camera"] == image[[3, 4, 5, 5]]).all()
    moments = data.statistics.observation
    assert isinstance(moments, dict)
    assert moments["camera"].mean == pytest.approx(image.mean(), rel=1e-12)
    assert moments["camera"].std == pytest.approx(image.std(), rel=1e-12)
    assert (moments["camera"].min, moments["camera"].max) == (image.min(), image.max())
    assert moments["joint"].mean == (1, 1)


@pytest.mark.parametrize("block", [7, 1 << 16])  # many blocks are merged to what one gives
def test_statistics_are_numpys_and_no_closing_row_counts(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", block)
    data = walk()
    step = ~data.columns["closing"]
    found = data.statistics
    for name, moments in (("observation", found.observation), ("action", found.action), ("reward", found.reward)):
        values = data.columns[name][step].astype(np.float64)
        for statistic in ("mean", "std", "min", "max"):
            np.testing.assert_allclose(getattr(moments, statistic), getattr(values, statistic)(0), rtol=1e-12)
    returns = [episode.rewards.astype(np.float64).sum() for episode in data.episodes]
    np.testing.assert_allclose([found.return_.mean, found.return_.std], [np.mean(returns), np.std(returns)], rtol=1e-12)
    assert (found.return_.min, found.return_.max) == (min(returns), max(returns))
    assert (found.steps.min, found.steps.max) == (data.episodes.steps.min(), data.episodes.steps.max())
    assert found.n_terminated == data.episodes.terminated.sum()
    assert found.n_final_missing == data.n_episodes
    assert found.action_counts is None
    assert type(found).model_validate_json(found.model_dump_json()) == found
    assert '"return"' in found.model_dump_json()


def test_discrete_actions_are_counted() -> None:
    data = walk(discrete=True)
    assert data.statistics.action is None
    assert data.statistics.action_counts == tuple(np.bincount(data.columns["action"][~data.columns["closing"]]))


def test_actions_outside_the_bounds_are_counted() -> None:
    space = Box(shape=(2,), low=-1.0, high=(1.0, 0.1))
    assert count_outside(np.array([[0, 0], [1, 0.1], [1.01, 0], [0, 0.2], [-2, 3]], np.float32), space) == 3
    spec = Spec(observation=Box(shape=(3,)), action=Box(shape=(2,), low=-0.5, high=0.5))
    data = walk(spec=spec)
    actions = data.columns["action"][~data.columns["closing"]]
    assert data.statistics.action_outside == (np.abs(actions) > 0.5).any(1).sum() > 0
    assert walk().statistics.action_outside == 0


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (Spec(observation=Box(shape=(4,)), action=Discrete(n=4)), "The spec has the observation shape [4] and the data has [3]."),
        (Spec(observation=Box(shape=(3,)), action=Discrete(n=3)), "The spec has the actions 0 to 2 and the data has action 3."),
        (
            Spec(observation=Box(shape=(3,)), action=Box(shape=(1,))),
            "The spec has continuous actions and the data has discrete ones.",
        ),
        (
            Spec(observation=Dict(spaces={"a": Box(shape=(3,))}), action=Discrete(n=4)),
            "The spec has the observations 'observation/a' and the data has 'observation'.",
        ),
    ],
)
def test_arrays_that_are_not_of_the_spec_are_refused(spec: Spec, sentence: str) -> None:
    with pytest.raises(DataError) as error:
        walk(discrete=True, spec=spec)
    assert str(error.value) == sentence


def test_a_split_shares_columns_and_parts_the_episodes() -> None:
    data = walk(2000)
    train, test = data.split(test_size=0.25, seed=3)
    assert test.n_episodes == round(data.n_episodes * 0.25)
    assert train.n_episodes + test.n_episodes == data.n_episodes
    first = np.concatenate([train.episodes.first_row, test.episodes.first_row])
    assert sorted(first) == data.episodes.first_row.tolist()
    assert np.shares_memory(train.columns["observation"], data.columns["observation"])
    assert train.episodes.first_row.tolist() == sorted(train.episodes.first_row)
    assert train.n_transitions + test.n_transitions == data.n_transitions
    rewards = np.concatenate([episode.rewards for episode in test.episodes])
    assert (test.columns["reward"][test.episodes.transition_rows()] == rewards).all()
    assert test.statistics.reward.mean == pytest.approx(rewards.mean(dtype=np.float64), rel=1e-12)
    assert len({data.fingerprint, train.fingerprint, test.fingerprint}) == 3


def test_a_split_is_decided_by_its_seed() -> None:
    data = walk(2000)
    first = [data.split(seed=seed)[1].episodes.first_row.tolist() for seed in (0, 0, 1)]
    assert first[0] == first[1] != first[2]
    ten = Dataset.from_arrays(np.zeros((10, 1)), [0] * 10, [0] * 10, [1] * 10)
    assert ten.split(0.3, seed=7)[1].episodes.first_row.tolist() == [4, 14, 18]  # golden: other machines and versions agree


def test_each_side_of_a_split_has_an_episode() -> None:
    two = Dataset.from_arrays(np.zeros((2, 1)), [0, 1], [0, 0], [1, 1])
    assert [part.n_episodes for part in two.split(0.01)] == [1, 1]
    assert [part.n_episodes for part in two.split(0.99)] == [1, 1]
    with pytest.raises(DataError, match="one episode only"):
        two.split()[0].split()
    for wrong in (0, 1, -0.5, 3):
        with pytest.raises(ConfigError, match="test_size"):
            two.split(wrong)


def test_concat_puts_episodes_one_after_the_other() -> None:
    a, b = walk(100, 1, environment=Environment(id="Walk-v0")), walk(50, 2, environment=Environment(id="Walk-v0"))
    both = Dataset.concat([a, b.split()[0]])
    assert both.n_transitions == 100 + b.split()[0].n_transitions
    assert both.environment == Environment(id="Walk-v0")
    parts = [*a.episodes, *b.split()[0].episodes]
    for one, other in zip(both.episodes, parts, strict=True):
        assert (one.observations == other.observations).all()
        assert one.terminated == other.terminated
    assert Dataset.concat([a, walk(50, 2)]).environment is None
    with pytest.raises(DataError, match="Column 'action'"):
        Dataset.concat([a, walk(discrete=True)])


def test_mdp_dataset_is_from_arrays_under_d3rlpys_names() -> None:
    rng = np.random.default_rng(0)
    observations, actions, rewards = rng.normal(size=(50, 3)), rng.integers(0, 3, 50), rng.normal(size=50)
    terminals, timeouts = rng.random((2, 50)) < 0.1
    ours = Dataset.from_arrays(observations, actions, rewards, terminals, timeouts)
    assert MDPDataset(observations, actions, rewards, terminals, timeouts).fingerprint == ours.fingerprint
    floats = actions[:, None].astype(np.float32)
    assert MDPDataset(observations, floats, rewards, terminals, timeouts, discrete_action=True).fingerprint == ours.fingerprint
    assert MDPDataset(observations, floats, rewards, terminals).spec.action == Box(shape=(1,))
    assert MDPDataset(observations, actions[:, None], rewards, terminals, discrete_action=False).spec.action == Box(shape=(1,))
    with pytest.raises(DataError, match="not whole numbers"):
        MDPDataset(observations, floats + 0.5, rewards, terminals, discrete_action=True)
