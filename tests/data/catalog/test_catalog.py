"""Names: what the catalog says of them, and how one becomes a dataset of this machine, once, whatever happens meanwhile."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.catalog import Entry, catalog
from d3ray.data.catalog.entries import name_catalogs_absolutely
from d3ray.data.catalog.local import dataset_folder, download_folder, prepare, state
from d3ray.data.catalog.references import references
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.formats.registry import FORMATS, read
from d3ray.data.storage.steps import concat_steps

from .file_server import FileServer, Served

OPEN = "import sys; from d3ray import Dataset; print(Dataset.open(sys.argv[1]).fingerprint)"


@pytest.fixture
def server() -> Generator[FileServer]:
    with FileServer() as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def own(folder: Path, monkeypatch: pytest.MonkeyPatch, **content: Any) -> Path:
    """A file of the catalog, which D3RAY_CATALOG names."""
    file = folder / "catalog.json"
    file.write_text(json.dumps(content))
    monkeypatch.setenv("D3RAY_CATALOG", str(file))
    return file


def hopper(path: Path, n: int = 3000) -> bytes:
    """A file in D4RL's layout, with Hopper's shapes."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as out:
        out["observations"], out["actions"] = rng.normal(size=(n, 11)).astype("f4"), rng.uniform(-1, 1, (n, 3)).astype("f4")
        out["rewards"] = rng.normal(size=n).astype("f4")
        out["terminals"], out["timeouts"] = np.arange(n) % 50 == 20, np.arange(n) % 50 == 49
    return path.read_bytes()


def test_every_entry_is_one() -> None:
    known = catalog()
    names = list(known.names())
    assert len(names) == len(set(names))
    checked = [*known.single_names(), *names[:: max(1, len(names) // 500)]]
    for name in checked:
        entry = known.find(name)
        assert entry is not None, name
        assert entry.format is None or entry.format in FORMATS, name
        assert all(re.match(r"https?://\S+$", file.url) and "{" not in file.url + file.place for file in entry.files), name
    made = {"d3ray-box2d", "d3ray-classic", "d3ray-minatar", "d3ray-mujoco", "d3ray-ogbench"}
    assert {name.partition("/")[0] for name in names} == {"atari", "d3ray", "d3rlpy", "d4rl", "minari", "ogbench", *made}


def test_what_is_published_of_d4rl_is_said() -> None:
    known = catalog()
    entry = known.find("d4rl/hopper-medium-v2")
    assert entry is not None
    (file,) = entry.files
    assert file.url == "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/hopper_medium-v2.hdf5"
    assert (file.bytes, file.sha256) == (152_756_557, "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0")
    assert (entry.format, entry.licence, entry.action_range, entry.bytes) == ("d4rl", "CC-BY-4.0", (-1, 1), 152_756_557)
    assert entry.environment is not None
    assert entry.environment.id == "Hopper-v4"
    names = {name.removeprefix("d4rl/") for name in known.single_names() if name.startswith("d4rl/")}
    assert len(names) == 155
    assert len(references()["datasets"]) == 147
    assert references()["datasets"].keys() <= names
    entries = [known.find(f"d4rl/{name}") for name in names]
    assert sum(entry is not None and entry.files[0].sha256 is not None for entry in entries) == 97


def test_a_family_has_the_names_that_it_lists() -> None:
    known = catalog()
    for family in known.families:
        names = list(family.names())
        assert len(names) == len(set(names)) == len(family)
        assert all(family.find(name) is not None for name in names[::97])
    entry = known.find("atari/ms-pacman-epoch-17-v4")
    assert entry is not None
    stored = [f"$store$_{kind}_ckpt.17.gz" for kind in ("observation", "action", "reward", "terminal")]
    assert [file.place for file in entry.files] == [*stored, "add_count_ckpt.17.gz"]
    assert entry.files[0].url.startswith("https://storage.googleapis.com/atari-replay-datasets/dqn/MsPacman/5/replay_logs/")
    expert = known.find("atari/breakout-expert-v0")
    assert expert is not None
    assert expert.files[1].url.endswith("/dqn/Breakout/1/replay_logs/$store$_action_ckpt.50.gz")
    share = known.find("atari/qbert-1-percent-v0")
    assert share is not None
    assert len(share.files) == 5 * 50
    assert {file.place for file in share.files if "reward" in file.place} == {f"$store$_reward_ckpt.{k}.gz" for k in range(1, 51)}
    assert share.files[49].url.endswith("/dqn/Qbert/1/replay_logs/$store$_observation_ckpt.50.gz")
    assert known.find("atari/ms-pacman-epoch-51-v4") is None
    assert known.find("atari/mspacman-mixed-v0") is None
    assert known.find("ogbench/cube-single-play-v0-val") is not None


def slices(folder: Path, n: int, rows: int = 40_000) -> list[str]:
    """Files as OGBench's large data have them: trajectories of 100 steps and a last row, each file of other ones."""
    places: list[str] = []
    for k in range(n):
        rng = np.random.default_rng(k)
        arrays = {"observations": rng.normal(size=(rows, 20)).astype("f4"), "actions": rng.uniform(-1, 1, (rows, 3)).astype("f4")}
        places.append(str(folder / f"cube-v0-{k:03d}.npz"))
        np.savez(places[-1], **arrays, terminals=np.arange(rows) % 100 == 99)
    return places


def test_data_in_many_files_are_read_one_by_one(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each file a shard comes; what is in memory at once does not grow with their number."""
    places = slices(tmp_path, 6)
    entries = {f"team/{n}": {"files": [{"url": place} for place in places[:n]], "format": "ogbench"} for n in (2, 6)}
    own(tmp_path, monkeypatch, entries=entries)
    peaks: dict[int, int] = {}
    for n in (2, 6):  # more rows than are looked at together
        entry = catalog().find(f"team/{n}")
        assert entry is not None
        prepare(f"team/{n}", entry)  # once, so that what is imported meanwhile is not counted
        shutil.rmtree(dataset_folder(f"team/{n}", entry))
        tracemalloc.start()
        prepare(f"team/{n}", entry)
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    size = Path(places[0]).stat().st_size
    assert peaks[6] < peaks[2] + size, (peaks, size)  # four files more
    dataset = Dataset.open("team/6")
    assert (dataset.n_transitions, dataset.n_episodes) == (6 * 400 * 99, 6 * 400)
    assert len(list(dataset_folder("team/6", catalog().find("team/6")).glob("*.arrow"))) >= 6  # pyright: ignore
    assert dataset.fingerprint == Dataset.from_steps(concat_steps([read(place).steps for place in places]), name="").fingerprint
    assert [file["file"] for file in dataset.provenance["ingested"]["files"]] == [Path(place).name for place in places]


def test_a_file_that_is_not_like_the_first_is_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = slices(tmp_path, 1, 200)
    arrays = {
        "observations": np.zeros((200, 7), "f4"),
        "actions": np.zeros((200, 3), "f4"),
        "terminals": np.arange(200) % 100 == 99,
    }
    np.savez(tmp_path / "other.npz", **arrays)
    files = [{"url": first}, {"url": str(tmp_path / "other.npz")}]
    own(tmp_path, monkeypatch, entries={"team/mixed": {"files": files, "format": "ogbench"}})
    with pytest.raises(DataError, match=r"'observation' is float32 \[20\] in the first and float32 \[7\] in number 2; to have it"):
        Dataset.open("team/mixed")


def test_large_data_of_ogbench_are_a_hundred_files() -> None:
    entry = catalog().find("ogbench/cube-octuple-play-singletask-task2-100m-v0")
    assert entry is not None
    assert len(entry.files) == 100
    assert entry.files[7].url.endswith("/ogbench/cube-octuple-play-100m-v0/cube-octuple-play-v0-007.npz")
    assert entry.options == {"task": "cube-octuple-play-singletask-task2-v0"}


def test_a_name_is_downloaded_imported_and_opened(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = hopper(tmp_path / "h.hdf5")
    known = {"url": f"{server.url}/h.hdf5?dl=1", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    said = {"format": "d4rl", "environment": {"id": "Hopper-v4"}, "action_range": [-1, 1], "licence": "MIT"}
    own(tmp_path, monkeypatch, entries={"team/hopper": {"files": [known], **said, "options": {"timeout_at": 20}}})
    server.files["/h.hdf5?dl=1"] = Served(content)
    entry = catalog().find("team/hopper")
    assert entry is not None
    assert state("team/hopper", entry) == ""
    first = Dataset.open("team/hopper")
    assert state("team/hopper", entry) == "dataset"
    assert (first.name, first.n_transitions) == ("team/hopper", 3000)
    assert first.episodes.steps.max() == 20
    assert first.environment is not None
    assert first.environment.id == "Hopper-v4"
    low, high = first.spec.action.bounds() or (None, None)  # pyright: ignore[reportAttributeAccessIssue]
    assert (low, high) == (pytest.approx(-np.ones(3)), pytest.approx(np.ones(3)))
    (file,) = first.provenance["ingested"]["files"]
    assert (file["source"], file["sha256"], file["format"]) == (known["url"], known["sha256"], "d4rl")
    assert first.provenance["licence"] == "MIT"
    again = Dataset.open("team/hopper")
    assert (
        again.fingerprint
        == first.fingerprint
        == Dataset.from_steps(read(tmp_path / "h.hdf5", timeout_at=20).steps, name="").fingerprint
    )
    assert len(server.seen) == 1
    assert again.folder is not None
    assert again.folder.place.local == dataset_folder("team/hopper", entry)
    assert str(cache) in str(again.folder.place.local)
    assert [path.name for path in download_folder("team/hopper", entry).iterdir()] == ["h.hdf5"]


def atari(n: int = 24) -> dict[str, bytes]:
    """One of DQN Replay's checkpoints: a full ring whose oldest row is the first."""
    rng, files = np.random.default_rng(0), dict[str, bytes]()
    arrays = {
        "$store$_observation": rng.integers(1, 255, (n, 84, 84), np.uint8),
        "$store$_action": rng.integers(0, 6, n).astype(np.int32),
        "$store$_reward": rng.integers(-1, 2, n).astype(np.float32),
        "$store$_terminal": (np.arange(n) % 8 == 7).astype(np.uint8),
        "add_count": np.array(n),
    }
    for name, array in arrays.items():
        np.save(file := io.BytesIO(), array)
        files[f"/Pong/1/replay_logs/{name}_ckpt.1.gz"] = gzip.compress(file.getvalue())
    return files


def ogbench(n: int = 24) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    arrays = {"observations": rng.normal(size=(n, 5)).astype("f4"), "actions": rng.uniform(-1, 1, (n, 2)).astype("f4")}
    np.savez(file := io.BytesIO(), **arrays, terminals=np.arange(n) % 8 == 7)
    return {"/cube-single-play-v0.npz": file.getvalue()}


def minari(n: int = 8) -> dict[str, bytes]:
    rng, box = np.random.default_rng(0), {"type": "Box", "dtype": "float32"}
    spaces = {
        name: json.dumps({**box, "shape": [k], "low": [-9] * k, "high": [9] * k}) for name, k in (("observation", 5), ("action", 2))
    }
    about = {
        "total_episodes": 3,
        "total_steps": 3 * n,
        "data_format": "hdf5",
        **{f"{name}_space": space for name, space in spaces.items()},
    }
    with h5py.File(file := io.BytesIO(), "w") as out:
        for k in range(3):
            group = out.create_group(f"episode_{k}")
            group["observations"], group["actions"] = rng.normal(size=(n + 1, 5)).astype("f4"), rng.normal(size=(n, 2)).astype("f4")
            group["rewards"], group["truncations"] = np.ones(n), np.arange(n) == n - 1
            group["terminations"] = np.zeros(n, bool)
    folder = "/D4RL/resolve/main/pen/human-v2/data"
    return {f"{folder}/main_data.hdf5": file.getvalue(), f"{folder}/metadata.json": json.dumps(about).encode()}


@pytest.mark.parametrize(
    ("name", "base", "files", "format", "n"),
    [
        ("atari/pong-mixed-v0", "https://storage.googleapis.com/atari-replay-datasets/dqn", atari, "dqn_replay", 24),
        ("ogbench/cube-single-play-v0", "https://rail.eecs.berkeley.edu/datasets/ogbench", ogbench, "ogbench", 21),
        ("minari/D4RL/pen/human-v2", "https://huggingface.co/datasets/farama-minari", minari, "minari", 24),
    ],
)
def test_a_published_layout_is_found_at_its_address(
    server: FileServer,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    base: str,
    files: Callable[[], dict[str, bytes]],
    format: str,
    n: int,
) -> None:
    own(tmp_path, monkeypatch, mirrors={base: server.url})
    server.files = {path: Served(content) for path, content in files().items()}
    dataset = Dataset.open(name)
    (said,) = dataset.provenance["ingested"]["files"]
    assert (dataset.n_transitions, dataset.n_episodes, said["format"]) == (n, 3, format)
    assert sorted(seen.path for seen in server.seen) == sorted(server.files)
    assert {said["source"], *(file["source"] for file in said.get("beside", []))} == {server.url + path for path in server.files}


def test_single_tasks_of_ogbench_share_the_file_that_they_are_made_of(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    qpos = rng.uniform(0, 16, (24, 2)).astype("f4")
    qpos[3] = 20.5, 19.5
    np.savez(file := io.BytesIO(), observations=qpos, actions=qpos / 24, qpos=qpos, terminals=np.arange(24) % 8 == 7)
    own(tmp_path, monkeypatch, mirrors={"https://rail.eecs.berkeley.edu/datasets/ogbench": server.url})
    server.files = {"/pointmaze-medium-navigate-v0.npz": Served(file.getvalue())}
    plain = Dataset.open("ogbench/pointmaze-medium-navigate-v0")
    first, third = (Dataset.open(f"ogbench/pointmaze-medium-navigate-singletask-task{k}-v0") for k in (1, 3))
    assert len(server.seen) == 1
    assert plain.environment is None
    assert third.environment is not None
    assert third.environment.id == "pointmaze-medium-navigate-singletask-task3-v0"
    solved = np.linalg.norm(qpos - np.array([20, 20]), axis=1) <= 1
    steps = ~first.columns["closing"]
    np.testing.assert_array_equal(first.columns["reward"][steps], solved[np.arange(24) % 8 != 7] - 1)
    assert first.n_transitions == third.n_transitions == plain.n_transitions == 21
    default = Dataset.open("ogbench/pointmaze-medium-navigate-singletask-v0")
    assert default.fingerprint == first.fingerprint != third.fingerprint


def test_an_entry_that_changes_is_another_dataset(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/h.hdf5"] = Served(hopper(tmp_path / "h.hdf5"))
    entry: dict[str, Any] = {"files": [{"url": f"{server.url}/h.hdf5"}], "format": "d4rl"}
    file = own(tmp_path, monkeypatch, entries={"team/h": entry})
    whole = Dataset.open("team/h")
    file.write_text(json.dumps({"entries": {"team/h": {**entry, "options": {"timeout_at": 10}}}}))
    os.utime(file, (1, 1))
    assert Dataset.open("team/h").n_episodes > whole.n_episodes
    assert len(server.seen) == 1  # the same file
    file.write_text(json.dumps({"entries": {"team/h": {**entry, "files": [{"url": f"{server.url}/other.hdf5"}]}}}))
    os.utime(file, (2, 2))
    with pytest.raises(DataError, match=r"There is no file .*/other\.hdf5: the server answers 404"):
        Dataset.open("team/h")


def test_a_file_that_cannot_be_read_is_named_and_can_be_had_again(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/h.hdf5"] = Served(b"not HDF5")
    own(tmp_path, monkeypatch, entries={"team/h": {"files": [{"url": f"{server.url}/h.hdf5"}], "format": "d4rl"}})
    with pytest.raises(DataError, match=r"h\.hdf5.*; to have it downloaded again, delete ") as refused:
        Dataset.open("team/h")
    assert list((cache / "datasets").glob("team/*/dataset.json")) == []
    folder = Path(str(refused.value).rpartition("delete ")[2].rstrip("."))
    assert [path.name for path in folder.iterdir()] == ["h.hdf5"]
    (folder / "h.hdf5").unlink()
    server.files["/h.hdf5"] = Served(hopper(tmp_path / "h.hdf5"))
    assert Dataset.open("team/h").n_transitions == 3000


def test_two_processes_download_and_import_once(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/h.hdf5"] = Served(hopper(tmp_path / "h.hdf5", 20_000), pause=0.05)
    own(tmp_path, monkeypatch, entries={"team/h": {"files": [{"url": f"{server.url}/h.hdf5"}], "format": "d4rl"}})
    both = [subprocess.Popen([sys.executable, "-c", OPEN, "team/h"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate(timeout=120)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert said == {Dataset.open("team/h").fingerprint + "\n"}
    assert len(server.seen) == 1


def test_a_killed_download_is_gone_on_with(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = hopper(tmp_path / "h.hdf5", 20_000)
    served = server.files["/h.hdf5"] = Served(content, pause=0.3)
    own(tmp_path, monkeypatch, entries={"team/h": {"files": [{"url": f"{server.url}/h.hdf5"}], "format": "d4rl"}})
    process = subprocess.Popen([sys.executable, "-c", OPEN, "team/h"], stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (server.seen and server.seen[0].sent[0] >= 200_000):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    entry = catalog().find("team/h")
    assert entry is not None
    assert state("team/h", entry) == "in part"
    served.pause = 0
    dataset = Dataset.open("team/h")
    assert dataset.fingerprint == Dataset.from_steps(read(tmp_path / "h.hdf5").steps, name="").fingerprint
    assert server.seen[-1].sent[0] == len(content) - int(re.sub(r"\D", "", server.seen[-1].headers["Range"]))


def test_mirrors_and_replacements(server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/mirror/gym_mujoco_v2/hopper_medium-v2.hdf5"] = Served(hopper(tmp_path / "h.hdf5"))
    root = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
    file = own(tmp_path, monkeypatch, mirrors={root: f"{server.url}/mirror/"})
    with pytest.raises(DataError, match="bytes and 152,756,557 were published: it is another file"):
        Dataset.open("d4rl/hopper-medium-v2")
    said = {"files": [{"url": f"{root}gym_mujoco_v2/hopper_medium-v2.hdf5"}]}
    second = tmp_path / "second.json"
    second.write_text(json.dumps({"entries": {"d4rl/hopper-medium-v2": said}}))
    monkeypatch.setenv("D3RAY_CATALOG", f"{file}{os.pathsep}{second}")
    assert Dataset.open("d4rl/hopper-medium-v2").n_transitions == 3000


def test_a_name_may_stand_for_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Dataset.from_arrays([[1.0]], [[5.0]], [0], [1]).write(tmp_path / "it")
    own(tmp_path, monkeypatch, entries={"team/it": {"folder": str(tmp_path / "it")}})
    assert Dataset.open("team/it").n_transitions == 1
    entry = catalog().find("team/it")
    assert entry is not None
    assert state("team/it", entry) == "dataset"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", r"catalog\.json, which D3RAY_CATALOG names, is not JSON"),
        ("[]", r"is no catalog: it must be an object with entries"),
        ({"entrys": {}}, r"catalog\.json has no setting 'entrys'; did you mean 'entries'\?"),
        ({"entries": {"a/b": {}}}, r"catalog\.json: a/b: an entry has files, a folder, a recipe or a script"),
        ({"entries": {"a/b": {"files": [{"url": "http://x/y", "sha256": "1"}]}}}, r"a/b: files\.0\.sha256 is '1'"),
        (
            {"entries": {"a/b": {"files": [{"url": "http://x/y"}], "licens": "MIT"}}},
            r"a/b has no setting 'licens'; did you mean 'licence'",
        ),
        ({"entries": {"../b": {"folder": "x"}}}, r"'\.\./b' is no name of a dataset"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | dict[str, Any], sentence: str
) -> None:
    file = tmp_path / "catalog.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    monkeypatch.setenv("D3RAY_CATALOG", str(file))
    with pytest.raises(ConfigError, match=sentence):
        Dataset.open("team/thing")


def test_a_catalog_that_is_missing_and_a_name_that_is_misspelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, near in (("d4rl/hoper-medium-v2", "d4rl/hopper-medium-v2"), ("atari/pongg-mixed-v0", "atari/pong-mixed-v0")):
        with pytest.raises(DataError, match=rf"no dataset of that name; did you mean '{near}'\?$"):
            Dataset.open(name)
    with pytest.raises(DataError, match=r"no dataset of that name; d3ray datasets lists those that there are\.$"):
        Dataset.open("nothing")
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "none.json"))
    with pytest.raises(StorageError, match=r"none\.json, which D3RAY_CATALOG names, cannot be read: no such file"):
        Dataset.open("d4rl/hopper-medium-v2")


def test_a_folder_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Dataset.from_arrays([[1.0]], [[5.0]], [0], [1]).write("d3ray/cartpole-replay")
    assert Dataset.open("d3ray/cartpole-replay").n_transitions == 1


def test_the_key_of_an_entry_follows_what_makes_the_dataset() -> None:
    said: dict[str, Any] = {"files": [{"url": "http://x/y"}]}
    plain = Entry.model_validate(said)
    assert plain.key == Entry.model_validate({**said, "about": "other", "licence": "MIT"}).key
    assert plain.key != Entry.model_validate({**said, "options": {"timeout_at": 3}}).key
    assert plain.files_key == Entry.model_validate({**said, "options": {"timeout_at": 3}}).files_key


def test_a_catalog_by_a_relative_path_is_known_in_other_folders_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path, monkeypatch, entries={"team/walk": {"folder": "s3://bucket/walk"}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D3RAY_CATALOG", f"catalog.json{os.pathsep}")
    name_catalogs_absolutely()
    monkeypatch.chdir("/")
    assert catalog().find("team/walk") is not None
