"""Minari's storages: on files laid out here as its documentation and 0.5.4 do, and on folders that Minari itself wrote."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, parts_of, plan, read
from d3ray.data.spec import Box, Dict, Discrete, Environment, MultiDiscrete, Tuple, space_columns
from d3ray.data.storage.steps import concat_steps

from .minari_folders import BOX, FREE, TWO, arrow_folder, episode_of, metadata, write_hdf5


def test_every_observation_is_kept_and_episodes_come_by_number(tmp_path: Path) -> None:
    kinds = [{"terminated": True}, {"truncated": True}, {}, {"terminated": True, "truncated": True}]
    episodes = [episode_of(k % 3 + 1, k, **kinds[k % 4]) for k in range(12)]  # episode_10 comes after episode_9
    imported = read(write_hdf5(tmp_path / "toy", episodes, metadata(BOX, TWO, 12)))
    table = imported.steps
    assert table.steps.tolist() == [len(e["rewards"]) for e in episodes]
    assert table.terminated.tolist() == [k % 4 in (0, 3) for k in range(12)]
    assert table.final_recorded.all()
    np.testing.assert_array_equal(table.columns["observation"], np.concatenate([e["observations"] for e in episodes]).astype("f4"))
    steps = ~table.columns["closing"]
    np.testing.assert_array_equal(table.columns["action"][steps], np.concatenate([e["actions"] for e in episodes]))
    np.testing.assert_array_equal(table.columns["reward"][steps], np.concatenate([e["rewards"] for e in episodes]).astype("f4"))
    assert imported.notes == ["3 episodes end neither terminated nor truncated; they were taken as truncated."]
    assert imported.environment == Environment(id="Toy-v1", kwargs={"size": 3})
    assert imported.spec is not None
    assert imported.spec.observation == Box(shape=(3,), low=(-1, -2, -3), high=(1, 2, 3))
    assert imported.spec.action == Discrete(n=2)
    assert imported.provenance["metadata"] == {"dataset_id": "toy/test-v0", "minari_version": "0.5.4"}


def test_a_flag_within_an_episode_ends_one_there(tmp_path: Path) -> None:
    raw = episode_of(5)
    raw["terminations"][1] = raw["truncations"][2] = True
    imported = read(write_hdf5(tmp_path / "toy", [raw], metadata(BOX, TWO, 1)), "minari")
    assert (imported.steps.steps.tolist(), imported.steps.terminated.tolist()) == ([2, 1, 2], [True, False, False])
    seen = raw["observations"].astype(np.float32)
    np.testing.assert_array_equal(imported.steps.columns["observation"], seen[[0, 1, 2, 2, 3, 3, 4, 5]])
    assert "2 steps within episodes are marked terminated or truncated; an episode ends at each." in imported.notes
    cut = read(tmp_path / "toy", "minari", timeout_at=2).steps
    assert (cut.steps.tolist(), cut.terminated.tolist()) == ([2, 1, 2], [False, False, False])


def test_dicts_tuples_text_infos_and_spaces_that_start_elsewhere(tmp_path: Path) -> None:
    space = {
        "type": "Dict",
        "subspaces": {
            "pair": {"type": "Tuple", "subspaces": [FREE, {**TWO, "start": 5}]},
            "mission": {"type": "Text", "max_length": 9, "min_length": 0, "charset": "abc"},
            "deep": {"type": "Dict", "subspaces": {"x": {**BOX, "shape": [], "low": 0.0, "high": 1.0}}},
        },
    }
    action = {"type": "MultiDiscrete", "dtype": "int64", "nvec": [3, 4], "start": [1, -1]}
    rng, episodes = np.random.default_rng(0), []
    for n in (2, 3):
        raw = {k: v for k, v in episode_of(n, n, truncated=True).items() if k != "observations"}
        raw["actions"] = np.stack([rng.integers(1, 4, n), rng.integers(-1, 3, n)], 1)
        raw["observations/pair/_index_0"] = rng.normal(size=(n + 1, 2)).astype(np.float32)
        raw["observations/pair/_index_1"] = rng.integers(5, 7, n + 1)
        raw["observations/mission"] = [b"abc"] * (n + 1)
        raw["observations/deep/x"] = rng.random(n + 1)
        raw["infos/qpos"] = rng.normal(size=(n + 1, 4))  # what came with each observation, the first one's of the reset
        raw["infos/action_log_probs"] = rng.normal(size=n)
        raw["infos/who/name"] = [b"x"] * (n + 1)
        raw["infos/success"] = np.arange(n + 1) == n
        episodes.append(raw)
    episodes[1]["infos/only_here"] = np.zeros(3)
    imported = read(write_hdf5(tmp_path / "toy", episodes, metadata(space, action, 2)), "minari")
    columns = imported.steps.columns
    assert imported.spec is not None
    assert set(space_columns(imported.spec.observation)) == {"observation/pair/0", "observation/pair/1", "observation/deep/x"}
    assert isinstance(imported.spec.observation, Dict)
    assert imported.spec.observation.spaces["pair"] == Tuple(spaces=(Box(shape=(2,)), Discrete(n=2, start=5)))
    assert imported.spec.action == MultiDiscrete(nvec=(3, 4), start=(1, -1))
    expected = np.concatenate([e["observations/pair/_index_1"] for e in episodes])
    np.testing.assert_array_equal(columns["observation/pair/1"], expected)
    assert columns["observation/deep/x"].shape == (7, 1)
    rows = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(columns["action"][rows], np.concatenate([e["actions"] for e in episodes]))
    np.testing.assert_array_equal(columns["info/qpos"][3:6], episodes[1]["infos/qpos"][:3].astype("f4"))
    np.testing.assert_array_equal(columns["log_prob"][:2], episodes[0]["infos/action_log_probs"].astype("f4"))
    assert not columns["info/success"].any()  # it came with the final observation, whose row has no infos
    assert imported.notes == [
        "Left out, being no numbers of each step: infos/only_here (not alike in all episodes), infos/who/name, "
        "observations/mission."
    ]


def test_actions_of_parts_or_as_asked_keep_the_observations_space(tmp_path: Path) -> None:
    action = {"type": "Dict", "subspaces": {"arm": FREE, "grip": {**FREE, "shape": [1], "low": [0], "high": [1]}}}
    raw = {k: v for k, v in episode_of(3, terminated=True).items() if k != "actions"}
    raw |= {"actions/arm": np.arange(6.0).reshape(3, 2), "actions/grip": np.full((3, 1), 0.5)}
    imported = read(write_hdf5(tmp_path / "parts", [raw], metadata(BOX, action, 1)))
    assert imported.spec is not None
    assert (imported.spec.action, imported.spec.observation) == (Box(shape=(3,)), Box(shape=(3,), low=(-1, -2, -3), high=(1, 2, 3)))
    assert imported.steps.columns["action"][1].tolist() == [2, 3, 0.5]
    assert imported.notes == ["Actions have several parts; their entries stand side by side: arm (2), grip (1)."]
    write_hdf5(tmp_path / "asked", [episode_of(3, terminated=True)], metadata(BOX, TWO, 1))
    asked = read(tmp_path / "asked", discrete_action=False).spec
    assert asked is not None
    assert asked.action == Box(shape=(1,))


def jpeg(pixels: np.ndarray) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return np.frombuffer(buffer.getvalue(), np.uint8)


@pytest.mark.parametrize("equal", [True, False], ids=["rows of one length", "rows of any length"])
def test_images_as_jpeg_and_as_they_are(tmp_path: Path, equal: bool) -> None:
    shades = [np.full((32, 40, 3), shade, np.uint8) for shade in range(200)]
    pixels = np.stack([shade for shade in shades if len(jpeg(shade)) == len(jpeg(shades[0]))][:4])
    if not equal:
        pixels[2, :, :20] = np.random.default_rng(0).integers(0, 256, (32, 20, 3), dtype=np.uint8)
    space = {"type": "Box", "dtype": "uint8", "shape": [32, 40, 3], "low": 0, "high": 255}
    space |= {side: np.full((32, 40, 3), space[side]).tolist() for side in ("low", "high")}
    raw = {k: v for k, v in episode_of(3, truncated=True).items() if k != "observations"}
    path = write_hdf5(tmp_path / "toy", [raw], metadata(space, TWO, 1))
    frames = [jpeg(p) for p in pixels]
    assert (len({len(f) for f in frames}) == 1) is equal
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        dtype = None if equal else h5py.vlen_dtype(np.uint8)
        data: Any = np.stack(frames) if equal else frames
        file["episode_0"].create_dataset("observations", data=data, dtype=dtype)  # pyright: ignore[reportAttributeAccessIssue]
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(f.tobytes()))) for f in frames])
    np.testing.assert_array_equal(read(path, "minari").steps.columns["observation"], decoded)
    raw_path = write_hdf5(tmp_path / "raw", [{**raw, "observations": pixels}], metadata(space, TWO, 1))
    imported = read(raw_path, "minari")
    np.testing.assert_array_equal(imported.steps.columns["observation"], pixels)
    assert imported.spec is not None
    assert imported.spec.observation == Box(shape=(32, 40, 3), dtype="uint8", low=0, high=255)


def test_a_file_alone_says_nothing_of_spaces_and_an_older_one_says_it_in_attributes(tmp_path: Path) -> None:
    folder = write_hdf5(tmp_path / "toy", [episode_of(3, terminated=True)], None)
    file = folder / "data" / "main_data.hdf5"
    for path in (file, folder, folder / "data"):
        imported = read(path)
        assert (imported.spec, imported.environment, imported.steps.n_transitions) == (None, None, 3)
        assert detect(path) == "minari"
    assert parts_of(folder) == [folder]
    with h5py.File(file, "a") as opened:
        opened.attrs.update({key: metadata(BOX, TWO, 1)[key] for key in ("env_spec", "observation_space", "action_space")})
    imported = read(file)
    assert imported.spec is not None
    assert (imported.spec.action, imported.environment) == (Discrete(n=2), Environment(id="Toy-v1", kwargs={"size": 3}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata.json").write_text('{"name": "not ours"}')
    assert parts_of(tmp_path / "other") == []


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_arrow_storage_holds_the_same_steps(tmp_path: Path, kind: str) -> None:
    space = {"type": "Dict", "subspaces": {"a": {**BOX, "shape": [2, 3], "low": [[-9] * 3] * 2, "high": [[9] * 3] * 2}, "b": TWO}}
    episodes = []
    for k in range(11):
        raw = {name: v for name, v in episode_of(k % 4 + 1, k, terminated=k % 2 == 0).items() if name != "observations"}
        n = len(raw["rewards"]) + 1
        raw |= {"observations/a": np.random.default_rng(k).normal(size=(n, 2, 3)), "observations/b": np.arange(n) % 2}
        episodes.append(raw | {"infos/x": np.arange(n, dtype=float)})
    expected = read(write_hdf5(tmp_path / "hdf5", episodes, metadata(space, TWO, 11)))
    found = read(arrow_folder(tmp_path / kind, episodes, metadata(space, TWO, 11), kind))
    assert found.provenance["storage"] == kind
    assert (found.spec, found.notes) == (expected.spec, expected.notes)
    assert found.steps.columns.keys() == expected.steps.columns.keys()
    for name, column in expected.steps.columns.items():
        np.testing.assert_array_equal(found.steps.columns[name], column)


def broken(**change: Any) -> dict[str, Any]:
    raw = episode_of(4, truncated=True)
    for name, value in change.items():
        raw.pop(name) if value is None else raw.update({name: value})
    return raw


@pytest.mark.parametrize(
    ("raw", "about", "message"),
    [
        (
            broken(observations=np.zeros((4, 3))),
            {},
            "of 1: in episode 0: 'observations' has 4 rows; 5 are due for 4 steps; options.short",
        ),
        (broken(actions=np.zeros(3, int)), {}, "in episode 0: 'actions' has 3 rows, 'rewards' has 4"),
        (broken(truncations=None), {}, "episode 0 has no 'truncations'"),
        (broken(rewards=np.array([0, 1, np.nan, 0])), {}, "episode 0: 'rewards' has NaN in row 2"),
        (broken(actions=[b"left"] * 4), {}, "'actions' holds text; numbers are needed"),
        (broken(actions=np.array([0, 1, 2, 0])), {}, "are not those of its arrays: they have the actions 0 to 1 and the data has"),
        (
            broken(),
            {"observation_space": json.dumps({**BOX, "shape": [2]})},
            "are not those of its arrays: they have the observation",
        ),
        (broken(), {"observation_space": "{}"}, "observation_space of .* is not the JSON of a space"),
        (broken(), {"total_episodes": 7}, r"has 1 episodes; .*metadata.json says 7"),
        (broken(), {"total_steps": 9}, r"has 4 steps; .*metadata.json says 9"),
        (broken(), {"data_format": "zarr"}, "names the storage 'zarr'"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path: Path, raw: Any, about: Any, message: str) -> None:
    path = write_hdf5(tmp_path / "toy", [raw], {**metadata(BOX, TWO, 1), **about})
    with pytest.raises(DataError, match=message) as caught:
        read(path, "minari")
    assert "\n" not in str(caught.value)


LENGTHS = [0, 3, 2, 4, 1]


def uneven(folder: Path) -> Path:
    """Five episodes: one empty, one without its final observation, as Minari's antmaze has them, and one with an action too few."""
    episodes = [episode_of(n, n, truncated=True) | {"infos/x": np.arange(n)} for n in LENGTHS if n]
    flags = np.zeros(0, bool)
    empty = {"observations": np.zeros((1, 3)), "actions": np.zeros(0, int), "rewards": np.zeros(0)}
    episodes.insert(0, empty | {"terminations": flags, "truncations": flags})
    episodes[2]["observations"] = episodes[2]["observations"][:-1]
    episodes[3]["actions"] = episodes[3]["actions"][:-1]
    return write_hdf5(folder, episodes, metadata(BOX, TWO, 5, total_steps=sum(LENGTHS)))


def test_episodes_of_other_lengths_are_left_out_by_name_and_the_rest_is_read(tmp_path: Path) -> None:
    path = uneven(tmp_path / "toy")
    imported = read(path)
    assert imported.steps.steps.tolist() == [3, 1]
    assert imported.notes == [
        "1 of 5 episodes have no steps and were left out: 0.",
        "1 of 5 episodes have as many observations as steps, where one more is due, and were left out: 2. "
        "options.short=keep reads them, without their final observations.",
        "1 of 5 episodes have arrays of unequal lengths and were left out: 3. In the first 'actions' has 3 rows, 'rewards' has 4; "
        "mend them in the file.",
    ]
    kept = read(path, short="keep").steps
    assert (kept.steps.tolist(), kept.final_recorded.tolist()) == ([3, 2, 1], [True, False, True])
    assert "info/x" in kept.columns  # which the empty episode has not
    with pytest.raises(ConfigError, match="short is 'no'; input should be 'leave out' or 'keep'"):
        read(path, short="no")


@pytest.mark.parametrize("n_bytes", [1, 300, 1 << 20])
def test_stretches_of_episodes_leave_out_the_same(tmp_path: Path, n_bytes: int) -> None:
    path = uneven(tmp_path / "toy")
    whole, found = read(path), plan(path, n_bytes=n_bytes)
    steps = concat_steps([part().steps for part in found.parts])
    assert steps.steps.tolist() == whole.steps.steps.tolist()
    assert steps.columns.keys() == whole.steps.columns.keys()
    assert [*found.notes, *found.said(steps)] == whole.notes


def test_parts_may_have_any_name_and_have_to_be_alike_in_all_episodes(tmp_path: Path) -> None:
    space = {"type": "Dict", "subspaces": {"source": BOX, "rewards": FREE}}
    raws = [{k: v for k, v in episode_of(n, truncated=True).items() if k != "observations"} for n in (2, 3)]
    raws = [
        raw | {"observations/source": np.ones((k, 3)), "observations/rewards": np.ones((k, 2))}
        for k, raw in zip((3, 4), raws, strict=True)
    ]
    columns = read(write_hdf5(tmp_path / "toy", raws, metadata(space, TWO, 2)), "minari").steps.columns
    assert columns["observation/rewards"].shape == (7, 2)
    other = raws[1] | {"observations/rewards": np.ones((4, 5))}
    with pytest.raises(DataError, match=r"episode 1: 'rewards' has entries of shape \[5\], and in .*episode 0 of \[2\]"):
        read(write_hdf5(tmp_path / "other", [raws[0], other], metadata(space, TWO, 2)), "minari")
    del other["observations/rewards"]
    with pytest.raises(DataError, match=r"episode 1 has other arrays than .*episode 0: only one of them has 'rewards'"):
        read(write_hdf5(tmp_path / "lack", [raws[0], other], metadata(space, TWO, 2)), "minari")


def test_links_and_gaps_are_refused(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "toy", [broken(rewards=None), broken(), broken()], metadata(BOX, TWO, 3))
    file = path / "data" / "main_data.hdf5"
    with h5py.File(file, "a") as opened:
        opened["episode_0/rewards"] = h5py.ExternalLink("other.hdf5", "rewards")
    with pytest.raises(DataError, match="'rewards' is a link to another file"):
        read(path, "minari")
    with h5py.File(file, "a") as opened:
        del opened["episode_1"]
    with pytest.raises(DataError, match="has an episode 2 and no episode 1"):
        read(path, "minari")


WRITE = """
import sys
import gymnasium as gym, numpy as np
try:
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage
except ImportError:
    sys.exit(3)
from gymnasium.spaces import Box, Dict, Discrete, Tuple
space = Dict({"image": Box(0, 255, (32, 33, 3), np.uint8), "pair": Tuple((Box(-9, 9, (2,)), Discrete(3)))})
for kind in ("hdf5", "arrow", "parquet"):
    spec = gym.spec("CartPole-v1")
    storage = MinariStorage.new(f"{sys.argv[1]}/{kind}", space, Box(-1, 1, (2,)), spec, kind, jpeg_encoding=False)
    for k in range(11):
        rng, n = np.random.default_rng(k), k % 3 + 2
        images = rng.integers(0, 256, (n + 1, 32, 33, 3), dtype=np.uint8)
        pair = rng.normal(size=(n + 1, 2)).astype("f4"), rng.integers(0, 3, n + 1)
        actions, last = rng.uniform(-1, 1, (n, 2)).astype("f4"), np.arange(n) == n - 1
        rewards, ended, cut = list(rng.normal(size=n)), list(last & (k % 2 == 0)), list(last & (k % 2 == 1))
        seen, infos = {"image": images, "pair": pair}, {"x": np.arange(n + 1.0), "y": np.ones((n + 1, 2, 2))}
        buffer = EpisodeBuffer(None, None, None, seen, actions, rewards, ended, cut, infos)
        storage.update_episodes([buffer])
"""


@pytest.fixture(scope="module")
def by_minari(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, peer = tmp_path_factory.mktemp("minari"), os.environ.get("D3RAY_PEER_PYTHON")
    done = subprocess.run([peer, "-c", WRITE, str(folder)], check=False).returncode if peer else 3
    if done == 3:
        pytest.skip("D3RAY_PEER_PYTHON names no interpreter that has minari")
    assert not done
    return folder


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
def test_what_minari_itself_wrote(by_minari: Path, kind: str) -> None:
    imported = read(by_minari / kind)
    assert imported.steps.steps.tolist() == [k % 3 + 2 for k in range(11)]
    assert imported.steps.terminated.tolist() == [k % 2 == 0 for k in range(11)]
    assert imported.environment == Environment(id="CartPole-v1")
    at = 0
    for k in range(11):
        rng, n = np.random.default_rng(k), k % 3 + 2
        rows = {name: column[at : at + n + 1] for name, column in imported.steps.columns.items()}
        np.testing.assert_array_equal(rows["observation/image"], rng.integers(0, 256, (n + 1, 32, 33, 3), dtype=np.uint8))
        np.testing.assert_array_equal(rows["observation/pair/0"], rng.normal(size=(n + 1, 2)).astype("f4"))
        np.testing.assert_array_equal(rows["observation/pair/1"], rng.integers(0, 3, n + 1))
        np.testing.assert_array_equal(rows["action"][:-1], rng.uniform(-1, 1, (n, 2)).astype("f4"))
        np.testing.assert_array_equal(rows["info/x"], [*range(n), 0])
        assert rows["info/y"].shape == (n + 1, 2, 2)
        at += n + 1
