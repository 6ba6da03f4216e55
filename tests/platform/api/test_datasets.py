"""Datasets in the hand: brought in by a process, looked at, mended, deleted; beside what the files themselves say."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from d3ray import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.tabular import guess
from d3ray.experiments import datasets
from d3ray.platform.api.processes import Processes
from d3ray.platform.record.status import Status, TrialStatus

N, T = 6, 20


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Episodes that all end terminated after T steps; observation 0 is the step, the action half less, the reward 1."""
    rows = [f"{e},{t},{e},{t - 0.5},1,{int(t == T - 1)}" for e in range(N) for t in range(T)]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(["episode,observation:0,observation:1,action:0,reward,terminated", *rows]) + "\n")
    return file


def _learned_from(*places: str) -> Status:
    """An experiment that learned from datasets at these places."""
    trials = tuple(TrialStatus(identity=p, number=None, state="FINISHED", step=1, n_steps=1, seeds=(), source=p) for p in places)
    return Status(name="one", folder="/results/one", state="FINISHED", trials=trials)


def test_files_become_a_dataset_that_can_be_looked_at(log: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "datasets")
    mine = datasets.ingest([log], "mine", folder=root)
    found = mine.wait(60)
    assert (found.state, found.n_episodes, found.n_transitions, found.actions) == ("READY", N, N * T, "continuous")
    assert found.observation == "2 float32, bounds not known"
    assert found.bytes > 0
    assert [one.name for one in datasets.list(root)] == ["mine"]
    assert mine.settings() == {}
    assert mine.sources() == [str(log)]

    about = mine.episodes(2, 2)
    assert [(one.index, one.steps, one.score, one.terminated) for one in about] == [(2, T, T, True), (3, T, T, True)]
    steps = mine.episode(3)
    assert steps.columns["observation 0"] == list(range(T))
    assert steps.columns["observation 1"] == [3] * T
    assert steps.columns["action"] == [t - 0.5 for t in range(T)]
    assert (steps.every, steps.has_images, steps.steps) == (1, False, list(range(T)))
    with pytest.raises(DataError, match=r"has 6 episodes; there is no number 6"):
        mine.episode(6)
    with pytest.raises(DataError, match="are no images"):
        mine.image(0, 0)


def test_entries_are_called_as_the_columns_of_the_file_were(log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("observation:0,observation:1,action:0", "room,outside,heats"))
    rename = {"observation:0": "room", "observation:1": "outside", "action:0": "heats"}
    mine = datasets.ingest([log], "mine", folder=str(tmp_path / "datasets"), format="csv", rename=rename)
    assert mine.wait(60).observation == "2 float32, bounds not known (room, outside)"
    assert {"observation room", "observation outside", "action heats"} <= mine.episode(3).columns.keys()
    seen = mine.inspect()
    assert {"observation room", "observation outside", "action heats"} <= {one.label for one in seen.moments}
    assert {"observation room", "observation outside", "action heats"} <= {one.title for one in seen.charts}
    assert [one.name for one in seen.columns][:2] == ["observation", "action"]
    assert seen.columns[0].names == ["room", "outside"]


def test_a_dataset_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, n: int) -> None:
        end = np.arange(n) % 5 == 4
        arrays = np.zeros((n, 2), np.float32), np.zeros((n, 1), np.float32), np.ones(n), end
        Dataset.from_arrays(*arrays).write(tmp_path / name, overwrite=True)

    read: list[str] = []
    opened = Dataset.open
    monkeypatch.setattr(Dataset, "open", lambda folder: (read.append(Path(folder).name), opened(folder))[-1])
    write("a", 10)
    write("b", 15)
    for _ in range(3):
        found = {one.name: one.n_transitions for one in datasets.list(str(tmp_path))}
        assert found == {"a": 10, "b": 15}
    assert sorted(read) == ["a", "b"]
    write("a", 20)
    assert {one.name: one.n_transitions for one in datasets.list(str(tmp_path))} == {"a": 20, "b": 15}
    assert sorted(read) == ["a", "a", "b"]
    (tmp_path / "b" / "dataset.json").write_text("{")
    assert {one.name: one.state for one in datasets.list(str(tmp_path))} == {"a": "READY", "b": "FAILED"}


def test_what_the_doctor_finds_can_be_mended(log: Path, tmp_path: Path) -> None:
    mine = datasets.ingest([log], "mine", folder=str(tmp_path / "datasets"), keep_float64=True)
    mine.wait(60)
    seen = mine.inspect()
    (limit,) = [finding for finding in seen.findings if finding.name == "timeouts_as_terminals"]
    assert limit.mends == {"timeout_at": T}
    assert seen.ends == {"terminated": N}
    by_label = {one.label: one for one in seen.moments}
    assert (by_label["observation 0"].max, by_label["return of an episode"].mean) == (T - 1, T)
    assert sum(seen.charts[0].counts) == N
    mine.again(**limit.mends)
    assert mine.wait(60).state == "READY"
    after = mine.inspect()
    assert after.ends["truncated"] == N
    assert "timeouts_as_terminals" not in {finding.name for finding in after.findings}
    assert mine.settings() == {"keep_float64": True, "timeout_at": T}  # what was decided before still holds


def test_a_file_that_cannot_be_read_says_why_and_leaves_what_was_there(log: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "datasets")
    datasets.ingest([log], "mine", folder=root).wait(60)
    whole = Dataset.open(Path(root) / "mine").fingerprint
    log.write_text(log.read_text() + "6,1,2\n")
    with pytest.raises(ConfigError, match="replace it, or say another name"):
        datasets.ingest([log], "mine", folder=root)
    after = datasets.ingest([log], "mine", folder=root, replace=True).wait(60)
    assert (after.state, after.fingerprint) == ("READY", whole)
    assert "line 122" in after.reason
    fresh = datasets.ingest([log], "fresh", folder=root).wait(60)
    assert fresh.state == "FAILED"
    assert "line 122" in fresh.reason
    assert not (Path(root) / "fresh").exists()
    handle = datasets.open("fresh", folder=root)
    handle.delete()
    with pytest.raises(ConfigError, match=r"no dataset 'fresh' in .*choose from 'mine'"):
        datasets.open("fresh", folder=root)
    datasets.open("mine", folder=root).delete()
    assert datasets.list(root) == []


def test_what_failed_is_looked_at_once_until_its_file_changes(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, asked, read = str(tmp_path / "datasets"), list[str](), list[Path]()
    log.write_text(log.read_text().replace("observation:0,observation:1,action:0", "room,outside,heats"))
    datasets.ingest([log], "mine", folder=root, format="csv").wait(60)
    jobs, look = Processes.jobs, guess.look
    monkeypatch.setattr(Processes, "jobs", lambda *of: (asked.append("jobs"), jobs(*of))[-1])
    monkeypatch.setattr(guess, "look", lambda file: (read.append(file), look(file))[-1])
    log.write_text(log.read_text() + "\n")
    for _ in range(3):
        (found,) = datasets.list(root)
        assert (found.state, [*found.lacking]) == ("FAILED", ["observation", "action"])
    assert (len(asked), read) == (3, [log])


def test_a_dataset_of_others(log: Path, tmp_path: Path) -> None:
    root = str(tmp_path / "datasets")
    datasets.ingest([log], "mine", folder=root).wait(60)
    part = datasets.derive(["mine"], "some", folder=root, take=2).wait(60)
    assert (part.state, part.n_episodes, part.reason) == ("READY", 2, "")
    with pytest.raises(ConfigError, match=r"no dataset 'mina'.*did you mean 'mine'"):
        datasets.derive(["mina"], "more", folder=root)


def test_images_of_a_zip(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (8, 12, 10, 3), dtype=np.uint8)
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        for k, frame in enumerate(frames):
            out = io.BytesIO()
            Image.fromarray(frame).save(out, "PNG")
            archive.writestr(f"frames/{k}.png", out.getvalue())
    rows = [f"{k // 4}, {k}.png, {k % 2}, {k}" for k in range(8)]
    (tmp_path / "log.csv").write_text("\n".join(["episode, observation:0, action:0, reward", *rows]) + "\n")
    mine = datasets.ingest([tmp_path / "log.csv"], "pixels", folder=str(tmp_path / "datasets"))
    found = mine.wait(60)
    assert (found.state, found.actions, found.is_image) == ("READY", "discrete", True)
    assert mine.episode(1).has_images
    with Image.open(io.BytesIO(mine.image(1, 2))) as image:
        assert np.array_equal(np.asarray(image), frames[6])
    with pytest.raises(DataError, match="has 4 steps; there is no number 4"):
        mine.image(1, 4)


@pytest.mark.parametrize("name", ["../mine", "a/b", "", ".", "-x"])
def test_names_lead_nowhere_else(name: str, log: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        datasets.ingest([log], name, folder=str(tmp_path / "datasets"))
    assert not (tmp_path / "datasets").exists()


def written(*folders: Path) -> None:
    for folder in folders:
        Dataset.from_arrays(np.zeros((2, 1), np.float32), np.zeros((2, 1)), np.ones(2), [False, True]).write(folder)


def test_a_folder_whose_name_no_dataset_may_have_does_not_hide_the_others(tmp_path: Path) -> None:
    written(*(tmp_path / "in" / name for name in ("mine", "my data")), *(tmp_path / "out" / name for name in ("-" * 91, "q r")))
    found = {one.name: one for one in datasets.list(str(tmp_path / "in"), beside=str(tmp_path / "out"))}
    assert {name: one.state for name, one in found.items() if one.elsewhere} == {"dataset": "READY", "q-r": "READY"}
    assert {name: one.state for name, one in found.items() if not one.elsewhere} == {"mine": "READY", "my data": "FAILED"}
    assert "cannot be a folder's" in found["my data"].reason


def test_a_name_never_comes_to_mean_another_dataset(tmp_path: Path) -> None:
    root, work, far = str(tmp_path / "in"), tmp_path / "work", [tmp_path / one / "x" / "mine" for one in ("a", "b")]
    written(work / "mine", work / "only", *far)

    def named(*learned_from: Path) -> dict[str, str]:
        experiments = [_learned_from(str(one)) for one in learned_from]
        found = {one.name: one.folder for one in datasets.list(root, experiments=experiments, beside=str(work))}
        for name, place in found.items():
            assert datasets.open(name, folder=root, experiments=experiments, beside=str(work)).folder == Path(place)
        return found

    assert set(named()) == {"mine", "only"}
    assert named(far[0]) == {"work-mine": str(work / "mine"), "x-mine": str(far[0]), "only": str(work / "only")}
    both = named(*far)
    assert both == {"work-mine": str(work / "mine"), "a-x-mine": str(far[0]), "b-x-mine": str(far[1]), "only": str(work / "only")}
    assert named(*reversed(far)) == both
    written(tmp_path / "in" / "only", tmp_path / "in" / "work-only")
    found = named()
    assert len(found) == 4
    assert found["only"] == str(tmp_path / "in" / "only")


def test_names_that_are_one_where_they_are_cut_are_told_apart(tmp_path: Path) -> None:
    places = [tmp_path / "out" / ("p" * n) / ("x" * 95) for n in (1, 2)]
    written(*places)
    found = {one.name: one.folder for one in datasets.list(str(tmp_path / "in"), beside=str(tmp_path / "out"))}
    assert sorted(found.values()) == sorted(map(str, places))
    assert all(len(name) <= 100 for name in found)


def test_a_place_that_cannot_be_looked_at_does_not_hide_the_others(tmp_path: Path) -> None:
    written(tmp_path / "out" / "mine")
    experiments = [_learned_from("/" + "a" * 300, str(tmp_path / "out" / "mine"))]
    assert [one.name for one in datasets.list(str(tmp_path / "in"), experiments=experiments)] == ["mine"]
