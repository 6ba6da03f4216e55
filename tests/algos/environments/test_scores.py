"""D4RL-normalised scores."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import pytest

from d3ray.algos.environments.scores import normalized_score, reference_in, reference_score
from d3ray.data.catalog import catalog
from d3ray.data.catalog.recipe import KINDS
from d3ray.data.catalog.references import references


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("hopper-medium-v2", -20.272305, 3234.3),
        ("d4rl/halfcheetah-medium-replay-v2", -280.178953, 12135.0),
        ("/data/walker2d_medium_expert-v2.hdf5", 1.629008, 4592.3),
        ("Hopper-v4", -20.272305, 3234.3),
        ("HalfCheetah-v4", -280.178953, 12135.0),
        ("Walker2d-v3", 1.629008, 4592.3),
        ("Ant-v2", -325.6, 3879.7),
        ("antmaze-umaze-v2", 0.0, 1.0),
        ("pen-human-v1", 96.262799, 3076.8331017826877),
    ],
)
def test_datasets_and_environments_have_their_references(name: str, low: float, high: float) -> None:
    assert normalized_score(name, low) == pytest.approx(0)
    assert normalized_score(name, high) == pytest.approx(100)


def test_what_recipes_make_is_measured_from_random_actions_to_their_expert() -> None:
    known = catalog()
    for pattern, found in references()["made"].items():
        names = [name for family in known.families for name in family.names() if fnmatchcase(name, pattern)]
        assert len(names) == len(KINDS)
        for name in names:
            entry = known.find(name)
            assert entry is not None
            assert entry.environment is not None
            assert entry.environment.id == found["environment"]
            reference = reference_in(found["environment"], name)
            assert reference is not None
            assert np.asarray(reference.score(np.array(found["returns"]))).tolist() == pytest.approx([0, 100])
            assert found["returns"][0] < found["returns"][1]


def test_a_published_return_scores_as_published() -> None:
    # by hand: (1800 + 20.272305) / 3254.572305
    assert normalized_score("hopper-medium-v2", 1800.0) == pytest.approx(55.9297, abs=1e-4)


@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5", "HopperX-v4", "hopper-medium-v7", "carla-town-full-v0", ""])
def test_without_a_reference_there_is_no_score(name: str) -> None:
    assert reference_score(name) is None
    assert normalized_score(name, 5.0) is None


def test_the_label_says_where_the_return_comes_from() -> None:
    ours, theirs = reference_score("Hopper-v4"), reference_score("hopper-medium-v2")
    assert ours is not None
    assert theirs is not None
    assert ours.label == "D4RL-normalised return in gymnasium v4"
    assert theirs.label == "D4RL-normalised return"
    assert np.asarray(ours.score(np.array([-20.272305, 3234.3]))).tolist() == [0.0, 100.0]


@pytest.mark.parametrize(
    ("environment", "dataset", "label"),
    [
        ("Hopper-v4", "d4rl/hopper-medium-v2", "D4RL-normalised return in gymnasium v4"),
        (None, "d4rl/hopper-medium-v2", "D4RL-normalised return"),
        ("antmaze-umaze-v2", "d4rl/antmaze-umaze-v2", "D4RL-normalised return"),
        ("Maze-v1", "d4rl/antmaze-umaze-v2", "D4RL-normalised return in Maze-v1"),
        ("pen-human-v1", "d4rl/pen-human-v1", "D4RL-normalised return"),
        ("Hopper-v4", "ours", "D4RL-normalised return in gymnasium v4"),
        ("CartPole-v1", "d3ray-classic/cartpole-medium-replay-v1", "d3ray-normalised return"),
        (None, "d3ray-classic/acrobot-expert-v1", "d3ray-normalised return"),
        ("Hopper-v4", "d3ray-mujoco/hopper-expert-v4", "D4RL-normalised return in gymnasium v4"),
    ],
)
def test_where_a_return_was_played_counts(environment: str | None, dataset: str, label: str) -> None:
    found = reference_in(environment, dataset)
    assert found is not None
    assert found.label == label


@pytest.mark.parametrize(
    ("environment", "dataset"),
    [
        ("Hopper-v5", "d4rl/hopper-medium-v2"),
        ("CartPole-v1", "ours"),
        ("CartPole-v1", "d3ray/cartpole-replay"),
        ("CartPole-v0", "d3ray-classic/cartpole-expert-v1"),  # which ends after 200 steps
        ("Pendulum-v1", "d3ray-classic/pendulum-expert-v1"),
        (None, "ours"),
        ("AdroitHandPen-v1", "d4rl/pen-human-v1"),  # 200 steps and no end, where D4RL's has 100 and ends when the pen drops
        ("AdroitHandDoorSparse-v1", "d4rl/door-expert-v1"),
    ],
)
def test_other_rewards_have_no_reference(environment: str | None, dataset: str) -> None:
    assert reference_in(environment, dataset) is None
