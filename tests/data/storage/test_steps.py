"""Rows from arrays: every way an episode can end, what is refused, and packed episodes as rows of Ray's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.storage.packed import NUMBER, PART, TOLD, numbers, pack, unpack
from d3ray.data.storage.pieces import Shape, make_shards, workspace, write_piece
from d3ray.data.storage.steps import StepTable, concat_steps, first_steps, steps_from_arrays, steps_from_rows
from d3ray.data.storage.working import in_process
from d3ray.data.storage.writing import Draft

T, F = True, False


def table(terminated: list[bool], truncated: list[bool] | None = None, **more: object) -> StepTable:
    """Step t sees t + 1, does action t % 3 and gets reward 10 (t + 1)."""
    n = len(terminated)
    return steps_from_arrays(
        np.arange(1.0, n + 1)[:, None], np.arange(n) % 3, 10.0 * np.arange(1, n + 1), terminated, truncated, **more
    )


def column(steps: StepTable, name: str) -> list[float]:
    return steps.columns[name].reshape(steps.n_rows, -1)[:, 0].tolist()


def test_every_kind_of_end_without_final_observations() -> None:
    # lengths 1 (terminated), 2 (truncated), 1 (terminated and truncated: terminated wins), 2 (the arrays end)
    steps = table([T, F, F, T, F, F], [F, F, T, T, F, F])
    assert column(steps, "observation") == [1, 1, 2, 3, 3, 4, 4, 5, 6, 6]
    assert column(steps, "action") == [0, 0, 1, 2, 0, 0, 0, 1, 2, 0]
    assert column(steps, "reward") == [10, 0, 20, 30, 0, 40, 0, 50, 60, 0]
    assert column(steps, "terminated") == [T, F, F, F, F, T, F, F, F, F]
    assert column(steps, "truncated") == [F, F, F, T, F, F, F, F, T, F]
    assert column(steps, "closing") == [F, T, F, F, T, F, T, F, F, T]
    assert steps.first_row.tolist() == [0, 2, 5, 7]
    assert steps.steps.tolist() == [1, 2, 1, 2]
    assert steps.terminated.tolist() == [T, F, T, F]
    assert steps.final_recorded.tolist() == [F] * 4
    assert steps.returns.tolist() == [10, 50, 40, 110]
    assert (steps.n_rows, steps.n_episodes, steps.n_transitions, steps.cuts) == (10, 4, 6, 0)


def test_every_kind_of_end_with_final_observations() -> None:
    steps = table([T, F, F], [F, T, F], final_observations=np.array([[-1.0], [-2.0], [-3.0]]))
    assert column(steps, "observation") == [1, -1, 2, -2, 3, -3]
    assert steps.final_recorded.tolist() == [T, T, T]
    assert steps.terminated.tolist() == [T, F, F]


def test_an_episode_is_cut_where_next_observations_are_not_the_next_row() -> None:
    following = np.array([[2.0], [3.0], [99.0], [5.0], [-7.0]])
    steps = table([F, F, F, F, T], next_observations=following)
    assert column(steps, "observation") == [1, 2, 3, 99, 4, 5, -7]
    assert steps.steps.tolist() == [3, 2]
    assert steps.cuts == 1
    assert column(steps, "truncated") == [F, F, T, F, F, F, F]
    assert steps.terminated.tolist() == [F, T]
    assert steps.final_recorded.tolist() == [T, T]


@pytest.mark.parametrize(
    ("largest", "difference", "cuts"), [(0.5, 0.9e-6, 0), (0.5, 2e-6, 1), (1000.0, 0.5e-3, 0), (1000.0, 2e-3, 1)]
)
def test_a_cut_is_measured_by_the_rows_largest_value_or_one(largest: float, difference: float, cuts: int) -> None:
    observations = np.array([[0.0, 0.0], [largest, 0.0], [0.0, 0.0]])
    following = np.array([[largest, difference], [0.0, 0.0], [0.0, 0.0]])
    steps = steps_from_arrays(observations, [0, 0, 0], [0.0] * 3, [F, F, T], next_observations=following, keep_float64=True)
    assert steps.cuts == cuts


def test_a_bag_of_transitions_is_episodes_of_length_one() -> None:
    steps = table([F, F, T, F], next_observations=np.array([[50.0], [60.0], [70.0], [80.0]]))
    assert column(steps, "observation") == [1, 50, 2, 60, 3, 70, 4, 80]
    assert steps.steps.tolist() == [1, 1, 1, 1]
    assert steps.terminated.tolist() == [F, F, T, F]
    assert steps.cuts == 2  # the third ends by itself, and so does the last


def test_next_observations_of_an_end_need_not_be_the_next_row() -> None:
    steps = table([F, T, F], next_observations=np.array([[2.0], [1000.0], [4.0]]))
    assert steps.cuts == 0
    assert column(steps, "observation") == [1, 2, 1000, 3, 4]


def test_long_and_short_episodes_are_laid_out_alike() -> None:
    ends = np.zeros(1000, bool)
    ends[[0, 1, 500, 998]] = True  # long ones are copied as blocks, short ones by index
    steps = table(ends.tolist())
    slow: list[float] = []
    for t in range(1000):
        slow += [t + 1] * (2 if ends[t] or t == 999 else 1)
    assert column(steps, "observation") == slow
    assert steps.columns["closing"].sum() == 5


def test_dtypes_and_shapes_are_kept_or_made_plain() -> None:
    n = 3
    image = np.arange(n * 12, dtype=np.uint8).reshape(n, 2, 2, 3)
    steps = steps_from_arrays(
        {"camera": image, "joint": np.zeros((n, 2)), "touch": np.zeros(n, bool)},
        np.zeros(n),
        np.zeros((n, 1), int),
        np.zeros((n, 1), int),
        extra={"log_prob": np.zeros(n), "info/qpos": np.zeros((n, 4), np.float32), "lucky": np.ones(n, bool)},
    )
    kinds = {name: (c.dtype.name, c.shape) for name, c in steps.columns.items()}
    assert kinds == {
        "observation/camera": ("uint8", (4, 2, 2, 3)),
        "observation/joint": ("float32", (4, 2)),
        "observation/touch": ("uint8", (4, 1)),
        "action": ("float32", (4, 1)),
        "reward": ("float32", (4,)),
        "log_prob": ("float32", (4,)),
        "info/qpos": ("float32", (4, 4)),
        "lucky": ("bool", (4,)),
        "terminated": ("bool", (4,)),
        "truncated": ("bool", (4,)),
        "closing": ("bool", (4,)),
    }
    assert steps.columns["lucky"].tolist() == [T, T, T, F]
    assert (steps.columns["observation/camera"][:3] == image).all()
    assert steps_from_arrays([[0.1]], [[0]], [0], [0], keep_float64=True).columns["observation"].dtype == np.float64
    assert table([T]).columns["action"].dtype == np.int64


GOOD = {
    "observations": np.zeros((4, 2), np.float32),
    "actions": np.zeros((4, 1), np.float32),
    "rewards": np.zeros(4),
    "terminated": np.array([F, T, F, T]),
}


def with_value(name: str, row: int, value: float) -> np.ndarray:
    changed = np.array(GOOD[name], copy=True)
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rewards": np.zeros(3)}, "In the arrays, observations has 4 rows and rewards has 3; they need one row a step each."),
        ({"terminated": [F]}, "In the arrays, observations has 4 rows and terminated has 1; they need one row a step each."),
        ({"truncated": [F] * 5}, "In the arrays, observations has 4 rows and truncated has 5; they need one row a step each."),
        ({"extra": {"x": [1]}}, "In the arrays, observations has 4 rows and x has 1; they need one row a step each."),
        (
            {"observations": {"a": np.zeros(4), "b": np.zeros(2)}},
            "In the arrays, observations['a'] has 4 rows and observations['b'] has 2; they need one row a step each.",
        ),
        ({"observations": np.zeros((0, 2))}, "In the arrays, observations is empty."),
        ({"observations": {}}, "In the arrays, observations is empty."),
        ({"observations": 3.0}, "In the arrays, observations is a single number; one row a step is needed."),
        ({"rewards": np.zeros(0)}, "In the arrays, rewards is empty."),
        ({"rewards": np.zeros((4, 2))}, "In the arrays, rewards has shape [4, 2]; one value a step is needed."),
        ({"rewards": ["a"] * 4}, "In the arrays, rewards is of type <U1; numbers are needed."),
        ({"observations": with_value("observations", 2, np.nan)}, "In the arrays, observations has NaN in row 2."),
        ({"actions": with_value("actions", 1, np.inf)}, "In the arrays, actions has an infinite number in row 1."),
        ({"rewards": with_value("rewards", 3, -np.inf)}, "In the arrays, rewards has an infinite number in row 3."),
        ({"rewards": with_value("rewards", 3, 1e300)}, "In the arrays, rewards has a number too large for float32 in row 3."),
        ({"terminated": [0, 1, 2, 0]}, "In the arrays, terminated is 2 in row 2; flags are 0 or 1."),
        ({"actions": [0, -1, 2, 0]}, "In the arrays, actions has -1 in row 1; discrete actions count from 0."),
        (
            {"actions": np.zeros((4, 2, 2), int)},
            "In the arrays, actions are integers of shape [4, 2, 2]; give floats, or one row of integers a step.",
        ),
        (
            {"final_observations": np.zeros((1, 2))},
            "In the arrays, final_observations has 1 rows; 2 are needed, one row an episode.",
        ),
        (
            {"final_observations": np.zeros((2, 3))},
            "In the arrays, final_observations has entries of shape [3] and observations of [2].",
        ),
        ({"final_observations": {"a": np.zeros(2)}}, "In the arrays, final_observations has other keys than observations."),
        ({"next_observations": np.zeros((3, 2))}, "In the arrays, next_observations has 3 rows; 4 are needed, one row a step."),
        ({"next_observations": np.full((4, 2), np.nan)}, "In the arrays, next_observations has NaN in row 0."),
        ({"extra": {"action": [1] * 4}}, "In the arrays, the extra column 'action' has a name that d3ray uses itself."),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError) as error:
        steps_from_arrays(**{**GOOD, **change})
    assert str(error.value) == sentence


def test_final_and_next_observations_together_are_refused_and_the_source_is_named() -> None:
    with pytest.raises(DataError, match=r"^In log\.npz, final_observations and next_observations are both given"):
        table([T], final_observations=[[1.0]], next_observations=[[1.0]], source="log.npz")


def test_a_slice_is_a_table_of_its_own_and_concat_puts_it_back() -> None:
    whole = table([T, F, T, F, F, T], final_observations=np.arange(3.0)[:, None] - 9)
    front, back = whole.slice(0, 1), whole.slice(1, 3)
    assert column(front, "observation") == [1, -9]
    assert column(back, "observation") == [2, 3, -8, 4, 5, 6, -7]
    assert back.first_row.tolist() == [0, 3]
    again = concat_steps([front, back])
    for name, values in whole.columns.items():
        assert (again.columns[name] == values).all()
    for name in ("first_row", "steps", "terminated", "final_recorded", "returns"):
        assert getattr(again, name).tolist() == getattr(whole, name).tolist()


def test_concat_refuses_other_columns() -> None:
    with pytest.raises(DataError, match=r"^Column 'action' is int64 \[\] in the first and float32 \[1\] in number 2\.$"):
        concat_steps([table([T]), steps_from_arrays(np.ones((1, 1)), np.ones((1, 1)), [1.0], [T])])
    with pytest.raises(DataError, match=r"^Column 'log_prob' is missing in the first and float32 \[\] in number 2\.$"):
        concat_steps([table([T]), table([T], extra={"log_prob": [0.5]})])
    with pytest.raises(DataError, match="no table of steps"):
        concat_steps([])


def test_rows_with_closing_rows_become_a_table() -> None:
    whole = table([T, F, F])
    again = steps_from_rows(whole.columns, whole.final_recorded)
    for name in ("first_row", "steps", "terminated", "final_recorded", "returns"):
        assert getattr(again, name).tolist() == getattr(whole, name).tolist()
    for closing in ([F, T, F, F, F], [T, F, F, F, T], [F, T, T, F, T]):  # no end; no step; no step
        with pytest.raises(DataError, match="one closing row"):
            steps_from_rows({**whole.columns, "closing": np.array(closing)}, whole.final_recorded)


def test_the_first_steps_of_a_table_end_where_they_are_asked_to() -> None:
    whole = steps_from_arrays(
        np.arange(5.0)[:, None], np.zeros((5, 1)), np.arange(5.0), [0, 1, 0, 0, 0], final_observations=[[10.0], [11.0]]
    )

    def cut(n: int) -> StepTable:
        return first_steps(whole, n)

    at_an_end = cut(2)
    assert at_an_end.columns["observation"][:, 0].tolist() == [0, 1, 10]
    assert (at_an_end.terminated.tolist(), at_an_end.columns["truncated"].tolist()) == ([True], [False] * 3)
    inside = cut(4)
    assert inside.columns["observation"][:, 0].tolist() == [0, 1, 10, 2, 3, 4]
    assert inside.columns["closing"].tolist() == [False, False, True, False, False, True]
    assert inside.columns["truncated"].tolist() == [False] * 4 + [True, False]
    assert (inside.columns["reward"].tolist(), inside.final_recorded.tolist()) == ([0, 1, 0, 2, 3, 0], [True, True])
    assert cut(5).columns["observation"][:, 0].tolist() == whole.columns["observation"][:, 0].tolist()
    assert whole.columns["closing"].tolist() == [False, False, True, False, False, False, True]  # as it was


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
