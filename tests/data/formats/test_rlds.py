"""RLDS as TensorFlow Datasets lays it out, on files that `tfrecords.py` writes byte by byte; what is damaged by its message."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, parts_of, read
from d3ray.data.formats.rlds.tfrecord import parse_example, records
from d3ray.data.formats.untrusted.unpacking import unpacking

from .bombs import png, png_of
from .tfrecords import FLAGS, crc32c, example, framed, image, mapping, message, tensor, varint, write_rlds

STEP = {"observation": tensor([3]), "action": tensor([2]), "reward": tensor(), **FLAGS}


def episode_of(n: int, seed: int = 0, *, terminal: bool = True, last: bool = True, first: bool = True) -> dict[str, Any]:
    """Steps by flat names, n of them, of which the last holds a final observation, and numbers in it that mean nothing."""
    rng = np.random.default_rng(seed)
    flags = np.zeros((3, n), int)
    flags[0, 0], flags[1, -1], flags[2, -1] = first, last, terminal
    found = dict(zip(("steps/is_first", "steps/is_last", "steps/is_terminal"), flags.tolist(), strict=True))
    reward = rng.normal(size=n).astype(np.float32)
    reward[-1] = 0
    floats = {"observation": rng.normal(size=3 * n), "action": rng.normal(size=2 * n), "reward": reward}
    return found | {f"steps/{name}": values.astype(np.float32) for name, values in floats.items()}


def test_the_writers_own_checksum_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720's check value


def test_the_step_with_is_last_becomes_the_closing_row_and_is_terminal_says_why(tmp_path: Path) -> None:
    episodes = [episode_of(4, 0), episode_of(2, 1, terminal=False), episode_of(3, 2)]
    path = write_rlds(tmp_path / "toy", STEP, episodes)
    imported = read(path)
    table = imported.steps
    assert table.steps.tolist() == [3, 1, 2]
    assert table.terminated.tolist() == [True, False, True]
    assert table.final_recorded.all()
    at = 0
    for raw, steps in zip(episodes, (3, 1, 2), strict=True):
        rows = {name: column[at : at + steps + 1] for name, column in table.columns.items()}
        np.testing.assert_array_equal(rows["observation"], raw["steps/observation"].reshape(-1, 3))
        np.testing.assert_array_equal(rows["action"][:-1], raw["steps/action"].reshape(-1, 2)[:-1])
        np.testing.assert_array_equal(rows["reward"][:-1], raw["steps/reward"][:-1])
        assert (rows["closing"].tolist(), rows["action"][-1].tolist()) == ([False] * steps + [True], [0, 0])
        at += steps + 1
    assert imported.notes == []
    assert imported.provenance == {"format": "rlds", "file": path.name, "name": "toy", "version": "1.0.0", "split": "train"}


def test_a_reward_in_the_last_row_is_named_and_the_row_can_be_taken_for_a_step(tmp_path: Path) -> None:
    episodes = [episode_of(3, 0), episode_of(2, 1)]
    episodes[1]["steps/reward"][-1] = 1
    path = write_rlds(tmp_path / "toy", STEP, episodes)
    usual, other = read(path, "rlds"), read(path, "rlds", last_step="step")
    assert usual.notes == [
        "1 of 2 episodes have a reward in the row with is_last, which holds only the final observation; if it is a step of its "
        "own, import with last_step='step'."
    ]
    assert (usual.steps.steps.tolist(), other.steps.steps.tolist()) == ([2, 1], [3, 2])
    assert other.steps.columns["reward"][[5, 6]].tolist() == [1, 0]
    assert not other.steps.final_recorded.any()
    with pytest.raises(ConfigError, match="last_step is 'row'; input should be 'closing' or 'step'"):
        read(path, "rlds", last_step="row")


def test_an_episode_that_was_cut_while_recorded_keeps_its_last_step(tmp_path: Path) -> None:
    episodes = [episode_of(3, 0, terminal=False, last=False), episode_of(3, 1), episode_of(1, 2), episode_of(2, 3, first=False)]
    imported = read(write_rlds(tmp_path / "toy", STEP, episodes), "rlds")
    assert imported.steps.steps.tolist() == [3, 2, 1]
    assert imported.steps.final_recorded.tolist() == [False, True, True]
    assert imported.steps.terminated.tolist() == [False, True, True]
    np.testing.assert_array_equal(imported.steps.columns["observation"][3], episodes[0]["steps/observation"][-3:])
    assert imported.notes == [
        "1 episodes of a single observation hold no step.",
        "1 of 3 episodes do not begin with is_first: how they began was not recorded.",
        "1 of 3 episodes are truncated without a final observation: their last step is kept, but nothing is bootstrapped from it.",
    ]


def test_dicts_images_encoded_tensors_and_parts_of_actions(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(3), 4
    pictures = rng.integers(0, 256, (n, 5, 6, 3), dtype=np.uint8)
    grey = rng.integers(0, 256, (n, 4, 3, 1), dtype=np.uint8)
    depth, pose = rng.normal(size=(n, 2, 2)), rng.integers(-9, 9, (n, 3)).astype(np.int16)
    step = {
        "observation": mapping(
            {
                "image": image([5, 6, 3]),
                "hand": mapping({"grey": image([4, 3, 1])}),
                "depth": tensor([2, 2], "float64", "zlib"),
                "instruction": {"text": {}},
            }
        ),
        "action": mapping({"move": tensor([2]), "grip": tensor()}),
        "pose": tensor([3], "int16", "bytes"),
        "ids": {"sequence": {"feature": tensor(dtype="int64")}},
        **FLAGS,
    }
    raw = {
        "steps/observation/image": [png(p) for p in pictures],
        "steps/observation/hand/grey": [png(p[..., 0]) for p in grey],
        "steps/observation/depth": [zlib.compress(d.tobytes()) for d in depth],
        "steps/observation/instruction": [b"go"] * n,
        "steps/action/move": np.arange(8, dtype=np.float32),
        "steps/action/grip": np.arange(4, dtype=np.float32) / 4,
        "steps/pose": [p.tobytes() for p in pose],
        "steps/ids/ragged_flat_values": [1, 2],
        "steps/ids/ragged_row_lengths_0": [1, 0, 1, 0],
        "steps/is_first": [1, 0, 0, 0],
        "steps/is_last": [0, 0, 0, 1],
        "steps/is_terminal": [0, 0, 0, 0],
        "episode_id": [b"a"],
    }
    path = write_rlds(tmp_path / "toy", step, [raw], {"episode_id": {"text": {}}})
    imported = read(path, "rlds")
    columns = imported.steps.columns
    np.testing.assert_array_equal(columns["observation/image"], pictures)
    np.testing.assert_array_equal(columns["observation/hand/grey"], grey)
    np.testing.assert_array_equal(columns["observation/depth"], depth.astype(np.float32))
    assert columns["action"].tolist() == [[0, 1, 0], [2, 3, 0.25], [4, 5, 0.5], [0, 0, 0]]
    assert columns["info/pose"].tolist() == [*pose[:3].tolist(), [0, 0, 0]]
    assert columns["info/pose"].dtype == np.int16
    assert imported.notes == [
        "There is no feature 'reward'; rewards are zeros.",
        "Left out, being no numbers of a step: episode_id, steps/ids, steps/observation/instruction.",
        "Actions have several parts; their entries stand side by side: move (2), grip (1).",
    ]
    renamed = read(path, "rlds", rename={"observation": "observation/image", "action": "action/grip"}).steps.columns
    np.testing.assert_array_equal(renamed["observation"], pictures)
    assert renamed["action"].tolist() == [[0], [0.25], [0.5], [0]]


def test_discrete_actions_time_limits_and_invalid_episodes(tmp_path: Path) -> None:
    step = {**STEP, "action": tensor(dtype="int64")}
    episodes = [{**episode_of(4, k), "steps/action": [3, 0, 200, 7], "meta/invalid": [k % 2]} for k in range(3)]
    path = write_rlds(tmp_path / "toy", step, episodes, {"meta": mapping({"invalid": tensor(dtype="bool")})})
    table = read(path, "rlds").steps
    assert table.columns["action"].tolist() == [3, 0, 200, 0] * 3
    assert table.columns["action"].dtype == np.int64
    assert "1 episodes are marked invalid and were kept; invalid='leave out' drops them." in read(path, "rlds").notes
    assert read(path, "rlds", invalid="leave out").steps.n_episodes == 2
    cut = read(path, "rlds", timeout_at=2).steps
    assert (cut.steps.tolist(), cut.terminated.tolist()) == ([2, 1] * 3, [False, True] * 3)
    # The observation after the cut was recorded: it is the next row's.
    np.testing.assert_array_equal(cut.columns["observation"][2], episodes[0]["steps/observation"][6:9])
    assert cut.final_recorded.all()


def test_features_in_the_spelling_of_before_2021(tmp_path: Path) -> None:
    path = write_rlds(tmp_path / "toy", STEP, [episode_of(3)])

    def old(kind: str, content: Any) -> dict[str, Any]:
        return {"type": f"tensorflow_datasets.core.features.{kind}", "content": content}

    def array(shape: list[int], dtype: str) -> dict[str, Any]:
        return old("feature.Tensor", {"shape": shape, "dtype": dtype, "encoding": "none"})

    flags = {name: array([], "bool") for name in FLAGS}
    step = {"observation": array([3], "float32"), "action": array([2], "float32"), "reward": array([], "float32"), **flags}
    features = {"steps": old("dataset_feature.Dataset", {"feature": old("features_dict.FeaturesDict", step), "length": None})}
    expected = read(path, "rlds").steps.columns
    (path.parent / "features.json").write_text(json.dumps(old("features_dict.FeaturesDict", features)))
    for name, column in read(path, "rlds").steps.columns.items():
        np.testing.assert_array_equal(column, expected[name])


def test_a_folder_is_its_files_and_other_folders_are_none(tmp_path: Path) -> None:
    first = write_rlds(tmp_path / "toy", STEP, [episode_of(3)], name="toy-train.tfrecord-00001-of-00002")
    second = write_rlds(tmp_path / "toy", STEP, [episode_of(2)], name="toy-train.tfrecord-00000-of-00002")
    assert parts_of(tmp_path / "toy") == [second, first]
    assert (detect(first), detect(tmp_path / "toy")) == ("rlds", "rlds")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "features.json").write_text("{}")
    (tmp_path / "other" / "x.tfrecord").write_bytes(first.read_bytes())
    assert parts_of(tmp_path / "other") == []
    with pytest.raises(DataError, match=r"needs features.json beside it"):
        read(tmp_path / "other" / "x.tfrecord", "rlds")


def test_numbers_are_read_packed_or_one_by_one() -> None:
    integers = [0, 1, -1, 127, 128, 300, 2**62, -(2**63), 2**63 - 1]
    floats = [0.0, -1.5, 3e38]
    for packed in (True, False):
        found = parse_example(example({"i": integers, "f": floats, "b": [b"", b"ab"], "none": []}, packed=packed), "it")
        assert (found["i"].tolist(), found["f"].tolist()) == (integers, np.float32(floats).tolist())  # pyright: ignore[reportAttributeAccessIssue]
        assert (found["b"], len(found["none"])) == ([b"", b"ab"], 0)


def test_images_may_take_what_numbers_and_names_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_UNPACK_LIMIT", "80MB")
    images, n = [bytes([k]) * 100_000 for k in range(100)], 4_000_000
    honest = example({"i": [1, 2, 300], "seen": images, "f": [0.5] * 1000})
    entry = message(1, message(1, b"seen") + message(2, message(1, message(1, images[0]))))
    with unpacking():
        assert parse_example(honest, "it")["seen"] == images
        assert parse_example(example({"i": [1] * 1000, "seen": images}, packed=False), "it")["seen"] == images
        for record in (
            message(1, message(1, message(1, b"x") + message(2, message(3, message(1, bytes(n)))))),  # integers of a byte
            message(1, message(1, message(1, b"x") + message(2, message(1, b"\x0a\0" * (n // 2))))),  # values without bytes
            message(1, entry + b"\x0a\0" * (n // 2)),  # features without names
            b"\x0a\xff\xff\xff\x7f" + entry * 40,  # longer than the record
        ):
            with pytest.raises(DataError, match=r"it unpacks to .* D3RAY_UNPACK_LIMIT allows 80 MB"):
                parse_example(record, "it")


def test_damage_anywhere_in_a_file_is_found(tmp_path: Path) -> None:
    content = b"".join(framed(example({"i": [k]})) for k in range(3))
    path = tmp_path / "file"
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(DataError, match=r"checksum|cut short"):
            list(records(path))
    whole = len(content) // 3
    for stop in range(1, len(content)):
        path.write_bytes(content[:stop])
        if stop % whole:
            with pytest.raises(DataError, match="cut short"):
                list(records(path))
    path.write_bytes(content)
    assert [parse_example(record, "")["i"].tolist() for record in records(path)] == [[0], [1], [2]]  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_no_example_is_refused_without_much_ado() -> None:
    for record in (
        b"\x0a\xff",  # a field longer than the message
        varint(8 + 3),  # a group
        varint(2) + varint(0),  # field 0
        message(1, message(1, message(1, b"\xff\xfe") + message(2, b""))),  # a name that is no text
        message(1, message(1, message(1, b"x") + message(2, message(2, message(1, b"123"))))),  # three bytes of floats
        message(1, message(1, message(1, b"x") + message(2, message(3, message(1, b"\x80"))))),  # a varint without an end
        message(1, message(1, message(1, b"x") + message(2, message(3, message(1, b"\x80" * 11 + b"\0"))))),
        b"\xff" * 12,
    ):
        with pytest.raises(DataError, match=r"it is not a tf\.train\.Example"):
            parse_example(record, "it")


def broken(**change: Any) -> dict[str, Any]:
    raw = episode_of(4)
    for name, value in change.items():
        key = f"steps/{name}"
        raw.pop(key) if value is None else raw.update({key: value})
    return raw


@pytest.mark.parametrize(
    ("step", "raw", "message"),
    [
        (STEP, broken(action=None), r"record 0: feature 'steps/action' is in features.json and not in the record"),
        (STEP, broken(reward=np.zeros(3, np.float32)), r"feature 'steps/reward' has 3 numbers, not 4 times \[\]"),
        (STEP, broken(observation=[b"x"] * 4), "is stored as bytes; features.json says float32"),
        (STEP, broken(observation=[1] * 12), "is stored as integers; features.json says float32"),
        (STEP, broken(is_last=[0, 1, 0, 1]), "holds more than one episode: is_last is true in step 1 of 4"),
        (STEP, broken(reward=np.float32([0, np.nan, 0, 0])), "rewards has NaN in row 1"),
        (STEP | {"observation": {"text": {}}}, broken(), "no numbers or images in the step feature 'observation'"),
        ({k: v for k, v in STEP.items() if k not in FLAGS}, broken(), "neither 'steps/is_first' nor 'steps/is_last'"),
        (
            STEP | {"observation": image([2, 2, 3])},
            broken(observation=[b"x"] * 4),
            "row 0 cannot be read as an image: it is cut short",
        ),
        (
            STEP | {"observation": image([2, 2, 3])},
            broken(observation=[png(np.zeros((2, 3, 3), np.uint8))] * 4),
            r"row 0: the image has the shape \[2, 3, 3\], where \[2, 2, 3\] is due",
        ),
        (
            STEP | {"observation": tensor([3], "float32", "zlib")},
            broken(observation=[zlib.compress(bytes(1 << 20))] * 4),
            "unpacks to more than the 12 bytes that are announced",
        ),
        (STEP | {"observation": tensor([3], "float32", "bytes")}, broken(observation=[b"1234"] * 4), "has 4 bytes, which are no"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, step: Any, raw: Any, message: str) -> None:
    path = write_rlds(tmp_path / "toy", step, [raw])
    with pytest.raises(DataError, match=message) as caught:
        read(path, "rlds")
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_png_of_a_billion_pixels_is_not_unpacked(tmp_path: Path) -> None:
    unknown = {"pythonClassName": "….Image", "image": {"shape": {"dimensions": ["-1", "-1", "1"]}, "dtype": "uint8"}}
    with pytest.raises(DataError, match=r"it is too large|pixels, and"):
        read(write_rlds(tmp_path / "toy", STEP | {"observation": unknown}, [broken(observation=[png_of(1 << 15)] * 4)]), "rlds")


def test_a_renamed_feature_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_rlds(tmp_path / "toy", STEP, [episode_of(3)])
    with pytest.raises(
        DataError, match=r"no feature 'steps/act', only action, is_first, is_last, is_terminal, observation, reward"
    ):
        read(path, "rlds", rename={"action": "act"})
    with pytest.raises(ConfigError, match=r"rlds has no column 'actions'; did you mean 'action'\?"):
        read(path, "rlds", rename={"actions": "act"})
