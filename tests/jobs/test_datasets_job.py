"""`d3ray datasets`, and the commands that take a name: what is listed, what is fetched, what is said."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog with two names of a team's own, as files of this machine."""
    rng, n = np.random.default_rng(0), 200
    for k in range(2):
        with h5py.File(tmp_path / f"{k}.hdf5", "w") as out:
            out["observations"], out["actions"] = rng.normal(size=(n, 3)).astype("f4"), rng.uniform(-1, 1, (n, 1)).astype("f4")
            out["rewards"], out["terminals"] = np.ones(n, "f4"), np.arange(n) % 20 == 19
            out["timeouts"] = np.zeros(n, bool)
    content = (tmp_path / "0.hdf5").read_bytes()
    known = {"url": str(tmp_path / "0.hdf5"), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    pendulum: dict[str, Any] = {"environment": {"id": "Pendulum-v1"}, "action_range": [-2, 2], "format": "d4rl", "licence": "MIT"}
    entries = {
        "team/one": {"files": [known], **pendulum, "options": {"timeout_at": 20}},
        "team/two": {"files": [{"url": str(tmp_path / "1.hdf5")}], "format": "d4rl"},
    }
    family = {"name": "teams/{k}-v0", "values": {"k": "0..1"}, "files": [{"url": str(tmp_path / "{k}.hdf5")}], "format": "d4rl"}
    (tmp_path / "catalog.json").write_text(json.dumps({"entries": entries, "families": [family]}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "catalog.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_it_lists_what_there_is_and_what_is_here(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("datasets", []) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if "/" in line}
    assert lines["d3ray/cartpole-replay"][0] == "yes"
    assert lines["d4rl/hopper-medium-v2"] == ["152.8", "MB", "CC-BY-4.0", "Hopper-v4", "-20.2723,", "3234.3"]
    assert lines["atari/{game}-{epoch}-v{run}"] == ["900", "datasets"]
    assert lines["team/one"] == ["0.0", "MB", "MIT", "Pendulum-v1"]
    Dataset.open("team/one")
    assert run_command("datasets", ["team/"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split()[:2] == ["team/one", "yes"]
    assert "2 datasets, 1 of them here." in out
    assert run_command("datasets", ["--local"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["d3ray/cartpole-replay", "d3ray/pendulum-replay", "team/one"]
    assert "3 datasets, 3 of them here." in out
    Dataset.open("teams/1-v0")
    assert run_command("datasets", ["--local"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[4].split()[:2] == ["teams/1-v0", "yes"]
    assert "4 datasets, 4 of them here." in out


def test_it_gives_json_with_urls_hashes_and_scores(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("datasets", ["d4rl/*-medium-v2", "format=json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(found) == 4
    hopper = found["d4rl/hopper-medium-v2"]
    assert hopper["reference"] == {"min": -20.272305, "max": 3234.3}
    assert hopper["files"][0]["sha256"].startswith("5bdf1bc4")
    assert (hopper["local"], hopper["bytes"]) == ("", 152_756_557)
    assert str(team / "cache") in hopper["downloads"]
    assert run_command("datasets", ["atari/pong-e", "format=json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 5 + 5 * 50


def test_a_pattern_that_fits_nothing_is_one_sentence(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("datasets", ["d4rl/hoper-medium-v2"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "No dataset's name fits 'd4rl/hoper-medium-v2'; did you mean 'd4rl/hopper-medium-v2'?\n")


def test_a_name_is_ingested_as_its_entry_says(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("ingest", ["team/one", str(team / "set")]) == 0
    dataset = Dataset.open(team / "set")
    assert dataset.environment is not None
    assert (dataset.name, dataset.environment.id) == ("set", "Pendulum-v1")
    assert not dataset.episodes.terminated.any()  # timeout_at
    assert dataset.fingerprint == Dataset.open("team/one").fingerprint
    assert dataset.spec == Dataset.open("team/one").spec
    (file,) = dataset.provenance["ingested"]["files"]
    assert file["source"] == "team/one/0.hdf5"
    capsys.readouterr()
    assert run_command("ingest", ["team/one", str(team / "own"), "timeout_at=10", "environment=null"]) == 0
    assert Dataset.open(team / "own").episodes.steps.max() == 10
    assert run_command("ingest", ["team/one", "team/two", str(team / "both")]) == 2
    assert "team/one and team/two are not read in the same way" in capsys.readouterr().err
    assert run_command("ingest", ["d3ray/cartpole-replay", str(team / "both")]) == 2
    assert "d3ray/cartpole-replay is a d3ray dataset already" in capsys.readouterr().err
    assert not (team / "both").exists()


@pytest.mark.slow  # it starts a Ray
def test_a_name_is_trained_on(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["team/one", "algorithm=BC", "n_steps=4", "n_steps_per_epoch=2", f"storage={team}/results", "name=named"]
    assert run_command("train", arguments) == 0
    assert "named: 1 of 1 seeds are trained." in capsys.readouterr().out
    assert run_command("inspect", ["team/two", "--verify"]) == 0
    assert "200 transitions in 10 episodes" in capsys.readouterr().out
