"""A file that is read in parts is the file that is read at once: the same steps and the same words, whoever reads which part."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError, StorageError
from d3ray.data.formats.registry import plan, read
from d3ray.data.formats.tabular import csv_cells
from d3ray.data.formats.untrusted import unpacking
from d3ray.data.storage.pieces import workspace
from d3ray.data.storage.steps import StepTable, concat_steps, steps_from_arrays
from d3ray.data.storage.writing import Draft
from d3ray.platform.cluster.session import quiet_ray_data
from d3ray.platform.datasets import ingest as ingest_module
from d3ray.platform.datasets import reading
from d3ray.platform.datasets.ingest import ingest
from d3ray.platform.datasets.parts import Part
from d3ray.platform.datasets.workers import ray_workers

from ...data.formats.minari_folders import BOX, TWO, episode_of, metadata, write_hdf5

N = 4000


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Every kind of end, rows that are terminal and timeout at once, terminals after terminals, jumps."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(N + 1, 3)).astype(np.float32)
    terminal, timeout = rng.random(N) < 0.03, rng.random(N) < 0.03
    terminal[100:110] = True
    following = seen[1:].copy()
    following[rng.random(N) < 0.01] += 1
    return {
        "observations": seen[:-1],
        "actions": rng.uniform(-2, 2, (N, 2)).astype(np.float32),
        "rewards": rng.normal(size=N).astype(np.float32),
        "terminals": terminal,
        "timeouts": timeout,
        "next_observations": following,
        "infos/action_log_probs": rng.normal(size=N).astype(np.float32),
        "infos/qpos": rng.normal(size=(N, 2)),
        "infos/goal": np.repeat(np.arange(N // 50), 50)[:, None].astype(np.float32),
        "metadata/policy": np.float32(3),
    }


def hdf5(path: Path, raw: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in raw.items():
            file[name] = values
    return path


def without(raw: dict[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    return {name: values for name, values in raw.items() if name not in names}


def moved_up() -> dict[str, np.ndarray]:
    """Next observations that are the rows moved up by one, over the ends of episodes."""
    raw = arrays()
    return raw | {"next_observations": np.roll(raw["observations"], -1, axis=0)}


FILES: dict[str, tuple[Callable[[], dict[str, np.ndarray]], dict[str, Any]]] = {
    "all": (arrays, {}),
    "no next": (lambda: without(arrays(), "next_observations"), {"cut_at_goal": True}),
    "moved up": (moved_up, {}),
    "no timeouts": (lambda: without(arrays(), "timeouts"), {}),
    "time limit": (lambda: without(arrays(), "timeouts", "next_observations"), {"timeout_at": 20}),
}


@pytest.mark.parametrize("kind", FILES)
def test_parts_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    make, options = FILES[kind]
    path = hdf5(tmp_path / "a.hdf5", make())
    whole, parts = read(path, "d4rl", **options), plan(path, "d4rl", n_bytes=20_000, **options).parts
    assert len(parts) > 5
    tables = [read().steps for read in parts]
    assert max(table.n_transitions for table in tables) < N / 4
    joined = concat_steps(tables)
    for name, column in whole.steps.columns.items():
        np.testing.assert_array_equal(joined.columns[name], column, err_msg=name)
        assert joined.columns[name].dtype == column.dtype
    asked: dict[str, Any] = {"options": options, "action_scale": 2.0}
    at_once = ingest(path, tmp_path / "once", **asked)
    monkeypatch.setattr(reading, "PART_BYTES", 20_000)
    monkeypatch.setattr(ingest_module, "SHARD_BYTES", 50_000)  # so that parts leave the memory as pieces, two or three in each
    monkeypatch.setattr(ingest_module, "PIECE_BYTES", 50_000)
    in_parts = ingest(path, tmp_path / "parts", **asked)
    in_parts.dataset.verify()
    assert in_parts.dataset.fingerprint == at_once.dataset.fingerprint
    assert in_parts.dataset.statistics == at_once.dataset.statistics
    assert in_parts.dataset.cuts == at_once.dataset.cuts
    assert in_parts.dataset.provenance == at_once.dataset.provenance
    assert sorted(in_parts.notes) == sorted(at_once.notes)
    assert in_parts.dataset.folder is not None
    assert len(in_parts.dataset.folder.manifest.shards) > 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.hdf5", "once", "parts"]


def parquet(folder: Path, options: dict[str, Any]) -> Path:
    rng, n = np.random.default_rng(0), N
    arrays = rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.normal(size=n)
    ends, cut = rng.random(n) < 0.02, rng.random(n) < 0.02
    data = Dataset.from_arrays(*arrays, ends, cut, next_observations=rng.normal(size=(n, 3)))
    pq.write_table(flat(data), folder / "file", row_group_size=150)
    return folder / "file"


def flat(data: Dataset) -> Any:
    """Its rows but for the closing rows of some episodes."""
    columns, episode = data.columns, np.repeat(np.arange(data.n_episodes), data.episodes.steps + 1)
    kept = ~columns["closing"] | (episode % 3 > 0)
    vectors = {name: pa.array(list(columns[name][kept])) for name in ("observation", "action")}
    plain = {name: columns[name][kept] for name in ("reward", "terminated", "truncated", "closing")}
    return pa.table({**vectors, **plain, "episode": episode[kept], "other": episode[kept]})


def d3rlpy(folder: Path, options: dict[str, Any]) -> Path:
    rng = np.random.default_rng(0)
    with h5py.File(folder / "file", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = ["observations"], 90, "2.8"
        for k in range(90):
            n = int(rng.integers(1, 60))
            file[f"observations_{k}"], file[f"actions_{k}"] = rng.normal(size=(n, 3)), rng.uniform(-2, 2, (n, 2))
            file[f"rewards_{k}"], file[f"terminated_{k}"] = rng.normal(size=(n, 1)), k % 2 == 0
    options["timeout_at"] = 50
    return folder / "file"


def minari(folder: Path, options: dict[str, Any]) -> Path:
    episodes = [episode_of(1 + k % 40, k, terminated=k % 3 == 0, truncated=k % 3 == 1) for k in range(90)]
    for k, episode in enumerate(episodes):
        n = len(episode["rewards"])
        episode["infos/same"] = np.arange(n + 1) + k
        episode["infos/action_log_probs"] = np.full(n + 1, -0.5)
        episode["terminations"][n // 2] |= k == 70
        if k != 77:
            episode["infos/missing"] = np.arange(n)
        episode["infos/wider"] = np.zeros((n, 2 + (k == 5)))
    return write_hdf5(folder / "file", episodes, metadata(BOX, TWO, 90))


def csv(folder: Path, options: dict[str, Any]) -> Path:
    """Named episodes, flags inside them, kinds of actions that a whole number late in the file does not change; one more column."""
    rng, n = np.random.default_rng(0), N
    episode, seen, terminated = np.cumsum(rng.random(n) < 0.03), rng.normal(size=(n, 2)), rng.random(n) < 0.01
    names = ["episode", "observation:0", "observation:1", "action", "reward", "terminated", "info/speed", "comment"]
    rows = [
        [f"run {episode[k]}", *seen[k], k % 3 + 0.5 * (k < 10), k, str(bool(terminated[k])), k / 7, "some words"] for k in range(n)
    ]
    (folder / "file").write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))
    return folder / "file"


def csv_flags(folder: Path, options: dict[str, Any]) -> Path:
    """No numbers of episodes, lines of Windows, actions that are kinds, a time limit."""
    rng = np.random.default_rng(0)
    lines = ["obs_0;act_0;rew;done", *(f"{x};{k % 4};1;{int(k % 71 == 70)}" for k, x in enumerate(rng.normal(size=N)))]
    (folder / "file").write_bytes("\r\n".join([*lines, ""]).encode())
    options["timeout_at"] = 50
    return folder / "file"


@pytest.mark.parametrize("make", [parquet, d3rlpy, minari, csv, csv_flags])
def test_parts_of_other_formats_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, dict[str, Any]], Path]
) -> None:
    options: dict[str, Any] = {}
    path = make(tmp_path, options)
    at_once = ingest(path, tmp_path / "once", options=options)
    monkeypatch.setattr(reading, "PART_BYTES", 15_000)
    monkeypatch.setattr(csv_cells, "BLOCK", 7_000)  # so that episodes go over several
    monkeypatch.setattr(ingest_module, "SHARD_BYTES", 50_000)
    monkeypatch.setattr(ingest_module, "PIECE_BYTES", 30_000)
    parts = plan(path, n_bytes=15_000, **options).parts
    assert len(parts) > 4
    assert max(read().steps.n_transitions for read in parts) < at_once.dataset.n_transitions / 3
    in_parts = ingest(path, tmp_path / "parts", options=options)
    in_parts.dataset.verify()
    assert in_parts.dataset.fingerprint == at_once.dataset.fingerprint
    assert in_parts.dataset.spec == at_once.dataset.spec
    assert in_parts.dataset.environment == at_once.dataset.environment
    told, expected = (one.dataset.provenance["ingested"]["files"][0] for one in (in_parts, at_once))
    assert {**told, "notes": sorted(told["notes"])} == {**expected, "notes": sorted(expected["notes"])}
    assert sorted(in_parts.notes) == sorted(at_once.notes)


def test_a_csv_that_cannot_be_cut_by_lines_is_read_whole(tmp_path: Path) -> None:
    text = csv(tmp_path, {}).read_text()
    lines = text.split("\n")
    for name, changed in {"blank": "\n".join([*lines[:500], "", *lines[500:]]), "short": "\n".join(lines[:3])}.items():
        (tmp_path / name).write_text(changed)
        (read,) = plan(tmp_path / name, n_bytes=15_000).parts
        assert read().steps.n_transitions == len([line for line in changed.split("\n") if line]) - 1
    (tmp_path / "packed").write_bytes(gzip.compress(text.encode()))
    assert len(plan(tmp_path / "packed", n_bytes=15_000).parts) == 1


def test_what_is_wrong_in_a_csv_is_said_by_its_line(tmp_path: Path) -> None:
    lines = csv(tmp_path, {}).read_text().split("\n")
    cells = lines[3000].split(",")
    wrong = [*lines[:3000], ",".join([*cells[:4], "word", *cells[5:]]), *lines[3001:]]
    (tmp_path / "wrong").write_text("\n".join(wrong))
    with pytest.raises(DataError, match=r"line 3001: the column 'reward' holds 'word', which is no number"):
        [read() for read in plan(tmp_path / "wrong", n_bytes=15_000).parts]
    (tmp_path / "twice").write_text("\n".join([*lines, lines[1]]))
    expected = rf"episode 'run \d+' comes back in row {N}, after another; rows of an episode lie together, or a column 'step'"
    for n_bytes in (None, 15_000):
        with pytest.raises(DataError, match=expected):
            [read() for read in plan(tmp_path / "twice", n_bytes=n_bytes).parts]


def test_parts_are_the_whole_on_ray_too(local_ray: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of parts beside a small one, actions clipped in all of them; what was clipped adds up."""
    for k in range(3):
        raw = arrays(k)
        hdf5(tmp_path / f"{k}.hdf5", raw if k != 1 else {name: v[:500] if v.ndim else v for name, v in raw.items()})
    about: dict[str, Any] = {"actions": "clip", "environment": "MountainCarContinuous-v0"}
    for k in range(3):
        with h5py.File(tmp_path / f"{k}.hdf5", "r+") as file:
            for name in ("observations", "next_observations"):
                values = file[name][:, :2]
                del file[name]
                file[name] = values
            values = file["actions"][:, :1]
            del file["actions"]
            file["actions"] = values
    here = ingest(tmp_path / "*.hdf5", tmp_path / "here", parallel=False, **about)
    monkeypatch.setattr(reading, "PART_BYTES", 50_000)
    there = ingest(tmp_path / "*.hdf5", tmp_path / "there", parallel=True, **about)
    there.dataset.verify()
    assert there.dataset.fingerprint == here.dataset.fingerprint
    assert there.dataset.statistics == here.dataset.statistics
    assert there.dataset.provenance == here.dataset.provenance
    assert sorted(there.notes) == sorted(here.notes)
    clipped = [file.provenance["actions_clipped"] for file in there.files]
    outside = [int((np.abs(arrays(k)["actions"][: 500 if k == 1 else N, 0]) > 1).sum()) for k in range(3)]
    assert clipped == outside


def test_what_is_wrong_in_a_part_is_said_with_where_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = arrays()
    raw["rewards"][3000] = np.nan
    path = hdf5(tmp_path / "a.hdf5", raw)
    monkeypatch.setattr(reading, "PART_BYTES", 20_000)
    with pytest.raises(DataError, match=r"In .*a\.hdf5, from row (\d+) on, rewards has NaN in row (\d+)") as error:
        ingest(path, tmp_path / "set")
    start, row = (int(word) for word in str(error.value).replace(".", "").split() if word.isdigit())
    assert start + row == 3000
    assert [file.name for file in tmp_path.iterdir()] == ["a.hdf5"]


def part(seed: int) -> StepTable:
    rng = np.random.default_rng(seed)
    return steps_from_arrays(rng.normal(size=(50, 2)), rng.normal(size=(50, 1)), rng.normal(size=50), rng.random(50) < 0.2)


def reads(k: int, folder: str, deaths: int) -> Callable[[], tuple[StepTable, str]]:
    """Part k; the worker that reads part 1 is killed so many times. A part may hold megabytes."""
    held = np.random.default_rng(k).random(200_000)

    def read() -> tuple[StepTable, str]:
        died = len(os.listdir(folder))  # noqa: PTH208
        if k == 1 and died < deaths:
            open(f"{folder}/{died}", "x").close()  # noqa: PTH123
            os.kill(os.getpid(), signal.SIGKILL)
        rng = np.random.default_rng(k * len(held) // len(held))
        table = steps_from_arrays(rng.normal(size=(50, 2)), rng.normal(size=(50, 1)), rng.normal(size=50), rng.random(50) < 0.2)
        return table, f"part {k}"

    return read


@pytest.mark.parametrize("deaths", [1, pytest.param(9, marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_is_replaced_but_not_for_ever(local_ray: Path, tmp_path: Path, deaths: int) -> None:
    from d3ray.data.storage.pieces import Shape, make_shards
    from d3ray.data.storage.working import in_process
    from d3ray.platform.datasets.write_rows import pieces_of

    (tmp_path / "died").mkdir()
    parts = [Part(str(k), reads(k, str(tmp_path / "died"), deaths), 1 << 27) for k in range(3)]
    with Draft(tmp_path / "set") as draft:
        space = workspace(draft.folder)
        if deaths > 3:
            with pytest.raises(StorageError, match="A worker was killed"), ray_workers():
                pieces_of(parts, space.name, local=True)
            return
        with ray_workers():
            quiet_ray_data()
            written = pieces_of(parts, space.name, local=True)
        assert [one.told for one in written] == [{k: f"part {k}"} for k in range(3)]
        records = make_shards([one.piece for one in written], draft.folder, in_process, Shape())
        space.delete_all()
        draft.commit(records, name="it")
    assert (
        Dataset.open(tmp_path / "set").fingerprint == Dataset.from_steps(concat_steps([*map(part, range(3))]), name="").fingerprint
    )


def test_a_small_file_is_read_in_parts_where_it_may_unpack_to_more_than_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 10_000
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        file.create_dataset(
            "observations", (n, 1, 84, 84), "u1", chunks=(500, 1, 84, 84), compression="gzip", data=np.zeros((n, 1, 84, 84), "u1")
        )
        file["actions"], file["rewards"], file["terminals"] = np.zeros(n, int), np.arange(n, dtype=float), np.arange(n) % 100 == 99
    monkeypatch.setattr(unpacking, "free_memory", lambda: 130_000_000)
    monkeypatch.setattr(reading, "PART_BYTES", 1 << 24)
    with pytest.raises(
        DataError, match=r"unpacks to 70\.9 MB or more, and what may be made of it, half of the memory that is free here"
    ):
        read(tmp_path / "frames.h5")
    done = ingest(tmp_path / "frames.h5", tmp_path / "out")
    assert done.dataset.n_transitions == n
    monkeypatch.undo()
    assert done.dataset.fingerprint == ingest(tmp_path / "frames.h5", tmp_path / "whole").dataset.fingerprint


def test_parts_are_held_against_what_is_stored_as_the_whole_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 1_000_000
    with h5py.File(tmp_path / "hollow.h5", "w") as file:
        file.create_dataset("observations", (n, 1000), "f8", chunks=(1, 1000))
        file["actions"], file["rewards"], file["terminals"] = np.zeros(n, "i1"), np.zeros(n, "i1"), np.arange(n) % 100 == 99
    monkeypatch.setattr(unpacking, "RATIO", 100)
    with pytest.raises(DataError, match=r"hollow\.h5 unpacks to 8 GB or more, and 3 MB are stored: 100 times that is the most"):
        plan(tmp_path / "hollow.h5", n_bytes=1 << 24)
