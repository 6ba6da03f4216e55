"""Samplers by their names in an algorithm's settings: what is drawn, and that priorities are learned, kept and resumed."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.base import Algorithm
from d3ray.algos.imitation.discrete_bc import DiscreteBC
from d3ray.algos.judging.discrete_fqe import DiscreteFQE
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.saving.saving import load
from d3ray.algos.sequence.discrete_decision_transformer import DiscreteDecisionTransformer
from d3ray.algos.stack import Stack
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.sampling import EpochSampler, PrioritizedSampler, StreamSampler, WeightedSampler, stream

SMALL: dict[str, Any] = {"batch_size": 16, "device": "cpu", "dtype": "float64"}


def dataset(images: bool = False) -> Dataset:
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (90, 2, 12, 12), dtype=np.uint8) if images else rng.normal(size=(90, 3)).astype("f4")
    ends = np.arange(90) % 15 == 14
    return Dataset.from_arrays(seen, rng.integers(0, 2, 90), rng.normal(size=90), ends, next_observations=None)


def dqn(**settings: Any) -> DQN:
    return DQN(encoder=testing.SMALL, **{**SMALL, **settings})


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [("epoch", EpochSampler), ({"name": "weighted", "by": "top", "share": 0.2}, WeightedSampler), ("stream", StreamSampler)],
)
def test_a_sampler_by_its_name(sampler: Any, kind: type) -> None:
    algorithm = dqn(sampler=sampler).fit(dataset(), n_steps=3)
    made = algorithm.fit_.sampler(dataset())
    assert isinstance(made, kind)
    again = DQN(**algorithm.get_params())
    assert again.check_settings() == algorithm.check_settings()


def test_a_prioritised_sampler_hears_errors_and_is_resumed() -> None:
    data, settings = dataset(), {"name": "prioritized", "error_max": None}
    whole = dqn(sampler=settings).fit(data, n_steps=12)
    sampler = whole.fit_.sampler(data)
    assert isinstance(sampler, PrioritizedSampler)
    priorities = sampler.state()["priorities"][0]
    assert len(np.unique(priorities)) > 20  # not all the first one
    half = dqn(sampler=settings).fit(data, n_steps=7)
    resumed = dqn(sampler=settings).load_state(*half.state())
    assert {k: t.shape for k, t in resumed.state()[0].items()} == {k: t.shape for k, t in half.state()[0].items()}
    resumed.fit(data, n_steps=5)
    for name, tensor in whole.state()[0].items():
        assert torch.equal(tensor, resumed.state()[0][name]), name


def test_priorities_follow_the_data_whatever_object_holds_them(tmp_path: Path) -> None:
    whole = dqn(sampler="prioritized").fit(dataset(), n_steps=20)
    twice = dqn(sampler="prioritized").fit(dataset(), n_steps=10).fit(dataset(), n_steps=10)
    assert_same_state(whole, twice)
    other = Dataset.from_arrays(np.ones((30, 3), "f4"), np.arange(30) % 2, np.ones(30), np.arange(30) % 10 == 9)
    moved = dqn(sampler="prioritized").fit(dataset(), n_steps=10)
    moved.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert_same_state(moved.fit(other, n_steps=5), again.fit(other, n_steps=5))


def assert_same_state(one: Algorithm, other: Algorithm) -> None:
    ours, theirs = one.state()[0], other.state()[0]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.long
def test_data_that_nobody_holds_are_freed() -> None:
    data = dataset()
    algorithm = dqn().fit(data, n_steps=1)
    seen = weakref.ref(data)
    del data, algorithm
    gc.collect()
    assert seen() is None


def test_rows_of_a_stack_have_priorities_of_their_own() -> None:
    data = dataset()
    stack = Stack(dqn(sampler="prioritized"), (3, 4)).fit(data, n_steps=10)
    for k, seed in enumerate((3, 4)):
        alone = dqn(sampler="prioritized", seed=seed).fit(data, n_steps=10)
        ours, theirs = stack.seed(k).state()[0], alone.state()[0]
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-12, msg=name)


def test_frames_are_stacked_and_the_network_knows() -> None:
    algorithm = dqn(sampler={"name": "uniform", "frames": 3}, observation_scaler="pixel").fit(dataset(images=True), n_steps=2)
    assert algorithm.spec_.observation.shape == (6, 12, 12)
    assert algorithm.predict(np.zeros((5, 6, 12, 12), np.uint8)).shape == (5,)
    batch = algorithm.fit_.sampler(dataset(images=True)).sample(0)
    assert batch.observation.shape == (16, 6, 12, 12)


@pytest.mark.parametrize("shape", [(2, 12, 12), (12, 12, 2), (12, 12)])
def test_the_shape_that_another_algorithm_sees_is_stacked_already(shape: tuple[int, ...]) -> None:
    seen = np.random.default_rng(0).integers(0, 256, (90, *shape), dtype=np.uint8)
    data = Dataset.from_arrays(seen, np.arange(90) % 2, np.ones(90), np.arange(90) % 15 == 14)
    settings: dict[str, Any] = {"sampler": {"name": "uniform", "frames": 3}, "observation_scaler": "pixel"}
    first, second = dqn(**settings).fit(data, n_steps=2), dqn(seed=1, **settings)
    second.build_with_shapes(first.observation_shape, first.action_size)
    second.copy_from(first, "critic")
    states = np.random.default_rng(1).integers(0, 256, (5, *first.observation_shape), dtype=np.uint8)
    np.testing.assert_array_equal(second.predict_value(states, np.zeros(5)), first.predict_value(states, np.zeros(5)))
    assert second.observation_shape == first.observation_shape
    assert second.fit(data, n_steps=2).step == 2  # from single frames, which its sampler stacks


@pytest.mark.parametrize("padding", ["zero", "repeat"])
def test_held_out_transitions_are_stacked_as_those_of_training(padding: str) -> None:
    data = dataset(images=True)
    frames = {"name": "uniform", "frames": 3, "frame_padding": padding}
    algorithm = dqn(sampler=frames, observation_scaler="pixel").fit(data, n_steps=2)
    columns, here = data.columns, list[np.ndarray]()
    for row in range(len(columns["observation"])):
        begin = row - row % 16  # 15 steps and the closing row
        stack = [columns["observation"][max(row - k, begin)] * (padding == "repeat" or row - k >= begin) for k in (2, 1, 0)]
        here.append(np.concatenate(stack))
    seen, rows = np.stack(here).astype("u1"), np.flatnonzero(~columns["closing"])
    action, reward, ended = (columns[name][rows] for name in ("action", "reward", "terminated"))
    found, after = HeldOut(data)(algorithm, 1), algorithm.predict_value(seen[rows + 1], algorithm.predict(seen[rows + 1]))
    assert found["action_match"] == np.mean(algorithm.predict(seen[rows]) == action)
    error = reward + 0.99 * ~ended * after - algorithm.predict_value(seen[rows], action)
    assert found["td_error"] == pytest.approx(np.abs(error).mean(), rel=1e-6)
    blank = (algorithm.fit_.sources.fixed(data, 90).observation == 0).flatten(2).all(-1).any()
    assert bool(blank) is (padding == "zero")


def test_augmented_batches_hand_errors_back_too() -> None:
    data = dataset(images=True)
    algorithm = dqn(sampler="prioritized", augmentation=["random_shift"], n_augmentations=2, observation_scaler="pixel").fit(
        data, n_steps=3
    )
    assert len(np.unique(algorithm.fit_.sampler(data).state()["priorities"])) > 5  # pyright: ignore[reportAttributeAccessIssue]


STREAM = {"name": "stream", "memory": 2000, "slices": 4}  # blocks of 31 rows or fewer, where a MB is a byte


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_MB", 1)


def test_a_stream_is_resumed_bit_for_bit_and_rows_of_a_stack_read_it_together(small_blocks: None, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    dataset().write(folder, n_shards=3)
    data = Dataset.open(folder)
    whole = dqn(sampler=STREAM, seed=1).fit(data, n_steps=25)
    half = dqn(sampler=STREAM, seed=1).fit(data, n_steps=11)
    half.save(tmp_path / "half")
    assert half.fit_.sampler(data).position(11).block > 0
    resumed = load(tmp_path / "half").fit(Dataset.open(folder), n_steps=14)
    both = Stack(dqn(sampler=STREAM), seeds=(0, 1)).fit(data, n_steps=25)
    for name, tensor in whole.state()[0].items():
        assert torch.equal(tensor, resumed.state()[0][name]), name
        torch.testing.assert_close(tensor, both.seed(1).state()[0][name], rtol=0, atol=2e-14)


def test_stretches_stream_too(small_blocks: None) -> None:
    settings: dict[str, Any] = {
        "context": 6,
        "transformer": {"n_layers": 1, "n_heads": 1},
        "encoder": {"hidden_units": [8]},
        **SMALL,
    }
    one = DiscreteDecisionTransformer(sampler=STREAM, **settings).fit(dataset(), n_steps=12)
    again = DiscreteDecisionTransformer(sampler=STREAM, **settings).fit(dataset(), n_steps=5)
    assert isinstance(one.fit_.sampler(dataset()), StreamSampler)
    again = DiscreteDecisionTransformer(sampler=STREAM, **settings).load_state(*again.state()).fit(dataset(), n_steps=7)
    for name, tensor in one.state()[0].items():
        assert torch.equal(tensor, again.state()[0][name]), name


class Forgetful(DiscreteBC):
    """One that says it has TD errors, and has none."""

    has_td_errors = True


def refusals() -> list[tuple[type[Algorithm], Any, str]]:
    return [
        (DQN, "prioritised", "there is no such sampler; did you mean 'prioritized'"),
        (DQN, {"name": "epoch", "alpha": 1}, "no setting"),
        (DQN, {"name": "prioritized", "alpha": -1}, "alpha is -1"),
        (
            DiscreteBC,
            "prioritized",
            "DiscreteBC has no TD error for sampler 'prioritized' to draw by: choose uniform, epoch or weigh",
        ),
        (DiscreteFQE, "stream", "DiscreteFQE looks at its data in an order of its own, which cannot stream: leave sampler out"),
        (DQN, {"name": "stream", "slices": 1}, "slices is 1"),
        (Forgetful, "prioritized", "No loss of Forgetful gives td_error, by which transitions would be drawn: use another sampler"),
    ]


@pytest.mark.parametrize(("algorithm", "sampler", "complaint"), refusals())
def test_what_cannot_be_is_one_sentence(algorithm: type[Algorithm], sampler: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        algorithm(sampler=sampler, **SMALL).fit(dataset(), n_steps=2)
