"""Dataset folders: what is written is what is read, all of it or nothing, and damage is named."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from socket import gethostname
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import d3ray
from d3ray import Dataset
from d3ray.algos.export.package import read_package
from d3ray.data.catalog.entries import shipped_folders
from d3ray.data.errors import ConfigError, D3rayError, DataError, StorageError
from d3ray.data.spec import Box, Discrete, Environment, Spec
from d3ray.data.storage.fingerprint import scan_blocks
from d3ray.data.storage.json_text import TooDeepError, parse_json
from d3ray.data.storage.manifest import MANIFEST
from d3ray.data.storage.shards import MAX_ELEMENTS, plan_shards, write_shard
from d3ray.data.storage.writing import Draft, commit, shard_rows
from d3ray.platform.storage.folders import Folder


def walk(n: int = 300, seed: int = 0, **more: Any) -> Dataset:
    rng = np.random.default_rng(seed)
    end = rng.random((2, n)) < 0.05
    extra = {"log_prob": rng.normal(size=n), "lucky": rng.random(n) < 0.5}
    return Dataset.from_arrays(rng.normal(size=(n, 3)), rng.uniform(-1, 1, (n, 2)), rng.normal(size=n), *end, extra=extra, **more)


def assert_same(a: Dataset, b: Dataset) -> None:
    assert (a.name, a.spec, a.environment, a.provenance, a.cuts) == (b.name, b.spec, b.environment, b.provenance, b.cuts)
    assert (a.fingerprint, a.statistics) == (b.fingerprint, b.statistics)
    for name in ("first_row", "steps", "terminated", "final_recorded", "returns"):
        np.testing.assert_array_equal(getattr(a.episodes, name), getattr(b.episodes, name))
    assert set(a.columns) == set(b.columns)
    for name, column in a.columns.items():
        assert column.dtype == b.columns[name].dtype
        np.testing.assert_array_equal(column, b.columns[name])


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    n, rng = sum(lengths), np.random.default_rng(draw(st.integers(0, 9)))
    end = np.zeros(n, bool)
    end[np.cumsum(lengths) - 1] = True
    terminated = end & (rng.random(n) < 0.5)
    boxes = {
        "a": rng.normal(size=(n, 2)).astype(draw(st.sampled_from([np.float16, np.float32]))),
        "b": rng.integers(0, 255, (n, 2, 3), np.uint8),
    }
    discrete = draw(st.booleans())
    return Dataset.from_arrays(
        boxes if draw(st.booleans()) else boxes[draw(st.sampled_from(["a", "b"]))],
        rng.integers(0, 5, n) if discrete else rng.normal(size=(n, draw(st.integers(1, 3)))),
        rng.normal(size=n),
        terminated,
        end & ~terminated,
        extra={"lucky": rng.random(n) < 0.5} if draw(st.booleans()) else {},
    )


@given(datasets(), st.integers(1, 4), st.sampled_from([None, "zstd"]))
def test_what_is_written_is_what_is_read(data: Dataset, n_shards: int, compression: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = data.write(f"{folder}/it", n_shards=n_shards, compression=compression)
        assert_same(data, written)
        assert_same(data, Dataset.open(f"{folder}/it"))
        assert len(list(Path(folder, "it").glob("data-*"))) == min(n_shards, data.n_episodes)


def test_a_folder_is_laid_out_as_promised(tmp_path: Path) -> None:
    data = Dataset.from_arrays(np.arange(4.0)[:, None], [0, 1, 0, 1], [1, 2, 3, 4], [0, 1, 0, 0], final_observations=[[8.0], [9.0]])
    data.write(tmp_path / "it", n_shards=2)
    assert sorted(p.name for p in (tmp_path / "it").iterdir()) == [
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
        "dataset.json",
        "episodes.arrow",
    ]
    file = pa.ipc.open_file(tmp_path / "it/data-00001-of-00002.arrow")
    assert file.num_record_batches == 1
    batch = file.get_batch(0)
    assert {f.name: str(f.type) for f in batch.schema} == {
        "episode": "int64",
        "step": "int32",
        "observation": "extension<arrow.fixed_shape_tensor[value_type=float, shape=[1]]>",
        "action": "int64",
        "reward": "float",
        "terminated": "bool",
        "truncated": "bool",
        "closing": "bool",
    }
    assert sum(column.null_count for column in batch.columns) == 0
    assert batch.column("episode").to_pylist() == [1, 1, 1]
    assert batch.column("step").to_pylist() == [0, 1, 2]
    assert batch.column("observation").to_numpy_ndarray().tolist() == [[2], [3], [9]]
    assert batch.column("closing").to_pylist() == [False, False, True]
    episodes = pa.ipc.open_file(tmp_path / "it/episodes.arrow").read_all().to_pylist()
    assert episodes == [
        {"first_row": 0, "steps": 2, "terminated": True, "final_recorded": True, "return": 3.0},
        {"first_row": 3, "steps": 2, "terminated": False, "final_recorded": True, "return": 7.0},
    ]
    manifest = json.loads((tmp_path / "it/dataset.json").read_text())
    assert [(s["rows"], s["episodes"]) for s in manifest["shards"]] == [(3, 1), (3, 1)]
    assert (manifest["format"], manifest["version"]) == ("d3ray dataset", 1)


def test_everything_about_a_dataset_is_kept(tmp_path: Path) -> None:
    spec = Spec(observation=Box(shape=(3,), low=-9.0, high=9.0), action=Box(shape=(2,), low=(-1.0, -1.0), high=1.0))
    data = walk(name="it", spec=spec, environment=Environment(id="Walk-v0", kwargs={"size": 3}))
    data.provenance["source"], data.cuts = {"file": "a.h5", "notes": ["shifted"]}, 4
    assert_same(data, data.write(tmp_path / "it"))


def test_one_local_shard_is_mapped_and_not_copied(tmp_path: Path) -> None:
    opened = walk(3000).write(tmp_path / "it")
    address = opened.columns["observation"].__array_interface__["data"][0]
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "/it/data-00000-of-00001.arrow" in line]
    ranges = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    assert any(low <= address < high for low, high in ranges)
    assert not opened.columns["observation"].flags.writeable


def test_opening_reads_no_shard_and_a_copy_is_opened_anew(tmp_path: Path) -> None:
    walk(3000).write(tmp_path / "it")
    code = f"""
import sys
from d3ray import Dataset
data = Dataset.open({str(tmp_path / "it")!r})
data.statistics, data.fingerprint, data.episodes.returns
assert not any(".arrow" in line and "data-" in line for line in open("/proc/self/maps")), "a shard is mapped"
data.columns["observation"]
for heavy in ("torch", "pandas", "ray", "mlflow"):
    assert heavy not in sys.modules, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    opened = Dataset.open(tmp_path / "it")
    _ = opened.columns
    blob = pickle.dumps(opened)
    assert len(blob) < opened.columns["observation"].nbytes / 2
    assert_same(pickle.loads(blob), opened)


def test_shards_are_planned_by_whole_episodes() -> None:
    kinds = {"observation": ("float32", (2,)), "reward": ("float32", ())}
    rows = np.array([5, 5, 5, 5])
    assert plan_shards(rows, kinds, n_shards=2) == [(0, 2), (2, 4)]
    assert plan_shards(rows, kinds, n_shards=9) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert plan_shards(rows, kinds, max_rows=10) == [(0, 2), (2, 4)]
    assert plan_shards(rows, kinds, max_rows=14) == [(0, 2), (2, 4)]
    assert plan_shards(rows, kinds, max_rows=2) == [(0, 1), (1, 2), (2, 3), (3, 4)]  # an episode is not split
    assert plan_shards(rows, kinds) == [(0, 4)]
    assert plan_shards(np.array([1000, 2, 2, 2, 2]), kinds, n_shards=5) == [(k, k + 1) for k in range(5)]
    assert plan_shards(np.array([2, 2, 2, 2, 1000]), kinds, n_shards=3) == [(0, 3), (3, 4), (4, 5)]
    for wrong in ({"n_shards": 0}, {"max_rows": -1}):
        with pytest.raises(ConfigError, match=r"it is 1 or more\."):
            plan_shards(rows, kinds, **wrong)


def test_no_shard_has_more_elements_than_arrow_allows() -> None:
    kinds = {"observation": ("uint8", (4, 84, 84)), "reward": ("float32", ())}
    limit = MAX_ELEMENTS // (4 * 84 * 84)
    plan = plan_shards(np.full(1000, 1001), kinds)
    assert all((stop - start) * 1001 <= limit for start, stop in plan)
    assert plan[0][0] == 0
    assert all(a[1] == b[0] for a, b in pairwise(plan))
    assert plan[-1][1] == 1000
    with pytest.raises(DataError, match=rf"^One episode of {limit + 1} rows is too long: .* {limit} rows fit"):
        plan_shards(np.array([5, limit + 1]), kinds)
    with pytest.raises(DataError, match=r"^A shard of"):
        plan_shards(np.full(1000, 1001), kinds, n_shards=2)


def test_workers_write_and_scan_and_one_commits(tmp_path: Path) -> None:
    data = walk(70_000, name="it")  # two blocks, which no shard ends with
    table = data.to_steps()
    plan = plan_shards(table.steps + 1, {"observation": ("float32", (3,))}, n_shards=3)
    with Draft(tmp_path / "it") as draft:
        records = [
            pickle.loads(
                pickle.dumps(write_shard(draft.folder, k, 3, table.slice(*part), first_episode=part[0], compression="zstd"))
            )
            for k, part in enumerate(plan)
        ]
        rows = pickle.loads(pickle.dumps(shard_rows(draft.folder, records)))
        scans = [*scan_blocks(rows, data.spec, 0, 1), *scan_blocks(rows, data.spec, 1, 2)]
        assert not (tmp_path / "it").exists()
        draft.commit(records[::-1], name="it", scans=scans)
    assert_same(Dataset.open(tmp_path / "it"), data)
    assert [p.name for p in tmp_path.iterdir()] == ["it"]
    with pytest.raises(DataError, match=r"has the shard data-00001-of-00003\.arrow where data-00000-of-00002\.arrow is due"):
        commit(tmp_path / "it", records[1:], name="it")


def test_a_dataset_is_replaced_only_when_asked(tmp_path: Path) -> None:
    a, b = walk(seed=1), walk(seed=2)
    first = a.write(tmp_path / "it", n_shards=3)
    with pytest.raises(StorageError) as error:
        b.write(tmp_path / "it")
    assert str(error.value) == f"{tmp_path / 'it'} is a dataset already; say overwrite=true to replace it."
    assert Dataset.open(tmp_path / "it").fingerprint == a.fingerprint
    assert first.columns["reward"].sum() == a.columns["reward"].sum()
    assert b.write(tmp_path / "it", overwrite=True).fingerprint == b.fingerprint
    same = Dataset.open(tmp_path / "it")
    assert same.write(tmp_path / "it", overwrite=True, compression="zstd").fingerprint == b.fingerprint  # of itself
    assert [p.name for p in tmp_path.iterdir()] == ["it"]
    (tmp_path / "it/thesis.tex").touch()
    with pytest.raises(StorageError, match=r"holds 'thesis\.tex' and is no dataset"):
        a.write(tmp_path / "it", overwrite=True)
    with pytest.raises(StorageError, match="is a file; a dataset is a folder"):
        a.write(tmp_path / "it/thesis.tex")
    assert a.write(tmp_path / "new/deeper").fingerprint == a.fingerprint


def test_a_draft_that_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    data = walk()
    with pytest.raises(KeyboardInterrupt), Draft(tmp_path / "it") as draft:  # noqa: PT012 - the interruption comes in between
        write_shard(draft.folder, 0, 1, data.to_steps(), first_episode=0)
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_killed_leaves_no_dataset_and_the_next_one_clears_up(tmp_path: Path) -> None:
    code = f"""
import os, signal, numpy as np
from d3ray import Dataset
from d3ray.data.storage import writing
writing.write_manifest = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
Dataset.from_arrays(np.zeros((9, 1)), [0] * 9, [0] * 9, [1] * 9).write({str(tmp_path / "it")!r})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    left = [p.name for p in tmp_path.iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".it.draft-")
    with pytest.raises(DataError, match="no dataset folder"):
        Dataset.open(tmp_path / "it")
    walk().write(tmp_path / "it")
    assert [p.name for p in tmp_path.iterdir()] == ["it"]


def test_a_writer_that_is_killed_at_any_rename_loses_nothing(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys, numpy as np
from pathlib import Path
from socket import gethostname
from d3ray import Dataset
def data(n):
    return Dataset.from_arrays(np.zeros((n, 1)), [0] * n, [0] * n, [1] * n)
target = Path({str(tmp_path / "it")!r})
data(9).write(target, n_shards=2)
for last in range(20):
    if (child := os.fork()) == 0:
        done = 0
        def renamed(rename):
            def wrapped(*paths):
                global done
                if done == last:
                    os.kill(os.getpid(), signal.SIGKILL)
                done += 1
                return rename(*paths)
            return wrapped
        Path.rename, Path.replace = renamed(Path.rename), renamed(Path.replace)
        data(10 + last).write(target, n_shards=2, overwrite=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    found = Dataset.open(target)
    found.verify()
    print(last, found.n_transitions)
    if status == 0:
        break
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    *killed, (last, n) = [tuple(map(int, line.split())) for line in said.stdout.splitlines()]
    assert len(killed) >= 4
    assert {n for _, n in killed} == {9}
    assert n == 10 + last
    walk().write(tmp_path / "it", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["it"]
    assert len(list((tmp_path / "it").iterdir())) == 3


def test_a_manifest_is_read_back_before_anything_is_replaced(tmp_path: Path) -> None:
    walk().write(tmp_path / "it")
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"deeper": deep}
    for provenance in (deep, {"thing": object()}):
        table = walk(seed=1).to_steps()
        data = Dataset.from_steps(table, name="other", provenance=provenance)
        with pytest.raises(DataError, match=r"^The provenance of other cannot be written as JSON and read back: "):
            data.write(tmp_path / "it", overwrite=True)
    assert Dataset.open(tmp_path / "it").fingerprint == walk().fingerprint
    assert [p.name for p in tmp_path.iterdir()] == ["it"]


FULL = """
import numpy as np, sys
from d3ray import Dataset
from d3ray.data.errors import StorageError
{limit}
rng = np.random.default_rng(0)
try:
    Dataset.from_arrays(rng.normal(size=(100_000, 10)), [0] * 100_000, [0] * 100_000, [0] * 100_000).write(sys.argv[1])
except StorageError as error:
    print(error)
"""


def test_a_file_that_may_not_grow_leaves_no_dataset_and_no_litter(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))"
    code = [sys.executable, "-c", FULL.format(limit=limit), str(tmp_path / "it")]
    said = subprocess.run(code, check=True, capture_output=True, text=True).stdout
    assert said == f"{tmp_path}/it/data-00000-of-00001.arrow cannot be written: the file would be larger than is allowed here.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_dataset_and_no_litter(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        code = [sys.executable, "-c", FULL.format(limit=""), str(small / "it")]
        said = subprocess.run(code, check=True, capture_output=True, text=True).stdout
        assert said == f"{small}/it/data-00000-of-00001.arrow cannot be written: there is no space left on its disk.\n"
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_missing_truncated_or_changed_shard_is_named(tmp_path: Path) -> None:
    walk(2000).write(tmp_path / "it", n_shards=3)
    shard = tmp_path / "it/data-00001-of-00003.arrow"
    content = shard.read_bytes()

    def said() -> str:
        with pytest.raises(DataError) as error:
            Dataset.open(tmp_path / "it")
        return str(error.value)

    shard.unlink()
    assert said() == f"{shard} is missing."
    shard.write_bytes(content[:-100])
    assert said() == f"{shard} is truncated: it has {len(content) - 100:,} bytes of {len(content):,}."
    shard.write_bytes(content + b"x")
    assert said() == f"{shard} is damaged: it has {len(content) + 1:,} bytes of {len(content):,}."
    changed = bytearray(content)
    changed[len(content) // 2] ^= 1
    shard.write_bytes(changed)
    opened = Dataset.open(tmp_path / "it")
    for look in (opened.verify, lambda: opened.columns):
        with pytest.raises(DataError) as error:
            look()
        assert str(error.value) == f"{shard} is damaged: its content is not what was written (SHA-256 differs)."
    shard.write_bytes(content)
    opened = Dataset.open(tmp_path / "it")
    opened.verify()
    shard.unlink()  # after it was opened
    with pytest.raises(DataError, match=r"data-00001-of-00003\.arrow is missing\.$"):
        opened.verify()


def test_one_mapped_shard_that_is_no_arrow_file_is_named(tmp_path: Path) -> None:
    walk().write(tmp_path / "it")
    shard = tmp_path / "it/data-00000-of-00001.arrow"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(DataError, match=f"^{shard} is damaged: "):
        Dataset.open(tmp_path / "it").columns["reward"]


def test_damage_to_the_manifest_or_the_episodes_is_named(tmp_path: Path) -> None:
    walk().write(tmp_path / "it")
    path, episodes = tmp_path / "it/dataset.json", tmp_path / "it/episodes.arrow"
    text = path.read_text()
    raw = json.loads(text)

    def said(content: object) -> str:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(DataError) as error:
            Dataset.open(tmp_path / "it")
        return str(error.value).removeprefix(str(tmp_path / "it"))

    assert said(text[:-9]) == "/dataset.json is damaged: it is not JSON."
    assert said({"a": 1}) == "/dataset.json does not describe a d3ray dataset."
    assert said(raw | {"version": 2}) == " has format version 2; this d3ray reads version 1."
    assert said(raw | {"n_rows": "x"}).startswith("/dataset.json is damaged: n_rows: ")
    assert said(raw | {"n_rows": 3}).startswith("/dataset.json is damaged: its shards have ")
    assert said(raw | {"fingerprint": "0" * 64}) == "/dataset.json is damaged: its fingerprint is not that of its columns."
    assert said(raw | {"fingerprint": "../../etc"}).startswith("/dataset.json is damaged: fingerprint: ")
    path.write_text(text)
    content = bytearray(episodes.read_bytes())
    content[len(content) // 2] ^= 255
    episodes.write_bytes(content)
    assert said(text) == "/episodes.arrow is damaged: its content is not what was written (SHA-256 differs)."
    path.unlink()
    with pytest.raises(DataError, match=r"has no dataset\.json\.$"):
        Dataset.open(tmp_path / "it")


def test_a_file_uri_is_a_local_folder(tmp_path: Path) -> None:
    data = walk().write(f"file://{tmp_path}/it")
    assert Dataset.open(tmp_path / "it").fingerprint == data.fingerprint


def test_what_cannot_be_opened_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^nosuch://bucket/it cannot be opened: Unrecognized filesystem type"):
        Dataset.open("nosuch://bucket/it")
    with pytest.raises(DataError, match=r"^There is no dataset at .*: it has no dataset\.json\.$"):
        Dataset.open(tmp_path)
    with pytest.raises(DataError, match=r"^There is no dataset folder 'd3ray/cartpol-replay' and no dataset of that name"):
        Dataset.open("d3ray/cartpol-replay")
    with pytest.raises(DataError, match=rf"^There is no dataset folder '/no/such' on {gethostname()}, which is to open it\.$"):
        Dataset.open("/no/such")
    for folder in shipped_folders():
        assert Dataset.open(f"d3ray/{folder.name}").n_transitions > 0


def test_a_spec_that_the_shards_are_not_of_is_refused(tmp_path: Path) -> None:
    table = Dataset.from_arrays([[1.0]], [5], [0], [1]).to_steps()
    record = write_shard(tmp_path, 0, 1, table, first_episode=0)
    with pytest.raises(DataError, match="the actions 0 to 1 and the data has action 5"):
        commit(tmp_path, [record], name="it", spec=Spec(observation=Box(shape=(1,)), action=Discrete(n=2)))
    assert commit(tmp_path, [record], name="it").spec.action == Discrete(n=6)


DEEP = b"[" * 200_000 + b"]" * 200_000
ROOT = Path(d3ray.__file__).parent


def test_what_nests_too_deep_is_a_value_error() -> None:
    with pytest.raises(TooDeepError, match="nests too deep"):
        parse_json(DEEP)
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("nothing")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(20, 2)), rng.uniform(-1, 1, (20, 1)), np.ones(20), np.arange(20) % 10 == 9
    d3ray.Dataset.from_arrays(*arrays).write(tmp_path / "data")
    return tmp_path / "data"


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "dataset": (MANIFEST, d3ray.Dataset.open),
    "policy package": ("manifest.json", read_package),
    "saved algorithm": ("manifest.json", d3ray.load),
    "params.json": ("params.json", lambda folder: d3ray.BC.from_params(folder / "params.json")),
    "experiment": ("state.json", lambda folder: Folder(folder).read_json("state.json")),
}


@pytest.mark.parametrize("reader", READERS)
def test_files_that_nest_too_deep_are_refused_in_a_sentence(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(DEEP)
    with pytest.raises(D3rayError) as refused:
        read(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_manifest_says_that_it_nests_too_deep(data: Path) -> None:
    whole = (data / MANIFEST).read_bytes()
    for content in (DEEP, re.sub(rb'"provenance": \{[^}]*\}', b'"provenance": {"a": ' + DEEP + b"}", whole)):
        (data / MANIFEST).write_bytes(content)
        with pytest.raises(D3rayError, match=r"dataset\.json is damaged: it nests too deep\."):
            d3ray.Dataset.open(data)


def test_folders_of_users_are_read_by_the_one_function() -> None:
    """`json.loads` ends in a RecursionError: what reads files of others calls `parse_json`."""
    own = {
        "data/storage/json_text.py",
        "data/catalog/references.py",
        "data/formats/npz/ogbench_tasks.py",
    }  # the function, and files of d3ray's own
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("data", "algos", "facades", "platform/storage", "platform/results", "platform/tracking")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"json\.loads?\(", path.read_text("utf-8"))
    }
    assert found - own == set()
