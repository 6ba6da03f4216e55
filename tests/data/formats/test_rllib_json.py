"""RLlib's JSON lines: packed and plain columns, batches cut and mixed, old and new flags, what must not be unpickled."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.rllib.batches import unpack
from d3ray.data.formats.rllib.json_lines import RLlibJSON
from d3ray.data.formats.untrusted.unpacking import unpacking

from .bombs import Calls

REAL = os.environ.get("D3RAY_TEST_DATA")
real = pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")


def pack(value: Any) -> str:
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def episode(eps_id: int, n: int, *, ended: bool = True, seed: int | None = None) -> dict[str, Any]:
    """Columns of one episode as RLlib's sampler has them."""
    rng = np.random.default_rng(eps_id if seed is None else seed)
    seen = rng.normal(size=(n + 1, 3)).astype(np.float32)
    return {
        "obs": seen[:-1],
        "new_obs": seen[1:],
        "actions": rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        "rewards": rng.normal(size=n),
        "dones": np.arange(n) == (n - 1 if ended else -1),
        "infos": [{"gain": float(k), "name": "x"} for k in range(n)],
        "t": np.arange(n),
        "eps_id": np.full(n, eps_id),
        "agent_index": np.zeros(n, int),
        "action_logp": rng.normal(size=n),
        "weights": np.ones(n),
    }


def cut(columns: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {k: [v[i] for i in rows] if isinstance(v, list) else v[rows] for k, v in columns.items()}


def line(columns: dict[str, Any], packed: tuple[str, ...] = ("obs", "new_obs")) -> str:
    values = {k: pack(v) if k in packed else v.tolist() if isinstance(v, np.ndarray) else v for k, v in columns.items()}
    return json.dumps({"type": "SampleBatch"} | values)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_batches_that_are_cut_and_mixed_become_whole_episodes(tmp_path: Path) -> None:
    a, b, c = episode(7, 5), episode(3, 4, ended=False), episode(9, 1)
    mixed = [cut(b, [0, 1]), cut(a, [0, 1, 2]), cut(c, [0]), cut(a, [4, 3]), cut(b, [2, 3])]
    path = write(tmp_path / "file", *map(line, mixed))
    assert detect(path) == "rllib_json"
    imported = read(path)
    table = imported.steps
    assert table.steps.tolist() == [4, 5, 1]  # by first appearance: 3, 7, 9
    assert table.terminated.tolist() == [False, True, True]
    assert table.final_recorded.all()
    assert table.cuts == 0
    first = slice(table.first_row[1], table.first_row[1] + 5)
    for name, column in (("observation", "obs"), ("action", "actions"), ("log_prob", "action_logp"), ("reward", "rewards")):
        np.testing.assert_array_equal(table.columns[name][first], np.asarray(a[column], np.float32))
    np.testing.assert_array_equal(table.columns["observation"][first.stop], a["new_obs"][-1])
    np.testing.assert_array_equal(table.columns["observation"][4], b["new_obs"][-1])
    assert table.columns["info/gain"][first].tolist() == [0, 1, 2, 3, 4]
    assert "info/name" not in table.columns
    assert imported.notes[0] == "'dones' was taken as terminated: nothing is bootstrapped past it, at a time limit neither."
    assert "action_scale stretches them" in imported.notes[1]


def test_observations_of_parts_in_columns_and_in_rows(tmp_path: Path) -> None:
    one = episode(1, 4)
    rows = [{"arm": {"angle": seen[:2].tolist()}, "grip": float(seen[2])} for seen in [*one["obs"], one["new_obs"][-1]]]
    in_rows = {**one, "obs": rows[:-1], "new_obs": rows[1:]}
    in_columns = {
        **one,
        **{name: {"arm": {"angle": one[name][:, :2].tolist()}, "grip": one[name][:, 2].tolist()} for name in ("obs", "new_obs")},
    }
    for k, columns in enumerate((in_rows, in_columns)):
        table = read(write(tmp_path / str(k), line(columns, ()))).steps
        np.testing.assert_array_equal(table.columns["observation/arm/angle"], np.r_[one["obs"], one["new_obs"][-1:]][:, :2])
        np.testing.assert_array_equal(table.columns["observation/grip"][:, 0], np.r_[one["obs"], one["new_obs"][-1:]][:, 2])
    in_rows["obs"][2] = {"grip": 0.5}
    with pytest.raises(DataError, match=r"'obs' has other keys in row 2 than in row 0, which has 'arm', 'grip'\."):
        read(write(tmp_path / "odd", line(in_rows, ())))


def test_propensities_are_kept_whether_as_logarithms_or_not(tmp_path: Path) -> None:
    one = {name: column for name, column in episode(1, 3).items() if name != "action_logp"}
    path = write(tmp_path / "file", line({**one, "action_prob": np.array([0.5, 0.25, 1.0])}))
    np.testing.assert_allclose(read(path).steps.columns["log_prob"][:3], np.log([0.5, 0.25, 1]), rtol=1e-6)
    both = write(
        tmp_path / "both", line({**one, "action_prob": np.array([0.5, 0.0, 1.0]), "action_logp": np.array([-1.0, -2, -3])})
    )
    assert read(both).steps.columns["log_prob"][:3].tolist() == [-1, -2, -3]
    never = write(tmp_path / "never", line({**one, "action_prob": np.array([0.5, 0.0, 1.0])}))
    with pytest.raises(DataError, match=r"'action_prob' is 0.0 in row 1; of an action that was taken a density is above 0"):
        read(never)


def test_a_batch_with_rows_of_several_episodes(tmp_path: Path) -> None:
    a, b = episode(1, 3), episode(2, 2)
    rows = [(b, 0), (a, 0), (a, 1), (b, 1), (a, 2)]
    batch = {k: np.array([e[k][i] for e, i in rows]) for k in a if k != "infos"}
    table = read(write(tmp_path / "file", line(batch, ())), "rllib_json").steps
    assert table.steps.tolist() == [2, 3]
    np.testing.assert_array_equal(table.columns["reward"], np.float32([*b["rewards"], 0, *a["rewards"], 0]))


def test_flags_of_new_versions_and_time_limits_of_old_ones(tmp_path: Path) -> None:
    new = [episode(1, 3), episode(2, 3), episode(3, 2)]
    for k, columns in enumerate(new):
        columns["terminateds"] = columns["dones"] & (k != 1)  # dones of that time were either, and count no more
        columns["truncateds"] = np.arange(len(columns["t"])) == len(columns["t"]) - 1
    imported = read(write(tmp_path / "new", *map(line, new)), "rllib_json")
    assert imported.steps.terminated.tolist() == [True, False, True]
    assert not any("dones" in note for note in imported.notes)
    old = write(tmp_path / "old", *(line(episode(k, 3)) for k in range(3)), line(episode(5, 2)))
    assert any("import with timeout_at=3" in note for note in read(old, "rllib_json").notes)
    assert read(old, "rllib_json", timeout_at=3).steps.terminated.tolist() == [False, False, False, True]


def test_without_next_observations_an_end_has_none_and_a_gap_in_t_is_an_end(tmp_path: Path) -> None:
    a = {k: v for k, v in episode(1, 6, ended=False).items() if k != "new_obs"}
    table = read(write(tmp_path / "file", line(cut(a, [0, 1, 2, 4, 5]), ("obs",))), "rllib_json").steps
    assert table.steps.tolist() == [3, 2]
    assert not table.terminated.any()
    assert not table.final_recorded.any()


def test_a_gap_is_seen_in_next_observations(tmp_path: Path) -> None:
    table = read(write(tmp_path / "file", line(cut(episode(1, 6), [0, 1, 2, 4, 5]))), "rllib_json").steps
    assert (table.steps.tolist(), table.cuts) == ([3, 2], 1)
    assert table.final_recorded.all()


def test_agents_of_one_episode_are_episodes(tmp_path: Path) -> None:
    a, b = episode(1, 3), episode(1, 3, seed=5)
    b["agent_index"] += 1
    both = {k: [*a[k], *b[k]] if k == "infos" else np.concatenate([a[k], b[k]]) for k in a}
    mixed = cut(both, [0, 3, 1, 4, 2, 5])
    table = read(write(tmp_path / "file", line(mixed)), "rllib_json").steps
    assert table.steps.tolist() == [3, 3]
    np.testing.assert_array_equal(table.columns["reward"][4:7], np.float32(b["rewards"]))


def test_dict_observations_packed_and_plain(tmp_path: Path) -> None:
    a = episode(1, 4)
    for name in ("obs", "new_obs"):
        a[name] = {"pos": a[name], "goal": {"xy": a[name][:, :2]}}
    path = write(tmp_path / "packed", line(a))
    plain = {name: {"pos": a[name]["pos"].tolist(), "goal": {"xy": a[name]["goal"]["xy"].tolist()}} for name in ("obs", "new_obs")}
    rest = {k: v for k, v in a.items() if k not in plain}
    tables = [read(p, "rllib_json").steps for p in (path, write(tmp_path / "plain", line(rest | plain, ())))]
    for table in tables:
        np.testing.assert_allclose(table.columns["observation/goal/xy"][:4], a["obs"]["goal"]["xy"])
        np.testing.assert_allclose(table.columns["observation/pos"][4], a["new_obs"]["pos"][-1])


def test_policies_of_a_multi_agent_batch(tmp_path: Path) -> None:
    def multi(**policies: dict[str, Any]) -> str:
        batches = {name: json.loads(line(columns)) for name, columns in policies.items()}
        return json.dumps({"type": "MultiAgentBatch", "count": 3, "policy_batches": batches})

    one = write(tmp_path / "one", multi(default_policy=episode(1, 3)))
    assert detect(one) == "rllib_json"
    assert read(one, "rllib_json").steps.steps.tolist() == [3]
    two = write(tmp_path / "two", multi(left=episode(1, 3), right=episode(2, 2)))
    with pytest.raises(ConfigError, match=r"line 1 has steps of several policies: say which with policy=NAME; choose from 'left'"):
        read(two, "rllib_json")
    assert read(two, "rllib_json", policy="right").steps.steps.tolist() == [2]
    with pytest.raises(ConfigError, match="line 1 has no policy 'rigth'; did you mean 'right'"):
        read(two, "rllib_json", policy="rigth")


def test_inside_zip_and_gzip_and_over_several_files(tmp_path: Path) -> None:
    a, b = episode(1, 4), episode(2, 3)
    halves = [line(cut(a, [0, 1])), line(cut(a, [2, 3])) + "\n" + line(b)]
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as file:
        file.writestr("one.json", halves[0])
        file.writestr("two.json", halves[1])
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(line(b).encode()))
    assert RLlibJSON.detect(tmp_path / "both.zip")
    assert read(tmp_path / "both.zip").steps.steps.tolist() == [4, 3]
    assert read(tmp_path / "b.json.gz").steps.steps.tolist() == [3]
    apart, over = tmp_path / "apart", tmp_path / "over"
    for folder, texts in ((apart, [line(a), line(b)]), (over, halves)):
        folder.mkdir()
        for k, text in enumerate(texts):
            (folder / f"output-{k}.json").write_text(text)
    assert [p.name for p in RLlibJSON.parts(apart)] == ["output-0.json", "output-1.json"]
    assert RLlibJSON.parts(over) == [over]  # an episode goes over two files
    assert detect(over) == "rllib_json"
    assert read(over).steps.steps.tolist() == [4, 3]
    assert not RLlibJSON.detect(tmp_path)


def test_code_in_a_packed_column_is_refused_and_not_run(tmp_path: Path) -> None:
    text = line(episode(1, 2) | {"obs": Calls(Path.touch, tmp_path / "ran")})
    with pytest.raises(DataError, match=r"file: line 1: 'obs' names pathlib\.[\w.]+; only NumPy arrays"):
        read(write(tmp_path / "file", text), "rllib_json")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": "no such thing"}, r"line 2: 'obs' is text that RLlib did not pack, or damaged"),
        ({"obs": base64.b64encode(b"no such thing").decode()}, r"line 2: 'obs' is text that RLlib did not pack, or damaged"),
        ({"rewards": [1.0, 2.0]}, r"line 2: 'rewards' has 2 rows, but 'obs' has 3\.$"),
        ({"rewards": [1.0, float("nan"), 2.0]}, r"line 2: 'rewards' has NaN in row 1\.$"),
        ({"rewards": [1.0, "x", 2.0]}, r"line 2: 'rewards' holds <U32, not numbers\.$"),
        ({"actions": [[1.0], [1.0, 2.0], [1.0]]}, r"line 2: 'actions' has entries of different lengths\.$"),
        ({"actions": [[1.0, 2.0]] * 3}, r"line 2: 'actions' has entries of shape \[2\], and .*line 1 of \[1\]\.$"),
        ({"obs": [[1.0, 2.0]] * 3}, r"line 2: 'observations' has entries of shape \[2\], and .*line 1 of \[3\]\.$"),
        ({"dones": [0, 0, 2]}, r"file: 'dones' is 2 in row \d; flags are 0 or 1\.$"),
        ({"eps_id": [1, 1, 1]}, r"file: step 0 of episode 1 is there twice \(again in row 3\)\.$"),
        ({"t": None}, r"line 2: 't' holds object, not numbers\.$"),
    ],
)
def test_lines_that_are_no_batches_of_steps(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good, bad = line(episode(1, 3)), json.dumps(json.loads(line(episode(2, 3))) | change)
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "file", good, bad), "rllib_json")


def test_no_more_is_asked_for_than_lz4_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D3RAY_UNPACK_LIMIT", "1000000GB")
    for rows in (1, 1_000_000):
        with unpacking():
            assert len(unpack("it", pack(np.zeros(rows)))) == rows


def test_lines_that_are_no_json_or_lack_columns(tmp_path: Path) -> None:
    good = line(episode(1, 3))
    with pytest.raises(DataError, match="line 2 is no JSON, or cut short"):
        read(write(tmp_path / "file", good, good[:200]), "rllib_json")
    with pytest.raises(DataError, match=r"line 2 holds a list, not a batch\.$"):
        read(write(tmp_path / "file", good, "[1]"), "rllib_json")
    with pytest.raises(DataError, match=r"line 2 has no 'obs', which the first batch has\.$"):
        read(write(tmp_path / "file", good, '{"actions": [1]}'), "rllib_json")
    with pytest.raises(DataError, match=r"line 1 has no 'rewards', only 'type', 'obs'|line 1 has no 'rewards', only 'obs'"):
        read(write(tmp_path / "file", json.dumps({k: v for k, v in json.loads(good).items() if k != "rewards"})), "rllib_json")
    with pytest.raises(DataError, match="is no JSON, or cut short"):
        read(write(tmp_path / "file", '{"obs": ' + "[" * 100_000), "rllib_json")
    renamed = write(tmp_path / "file", re.sub('"rewards"', '"r"', good))
    assert read(renamed, "rllib_json", rename={"rewards": "r"}).steps.n_transitions == 3
    with pytest.raises(ConfigError, match="rename: rllib_json has no column 'reward'; did you mean 'rewards'"):
        read(renamed, "rllib_json", rename={"reward": "r"})


@real
@pytest.mark.parametrize(("name", "mean_return"), [("expert", -175), ("medium", -524)])
def test_real_pendulum(name: str, mean_return: float) -> None:
    path = Path(str(REAL)) / "rllib" / f"pendulum_{name}_sac_50eps.zip"
    assert detect(path) == "rllib_json"
    imported = read(path, timeout_at=200, action_scale=2.0)
    table = imported.steps
    assert (table.n_transitions, table.n_episodes, table.cuts) == (10_000, 50, 0)
    assert not table.terminated.any()
    assert table.final_recorded.all()
    assert table.returns.mean() == pytest.approx(mean_return, abs=1)
    assert np.isfinite(table.columns["log_prob"]).all()
    notes = read(path).notes  # its time limit was not recorded as done, so there is nothing to say of that
    assert len(notes) == 1
    assert "action_scale stretches them (2 for Pendulum)" in notes[0]
    # The torque is twice the action: with it the pendulum's equation gives the next angular velocity.
    first = slice(int(table.first_row[3]), int(table.first_row[3] + 200))
    now, after = table.columns["observation"][first], table.columns["observation"][first.start + 1 : first.stop + 1]
    torque = table.columns["action"][first, 0]
    speed = np.clip(now[:, 2] + (15 * now[:, 1] + 3 * torque) * 0.05, -8, 8)
    np.testing.assert_allclose(after[:, 2], speed, atol=1e-4)


@real
def test_real_bad_data_is_read_and_its_actions_are_named() -> None:
    imported = read(Path(str(REAL)) / "rllib" / "large.json")
    assert imported.steps.n_transitions == 6_000
    assert any(note.startswith("Warning: actions reach from -7,811 to 8,995") for note in imported.notes)
