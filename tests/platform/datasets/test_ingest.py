"""Ingest: counts and returns by hand, the same dataset whoever read which file, and nothing left of what failed."""

from __future__ import annotations

import hashlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest
from PIL import Image

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.formats import registry
from d3ray.data.spec import Discrete
from d3ray.platform.datasets.ingest import ingest
from d3ray.platform.datasets.sources import find_sources

ROOT = Path(__file__).parents[3]


def steps(n: int, seed: int = 0, entries: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    terminated = random.random(n) < 0.1
    return {
        "observations": random.normal(size=(n, entries)).astype(np.float32),
        "actions": random.uniform(-1, 1, (n, 2)).astype(np.float32),
        "rewards": random.integers(-3, 4, n).astype(np.float32),
        "terminated": terminated,
        "truncated": (random.random(n) < 0.1) & ~terminated,
    }


def npz(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def hdf5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[{"terminated": "terminals", "truncated": "timeouts"}.get(name, name)] = values
    return path


def test_one_file_needs_no_ray_and_keeps_what_came_of_it(tmp_path: Path) -> None:
    source = hdf5(
        tmp_path / "log.hdf5", {**steps(5), "terminated": np.array([0, 1, 0, 0, 0], bool), "truncated": np.zeros(5, bool)}
    )
    rewards = steps(5)["rewards"]
    code = "import sys; from d3ray.platform.datasets.ingest import ingest; ingest(*sys.argv[1:]); assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, source, tmp_path / "set"], check=True)
    dataset = Dataset.open(tmp_path / "set")
    assert (dataset.n_transitions, dataset.n_episodes) == (5, 2)
    assert dataset.episodes.returns.tolist() == [rewards[:2].sum(), rewards[2:].sum()]
    (file,) = dataset.provenance["ingested"]["files"]
    assert file["source"] == str(source)
    assert file["bytes"] == source.stat().st_size
    assert file["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert file["format"] == "d4rl"


def test_the_dataset_is_the_same_whoever_read_which_file(local_ray: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for k in range(5):
        npz(folder / f"{k}.npz", steps(40 + 7 * k, seed=k))
    here = ingest(folder, tmp_path / "here", parallel=False)
    there = ingest(folder / "*.npz", tmp_path / "there", parallel=True, n_shards=3, compression="zstd")
    by_hand = Dataset.concat([Dataset.from_steps(registry.read(file).steps, name="") for file in sorted(folder.iterdir())])
    assert there.dataset.n_transitions == sum(40 + 7 * k for k in range(5))
    assert here.dataset.fingerprint == there.dataset.fingerprint == by_hand.fingerprint
    assert here.dataset.statistics == there.dataset.statistics
    assert there.dataset.folder is not None
    assert len(there.dataset.folder.manifest.shards) == 3
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == [
        *(f"data-0000{k}-of-00003.arrow" for k in range(3)),
        "dataset.json",
        "episodes.arrow",
    ]
    assert [file.index for file in there.files] == list(range(5))
    assert [file["sha256"] for file in there.dataset.provenance["ingested"]["files"]] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())
    ]
    there.dataset.verify()
    for name, column in by_hand.columns.items():
        np.testing.assert_array_equal(there.dataset.columns[name], column)
    assert list(tmp_path.glob(".*")) == []


def test_cuts_are_counted_over_all_files(tmp_path: Path) -> None:
    for k, jumps in enumerate(([3, 7], [5])):
        arrays = {**steps(10, seed=k), "terminated": np.zeros(10, bool), "truncated": np.zeros(10, bool)}
        arrays["next_observations"] = np.roll(arrays["observations"], -1, axis=0)
        arrays["next_observations"][jumps] += 1
        npz(tmp_path / f"{k}.npz", arrays)
    done = ingest(tmp_path / "*.npz", tmp_path / "set", n_shards=2)
    assert done.dataset.cuts == 3
    assert done.dataset.episodes.steps.tolist() == [4, 4, 2, 6, 4]
    assert done.notes == [f"{tmp_path}/0.npz: 2 episodes were cut where next_observations is not the next row. (Alike in 1 more.)"]


def test_actions_outside_the_space_are_kept_and_counted(tmp_path: Path) -> None:
    arrays = steps(50)
    arrays["actions"] = np.linspace(-2.5, 2.5, 50, dtype=np.float32)[:, None]
    done = ingest(npz(tmp_path / "a.npz", arrays), tmp_path / "set", environment="Pendulum-v1")
    outside = int((np.abs(arrays["actions"]) > 2).sum())
    assert done.warnings == [
        f"{outside} of 50 actions ({outside / 50:.2%}) lie outside the action space, by up to 0.5 in entry 0 ([-2, 2]); "
        "they were kept as they are. If the environment clips actions, import with actions=clip."
    ]
    assert done.dataset.statistics.action_outside == outside == 10
    assert done.dataset.spec.action.bounds()[1].tolist() == [2.0]  # type: ignore[union-attr]
    np.testing.assert_array_equal(done.dataset.columns["action"][done.dataset.episodes.transition_rows()], arrays["actions"])


def bad_file(path: Path, kind: str) -> Path:
    match kind:
        case "text":
            path.write_text("time,reward\n1,2\n")
        case "truncated":
            whole = hdf5(path, steps(3000)).read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
        case "lengths":
            hdf5(path, {**steps(30), "rewards": np.zeros(29, np.float32)})
        case "nan" | "inf":
            arrays = steps(30)
            arrays["observations"][17, 1] = float(kind)
            hdf5(path, arrays)
    return path


BAD = {
    "text": ("is in no known format; the formats are: d4rl", DataError),
    "truncated": ("cut short or damaged", DataError),
    "lengths": ("'observations' has 30 rows, but 'rewards' has 29", DataError),
    "nan": ("observations has NaN in row 17", DataError),
    "inf": ("observations has an infinite number in row 17", DataError),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_named_and_leave_nothing(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    hdf5(folder / "a.h5", steps(30))
    source = bad_file(folder / "b.h5", kind)
    for sources in (source, folder):
        with pytest.raises(BAD[kind][1], match=BAD[kind][0]) as refused:
            ingest(sources, tmp_path / "set")
        assert str(source) in str(refused.value)
        assert "\n" not in str(refused.value)
        assert [file.name for file in tmp_path.iterdir()] == ["logs"]


def test_bad_files_are_named_and_leave_nothing_in_parallel_too(local_ray: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for k in range(4):
        hdf5(folder / f"{k}.h5", steps(30, seed=k))
    bad_file(folder / "2.h5", "nan")
    with pytest.raises(DataError, match="NaN in row 17") as refused:
        ingest(folder, tmp_path / "set", parallel=True)
    assert "2.h5" in str(refused.value)
    hdf5(folder / "2.h5", steps(30, entries=4))
    with pytest.raises(
        DataError, match=r"2\.h5 is not like .*0\.h5: its column 'observation' is float32 \[4\], there it is float32 \[3\]"
    ):
        ingest(folder, tmp_path / "set", parallel=True)
    assert [file.name for file in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_dataset_behind_a_uri_outlives_an_import_that_fails(local_ray: Path, tmp_path: Path, parallel: bool) -> None:
    folder, uri = tmp_path / "logs", f"fsspec+file://{tmp_path}/set"
    folder.mkdir()
    for k in range(2):
        hdf5(folder / f"{k}.h5", steps(30, seed=k))
    first = ingest(folder, uri, parallel=parallel).dataset.fingerprint
    bad_file(folder / "1.h5", "nan")
    with pytest.raises(DataError, match="NaN in row 17"):
        ingest(folder, uri, overwrite=True, parallel=parallel)
    kept = Dataset.open(uri)
    kept.verify()
    assert kept.fingerprint == first
    hdf5(folder / "1.h5", steps(30, seed=2))
    assert ingest(folder, uri, overwrite=True, parallel=parallel).dataset.fingerprint != first
    assert len(list((tmp_path / "set").glob("*.arrow"))) == 2
    Dataset.open(uri).verify()


def test_what_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    source = npz(tmp_path / "a.npz", steps(30))
    first = ingest(source, tmp_path / "set").dataset.fingerprint
    npz(tmp_path / "a.npz", steps(30, seed=1))
    with pytest.raises(StorageError, match="set is a dataset already"):
        ingest(source, tmp_path / "set")
    assert Dataset.open(tmp_path / "set").fingerprint == first
    assert ingest(source, tmp_path / "set", overwrite=True).dataset.fingerprint != first
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(StorageError, match=r"letter\.txt"):
        ingest(source, tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "letter.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "d4r"}, "There is no format 'd4r'; did you mean 'd4rl'?"),
        (
            {"format": "d4rl", "options": {"timeout_a": 3}},
            "The format 'd4rl' has no option 'timeout_a'; did you mean 'timeout_at'?",
        ),
        ({"environment": "Pendulm-v1"}, "did you mean 'Pendulum-v1'?"),
        ({"options": {"actions": "clip"}}, "actions is a setting of its own"),
    ],
)
def test_settings_are_refused_before_any_work(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ingest(npz(tmp_path / "a.npz", steps(10)), tmp_path / "set", **arguments)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_sources_are_found_in_order_and_what_is_missing_is_said(tmp_path: Path) -> None:
    for name in ("b.h5", "a.h5", "deep/c.h5", ".hidden", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(tmp_path / name) for name in ("a.h5", "b.h5", "d.txt", "deep/c.h5")]
    assert find_sources([tmp_path]) == names
    assert find_sources([f"{tmp_path}/*.h5"]) == names[:2]
    assert find_sources([f"{tmp_path}/**/*.h5"]) == [names[0], names[1], names[3]]
    assert find_sources([f"file://{tmp_path}/a.h5"]) == names[:1]
    with pytest.raises(ConfigError, match="is given twice"):
        find_sources([tmp_path / "a.h5", f"{tmp_path}/*.h5"])
    with pytest.raises(DataError, match=r"There is no file .*a\.h'; did you mean 'a\.h5'\?"):
        find_sources([tmp_path / "a.h"])
    with pytest.raises(DataError, match="No file fits"):
        find_sources([f"{tmp_path}/*.csv"])


def test_a_remote_folder_is_copied_whole_and_called_by_its_uri(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for k in range(2):
        npz(tmp_path / "a.npz", steps(20, seed=k))
        memory.pipe(f"/logs/run/deep{k}/a.npz", (tmp_path / "a.npz").read_bytes())
    memory.pipe("/logs/run/.hidden", b"x")
    done = ingest("fsspec+memory://logs/run", tmp_path / "set", parallel=False)
    assert [file.source for file in done.files] == [f"fsspec+memory://logs/run/deep{k}/a.npz" for k in range(2)]
    assert done.dataset.n_transitions == 40
    memory.pipe("/logs/run/deep0/b.npz", b"PK\x03\x04 no")
    with pytest.raises(DataError, match=r"^fsspec\+memory://logs/run/deep0/b\.npz is an archive that is cut short"):
        ingest("fsspec+memory://logs/run/", tmp_path / "set2", parallel=False)
    memory.pipe("/logs/run/dataset.json", b"{}")
    with pytest.raises(DataError, match=r"^fsspec\+memory://logs/run is a d3ray dataset already"):
        ingest("fsspec+memory://logs/run", tmp_path / "set2", parallel=False)
    assert not (tmp_path / "set2").exists()


def test_a_folder_that_is_one_dataset_is_read_by_its_parts(tmp_path: Path) -> None:
    """CSV beside images: the images are no sources of their own, in the folder or found by a pattern."""
    for name in ("one", "two"):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        Image.fromarray(np.full((2, 2), 7, np.uint8)).save(folder / "a.png")
        (folder / "log.csv").write_text("episode,observation:0,action:0,reward\n0,a.png,1,1\n")
    csvs = [str(tmp_path / "logs" / name / "log.csv") for name in ("one", "two")]
    assert find_sources([tmp_path / "logs" / "one"]) == csvs[:1]
    assert find_sources([tmp_path / "logs"]) == csvs
    assert find_sources([f"{tmp_path}/logs/*"]) == csvs
    assert find_sources([f"{tmp_path}/logs/**"]) == csvs
    assert len(find_sources([tmp_path / "logs"], "d4rl")) == 4  # where the format is named, others are not asked
    assert ingest(tmp_path / "logs", tmp_path / "set").dataset.spec.observation.shape == (2, 2, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
@pytest.mark.parametrize("parallel", [False, True])
def test_a_full_disk_leaves_nothing(local_ray: Path, tmp_path: Path, parallel: bool) -> None:
    sources = [npz(tmp_path / f"{k}.npz", steps(40_000, seed=k, entries=17)) for k in range(2)]
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        with pytest.raises(StorageError, match="there is no space left on its disk"):
            ingest(sources, disk / "set", parallel=parallel)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


SLOW = """
import sys, time
from d3ray.data.formats import registry
npz = registry.FORMATS["npz"]
read = npz.read
def slow(self, path):
    print("reading", flush=True)
    time.sleep(0 if path.name == "0.npz" else 60)
    return read(self, path)
npz.read = slow
from d3ray.jobs.__main__ import main
main(["ingest", *sys.argv[1:]])
"""


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    for k in range(2):
        npz(tmp_path / f"{k}.npz", steps(30, seed=k))
    target = tmp_path / "out" / "set"
    command = [sys.executable, "-c", SLOW, f"{tmp_path}/*.npz", target]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["reading\n"] * 2
    assert [path.name[:11] for path in target.parent.iterdir()] == [".set.draft-"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted; nothing half-made was kept." in errors
    assert list(target.parent.iterdir()) == []


def test_what_a_killed_one_left_goes_with_the_next_into_that_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(2):
        npz(tmp_path / f"{k}.npz", steps(30, seed=k))
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    target = tmp_path / "out" / "set"
    command = [sys.executable, "-c", SLOW, f"{tmp_path}/*.npz", target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["reading\n"] * 2
        process.kill()
    assert [path.name[:11] for path in target.parent.iterdir()] == [".set.draft-"]
    assert [path.name[:19] for path in temporary.glob("d3ray-*")] == ["d3ray-source-draft-"]
    ingest(tmp_path / "0.npz", target.with_name("other"))
    assert [path.name for path in target.parent.iterdir()] == ["other"]
    assert list(temporary.glob("d3ray-*")) == []


@pytest.mark.long
def test_ctrl_c_in_parallel_leaves_nothing(tmp_path: Path) -> None:
    for k in range(60):
        npz(tmp_path / f"{k}.npz", steps(20_000, seed=k))
    target = tmp_path / "out" / "set"
    arguments = ["ingest", f"{tmp_path}/*.npz", target, "parallel=true"]
    process = subprocess.Popen([sys.executable, "-m", "d3ray.jobs", *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not list(target.parent.glob(".set.draft-*/.d3ray-pieces-*/*/*.arrow")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "transitions", "episodes", "mean"),
    [("cartpole_replay.h5", 98_760, 1_240, 79.6), ("pendulum_replay.h5", 99_502, 498, -183.3)],
)
def test_d3rlpys_own_data_gives_its_counts_and_returns(
    test_data: Path, tmp_path: Path, file: str, transitions: int, episodes: int, mean: float
) -> None:
    dataset = ingest(test_data / "d3rlpy" / file, tmp_path / "set").dataset
    assert (dataset.n_transitions, dataset.n_episodes) == (transitions, episodes)
    assert dataset.statistics.return_.mean == pytest.approx(mean, abs=0.05)


@pytest.mark.parametrize(("environment", "mean"), [("Hopper-v4", 3717.5), ("HalfCheetah-v4", 4034.8)])
def test_the_example_mends_cs285s_files_and_says_so(
    test_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environment: str,
    mean: float,
) -> None:
    script = ROOT / "examples/ingest_cs285.py"
    arguments = [test_data / f"cs285/expert_data_{environment}.pkl", tmp_path / "set", environment]
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    runpy.run_path(str(script))
    said = capsys.readouterr().out
    assert "taken as truncated" in said
    assert "clipped to the action space's bounds" in said
    dataset = Dataset.open(tmp_path / "set")
    assert (dataset.n_transitions, dataset.n_episodes, dataset.statistics.action_outside) == (2_000, 2, 0)
    assert not any(dataset.episodes.terminated)
    assert dataset.statistics.return_.mean == pytest.approx(mean, abs=0.05)


def test_integers_are_amounts_in_all_files_where_one_is_negative(tmp_path: Path) -> None:
    for k, first in enumerate((0, -3, 5)):
        flat = {"observations": np.arange(first, first + 8), "actions": np.arange(8) % 2, "rewards": np.ones(8)}
        np.savez(tmp_path / f"{k}.npz", **flat, terminals=np.arange(8) % 4 == 3)
    made = ingest(tmp_path, tmp_path / "set").dataset
    assert made.kinds["observation"] == ("int64", (1,))
    steps = made.to_steps().columns
    assert steps["observation"][~steps["closing"], 0].tolist() == [*range(8), *range(-3, 5), *range(5, 13)]
    kinds = ingest([tmp_path / "0.npz", tmp_path / "2.npz"], tmp_path / "kinds").dataset
    assert kinds.spec.observation == Discrete(n=13)


@pytest.mark.parametrize(
    ("taken", "scale", "proposed"),
    [("cartpole", 1, ["CartPole-v1"]), ("pendulum", 1, ["Pendulum-v1"]), ("pendulum", 10, []), ("cartpole", 10, [])],
)
def test_an_environment_that_fits_is_proposed(taken: str, scale: int, proposed: list[str], tmp_path: Path) -> None:
    recorded = Dataset.open(f"d3ray/{taken}-replay").split(0.99, seed=0)[0]
    names = {"observations": "observation", "actions": "action", "rewards": "reward"} | {n: n for n in ("terminated", "truncated")}
    arrays = {name: recorded.columns[column][~recorded.columns["closing"]] for name, column in names.items()}
    arrays["observations"] = arrays["observations"] * np.float32(scale)
    source = npz(tmp_path / "log.npz", arrays)
    said = [note for note in ingest(source, tmp_path / "set").notes if "environment=" in note]
    assert said == [
        f"Shapes and bounds fit {name}: if the steps were taken there, ingest with environment={name}, which gives the bounds and "
        "is where policies are played."
        for name in proposed
    ]
    if proposed:
        again = ingest(source, tmp_path / "again", environment=proposed[0])
        assert not [note for note in again.notes if "environment=" in note]
        assert again.dataset.spec == recorded.spec


def test_several_environments_that_fit_are_named(tmp_path: Path) -> None:
    arrays = {**steps(40, entries=24), "actions": np.random.default_rng(0).uniform(-1, 1, (40, 4)).astype(np.float32)}
    arrays["observations"] = arrays["observations"].clip(-1, 1).clip(0, 1)
    (said,) = [note for note in ingest(npz(tmp_path / "log.npz", arrays), tmp_path / "set").notes if "environment=" in note]
    assert said.startswith("Shapes and bounds fit BipedalWalker-v3 or BipedalWalkerHardcore-v3: ")


@pytest.mark.long
@pytest.mark.parametrize("name", ["observation:{}", "info/x{}", "other{}"])
def test_ten_thousand_columns(name: str, tmp_path: Path) -> None:
    """No name is compared with all others, and the shard is not opened again for each column: seconds, which were minutes."""
    names = ["episode", "action:0", "reward", *([] if name.startswith("obs") else ["observation:0"])]
    lines = [",".join([*names, *map(name.format, range(10_000))])]
    lines += [",".join(["0", *["1"] * (len(names) + 9_999)]) for _ in range(20)]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    start = time.process_time()
    dataset = ingest(tmp_path / "wide.csv", tmp_path / "wide").dataset
    assert time.process_time() - start < 30
    assert dataset.n_transitions == 20
