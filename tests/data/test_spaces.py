"""Spaces through steps, manifest, shards, statistics, node map, fingerprint and replay, with types and order kept."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.replay import ReplayBuffer
from d3ray.data.sampling import TransitionSampler
from d3ray.data.spec import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Spec,
    Tuple,
    flat_space,
    space_columns,
    value_columns,
)
from d3ray.data.storage.manifest import Manifest
from d3ray.data.storage.schema import merge_largest
from d3ray.data.storage.statistics import measure

N = 12
RNG = np.random.default_rng(0)
FIRST, LAST = Box(shape=(4, 8, 6), dtype="uint8", low=0, high=255), Box(shape=(8, 6, 3), dtype="uint8", low=0, high=255)
NESTED = Dict(
    spaces={
        "camera": Tuple(spaces=(FIRST, LAST)),
        "arm": Dict(spaces={"joints": Box(shape=(3,)), "grip": MultiBinary(n=2)}),
        "mode": Discrete(n=5),
        "gears": MultiDiscrete(nvec=(3, 4)),
    }
)
VALUES: dict[str, Any] = {
    "camera": (RNG.integers(0, 256, (N, 4, 8, 6), np.uint8), RNG.integers(0, 256, (N, 8, 6, 3), np.uint8)),
    "arm": {"joints": RNG.normal(size=(N, 3)).astype(np.float32), "grip": RNG.random((N, 2)) < 0.5},
    "mode": RNG.integers(0, 5, N),
    "gears": RNG.integers(0, 3, (N, 2)),
}
END = np.arange(N) % 4 == 3
ACTIONS: list[tuple[Any, Any]] = [
    (Discrete(n=3), RNG.integers(0, 3, N)),
    (MultiDiscrete(nvec=(3, 4)), np.stack([RNG.integers(0, 3, N), RNG.integers(0, 4, N)], 1)),
    (MultiBinary(n=3), RNG.random((N, 3)) < 0.5),
    (Box(shape=(2,), low=-9.0, high=9.0), RNG.normal(size=(N, 2)).astype(np.float32)),
    (Box(shape=(2, 2), low=-9.0, high=9.0), RNG.normal(size=(N, 2, 2)).astype(np.float32)),
]


def test_leaves_and_values_are_named_alike() -> None:
    names = ["camera/0", "camera/1", "arm/joints", "arm/grip", "mode", "gears"]
    assert [name.removeprefix("observation/") for name in space_columns(NESTED)] == names
    assert [name.removeprefix("observation/") for name in value_columns(VALUES)] == names
    assert list(space_columns(Discrete(n=2))) == ["observation"]
    flat = flat_space(NESTED)
    assert isinstance(flat, Dict)
    assert list(flat.spaces) == names
    assert [leaf.channels for leaf in space_columns(NESTED).values() if isinstance(leaf, Box)] == ["first", "last", None]


@pytest.mark.parametrize(("space", "action"), ACTIONS, ids=lambda value: getattr(value, "kind", ""))
def test_every_space_survives_disk_map_and_replay(tmp_path: Path, space: Any, action: np.ndarray) -> None:
    spec = Spec(observation=NESTED, action=space)
    dataset = Dataset.from_arrays(VALUES, action, np.ones(N), END, spec=spec)
    written = dataset.write(tmp_path / "set", n_shards=2)
    opened = Dataset.open(tmp_path / "set")
    assert (opened.spec, opened.fingerprint) == (spec, dataset.fingerprint)
    assert written.statistics == dataset.statistics
    packed = dataset.write(tmp_path / "packed", compression="zstd")
    assert packed.fingerprint == dataset.fingerprint
    rows = ~opened.columns["closing"]
    types = {
        "camera/0": "uint8",
        "camera/1": "uint8",
        "arm/grip": "uint8",
        "mode": "int64",
        "gears": "int64",
        "arm/joints": "float32",
    }
    for column, values in value_columns(VALUES).items():
        name = column.removeprefix("observation/")
        for source in (opened, Dataset.open(tmp_path / "packed")):
            assert source.columns[column].dtype == types[name]
            np.testing.assert_array_equal(source.columns[column][rows], values)
    assert opened.columns["action"].dtype == {"continuous": "float32", "binary": "uint8"}.get(spec.action_kind, "int64")
    np.testing.assert_array_equal(opened.columns["action"][rows], action)

    buffer = ReplayBuffer(40, spec)
    for k in range(N):
        one = {name: value[k : k + 1] for name, value in value_columns(VALUES, "").items()}
        seen = {name.removeprefix("/"): value for name, value in one.items()}
        buffer.append(seen, action[k : k + 1], [1.0], [END[k]], [False], seen)
    again = buffer.to_dataset()
    assert again.spec == spec
    np.testing.assert_array_equal(again.columns["action"], opened.columns["action"])
    batch, drawn = TransitionSampler(opened, 5, 0).sample(0), buffer.sample(5, 0)
    assert set(batch.observation) == set(drawn.observation) == set(types)
    assert batch.action.shape == drawn.action.shape == (5, *space.shape)


def test_spaces_are_inferred_as_they_lie() -> None:
    dataset = Dataset.from_arrays((np.zeros((4, 2)), np.arange(4)), [[0, 1], [2, 0], [0, 3], [1, 1]], np.zeros(4), [0, 1, 0, 1])
    assert dataset.spec.observation == Tuple(spaces=(Box(shape=(2,)), Discrete(n=4)))
    assert dataset.spec.action == MultiDiscrete(nvec=(3, 4))
    flags = Dataset.from_arrays(np.arange(4), np.array([[0, 1]] * 4, bool), np.zeros(4), [0, 1, 0, 1])
    assert flags.spec == Spec(observation=Discrete(n=4), action=MultiBinary(n=2))
    assert flags.columns["action"].dtype == np.uint8
    assert Dataset.from_arrays(np.arange(-1, 3), np.zeros(4), np.zeros(4), [0, 1, 0, 1]).spec.observation == Box(
        shape=(1,), dtype="int64"
    )
    rows = tuple(np.float32([k, k]) for k in range(4))  # what zip(*steps) gives: rows, not parts
    assert Dataset.from_arrays(rows, np.zeros(4), np.zeros(4), [0, 1, 0, 1]).spec.observation == Box(shape=(2,))


KINDS = MultiDiscrete(nvec=(3, 4))


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (Discrete(n=4), MultiDiscrete(nvec=(3, 3)), "the actions 0 to 2 and the data has action 3 in entry 1."),
        (Discrete(n=3), KINDS, "the observations 0 to 2 and the data has observation 3."),
        (Discrete(n=4), Discrete(n=4), "discrete actions and the data has multi-discrete ones."),
        (Discrete(n=4), MultiBinary(n=2), "binary actions and the data has multi-discrete ones."),
        (MultiBinary(n=4), KINDS, "the observation shape [4] and the data has []."),
        (Tuple(spaces=(Discrete(n=4),)), KINDS, "the observations 'observation/0' and the data has 'observation'."),
    ],
)
def test_spaces_that_contradict_the_data_are_refused(observation: Any, action: Any, message: str) -> None:
    spec = Spec(observation=observation, action=action)
    with pytest.raises(DataError) as refused:
        Dataset.from_arrays(np.arange(4), [[0, 1], [2, 0], [0, 3], [1, 1]], np.zeros(4), [0, 1, 0, 1], spec=spec)
    assert str(refused.value) == f"The spec has {message}"


def test_negative_kinds_and_odd_shapes_are_named() -> None:
    with pytest.raises(DataError, match="actions has -1 in row 1; discrete actions count from 0"):
        Dataset.from_arrays(np.zeros(2), [[0, 1], [2, -1]], np.zeros(2), [0, 1])
    with pytest.raises(DataError, match=r"observations\['a/b'\] has 3 rows"):
        Dataset.from_arrays({"a": {"b": np.zeros(3)}, "c": np.zeros(2)}, [0, 1], np.zeros(2), [0, 1])


def test_statistics_are_by_entry_and_by_column() -> None:
    action = np.array([[0, 1], [2, 3], [1, 0], [1, 0]])
    dataset = Dataset.from_arrays({"a": np.arange(4), "b": {"c": np.ones((4, 2))}}, action, np.zeros(4), [0, 1, 0, 1])
    statistics = dataset.statistics
    assert statistics.action is not None
    assert statistics.action.mean == (1.0, 1.0)
    assert statistics.action.max == (2.0, 3.0)
    assert statistics.action_counts is None
    assert isinstance(statistics.observation, dict)
    assert statistics.observation["a"].mean == 1.5
    assert statistics.observation["b/c"].max == (1.0, 1.0)


def test_images_are_measured_without_copies_in_float64() -> None:
    """600 frames of 84 x 84 x 4 are 17 MB; as float64 they would be 135 MB."""
    images = np.random.default_rng(0).integers(0, 256, (600, 84, 84, 4), np.uint8)
    chosen = np.arange(600) % 7 != 0
    tracemalloc.start()
    part = measure(images, chosen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6
    some = images[chosen].astype(np.int64)
    assert part.count == some.size
    assert float(part.mean) == pytest.approx(some.mean(), rel=1e-12)
    assert float(part.squares) == pytest.approx(((some - some.mean()) ** 2).sum(), rel=1e-9)


def test_long_vectors_are_measured_in_pieces_too() -> None:
    wide = np.random.default_rng(0).normal(size=(4_000, 10_000)).astype(np.float32)
    tracemalloc.start()
    part = measure(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6  # as float64 at once: 320 MB for each of three copies
    np.testing.assert_allclose(part.mean, wide.mean(0, dtype=np.float64), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(part.squares / part.count, wide.var(0, dtype=np.float64), rtol=1e-9)


def test_older_manifests_still_open() -> None:
    """What the first datasets say of their spaces, by hand; and a kind that there is not is refused."""
    box = {"kind": "box", "shape": [3], "dtype": "float32", "low": None, "high": None}
    old = Spec.checked(
        {"observation": {"kind": "dict", "spaces": {"a": box}}, "action": {"kind": "discrete", "n": 2, "dtype": "int64"}}
    )
    assert old == Spec(observation=Dict(spaces={"a": Box(shape=(3,))}), action=Discrete(n=2))
    shipped = Path(__file__).parents[2] / "data" / "shipped"
    manifests = sorted(shipped.rglob("dataset.json"))
    assert manifests
    for path in manifests:
        found = Manifest.model_validate_json(path.read_bytes())
        assert isinstance(found.spec.observation, Box)
        assert Dataset.open(path.parent).fingerprint == found.fingerprint
    with pytest.raises(ValidationError):
        Spec.model_validate({"observation": box, "action": {"kind": "text"}})


def test_largest_numbers_are_those_of_all_shards() -> None:
    parts: list[dict[str, tuple[int, ...]]] = [{"action": (3, 1), "observation": (2,)}, {"action": (1, 4), "observation": (0,)}, {}]
    assert merge_largest(parts) == {"action": (3, 4), "observation": (2,)}
