"""CSV with a column for each number, alone and beside images, and Open Bandit's; the files are written here, number by number."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.tabular.csv_table import CSV
from d3ray.data.spec import Box, Discrete
from d3ray.data.storage.schema import infer_spec, kinds_of, largest_numbers
from d3ray.platform.datasets.ingest import ingest

from .bombs import png, png_of

HEADER = "episode,observation:0,action:0,reward\n"


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_minervas_form_with_blanks_is_read_number_by_number(tmp_path: Path) -> None:
    """The sample of MINERVA's page, padded as there: two observations, three continuous actions."""
    text = "episode, observation:0, observation:1, action:0, action:1, action:2, reward\n"
    rows = [
        ("a", (0.1, 2.0), (0.5, -0.5, 1.0), 1.0),
        ("a", (0.25, -3.0), (0.0, 0.125, 2.0), -2.0),
        ("b", (7.0, 8.0), (1.0, 2.0, 3.0), 0.5),
    ]
    for episode, seen, done, reward in rows:
        text += f"{episode} , " + " , ".join(map(repr, (*seen, *done, reward))) + " \r\n"
    path = write(tmp_path / "log.csv", text + "\n")
    assert detect(path) == "csv"
    imported = read(path)
    steps = imported.steps
    assert steps.first_row.tolist() == [0, 3]
    assert steps.steps.tolist() == [2, 1]
    np.testing.assert_array_equal(steps.columns["observation"][[0, 1, 3]], np.array([r[1] for r in rows], np.float32))
    np.testing.assert_array_equal(steps.columns["action"][[0, 1, 3]], np.array([r[2] for r in rows], np.float32))
    assert steps.columns["reward"][[0, 1, 3]].tolist() == [1.0, -2.0, 0.5]
    assert not steps.terminated.any()  # nothing says that the task ended
    assert not steps.final_recorded.any()
    assert "all were taken as truncated (options.ends=terminated changes that)" in imported.notes[0]
    assert read(path, "csv", ends="terminated").steps.terminated.tolist() == [True, True]


def test_numbers_come_back_as_they_were_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen, reward = rng.normal(size=(500, 3)).astype(np.float32), rng.normal(size=500).astype(np.float32)
    action, episode = rng.integers(0, 4, 500), np.repeat(np.arange(50), 10)
    lines = ["reward;action:0;observation:2;observation:0;observation:1;episode;log_prob;note"]
    for k in range(500):
        cells = (repr(float(v)) for v in (reward[k], seen[k, 2], seen[k, 0], seen[k, 1]))
        r, *o = cells
        lines.append(";".join((r, str(action[k]), *o, str(episode[k]), "-0.5", "said")))
    (tmp_path / "log").write_bytes(gzip.compress("\n".join(lines).encode()))
    imported = read(tmp_path / "log")
    rows = ~imported.steps.columns["closing"]
    np.testing.assert_array_equal(imported.steps.columns["observation"][rows], seen)
    np.testing.assert_array_equal(imported.steps.columns["action"][rows], action)
    np.testing.assert_array_equal(imported.steps.columns["reward"][rows], reward)
    assert imported.steps.columns["action"].dtype == np.int64  # whole numbers in one column are kinds
    assert (imported.steps.columns["log_prob"][rows] == -0.5).all()
    assert "The column 'note' was not read: it is none that d3ray knows." in imported.notes


def test_flags_end_episodes_and_dicts_are_columns_of_their_own(tmp_path: Path) -> None:
    text = (
        "episode,observation/speed:0,observation/place:0,observation/place:1,action:0,reward,terminal,timeout\n"
        "1,1,2,3,0.5,0,false,0\n1,2,2,3,0.5,0,true,0\n2,3,2,3,0.5,0,False,1\n2,4,2,3,0.5,0,False,0\n"
    )
    steps = read(write(tmp_path / "a", text)).steps
    assert steps.terminated.tolist() == [True, False, False]
    assert steps.steps.tolist() == [2, 1, 1]  # the timeout inside episode 2 ends it there
    assert steps.columns["observation/place"].shape == (7, 2)
    limited = read(tmp_path / "a", timeout_at=2).steps
    assert limited.terminated.tolist() == [False, False, False]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "run,x,y,u:0,u:1,reward\n0,1,2,3,4,5\n0,6,7,8,9,10\n")
    rename = {"episode": "run", "observation:0": "x", "observation:1": "y", "action": "u"}
    steps = read(path, "csv", rename=rename).steps
    assert steps.columns["observation"].tolist() == [[1, 2], [6, 7], [6, 7]]
    assert steps.columns["action"].tolist() == [[3, 4], [8, 9], [0, 0]]
    with pytest.raises(ConfigError, match="csv has no column 'state'"):
        read(path, "csv", rename={"state": "x"})
    with pytest.raises(DataError, match=r"has no column 'z' for '.*', only 'run', 'x'"):
        read(path, "csv", rename={"observation": "z"})
    assert read(path, rename=rename).steps.columns["observation"].tolist() == [[1, 2], [6, 7], [6, 7]]
    with pytest.raises(DataError) as refused:
        read(path)
    said = "no column 'episode', 'observation:0', 'action:0', only 'run', 'x', 'y', 'u:0', 'u:1', 'reward'; say which is which: "
    names = "rename.episode=NAME rename.observation:0=NAME rename.action:0=NAME (further entries: observation:1, action:1, …)."
    assert said + names in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "0,1,2,3\n0,1,2\n", "line 3: there are 3 cells, and the header has 4."),
        (HEADER + "\n0,1,2,3,\n", "line 3: there are 5 cells, and the header has 4."),
        (HEADER + "0,1,,3\n", "line 2: the column 'action:0' is empty."),
        (HEADER + " ,1,0,3\n", "line 2: the column 'episode' is empty."),
        (HEADER + "0,1,2,3\n0,1,2,three\n", "line 3: the column 'reward' holds 'three', which is no number."),
        (HEADER + "0,1.0.0,2,3\n".replace("1.0.0", "1") + "0,1.0.0,2,3\n", "line 3: the column 'observation:0' holds '1.0.0'"),
        (HEADER + "0,nan,2,3\n", "line 2: the column 'observation:0' holds 'nan'."),
        (HEADER + "0,1,2,1e999\n", "line 2: the column 'reward' holds '1e999'."),
        (HEADER + "0,1,2,3\n1,1,2,3\n0,1,2,3\n", "episode '0' comes back in row 2, after another"),
        (HEADER, "has no steps: it is a header only."),
        (
            "episode,observation:0,observation:2,action:0,reward\n0,1,2,3,4\n",
            "has the column 'observation:2' but no 'observation:1'",
        ),
        ("episode,observation:0,observation:0,action:0,reward\n0,1,2,3,4\n", "has the column 'observation:0' twice."),
        ("episode,observation:0,reward\n0,1,2\n", "has no column 'action:0', only 'episode', 'observation:0', 'reward'; "),
        (
            "episode,state_0,reward\n0,1,2\n",
            "only 'episode', 'state_0', 'reward'; say which it is: rename.action:0=NAME (further entries: action:1, …).",
        ),
        ("episode,observation:0,action:0,reward,terminal\n0,1,2,3,2\n", "'terminated' is 2 in row 0; flags are 0 or 1."),
        (HEADER + "0,1,-1,3\n", "discrete actions count from 0, but 'actions' is -1 in row 0 (for numbers that are no kinds"),
    ],
)
def test_what_is_wrong_is_said_by_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as refused:
        read(write(tmp_path / "log.csv", text), "csv")
    assert "log.csv" in str(refused.value)
    assert message in str(refused.value)


def test_other_encodings_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is text in UTF-16"):
        read(write(tmp_path / "a", HEADER + "0,1,2,3\n", "utf-16"))
    with pytest.raises(DataError, match=r"is not UTF-8 text \(byte 0xe9 after line 1\)"):
        read(write(tmp_path / "b", HEADER + "0,1,2,3é\n", "latin-1"))
    with pytest.raises(DataError, match="does not begin with a line of UTF-8 text"):
        read(write(tmp_path / "c", "épisode,observation:0\n", "latin-1"), "csv")
    assert read(write(tmp_path / "d", "\ufeff" + HEADER + "0,1,2,3\n")).steps.n_transitions == 1


# ---- beside images


def frames(folder: Path, files: dict[str, bytes], rows: str, name: str = "images.zip") -> Path:
    """A CSV of single steps, and a zip beside it with its images."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return write(folder / "log.csv", HEADER + rows)


PICTURES = np.random.default_rng(1).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)


@pytest.mark.parametrize("place", ["zip", "folder"])
def test_images_are_what_their_names_say(tmp_path: Path, place: str) -> None:
    files = {f"frames/image{k}.png": png(PICTURES[k]) for k in range(3)}
    rows = "0,image1.png ,0,1\n0,image0.png,1,1\n1,image2.png,0,2\n1,image1.png,0,2\n"
    if place == "zip":
        path = frames(tmp_path / "a", files, rows)
    else:
        path = write(tmp_path / "log.csv", HEADER + rows.replace("image", "frames/image"))
        (tmp_path / "frames").mkdir()
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
    assert CSV.parts(path.parent) == [path]
    imported = read(path)
    seen = imported.steps.columns["observation"]
    assert seen.dtype == np.uint8
    np.testing.assert_array_equal(seen[~imported.steps.columns["closing"]], PICTURES[[1, 0, 2, 1]])
    columns = imported.steps.columns
    space = infer_spec(kinds_of(columns), largest_numbers(columns)).observation
    assert isinstance(space, Box)
    assert space.channels == "last"
    assert imported.provenance["images"] == 3


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.png": png(PICTURES[0])}, "there is no image 'b.png'; name the zip archive or folder of the images"),
        (
            {"a.png": png(PICTURES[0]), "b.png": png(PICTURES[1][:4])},
            "'b.png': the image has the shape [4, 4, 3], where [5, 4, 3] is due",
        ),
        (
            {"a.png": png(PICTURES[0]), "b.png": png(PICTURES[1], "L")},
            "'b.png': the image has the shape [5, 4, 1], where [5, 4, 3] is due",
        ),
        ({"a.png": png(PICTURES[0]), "b.png": b"GIF89a" + bytes(50)}, "'b.png' cannot be read as an image"),
        ({"a.png": png(PICTURES[0]), "b.png": png(PICTURES[1])[:60]}, "'b.png' cannot be read as an image: it is cut short"),
        ({"a.png": png_of(6_000)}, "'a.png' has 6000 x 6000 pixels, and 16,777,216 are allowed."),
        ({"a.png": png(PICTURES[0]), "b.png": png_of(3_000)}, "'b.png': the image has the shape [3000, 3000, 3]"),
        ({"a.png": png_of(50_000)}, "'a.png' cannot be read as an image: it is too large."),
        ({"a.png": png(np.zeros((5, 4), np.uint16)), "b.png": b""}, "'a.png' is an image of mode 'I"),
        ({"a.png": png(PICTURES[0]), "x/b.png": b"", "y/b.png": b""}, "has several images 'b.png'"),
    ],
)
def test_images_that_cannot_be_used_are_refused_by_name(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError) as refused:
        read(frames(tmp_path / "a", files, "0,a.png,0,1\n0,b.png,0,1\n"))
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "link.png"])
def test_a_folder_is_not_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.png").write_bytes(png(PICTURES[0]))
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(DataError, match="outside the folder"):
        read(write(folder / "log.csv", HEADER + f"0,{name},0,1\n"))


def test_without_numbers_episodes_end_at_flags(tmp_path: Path) -> None:
    """As a log has them that was written step by step; pandas' index stands in front without a name."""
    rows = [(0, 0, 0), (1, 0, 0), (2, 1, 0), (0, 0, 0), (1, 0, 1), (0, 0, 0)]
    lines = [f"{k},{x},{k % 2},1.5,{done},{timeout}" for k, (x, done, timeout) in enumerate(rows)]
    file = tmp_path / "log.csv"
    file.write_text("\n".join([",obs_0,act,rew,done,timeout", *lines]) + "\n")
    imported = read(file)
    dataset = Dataset.from_steps(imported.steps, name="log", spec=imported.spec)
    assert [len(episode) for episode in dataset.episodes] == [3, 2, 1]
    assert [episode.terminated for episode in dataset.episodes] == [True, False, False]
    assert dataset.episodes[1].observations[:2, 0].tolist() == [0, 1]
    assert any("one ends where terminated or truncated says so" in note for note in imported.notes)
    file.write_text("obs_0,act,rew\n0,1,2\n")
    with pytest.raises(DataError, match=r"no column 'episode'.*rename.episode=NAME, or rename.terminated=NAME"):
        read(file, format="csv")


BANDIT = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1"
AFFINITIES = ",user-item_affinity_0,user-item_affinity_1,user-item_affinity_2,user-item_affinity_3"
ROWS = (
    "0,2019-11-24 00:00:37.006544+00:00,2,3,0,0.25,b7,x",
    "1,2019-11-24 00:00:37.1+00:00,0,1,1,1.0,a1,x",
    "2,t,2,2,0,0.125,b7,x",
)


def write_bandit(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def test_rows_are_episodes_of_one_step_with_probabilities(tmp_path: Path) -> None:
    path = write_bandit(tmp_path / "men.csv", BANDIT + AFFINITIES, *(f"{row},0.5,{k},0,1" for k, row in enumerate(ROWS)))
    assert detect(path) == "open_bandit"
    dataset = ingest(path, tmp_path / "data").dataset
    assert (dataset.n_transitions, dataset.n_episodes) == (3, 3)
    assert dataset.spec.action == Discrete(n=4, names=("item_id",))  # as many as there are affinities
    ones = ("user_feature_0=a1", "user_feature_0=b7", "user_feature_1=x", "position=1", "position=2", "position=3")
    names = (*ones, *(f"user-item_affinity_{k}" for k in range(4)))
    assert dataset.spec.observation == Box(shape=(2 + 1 + 3 + 4,), names=names)
    steps = ~dataset.columns["closing"]
    expected = [[0, 1, 1, 0, 0, 1, 0.5, 0, 0, 1], [1, 0, 1, 1, 0, 0, 0.5, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0.5, 2, 0, 1]]
    np.testing.assert_array_equal(dataset.columns["observation"][steps], np.float32(expected))
    assert dataset.columns["action"][steps].tolist() == [2, 0, 2]
    assert dataset.columns["reward"][steps].tolist() == [0, 1, 0]
    assert dataset.columns["terminated"][steps].all()
    np.testing.assert_allclose(dataset.columns["log_prob"][steps], np.log([0.25, 1, 0.125]), rtol=1e-6)


def test_a_second_file_is_read_like_the_first(tmp_path: Path) -> None:
    first = read(write_bandit(tmp_path / "random.csv", BANDIT, *ROWS))
    assert first.spec is not None
    assert first.spec.action == Discrete(n=3)
    known = first.provenance["categories"]
    assert known == {"user_feature_0": ["a1", "b7"], "user_feature_1": ["x"], "position": ["1", "2", "3"]}
    path = write_bandit(tmp_path / "bts.csv", BANDIT, "0,t,1,2,0,0.5,b7,x")
    assert read(path).steps.columns["observation"].shape[1] == 3
    steps = read(path, categories=known).steps
    assert steps.columns["observation"][0].tolist() == [0, 1, 1, 0, 1, 0]
    other = {**known, "user_feature_0": ["a1"]}
    with pytest.raises(DataError, match="'user_feature_0' is 'b7' in row 0, which is none of the 1 categories given"):
        read(path, categories=other)
    with pytest.raises(ConfigError, match="categories are given for 'user_feature_9'; there are 'position', 'user_feature_0'"):
        read(path, categories={"user_feature_9": ["a"]})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "0,t,1,2,0,0,b7,x",
            "'propensity_score' is 0.0 in row 1; of an action that was taken a probability is above 0 and at most 1.",
        ),
        ("0,t,1,2,0,1.5,b7,x", "'propensity_score' is 1.5 in row 1"),
        ("0,t,1.5,2,0,0.5,b7,x", "discrete actions are whole numbers, but 'actions' is 1.5 in row 1"),
        ("0,t,one,2,0,0.5,b7,x", "line 3: the column 'item_id' holds 'one', which is no number."),
        ("0,t,1,2,,0.5,b7,x", "line 3: the column 'click' is empty."),
        ("0,t,1,2,0,0.5,,x", "line 3: the column 'user_feature_0' is empty."),
        ("0,t,-1,2,0,0.5,b7,x", "discrete actions count from 0, but 'actions' is -1 in row 1"),
        ("0,t,1,2,0,0.5,b7", "line 3: there are 7 cells, and the header has 8."),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write_bandit(tmp_path / "log.csv", BANDIT, ROWS[0], row))


def test_without_affinities_observations_are_those_of_the_pipeline_and_positions(tmp_path: Path) -> None:
    path = write_bandit(tmp_path / "men.csv", BANDIT + AFFINITIES, *(f"{row},0.5,{k},0,1" for k, row in enumerate(ROWS)))
    imported = read(path, affinities=False)
    assert imported.steps.columns["observation"].shape[1] == 6
    assert imported.spec is not None
    assert Dataset.from_steps(imported.steps, name="x", spec=imported.spec).spec.action == Discrete(n=4)
