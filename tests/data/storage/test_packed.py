"""Episodes as rows come back whole, whatever is done to rows, and pieces become the shards that one process writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.storage.packed import NUMBER, PART, TOLD, numbers, pack, unpack
from d3ray.data.storage.pieces import Shape, make_shards, workspace, write_piece
from d3ray.data.storage.steps import StepTable, concat_steps, steps_from_arrays
from d3ray.data.storage.working import in_process
from d3ray.data.storage.writing import Draft


def steps(seed: int, n: int = 200) -> StepTable:
    rng = np.random.default_rng(seed)
    seen = {"image": rng.integers(0, 255, (n, 3, 4), dtype=np.uint8), "speed": rng.normal(size=n), "mode": rng.integers(0, 5, n)}
    end = rng.random((2, n)) < 0.15
    extra = {"info/flag": rng.random(n) < 0.5, "info/half": rng.normal(size=(n, 2)).astype(np.float16)}
    return steps_from_arrays(seen, rng.normal(size=(n, 2)), rng.normal(size=n), end[0], end[1], extra=extra)


def same(found: StepTable, wanted: StepTable) -> None:
    assert found.columns.keys() == wanted.columns.keys()
    for name, column in wanted.columns.items():
        np.testing.assert_array_equal(found.columns[name], column, err_msg=name)
        assert found.columns[name].dtype == column.dtype, name
    for name in ("first_row", "steps", "terminated", "final_recorded", "returns"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)


def test_rows_are_episodes_whatever_is_done_to_them() -> None:
    table = steps(0)
    rows = pack(table, part=3, first=10, told="it")
    assert len(rows) == table.n_episodes
    same(unpack(rows), table)
    assert numbers(rows, PART).tolist() == [3] * len(rows)
    assert numbers(rows, NUMBER).tolist() == list(range(10, 10 + len(rows)))
    assert rows.column(TOLD).to_pylist() == ["it", *[""] * (len(rows) - 1)]
    same(unpack(rows.slice(5, 9)), table.slice(5, 14))
    same(
        unpack(pa.concat_tables([rows.slice(2, 3), rows.slice(20)])), concat_steps([table.slice(2, 5), table.slice(20, len(rows))])
    )
    order = np.random.default_rng(1).permutation(len(rows))
    same(unpack(rows.take(pa.array(order))), concat_steps([table.slice(k, k + 1) for k in order.tolist()]))
    column = unpack(rows).columns["observation/image"]
    assert np.shares_memory(column, table.columns["observation/image"])  # nothing was copied on the way there and back


def test_what_is_no_row_of_episodes_is_said() -> None:
    with pytest.raises(DataError, match=r"^These rows are no episodes: they have no column 'closing'"):
        unpack(pa.table({"reward": [1.0], "episode/final_recorded": [True]}))
    rows = pack(steps(0))
    with pytest.raises(DataError, match="'reward' is no list of steps any more"):
        unpack(rows.set_column(rows.column_names.index("reward"), "reward", pa.array(range(len(rows)))))


@pytest.mark.parametrize("numbered", [False, True])
def test_pieces_become_the_shards_that_one_process_writes(tmp_path: Path, numbered: bool) -> None:
    """Byte for byte: where a piece becomes a shard as it lies, and where shards are put together of pieces."""
    tables = [steps(seed, n) for seed, n in enumerate((200, 30, 500))]
    whole = Dataset.from_steps(concat_steps(tables), name="it")
    plain = whole.write(tmp_path / "plain", n_shards=2, compression="zstd")
    starts = np.cumsum([0, *(table.n_episodes for table in tables)]).tolist()
    for name, shape in {"as they lie": Shape(), "of others": Shape(n_shards=2, compression="zstd")}.items():
        with Draft(tmp_path / name) as draft:
            space = workspace(draft.folder)
            pieces = [write_piece(space.name, t, at * numbered) for t, at in zip(tables, starts, strict=False)]
            records = make_shards(pieces, draft.folder, in_process, shape)
            space.delete_all()
            draft.commit(records, name="it")
        made = Dataset.open(tmp_path / name)
        made.verify()
        assert made.fingerprint == whole.fingerprint
    assert plain.folder is not None
    for shard in plain.folder.manifest.shards:
        assert (tmp_path / "of others" / shard.file).read_bytes() == (tmp_path / "plain" / shard.file).read_bytes()
    for k, table in enumerate(tables):
        with pa.memory_map(str(tmp_path / "as they lie" / f"data-{k:05d}-of-00003.arrow")) as file:
            episode = pa.ipc.open_file(file).get_batch(0).column("episode").to_numpy()
        np.testing.assert_array_equal(episode, np.repeat(np.arange(starts[k], starts[k + 1]), table.steps + 1))
    assert sorted(path.name for path in (tmp_path / "as they lie").iterdir()) == [
        *(f"data-{k:05d}-of-00003.arrow" for k in range(3)),
        "dataset.json",
        "episodes.arrow",
    ]
