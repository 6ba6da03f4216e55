"""LeRobot's folders of 2.x (a file an episode) and 3.0 (many in one), written here as its documentation lays them out."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.format import Imported
from d3ray.data.formats.registry import detect, parts_of, read
from d3ray.data.storage.steps import StepTable, concat_steps
from d3ray.platform.datasets.ingest import ingest

from .bombs import png

LENGTHS = [3, 1, 4]
FEATURES: dict[str, Any] = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
    "action": {"dtype": "float32", "shape": [2]},
    "next.reward": {"dtype": "float32", "shape": [1]},
    "next.done": {"dtype": "bool", "shape": [1]},
    "next.success": {"dtype": "bool", "shape": [1]},
    **{name: {"dtype": "int64", "shape": [1]} for name in ("episode_index", "frame_index", "index", "task_index")},
    "timestamp": {"dtype": "float32", "shape": [1]},
}


def columns_of(lengths: list[int] = LENGTHS) -> dict[str, Any]:
    """Rows of episodes back to back, those of one number as numbers, and vectors as lists."""
    rng, n = np.random.default_rng(0), sum(lengths)
    frame = np.concatenate([np.arange(k) for k in lengths])
    last = np.r_[frame[1:] == 0, True]
    return {
        "observation.state": rng.normal(size=(n, 2)).astype(np.float32),
        "action": rng.normal(size=(n, 2)).astype(np.float32),
        "next.reward": rng.normal(size=n).astype(np.float32),
        "next.done": last,
        "next.success": last & (np.arange(n) > 4),
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
        "frame_index": frame,
        "index": np.arange(n),
        "task_index": np.arange(n) % 2,
        "timestamp": (frame / 10).astype(np.float32),
    }


def table_of(columns: dict[str, Any], rows: slice = slice(None)) -> Any:
    def array(values: Any) -> Any:
        values = values[rows]
        if isinstance(values, list):
            return pa.array(values)
        flat = pa.array(values.reshape(-1))
        return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])

    return pa.table({name: array(values) for name, values in columns.items()})


def write(folder: Path, columns: dict[str, Any], version: str = "v3.0", features: dict[str, Any] | None = None) -> Path:
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    known = {**FEATURES, **(features or {})}
    shown = {name: about for name, about in known.items() if name in columns or about["dtype"] == "video"}
    info = {"codebase_version": version, "fps": 10, "robot_type": "arm", "features": shown}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    if version == "v3.0":
        pq.write_table(table_of(columns), folder / "data" / "chunk-000" / "file-000.parquet")
        tasks = pa.table({"task_index": [0, 1], "task": ["push", "pull"]})
        pq.write_table(tasks, folder / "meta" / "tasks.parquet")
        return folder
    episode = columns["episode_index"]
    for k in np.unique(episode).tolist():
        where = np.flatnonzero(episode == k)
        rows = slice(int(where[0]), int(where[-1]) + 1)
        pq.write_table(table_of(columns, rows), folder / "data" / "chunk-000" / f"episode_{k:06d}.parquet")
    lines = [json.dumps({"task_index": k, "task": task}) for k, task in enumerate(("push", "pull"))]
    (folder / "meta" / "tasks.jsonl").write_text("\n".join(lines))
    return folder


def all_of(folder: Path, **options: Any) -> tuple[StepTable, list[Imported]]:
    found = [read(part, **options) for part in parts_of(folder)]
    return concat_steps([imported.steps for imported in found]), found


def test_features_names_are_those_of_entries_in_each_of_their_forms(tmp_path: Path) -> None:
    features: dict[str, Any] = {
        "observation.arm": {"dtype": "float32", "shape": [2], "names": {"motors": ["shoulder", "elbow"]}},
        "action": {"dtype": "float32", "shape": [2], "names": {"shoulder": 0, "elbow": 1}},
    }
    columns = columns_of()
    one = read(parts_of(write(tmp_path / "one", columns))[0])
    assert one.names == {"observation": ("x", "y"), "action": ()}
    two = write(tmp_path / "two", {**columns, "observation.arm": columns["action"]}, features=features)
    spec = ingest(two, tmp_path / "set").dataset.spec
    assert {name: leaf.names for name, leaf in spec.leaves().items()} == {
        "observation/arm": ("shoulder", "elbow"),
        "observation/state": ("x", "y"),
        "action": ("shoulder", "elbow"),
    }


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_every_frame_is_a_step_and_the_last_observation_is_missing(tmp_path: Path, version: str) -> None:
    columns = columns_of()
    folder = write(tmp_path / "set", columns, version)
    assert detect(folder) == "lerobot"
    table, found = all_of(folder)
    assert len(found) == (1 if version == "v3.0" else 3)
    assert table.steps.tolist() == LENGTHS
    assert table.terminated.all()
    assert not table.final_recorded.any()
    steps = ~table.columns["closing"]
    for name, word in (("observation", "observation.state"), ("action", "action"), ("reward", "next.reward")):
        np.testing.assert_array_equal(table.columns[name][steps], columns[word])
    np.testing.assert_array_equal(table.columns["info/task_index"][steps], columns["task_index"])
    np.testing.assert_array_equal(table.columns["info/next.success"][steps], columns["next.success"])
    assert set(table.columns) & {"info/index", "info/timestamp", "info/frame_index"} == set()
    assert "'next.done' was taken as terminated; done='truncated' takes it otherwise." in found[0].notes
    about = found[0].provenance
    assert (about["fps"], about["robot_type"], about["tasks"]) == (10, "arm", {"0": "push", "1": "pull"})
    if version != "v3.0":
        assert found[1].provenance["tasks"] == {"1": "pull"}  # only what the file's frames belong to
    assert all_of(folder, done="truncated")[0].terminated.any() == np.False_


def test_demonstrations_without_rewards_are_truncated_and_said_so(tmp_path: Path) -> None:
    columns = {k: v for k, v in columns_of().items() if not k.startswith("next.")}
    table, (imported,) = all_of(write(tmp_path / "set", columns))
    assert not table.terminated.any()
    assert not table.columns["reward"].any()
    assert imported.notes == [
        "There is no 'next.reward'; rewards are zeros.",
        "3 of 3 episodes are truncated without a final observation: their last step is kept, but nothing is bootstrapped from it.",
    ]
    renamed = read(parts_of(tmp_path / "set")[0], "lerobot", rename={"reward": "timestamp", "action": "observation.state"})
    np.testing.assert_array_equal(renamed.steps.columns["reward"][:3], columns["timestamp"][:3])


def test_images_are_decoded_and_videos_named(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 5, 3), dtype=np.uint8)
    images = [{"bytes": png(p), "path": None} for p in pixels]
    features = {
        "observation.images.top": {"dtype": "image", "shape": [6, 5, 3], "names": ["height", "width", "channels"]},
        "observation.images.side": {"dtype": "image", "shape": [3, 6, 5], "names": ["channels", "height", "width"]},
        "observation.images.film": {"dtype": "video", "shape": [6, 5, 3]},
    }
    columns = columns_of() | {"observation.images.top": images, "observation.images.side": images}
    table, (imported,) = all_of(write(tmp_path / "set", columns, features=features))
    steps = ~table.columns["closing"]
    for view in ("top", "side"):
        np.testing.assert_array_equal(table.columns[f"observation/images/{view}"][steps], pixels)
    np.testing.assert_array_equal(table.columns["observation/state"][steps], columns["observation.state"])
    where = "meta/episodes does not say where the frames of 'observation.images.film' are in episode 0"
    assert imported.notes[0] == f"Left out, being videos: observation.images.film; {tmp_path}/set/{where}."
    only = {name: values for name, values in columns.items() if not name.startswith("observation.")}
    with pytest.raises(DataError, match=r"all observations are videos, and .*/meta/episodes does not say where"):
        all_of(write(tmp_path / "film", only, features={"observation.images.film": features["observation.images.film"]}))


def test_a_truncated_flag_and_a_time_limit(tmp_path: Path) -> None:
    columns = columns_of() | {"next.truncated": np.arange(8) == 2}
    folder = write(tmp_path / "set", columns, features={"next.truncated": {"dtype": "bool", "shape": [1]}})
    assert all_of(folder)[0].terminated.tolist() == [False, True, True]
    cut = all_of(folder, timeout_at=2)[0]
    assert cut.steps.tolist() == [2, 1, 1, 2, 2]
    # What followed an added end was recorded: the next frame.
    assert cut.final_recorded.tolist() == [True, False, False, True, False]
    np.testing.assert_array_equal(cut.columns["observation"][2], columns["observation.state"][2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": None}, "has no column 'action', only"),
        ({"action": np.zeros((8, 3), np.float32)}, r"column 'action' has entries of 3 numbers; meta/info.json says \[2\]"),
        ({"action": [[0.0, 1.0]] * 7 + [[0.0]]}, "column 'action' has 1 entries in row 7 and 2 in row 0"),
        ({"next.reward": [0.0] * 7 + [None]}, "column 'next.reward' has no value in row 7"),
        ({"next.reward": np.r_[np.zeros(7), np.nan].astype("f4")}, "rewards has NaN in row 7"),
        ({"next.done": np.arange(8)}, "'next.done' is 2 in row 2; flags are 0 or 1"),
        ({"episode_index": np.array([0, 0, 0, 1, 0, 0, 0, 0])}, "episode 0 lies in several places"),
        ({"frame_index": np.array([0, 2, 1, 0, 0, 1, 2, 3])}, "'frame_index' is 2 in row 1, where frame 1 of its episode is due"),
        ({"observation.state": ["text"] * 8}, "column 'observation.state' holds string, not numbers"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    columns = columns_of()
    for name, values in change.items():
        columns.pop(name) if values is None else columns.update({name: values})
    folder = write(tmp_path / "set", columns)
    with pytest.raises(DataError, match=message) as caught:
        read(parts_of(folder)[0], "lerobot")
    assert "file-000.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_of_other_versions_and_other_things(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", columns_of())
    (file,) = parts_of(folder)
    info = json.loads((folder / "meta" / "info.json").read_text())
    (folder / "meta" / "info.json").write_text(json.dumps({**info, "codebase_version": "v1.6"}))
    with pytest.raises(DataError, match=r"is of version v1.6; v2.0, v2.1, v3.0 are read"):
        read(file, "lerobot")
    (folder / "meta" / "info.json").write_text("{}")
    assert parts_of(folder) == []
    with pytest.raises(DataError, match=r"is not below the data folder of a LeRobot dataset"):
        read(file, "lerobot")
    with pytest.raises(ConfigError, match="done is 'maybe'"):
        read(parts_of(write(tmp_path / "again", columns_of()))[0], "lerobot", done="maybe")
    file = parts_of(tmp_path / "again")[0]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match="is a Parquet file that is cut short or damaged"):
        read(file, "lerobot")


def film(path: Path, shades: list[int]) -> None:
    """A video of plain frames, ten a second, of which only the first is a whole picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10, options={"g": "100", "qscale": "1"})
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for shade in shades:
            frame = av.VideoFrame.from_ndarray(np.full((16, 32, 3), shade, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_videos_are_decoded_frame_by_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    columns, camera = columns_of(), "observation.images.film"
    folder = write(tmp_path / "set", columns, version, {camera: {"dtype": "video", "shape": [16, 32, 3]}})
    shades = [20 * k for k in range(sum(LENGTHS))]
    starts = np.cumsum([0, *LENGTHS])
    if version == "v3.0":
        film(folder / f"videos/{camera}/chunk-000/file-000.mp4", [250, *shades])  # another dataset's frame stands first
        (folder / "meta/episodes/chunk-000").mkdir(parents=True)
        where = {"episode_index": [0, 1, 2], f"videos/{camera}/chunk_index": [0] * 3, f"videos/{camera}/file_index": [0] * 3}
        where |= {f"videos/{camera}/from_timestamp": ((1 + starts[:-1]) / 10).tolist()}
        pq.write_table(pa.table(where), folder / "meta/episodes/chunk-000/file-000.parquet")
    else:
        for k in range(3):
            film(folder / f"videos/chunk-000/{camera}/episode_{k:06d}.mp4", shades[starts[k] : starts[k + 1]])
    table, found = all_of(folder)
    frames = table.columns["observation/images/film"][~table.columns["closing"]]
    assert frames.shape == (sum(LENGTHS), 16, 32, 3)
    assert np.abs(frames.reshape(len(frames), -1).mean(1) - shades).max() < 4
    assert not any("video" in note for imported in found for note in imported.notes)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "observation.images.film; PyAV decodes them: pip install d3ray[lerobot]." in all_of(folder)[1][0].notes[0]
    monkeypatch.undo()
    video = next(folder.rglob("*.mp4"))
    video.write_bytes(video.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"\.mp4 (is a video that is missing, cut short or damaged|has no frame at)"):
        all_of(folder)
