"""Open Bandit Dataset's CSV; the files are written here, number by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.spec import Box, Discrete
from d3ray.platform.datasets.ingest import ingest

HEADER = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1"
AFFINITIES = ",user-item_affinity_0,user-item_affinity_1,user-item_affinity_2,user-item_affinity_3"
ROWS = (
    "0,2019-11-24 00:00:37.006544+00:00,2,3,0,0.25,b7,x",
    "1,2019-11-24 00:00:37.1+00:00,0,1,1,1.0,a1,x",
    "2,t,2,2,0,0.125,b7,x",
)


def write(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def test_rows_are_episodes_of_one_step_with_probabilities(tmp_path: Path) -> None:
    path = write(tmp_path / "men.csv", HEADER + AFFINITIES, *(f"{row},0.5,{k},0,1" for k, row in enumerate(ROWS)))
    assert detect(path) == "open_bandit"
    dataset = ingest(path, tmp_path / "data").dataset
    assert (dataset.n_transitions, dataset.n_episodes) == (3, 3)
    assert dataset.spec.action == Discrete(n=4, names=("item_id",))  # as many as there are affinities
    ones = ("user_feature_0=a1", "user_feature_0=b7", "user_feature_1=x", "position=1", "position=2", "position=3")
    names = (*ones, *(f"user-item_affinity_{k}" for k in range(4)))
    assert dataset.spec.observation == Box(shape=(2 + 1 + 3 + 4,), names=names)
    steps = ~dataset.columns["closing"]
    expected = [[0, 1, 1, 0, 0, 1, 0.5, 0, 0, 1], [1, 0, 1, 1, 0, 0, 0.5, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0.5, 2, 0, 1]]
    np.testing.assert_array_equal(dataset.columns["observation"][steps], np.float32(expected))
    assert dataset.columns["action"][steps].tolist() == [2, 0, 2]
    assert dataset.columns["reward"][steps].tolist() == [0, 1, 0]
    assert dataset.columns["terminated"][steps].all()
    np.testing.assert_allclose(dataset.columns["log_prob"][steps], np.log([0.25, 1, 0.125]), rtol=1e-6)


def test_a_second_file_is_read_like_the_first(tmp_path: Path) -> None:
    first = read(write(tmp_path / "random.csv", HEADER, *ROWS))
    assert first.spec is not None
    assert first.spec.action == Discrete(n=3)
    known = first.provenance["categories"]
    assert known == {"user_feature_0": ["a1", "b7"], "user_feature_1": ["x"], "position": ["1", "2", "3"]}
    path = write(tmp_path / "bts.csv", HEADER, "0,t,1,2,0,0.5,b7,x")
    assert read(path).steps.columns["observation"].shape[1] == 3
    steps = read(path, categories=known).steps
    assert steps.columns["observation"][0].tolist() == [0, 1, 1, 0, 1, 0]
    other = {**known, "user_feature_0": ["a1"]}
    with pytest.raises(DataError, match="'user_feature_0' is 'b7' in row 0, which is none of the 1 categories given"):
        read(path, categories=other)
    with pytest.raises(ConfigError, match="categories are given for 'user_feature_9'; there are 'position', 'user_feature_0'"):
        read(path, categories={"user_feature_9": ["a"]})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "0,t,1,2,0,0,b7,x",
            "'propensity_score' is 0.0 in row 1; of an action that was taken a probability is above 0 and at most 1.",
        ),
        ("0,t,1,2,0,1.5,b7,x", "'propensity_score' is 1.5 in row 1"),
        ("0,t,1.5,2,0,0.5,b7,x", "discrete actions are whole numbers, but 'actions' is 1.5 in row 1"),
        ("0,t,one,2,0,0.5,b7,x", "line 3: the column 'item_id' holds 'one', which is no number."),
        ("0,t,1,2,,0.5,b7,x", "line 3: the column 'click' is empty."),
        ("0,t,1,2,0,0.5,,x", "line 3: the column 'user_feature_0' is empty."),
        ("0,t,-1,2,0,0.5,b7,x", "discrete actions count from 0, but 'actions' is -1 in row 1"),
        ("0,t,1,2,0,0.5,b7", "line 3: there are 7 cells, and the header has 8."),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "log.csv", HEADER, ROWS[0], row))


def test_without_affinities_observations_are_those_of_the_pipeline_and_positions(tmp_path: Path) -> None:
    path = write(tmp_path / "men.csv", HEADER + AFFINITIES, *(f"{row},0.5,{k},0,1" for k, row in enumerate(ROWS)))
    imported = read(path, affinities=False)
    assert imported.steps.columns["observation"].shape[1] == 6
    assert imported.spec is not None
    assert Dataset.from_steps(imported.steps, name="x", spec=imported.spec).spec.action == Discrete(n=4)
