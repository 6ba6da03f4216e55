"""RLlib's Parquet: flat columns in every type that Ray writes, packed episodes, and episodes that go over files."""

from __future__ import annotations

import base64
import os
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.rllib.parquet import RLlibParquet

REAL = os.environ.get("D3RAY_TEST_DATA")


def flat(eps_id: int | str, n: int, *, ended: bool = True, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(n + 1, 3)).astype(np.float32)
    return {
        "obs": seen[:-1],
        "new_obs": seen[1:],
        "actions": rng.uniform(-2, 2, (n, 2)),
        "rewards": rng.normal(size=n),
        "terminateds": np.arange(n) == (n - 1 if ended else -1),
        "truncateds": np.arange(n) == (-1 if ended else n - 1),
        "eps_id": np.full(n, eps_id),
    }


def lists(array: np.ndarray) -> pa.Array:
    return pa.array(array.tolist(), pa.list_(pa.from_numpy_dtype(array.dtype)))


def fixed(array: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])


def tensors(array: np.ndarray) -> pa.Array:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))


def packed(array: np.ndarray) -> pa.Array:
    return pa.array([base64.b64encode(lz4.frame.compress(pickle.dumps(row, 5))).decode() for row in array])


def table_of(columns: dict[str, Any], vectors: Any = lists) -> pa.Table:
    return pa.table({k: vectors(v) if np.ndim(v) > 1 else pa.array(v) for k, v in columns.items()})


def write(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("vectors", [lists, fixed, tensors, packed])
def test_flat_columns_in_every_type(tmp_path: Path, vectors: Any) -> None:
    a, b = flat(5, 4), flat(2, 3, ended=False, seed=1)
    rows = [(b, 0), (a, 0), (a, 1), (b, 1), (a, 2), (a, 3), (b, 2)]
    mixed = {k: np.array([e[k][i] for e, i in rows]) for k in a}
    path = write(tmp_path / "file", table_of(mixed, vectors))
    assert detect(path) == "rllib_parquet"
    steps = read(path).steps
    assert steps.steps.tolist() == [3, 4]
    assert steps.terminated.tolist() == [False, True]
    assert (steps.cuts, steps.final_recorded.all()) == (0, True)
    np.testing.assert_array_equal(steps.columns["observation"][4:9], np.concatenate([a["obs"], a["new_obs"][-1:]]))
    np.testing.assert_array_equal(steps.columns["action"][:3], b["actions"].astype(np.float32))


def test_rays_tensors_that_are_not_registered(tmp_path: Path) -> None:
    a = flat(1, 4)
    images = np.arange(4 * 12, dtype=np.float32).reshape(4, 3, 4)
    table = table_of(a | {"obs": images.reshape(4, 12), "new_obs": images.reshape(4, 12) + 12})
    said = {b"ARROW:extension:name": b"ray.data.arrow_tensor", b"ARROW:extension:metadata": b"[3, 4]"}
    marked = [f.with_metadata(said) if f.name in ("obs", "new_obs") else f for f in table.schema]
    steps = read(write(tmp_path / "file", table.cast(pa.schema(marked))), "rllib_parquet").steps
    assert steps.columns["observation"].shape == (5, 3, 4)
    np.testing.assert_array_equal(steps.columns["observation"][:4], images)
    assert steps.cuts == 0


def test_frames_as_bytes_and_observations_as_structs(tmp_path: Path) -> None:
    a = flat(1, 3)
    frames = np.random.default_rng(0).integers(0, 255, (4, 8), dtype=np.uint8)
    for kind in (pa.binary(8), pa.binary(), pa.large_binary()):
        made = {k: pa.array([row.tobytes() for row in rows], kind) for k, rows in (("obs", frames[:3]), ("new_obs", frames[1:]))}
        table = pa.table(dict(zip(table_of(a).column_names, table_of(a).columns, strict=True)) | made)
        steps = read(write(tmp_path / "file", table), "rllib_parquet").steps
        assert steps.columns["observation"].dtype == np.uint8
        np.testing.assert_array_equal(steps.columns["observation"], frames)
    seen = pa.StructArray.from_arrays([lists(a["obs"]), pa.array([1, 2, 3])], ["pos", "door"])
    table = pa.table({"obs": seen} | {k: c for k, c in zip(a, table_of(a).columns, strict=True) if "obs" not in k})
    steps = read(write(tmp_path / "file", table), "rllib_parquet").steps
    assert steps.columns["observation/door"].tolist() == [1, 2, 3, 3]
    assert not steps.final_recorded.any()


def test_a_slice_of_a_table_and_many_row_groups(tmp_path: Path) -> None:
    a = flat(1, 50)
    pq.write_table(table_of(a, tensors), tmp_path / "file", row_group_size=7)
    steps = read(tmp_path / "file", "rllib_parquet").steps
    np.testing.assert_array_equal(steps.columns["observation"][:50], a["obs"])


def numpy_state(value: Any) -> Any:
    """What msgpack-numpy makes of an array and a NumPy number."""
    if isinstance(value, np.ndarray):
        data = pickle.dumps(value) if value.dtype == object else value.tobytes()
        kind = b"O" if value.dtype == object else b""
        descr = value.dtype.descr if value.dtype == object else value.dtype.str
        return {b"nd": True, b"type": descr, b"kind": kind, b"shape": value.shape, b"data": data}
    if isinstance(value, np.bool_ | np.number):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    raise TypeError(type(value))


def piece(
    id_: str, seen: Any, columns: dict[str, Any], first: int, stop: int, *, lookback: int = 0, finalized: bool = False
) -> dict[str, Any]:
    """The state of steps `first` … `stop - 1` of an episode, with `lookback` steps before them."""

    def buffer(values: Any) -> dict[str, Any]:
        data = values if finalized else list(values)
        return {"data": data, "lookback": lookback, "finalized": finalized, "space": None}

    a, n = first - lookback, len(columns["rewards"])
    return {
        "id_": id_,
        "agent_id": None,
        "module_id": None,
        "multi_agent_episode_id": None,
        "observations": buffer(seen[a : stop + 1]),
        "actions": buffer(columns["actions"][a:stop]),
        "rewards": buffer(columns["rewards"][a:stop]),
        "infos": buffer([{"x": float(k)} for k in range(a, stop + 1)]) | {"data": [{"x": float(k)} for k in range(a, stop + 1)]},
        "extra_model_outputs": {"action_logp": buffer(columns["rewards"][a:stop] / 2)},
        "is_terminated": bool(columns["terminateds"][-1]) and stop == n,
        "is_truncated": bool(columns["truncateds"][-1]) and stop == n,
        "t_started": first,
        "t": stop,
        "_start_time": None,
        "custom_data": {},
    }


def items(*states: dict[str, Any]) -> pa.Table:
    return pa.table({"item": [msgpack.packb(state, default=numpy_state) for state in states]})


@pytest.mark.parametrize("finalized", [False, True])
def test_packed_episodes_whole_and_in_pieces_with_lookbacks(tmp_path: Path, finalized: bool) -> None:
    a, b = flat("a", 7), flat("b", 3, ended=False, seed=1)
    seen = {k: np.concatenate([e["obs"], e["new_obs"][-1:]]) for k, e in (("a", a), ("b", b))}
    pieces = [
        piece("a", seen["a"], a, 0, 3, finalized=finalized),
        piece("b", seen["b"], b, 0, 3, finalized=finalized),
        piece("a", seen["a"], a, 5, 7, lookback=1, finalized=finalized),
        piece("a", seen["a"], a, 3, 5, lookback=2, finalized=finalized),
    ]
    path = write(tmp_path / "file", items(*pieces))
    assert detect(path) == "rllib_parquet"
    imported = read(path)
    steps = imported.steps
    assert steps.steps.tolist() == [7, 3]
    assert steps.terminated.tolist() == [True, False]
    assert (steps.cuts, steps.final_recorded.all()) == (0, True)
    np.testing.assert_array_equal(steps.columns["observation"][:8], seen["a"])
    np.testing.assert_array_equal(steps.columns["action"][:7], a["actions"].astype(np.float32))
    np.testing.assert_allclose(steps.columns["log_prob"][:7], a["rewards"] / 2, rtol=1e-6)
    assert steps.columns["info/x"][:7].tolist() == [1, 2, 3, 4, 5, 6, 7]  # what came with the step, not with the reset
    assert imported.provenance["layout"] == "episodes"
    alone = read(write(tmp_path / "alone", items(pieces[2])), "rllib_parquet").steps
    assert alone.steps.tolist() == [2]
    np.testing.assert_array_equal(alone.columns["observation"], seen["a"][5:])


def test_pieces_that_do_not_follow_each_other_stay_apart(tmp_path: Path) -> None:
    a = flat("a", 7)
    seen = np.concatenate([a["obs"], a["new_obs"][-1:]])
    steps = read(write(tmp_path / "file", items(piece("a", seen, a, 0, 2), piece("a", seen, a, 4, 7))), "rllib_parquet").steps
    assert (steps.steps.tolist(), steps.cuts) == ([2, 3], 0)  # by what they say, not only by what they hold
    np.testing.assert_array_equal(steps.columns["observation"][2], seen[2])  # the final observation of the first piece


def test_packed_dict_observations_and_objects(tmp_path: Path) -> None:
    a = flat("a", 3)
    seen = [{"p": np.float32([k, k]), "q": {"r": np.int64(k)}} for k in range(4)]
    steps = read(write(tmp_path / "file", items(piece("a", seen, a, 0, 3))), "rllib_parquet").steps
    assert steps.columns["observation/p"].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert steps.columns["observation/q/r"].tolist() == [0, 1, 2, 3]
    state = piece("a", a["obs"], a, 0, 2)
    state["infos"]["data"] = np.array([None, {}], dtype=object)  # a pickle that is not needed
    assert read(write(tmp_path / "file", items(state)), "rllib_parquet").steps.steps.tolist() == [2]
    state["rewards"]["data"] = np.array([None, {}], dtype=object)
    with pytest.raises(DataError, match=r"episode 0: rewards is an array of Python objects, which would have to be unpickled"):
        read(write(tmp_path / "file", items(state)), "rllib_parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": None}, "file: episode 1 has no rewards"),
        ({"t_started": "x"}, "file: episode 1 has no id_ and t_started"),
        ({"observations": {"data": [[1.0, 2, 3]] * 3, "lookback": 0}}, "has 3 rewards, but observations for 2 steps"),
        ({"observations": {"data": [[1.0]] * 4, "lookback": 0}}, r"episode 1: 'observations' has entries of shape \[1\]"),
        ({"rewards": {"data": [1.0, float("nan"), 0.0], "lookback": 0}}, "episode 1: 'rewards' has NaN in row 1"),
        ({"actions": {"data": [1.0], "lookback": -1}}, "episode 1 has a lookback of -1"),
    ],
)
def test_packed_episodes_without_their_parts(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    a = flat("a", 3)
    seen = np.concatenate([a["obs"], a["new_obs"][-1:]])
    table = items(piece("a", seen, a, 0, 3), piece("b", seen, a, 0, 3) | change)
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "file", table), "rllib_parquet")


def test_damaged_msgpack(tmp_path: Path) -> None:
    short = {b"nd": True, b"type": "<f4", b"shape": [9], b"data": b"1234"}
    bad = [b"", b"\xc1", b"\x93\x01", msgpack.packb([1]), msgpack.packb(short)]
    for data in bad:
        table = pa.table({"item": pa.array([data], pa.binary())})
        with pytest.raises(DataError, match=r"file: episode 0 is no packed episode of RLlib|file: episode 0 has no id_"):
            read(write(tmp_path / "file", table), "rllib_parquet")


def test_a_folder_is_one_dataset_where_episodes_go_over_files(tmp_path: Path) -> None:
    a, b = flat(1, 6), flat(2, 5, seed=1)
    both = {k: np.concatenate([a[k], b[k]]) for k in a}
    for name, borders in (("over", (0, 4, 8, 11)), ("apart", (0, 6, 11))):
        (tmp_path / name / "env" / "run-1").mkdir(parents=True)
        for k, (start, stop) in enumerate(pairwise(borders)):
            part = {key: column[start:stop] for key, column in both.items()}
            write(tmp_path / name / "env" / "run-1" / f"1_00000{k}.parquet", table_of(part))
    over, apart = tmp_path / "over", tmp_path / "apart"
    assert RLlibParquet.parts(over) == [over]
    assert [p.name for p in RLlibParquet.parts(apart)] == ["1_000000.parquet", "1_000001.parquet"]
    assert detect(over) == "rllib_parquet"
    steps = read(over).steps
    assert steps.steps.tolist() == [6, 5]
    np.testing.assert_array_equal(steps.columns["reward"][7:12], np.float32(b["rewards"]))
    (over / "readme.txt").write_text("not RLlib's")
    assert RLlibParquet.parts(over) == []
    assert not RLlibParquet.detect(tmp_path)


def test_a_folder_of_packed_pieces(tmp_path: Path) -> None:
    a = flat("a", 6)
    seen = np.concatenate([a["obs"], a["new_obs"][-1:]])
    write(tmp_path / "1.parquet", items(piece("a", seen, a, 0, 4)))
    write(tmp_path / "2.parquet", items(piece("a", seen, a, 4, 6, lookback=2)))
    assert RLlibParquet.parts(tmp_path) == [tmp_path]
    assert read(tmp_path).steps.steps.tolist() == [6]
    write(tmp_path / "3.parquet", table_of(flat("b", 3)))
    with pytest.raises(DataError, match="has files of packed episodes and of flat columns"):
        read(tmp_path, "rllib_parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": pa.array([1.0, None, 2.0])}, r"file: column 'rewards' has no value in row 1\.$"),
        ({"rewards": pa.array(["a", "b", "c"])}, r"file: column 'rewards' in row 0 is text that RLlib did not pack"),
        ({"rewards": pa.array([1, 2, 3], pa.timestamp("ms"))}, r"file: column 'rewards' holds timestamp\[ms\], not numbers\.$"),
        ({"actions": pa.array([[1.0], [1.0, 2.0], [1.0]])}, r"file: column 'actions' has 2 entries in row 1 and 1 in row 0\.$"),
        ({"actions": pa.array([[1.0], [None], [1.0]])}, r"file: column 'actions' has no value in row 1\.$"),
        ({"obs": pa.array([[1.0], [float("inf")], [1.0]])}, r"file: 'obs' has an infinite number in row 1\.$"),
        (
            {"new_obs": pa.array([[1.0], [1.0], [1.0]])},
            r"next_observations has entries of shape \[1\] and observations of \[3\]\.$",
        ),
        ({"terminateds": None}, r"file has no 'terminateds' or 'dones', only 'obs'"),
    ],
)
def test_wrong_columns(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    table = table_of(flat(1, 3))
    columns = dict(zip(table.column_names, table.columns, strict=True)) | change
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "file", pa.table({k: v for k, v in columns.items() if v is not None})), "rllib_parquet")


def test_damaged_files(tmp_path: Path) -> None:
    data = write(tmp_path / "file", table_of(flat(1, 30))).read_bytes()
    for bad in (data[:-40], b"PAR1" + data[300:], b"PAR1"):
        (tmp_path / "file").write_bytes(bad)
        with pytest.raises(DataError, match="is a Parquet file that is cut short or damaged"):
            read(tmp_path / "file", "rllib_parquet")


@pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")
def test_the_real_folder_has_episodes_that_go_over_its_files() -> None:
    folder = Path(str(REAL)) / "rllib" / "pendulum-v1_enormous"
    assert RLlibParquet.parts(folder) == [folder]
    imported = read(folder)
    assert (imported.steps.n_transitions, imported.steps.n_episodes, imported.steps.cuts) == (16_231, 82, 0)
    assert sorted(set(imported.steps.steps.tolist())) == [63, 168, 200]
    assert any("action_scale stretches them" in note for note in imported.notes)
    alone = read(sorted(folder.iterdir())[0]).steps
    assert alone.steps.tolist() == [63, 19]
