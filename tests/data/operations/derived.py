"""Datasets for tests of operations, and slow ways to look at them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from d3ray import Dataset


def walk(n: int = 400, seed: int = 0, discrete: bool = False, named: bool = False, **more: object) -> Dataset:
    """`n` random steps in episodes of about ten; some terminate, some are truncated."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 4, n) if discrete else rng.uniform(-1, 1, (n, 2))
    end = rng.random((2, n)) < 0.05
    observations = rng.normal(3, 2, (n, 3))
    seen = {"camera": rng.integers(0, 255, (n, 2, 2), np.uint8), "joint": observations} if named else observations
    return Dataset.from_arrays(seen, actions, rng.normal(1, 5, n), end[0], end[1], **more)


Row = dict[str, np.ndarray]


def listed(data: Dataset) -> list[Row]:
    """Every episode as its columns and what else is known of it, read through the columns."""
    return [{**e.columns, "recorded": np.array([e.final_recorded])} for e in data.episodes]


def by_blocks(data: Dataset) -> list[Row]:
    """The same, read through rows, as writers do."""
    rows, out, at = data.rows(), [], 0
    for steps, recorded in zip(data.episodes.steps.tolist(), data.episodes.final_recorded.tolist(), strict=True):
        out.append({name: rows.read(name, at, at + steps + 1) for name in data.kinds} | {"recorded": np.array([recorded])})
        at += steps + 1
    return out


def assert_same(found: list[Row], expected: list[Row]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name].dtype == b[name].dtype
            np.testing.assert_array_equal(a[name], b[name])


def check(data: Dataset, expected: list[Row], tmp_path: Path) -> None:
    """Columns, rows and what is written are the expected episodes, and the fingerprint is that of arrays."""
    assert_same(by_blocks(data), expected)
    columns = {name: np.concatenate([e[name] for e in expected]) for name in data.kinds}
    returns = np.add.reduceat(columns["reward"].astype(np.float64), np.cumsum([0, *(len(e["reward"]) for e in expected[:-1])]))
    np.testing.assert_allclose(data.episodes.returns, returns, rtol=1e-12)
    copy = data.write(tmp_path, n_shards=3)
    assert copy.fingerprint == data.fingerprint
    assert copy.statistics == data.statistics
    assert copy.provenance == json.loads(json.dumps(data.provenance))
    assert_same(by_blocks(copy), expected)
    assert_same(listed(data), expected)  # last: a node map may be made for it
