"""The fingerprint is that of the logical rows: of every value of them, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.data.storage import rows as rows_module
from d3ray.data.storage.fingerprint import digest_blocks
from d3ray.data.storage.steps import StepTable


def walk(n: int = 50, **more: Any) -> Dataset:
    rng = np.random.default_rng(0)
    end = rng.random((2, n)) < 0.1
    return Dataset.from_arrays(rng.normal(size=(n, 3)), rng.integers(0, 3, n), rng.normal(size=n), *end, **more)


def other(value: Any) -> Any:
    """The nearest other value of the same type."""
    if value.dtype.kind == "f":
        return np.nextafter(value, value.dtype.type(9))
    return ~value if value.dtype == np.bool_ else value ^ 1


def test_shards_compression_name_and_spaces_do_not_change_it(tmp_path: Path) -> None:
    spec = Spec(observation=Box(shape=(3,), low=-10.0, high=10.0), action=Discrete(n=9))
    data = walk()
    same = [
        data.write(tmp_path / "a"),
        data.write(tmp_path / "b", n_shards=3),
        data.write(tmp_path / "c", max_rows_per_shard=7, compression="zstd"),
        walk(name="another", spec=spec, environment=Environment(id="Walk-v0")),
        Dataset.concat([Dataset.open(tmp_path / "b")]),
    ]
    assert {d.fingerprint for d in same} == {data.fingerprint}
    train, _ = data.split(seed=1)
    assert train.write(tmp_path / "train").fingerprint == train.fingerprint  # a view's is that of the rows it would write


def test_any_changed_value_changes_it() -> None:
    table = walk(extra={"log_prob": np.zeros(50)}).to_steps()

    def fingerprint(**columns: np.ndarray) -> str:
        changed = StepTable({**table.columns, **columns}, table.first_row, table.steps, table.terminated, table.final_recorded)
        return Dataset.from_steps(changed, name="it").fingerprint

    seen = {fingerprint()}
    for name, column in table.columns.items():
        if name == "closing":
            continue
        for row in (0, 20, table.n_rows - 1):
            changed = column.copy()
            flat = changed.reshape(len(column), -1)
            flat[row, -1] = other(flat[row, -1])
            seen.add(fingerprint(**{name: changed}))
    assert len(seen) == 1 + 3 * (len(table.columns) - 1)


def test_ends_types_names_and_recorded_finals_change_it() -> None:
    observations, actions, rewards = np.zeros((6, 1)), np.zeros(6, int), np.zeros(6)

    def fingerprint(terminated: list[int], truncated: list[int] | None = None, **more: Any) -> str:
        return Dataset.from_arrays(observations, actions, rewards, terminated, truncated, **more).fingerprint

    plain, zeros, one = [0, 0, 1, 0, 0, 0], [0] * 6, np.zeros((2, 1))
    seen = [
        fingerprint(plain),
        fingerprint([0, 1, 0, 0, 0, 0]),
        fingerprint(zeros, plain),
        fingerprint(plain, final_observations=one),  # the same rows, but these finals are known
        fingerprint(plain, extra={"a": zeros}),
        fingerprint(plain, extra={"b": zeros}),
        fingerprint(plain, extra={"b": np.zeros(6, np.float32)}),
        Dataset.from_arrays({"x": observations}, actions, rewards, plain).fingerprint,
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("block", [5, 1 << 16])
def test_it_is_what_the_docstring_says(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", block)
    data = walk()

    def sha(content: bytes) -> Any:
        return hashlib.sha256(content)

    columns: list[list[Any]] = []
    for name in sorted(data.columns):
        column = data.columns[name]
        blocks = b"".join(sha(column[k : k + block].tobytes()).digest() for k in range(0, data.n_rows, block))
        columns.append([name, str(column.dtype), list(column.shape[1:]), sha(blocks).hexdigest()])
    finals = sha(bytes(data.episodes.final_recorded.tolist())).hexdigest()
    text = json.dumps({"columns": columns, "final_recorded": finals, "rows": data.n_rows, "version": 1})
    assert data.fingerprint == sha(text.encode()).hexdigest()


def test_it_is_the_same_on_every_machine() -> None:
    data = Dataset.from_arrays([[1.5], [2.0], [-3.0]], [0, 1, 1], [0.5, 0, -1], [0, 1, 0])
    assert data.fingerprint == "8ef6ad997ea1baa04c436f725108c9fe508c8a97a7535e93e4e7dd1f5eea4efa"


def test_workers_digest_blocks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK", 8)
    rows = walk().rows()
    whole, parts = digest_blocks(rows), [digest_blocks(rows, 0, 3), digest_blocks(rows, 3)]
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole
    assert len(whole["reward"]) == -(-rows.n // 8)
