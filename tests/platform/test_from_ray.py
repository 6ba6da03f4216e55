"""What comes out of Ray Data is the dataset that one process makes: whole episodes, in any order of blocks, whoever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import ray.data

import d3ray
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.spec import Discrete, Environment, Spec
from d3ray.platform.cluster.session import quiet_ray_data
from d3ray.platform.datasets import regroup


@pytest.fixture(scope="module", autouse=True)
def session(local_ray: Path) -> None:
    quiet_ray_data()


def recorded(n: int = 300, seed: int = 0) -> Dataset:
    """Episodes of 1 to 7 steps of every kind of end, with masks of legal actions, dict observations and further columns."""
    rng = np.random.default_rng(seed)
    end = np.zeros(n, bool)
    end[np.cumsum(rng.integers(1, 8, n // 5))] = True
    terminated = end & (rng.random(n) < 0.5)
    seen = {"image": rng.integers(0, 255, (n, 4, 5), dtype=np.uint8), "speed": rng.normal(size=(n, 2))}
    action, mask = rng.integers(0, 3, n), rng.random((n, 3)) < 0.5
    mask[np.arange(n), action] = True
    finals = int((end | (np.arange(n) == n - 1)).sum())
    after, final_mask = {key: part[:finals] + 1 for key, part in seen.items()}, rng.random((finals, 3)) < 0.9
    final_mask[:, 0] = True
    extra = {"log_prob": -rng.random(n), "info/pair": rng.integers(0, 9, (n, 2)), "info/flag": rng.random(n) < 0.5}
    about = {"action_mask": mask, "final_action_mask": final_mask, "extra": extra, "environment": Environment(id="Here-v0")}
    steps = (seen, action, rng.normal(size=n), terminated, end & ~terminated)
    whole = Dataset.from_arrays(*steps, final_observations=after, **about)
    bare = Dataset.from_arrays(*steps, **{**about, "final_action_mask": None})
    return Dataset.concat([whole, bare])  # with final observations and without


def in_pieces(data: Dataset, seed: int = 0) -> ray.data.Dataset:
    """Its transitions in seven blocks that cut episodes, in random order, rows reversed."""
    table = pa.concat_tables(ray.get(d3ray.to_ray(data).to_arrow_refs()))
    cuts = np.linspace(0, len(table), 8).astype(int)
    blocks = [table.slice(a, b - a).take(pa.array(range(b - a)[::-1])) for a, b in pairwise(cuts)]
    return ray.data.from_arrow([blocks[k] for k in np.random.default_rng(seed).permutation(7)])


@pytest.mark.parametrize("start", [1, -7])
def test_kinds_that_do_not_begin_at_0_come_back(tmp_path: Path, start: int) -> None:
    kinds = np.arange(12) % 3
    spec = Spec(observation=Discrete(n=3, start=start), action=Discrete(n=3, start=start))
    mask = np.eye(3, dtype=bool)[kinds]
    data = Dataset.from_arrays(kinds + start, kinds + start, np.ones(12), kinds == 2, action_mask=mask, spec=spec)
    for target in (None, tmp_path / "set"):
        again = d3ray.from_ray(in_pieces(data), target, spec=data.spec)
        assert (again.spec, again.fingerprint) == (data.spec, data.fingerprint)


@pytest.mark.parametrize("where", ["memory", "folder", "uri"])
def test_what_to_ray_gives_comes_back_whole_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    data = recorded()
    target = {"memory": None, "folder": tmp_path / "set", "uri": f"fsspec+file://{tmp_path}/set"}[where]
    monkeypatch.setattr(regroup, "PART_BYTES", 3000)  # so that there are several parts, which read several fragments
    about = {"spec": data.spec, "environment": data.environment, "provenance": {"of": "it"}}
    back = d3ray.from_ray(in_pieces(data), target, name="back", **about)
    assert back.fingerprint == data.fingerprint
    assert back.statistics == data.statistics
    assert (back.name, back.spec, back.environment, back.provenance) == ("back", data.spec, data.environment, {"of": "it"})
    np.testing.assert_array_equal(back.episodes.final_recorded, data.episodes.final_recorded)
    if target is not None:
        back.verify()
        assert back.folder is not None
        names = {file.file for file in (back.folder.manifest.episodes, *back.folder.manifest.shards)}
        left = [path for path in (tmp_path / "set").rglob("*") if path.is_file()]
        assert {path.name for path in left} == {"dataset.json", *names}
        assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_columns_are_taken_by_name_and_ends_where_rows_show_them(tmp_path: Path) -> None:
    """By hand: text as ids, lists as vectors, no flag at an end, a step that is missing, a next observation that is another."""
    rows = [
        {"run": "b", "t": 0, "obs": [0.0, 0.5], "act": [1.0], "r": 1.0, "done": False, "id": 1},
        {"run": "b", "t": 1, "obs": [1.0, 0.5], "act": [1.0], "r": 2.0, "done": True, "id": 2},
        {"run": "a", "t": 4, "obs": [7.0, 0.5], "act": [0.0], "r": 5.0, "done": False, "id": 5},
        {"run": "a", "t": 2, "obs": [5.0, 0.5], "act": [0.0], "r": 4.0, "done": False, "id": 4},
        {"run": "a", "t": 1, "obs": [4.0, 0.5], "act": [0.0], "r": 3.0, "done": False, "id": 3},
    ]
    columns = {"episode": "run", "step": "t", "observation": "obs", "action": "act", "reward": "r", "terminated": "done"}
    for target in (None, tmp_path / "set"):
        data = d3ray.from_ray(ray.data.from_items(rows, override_num_blocks=3), target, columns=columns)
        assert data.episodes.steps.tolist() == [2, 1, 2]  # run a: steps 1 and 2, then 4; then run b
        assert data.episodes.terminated.tolist() == [False, False, True]
        assert data.episodes.returns.tolist() == [7, 5, 3]
        assert not any(data.episodes.final_recorded)
        assert data.columns["id"][~data.columns["closing"]].tolist() == [3, 4, 5, 1, 2]
        assert data.columns["observation"][data.columns["closing"]].tolist() == [[5.0, 0.5], [7.0, 0.5], [1.0, 0.5]]
        assert data.columns["observation"].dtype == np.float32
    known = [row | {"next_observation": [row["obs"][0] + 1, 0.5]} for row in rows]
    known[4]["next_observation"] = [9.0, 0.5]
    cut = d3ray.from_ray(ray.data.from_items(known), tmp_path / "cut", columns=columns, keep_float64=True)
    assert cut.episodes.steps.tolist() == [1, 1, 1, 2]
    assert cut.columns["observation"][cut.columns["closing"], 0].tolist() == [9.0, 6.0, 8.0, 2.0]
    assert (cut.cuts, cut.columns["observation"].dtype) == (1, np.float64)


def test_columns_of_a_number_each_are_put_together_under_their_names(tmp_path: Path) -> None:
    rows = [
        {"episode": 0, "step": t, "age": 40, "weight": 70.5 + t, "dose": t % 2, "reward": 1.0, "terminated": t == 3}
        for t in range(4)
    ]
    columns: dict[str, Any] = {"observation": ["age", "weight"], "action": "dose"}
    for target in (None, tmp_path / "set"):
        data = d3ray.from_ray(ray.data.from_items(rows), target, columns=columns)
        assert data.columns["observation"][:4].tolist() == [[40, 70.5 + t] for t in range(4)]
        assert data.spec.entry_names("observation", 2) == ["age", "weight"]
        assert data.spec.action.names == ("dose",)
    with pytest.raises(DataError, match="There is no column 'wait' to be an entry of 'observation'; did you mean 'weight'"):
        d3ray.from_ray(ray.data.from_items(rows), columns=columns | {"observation": ["age", "wait"]})


ROW: dict[str, Any] = {"episode": 0, "step": 0, "observation": [1.0], "action": [1.0], "reward": 0.0, "terminated": False}
NO_REWARD = {("rewards" if name == "reward" else name): value for name, value in ROW.items()}
REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, str] | None, str]] = {
    "missing": ([NO_REWARD], None, "There is no column 'reward'; did you mean 'rewards'"),
    "named": ([ROW], {"reward": "rewrd"}, "There is no column 'rewrd' to be taken for 'reward'; did you mean 'reward'"),
    "twice": ([ROW, ROW], None, "Step 0 of episode 0 comes twice"),
    "text": ([ROW | {"action": "left"}], None, r"The column 'action' is of type .*; numbers are needed"),
    "shapes": ([ROW, ROW | {"step": 1, "observation": [1.0, 2.0]}], None, "'observation' has entries of several shapes"),
    "nan": ([ROW | {"reward": float("nan")}], None, "rewards has NaN in row 0"),
    "nothing": ([], None, "There is no transition"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_used_is_said_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    rows, columns, match = REFUSED[kind]
    for target in (None, tmp_path / "set"):
        with pytest.raises(DataError, match=match) as error:
            d3ray.from_ray(ray.data.from_items(rows, override_num_blocks=1), target, columns=columns)
        assert "\n" not in str(error.value)
        assert list(tmp_path.iterdir()) == []


def even(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array([n % 2 == 0 for n in rows.column("episode/number").to_pylist()]))


def test_rows_that_are_episodes_are_filtered_and_written(tmp_path: Path) -> None:
    data = recorded()
    kept = data.take(np.arange(0, len(data.episodes), 2))
    rows = d3ray.to_ray(data, rows="episodes", override_num_blocks=3).map_batches(even, batch_format="pyarrow", batch_size=None)
    rows.write_datasink(d3ray.ShardSink(tmp_path / "set", spec=data.spec, environment=data.environment))
    made = Dataset.open(tmp_path / "set")
    made.verify()
    assert (made.fingerprint, made.name, made.environment) == (kept.fingerprint, "set", data.environment)
    with pytest.raises(StorageError, match="set is a dataset already"):
        d3ray.ShardSink(tmp_path / "set")
    d3ray.to_ray(made, rows="episodes").write_datasink(
        d3ray.ShardSink(tmp_path / "set", overwrite=True, n_shards=3, compression="zstd", name="it", provenance={"of": "it"})
    )
    again = Dataset.open(tmp_path / "set")
    assert again.folder is not None
    assert (len(again.folder.manifest.shards), again.folder.manifest.compression) == (3, "zstd")
    assert (again.fingerprint, again.name, again.provenance) == (kept.fingerprint, "it", {"of": "it"})
    unused = d3ray.ShardSink(tmp_path / "other")
    del unused
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with pytest.raises(ConfigError, match="rows is 'steps'"):
        d3ray.to_ray(data, rows="steps")  # type: ignore[arg-type]


def test_a_sink_that_fails_leaves_nothing(tmp_path: Path) -> None:
    rows = d3ray.to_ray(recorded(), rows="episodes")
    with pytest.raises(ray.exceptions.RayTaskError, match="no list of steps any more"):
        rows.map_batches(lambda batch: batch, batch_format="numpy").write_datasink(d3ray.ShardSink(tmp_path / "set"))
    nothing = rows.map_batches(lambda rows: rows.slice(0, 0), batch_format="pyarrow", batch_size=None)
    with pytest.raises(DataError, match=r"There is nothing to write to .*set: no episode came"):
        nothing.write_datasink(d3ray.ShardSink(tmp_path / "set"))
    assert list(tmp_path.iterdir()) == []


def dying(folder: str) -> Callable[[pa.Table], pa.Table]:
    """Kills the first worker that it comes to, and lets the second attempt pass."""

    def die(rows: pa.Table) -> pa.Table:
        try:
            os.close(os.open(f"{folder}/died", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return rows
        os.kill(os.getpid(), signal.SIGKILL)
        return rows

    return die


def test_a_worker_that_dies_is_replaced_and_leaves_nothing(tmp_path: Path) -> None:
    data = recorded()
    rows = d3ray.to_ray(data, rows="episodes", override_num_blocks=3)
    rows = rows.map_batches(dying(str(tmp_path)), batch_format="pyarrow", batch_size=None)
    rows.write_datasink(d3ray.ShardSink(tmp_path / "set"))
    assert (tmp_path / "died").exists()
    made = Dataset.open(tmp_path / "set")
    made.verify()
    assert made.fingerprint == data.fingerprint
    assert len(list((tmp_path / "set").rglob("*"))) == 2 + len(made.folder.manifest.shards)  # type: ignore[union-attr]
