"""`d3ray derive` and `d3ray diff` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command
from d3ray.jobs.data.derive import DeriveConfig, run


def walk(n: int = 400, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    end = rng.random((2, n)) < 0.05
    return Dataset.from_arrays(rng.normal(size=(n, 3)), rng.uniform(-1, 1, (n, 2)), rng.normal(1, 5, n), end[0], end[1])


def test_everything_at_once_in_the_order_of_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = walk(400, 1).write(tmp_path / "a"), walk(300, 2).write(tmp_path / "b", n_shards=2)
    options = ["reward=reward - 1", "take=8", "--shuffle", "top=0.5", "keep=return > 0 and steps >= 3", "seed=4", "n_shards=2"]
    assert run_command("derive", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "best"), *options]) == 0
    out, err = capsys.readouterr()
    expected = Dataset.concat([a, b]).filter("return > 0 and steps >= 3").top(0.5).shuffle(4).take(8).relabel("reward - 1")
    found = Dataset.open(tmp_path / "best")
    assert (found.fingerprint, found.name) == (expected.fingerprint, "best")
    assert found.provenance == json.loads(json.dumps(expected.provenance))
    assert out.startswith(f"best: {expected.n_transitions:,} transitions in 8 episodes of 700 transitions, mean return ")
    assert f"d3ray inspect {tmp_path / 'best'}" in out
    assert "writing shards: 2 of 2" in err
    assert run_command("inspect", [str(tmp_path / "best"), "doctor=false"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("provenance: derived by d3ray")
    assert lines[at + 1 : at + 7] == [
        "  relabel (reward reward - 1) of",
        "    take (episodes 8) of",
        "      shuffle (seed 4) of",
        "        top (fraction 0.5, by episodes) of",
        "          filter (keep return > 0 and steps >= 3) of",
        "            concat of",
    ]
    assert lines[at + 7] == f"              dataset, fingerprint {a.fingerprint[:16]}…"


def test_columns_come_from_a_class_of_ones_own(local_ray: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (local_ray / "own_encoders.py").write_text(
        "class Encoder:\n"
        "    def __init__(self, scale): self.scale = scale\n"
        "    def __call__(self, batch): return {'observation': batch['observation'][:, :2] * self.scale}\n"
    )
    data = walk().write(tmp_path / "a")
    arguments = [str(tmp_path / "a"), str(tmp_path / "new"), "keep=steps > 3", "map=own_encoders:Encoder"]
    assert run_command("derive", [*arguments, "map_arguments={scale: 2}"]) == 0
    found, kept = Dataset.open(tmp_path / "new"), data.filter("steps > 3")
    np.testing.assert_array_equal(found.columns["observation"], kept.to_steps().columns["observation"][:, :2] * 2)
    derived = found.provenance["derived"]
    assert (derived["operation"], derived["parents"][0]["derived"]["operation"]) == ("map_batches", "filter")
    for wrong, message in (("own_encoders:Encodr", "did you mean 'Encoder'"), ("own_encoders", "write module:name")):
        assert run_command("derive", [*arguments[:2], f"map={wrong}", "overwrite=true"]) == 2
        assert message in capsys.readouterr().err


def test_mix_and_parts(tmp_path: Path) -> None:
    sources = [walk(400, seed).write(tmp_path / f"{seed}") for seed in (1, 2)]
    names = tuple(str(tmp_path / f"{seed}") for seed in (1, 2))
    mixed = run(DeriveConfig(source=names, target=str(tmp_path / "mix"), shares=(0.25, 0.75), seed=3)).dataset
    assert mixed.fingerprint == Dataset.mix(sources, (0.25, 0.75), seed=3).fingerprint
    for part, side in (("train", 0), ("test", 1)):
        made = run(DeriveConfig(source=names[0], target=str(tmp_path / part), part=part, test_size=0.3)).dataset
        assert made.fingerprint == sources[0].split(0.3, seed=0)[side].fingerprint


def test_a_copy_in_other_files(tmp_path: Path) -> None:
    data = walk().write(tmp_path / "a")
    again = run(DeriveConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"), n_shards=3, compression="zstd")).dataset
    assert again.fingerprint == data.fingerprint
    assert again.provenance == data.provenance


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["keep=retrun > 1"], "'retrun > 1': there is no 'retrun'; did you mean 'return'?"),
        (["keep=return > 1e9"], "has no episode that satisfies 'return > 1e9'."),
        (["top=2"], "top is 2; input should be less than or equal to 1."),
        (["take=100000"], "take is 100000; "),
        (["reward=observation[7]"], "there is no observation[7]; its subscript goes from 0 to 2."),
        (["shares=[1]"], "it takes two or more of each."),
        (["n_transitions=5"], "n_transitions is the size of a mix"),
        (["kep=return > 1"], "d3ray derive has no setting 'kep'; did you mean 'keep'?"),
    ],
)
def test_bad_input_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    walk().write(tmp_path / "a")
    assert run_command("derive", [str(tmp_path / "a"), str(tmp_path / "new"), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_diff_says_where_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = walk().write(tmp_path / "a")
    data.write(tmp_path / "b", n_shards=3)
    data.relabel("reward + 1 if episode == 2 and step == 1 else reward").write(tmp_path / "c")
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert run_command("diff", [a, b]) == 0
    assert f"{a} and {b} have the same rows, spaces and environment." in capsys.readouterr().out
    assert run_command("diff", [a, c]) == 1
    out = capsys.readouterr().out
    row = int(data.episodes.first_row[2]) + 1
    one, other = (Dataset.open(place).columns["reward"][row] for place in (a, c))
    assert f"column reward: 1 of {data.n_rows} rows differ, by 1 at most; the first is row {row}, episode 2, step 1: " in out
    assert f"{one:.10g} and {other:.10g}" in out
    assert "statistics reward.mean" in out
    assert "provenance derived" in out
    assert out.endswith(f"{a} and {c} differ.\n")
    assert run_command("diff", [a, c, "format=json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["same"], said["columns"][0]["column"], said["columns"][0]["row"]) == (False, "reward", row)
    assert run_command("diff", [a, str(tmp_path / "nothing")]) == 2
