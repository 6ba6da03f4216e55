"""`d3ray ingest` as a person types it: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command
from d3ray.jobs.data.ingest import IngestConfig, run


def npz(path: Path, n: int = 20, **changes: np.ndarray) -> str:
    arrays = {
        "observations": np.arange(3 * n, dtype=np.float32).reshape(n, 3),
        "actions": np.linspace(-4, 4, n, dtype=np.float32)[:, None],
        "rewards": np.ones(n, np.float32),
        "terminated": np.arange(1, n + 1) % 10 == 0,
    }
    np.savez(path, **{**arrays, **changes})
    return str(path)


def test_it_says_what_it_made_decided_and_found_strange(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "set")
    assert run_command("ingest", [npz(tmp_path / "a.npz"), target, "environment=Pendulum-v1", "--timeout-at", "10"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == ("set: 20 transitions in 2 episodes from 1 file, mean return 10.0 (standard deviation 0.0).")
    assert f"d3ray inspect {target}" in out
    assert "Warning: 10 of 20 actions (50.00%) lie outside the action space, by up to 2 in entry 0 ([-2, 2]); they were kept" in err
    assert "2 episodes that ended terminated after exactly 10 steps were taken as truncated (timeout_at)." in err
    assert "reading files: 1 of 1" in err
    dataset = Dataset.open(target)
    assert dataset.environment is not None
    assert dataset.environment.id == "Pendulum-v1"


def test_what_becomes_of_actions_is_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Actions reach ±4 and Pendulum's ±2: halved they fit, as they are 10 of 20 are clipped, ten times as large they are odd."""
    source, environment = npz(tmp_path / "a.npz"), "environment=Pendulum-v1"
    assert run_command("ingest", [source, str(tmp_path / "half"), environment, "--action-scale=0.5"]) == 0
    assert "Actions were multiplied by 0.5 (action_scale)." in capsys.readouterr().err
    half = Dataset.open(tmp_path / "half")
    assert half.statistics.action_outside == 0
    assert half.provenance["ingested"]["files"][0]["options"] == {"action_scale": 0.5}
    assert run_command("ingest", [source, str(tmp_path / "clip"), environment, "--actions", "clip"]) == 0
    assert "10 of 20 actions were clipped" in capsys.readouterr().err
    clip = Dataset.open(tmp_path / "clip")
    assert clip.provenance["ingested"]["files"][0]["options"] == {"actions": "clip"}
    assert (clip.statistics.action_outside, clip.provenance["ingested"]["files"][0]["actions_clipped"]) == (0, 10)
    assert run_command("ingest", [source, str(tmp_path / "no"), environment, "actions=refuse"]) == 2
    assert "a.npz: the action in row 0 is [-4.0], out of the action space (actions=refuse)." in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert run_command("ingest", [source, str(tmp_path / "far"), environment, "action_scale=20"]) == 0
    assert "more than 10 times its range, so these are hardly actions of this environment" in capsys.readouterr().err


def test_columns_are_renamed(tmp_path: Path) -> None:
    arrays = dict(np.load(npz(tmp_path / "a.npz")))
    np.savez(tmp_path / "b.npz", states=arrays.pop("observations"), **arrays)
    arguments = [str(tmp_path / "b.npz"), str(tmp_path / "set"), "format=npz", "rename.observations=states", "timeout_at=10"]
    assert run_command("ingest", arguments) == 0
    made = Dataset.open(tmp_path / "set")
    assert made.n_transitions == 20
    assert made.provenance["ingested"]["files"][0]["options"] == {"rename": {"observations": "states"}, "timeout_at": 10}


def test_columns_whose_names_have_a_colon_are_renamed(tmp_path: Path) -> None:
    rows = "\n".join(f"{k // 5},{k}.5,{k % 2},{k}" for k in range(20))
    (tmp_path / "a.csv").write_text(f"run,speed in m/s,gear,earned=now\n{rows}\n")
    named = ["rename.observation:0=speed in m/s", "rename.action:0=gear", "rename.episode=run", "rename.reward=earned=now"]
    assert run_command("ingest", [str(tmp_path / "a.csv"), str(tmp_path / "set"), "format=csv", *named]) == 0
    made = Dataset.open(tmp_path / "set")
    assert (made.n_transitions, made.n_episodes) == (20, 4)
    assert made.episodes.returns.tolist() == [10, 35, 60, 85]


def test_a_column_that_sounds_like_costs_is_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{k // 5},{k}.5,{k % 2},{k}" for k in range(20))
    (tmp_path / "a.csv").write_text(f"episode,observation:0,action:0,energy_cost\n{rows}\n")
    target = str(tmp_path / "set")
    assert run_command("ingest", [str(tmp_path / "a.csv"), target, "rename.reward=energy_cost"]) == 0
    command = f"d3ray derive {target} {target}-turned reward=-reward"
    assert f"More of 'energy_cost' is taken for better, as of any reward. Where less is: {command}\n" in capsys.readouterr().err
    assert run_command("derive", command.split()[2:]) == 0
    assert Dataset.open(f"{target}-turned").episodes.returns.tolist() == [-10, -35, -60, -85]
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text().replace("energy_cost", "earned"))
    assert run_command("ingest", [str(tmp_path / "b.csv"), str(tmp_path / "b"), "rename.reward=earned"]) == 0
    assert "taken for better" not in capsys.readouterr().err


def test_several_files_stand_alone_before_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [npz(tmp_path / f"{k}.npz", 20 + 10 * k) for k in range(3)]
    assert run_command("ingest", [*sources, str(tmp_path / "set"), "n_shards=2"]) == 0
    assert "90 transitions in 9 episodes from 3 files" in capsys.readouterr().out
    assert len(list((tmp_path / "set").glob("*-of-00002.arrow"))) == 2
    assert run(IngestConfig(source=f"{tmp_path}/*.npz", target=str(tmp_path / "again"))).dataset.n_transitions == 90


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{}/a.npz", "{}/set"], "observations has NaN in row 4"),
        (["{}/b.npz", "{}/set"], "There is no file"),
        (["{}/a.npz", "{}"], "holds 'a.npz' and is no dataset"),
        (["{}/a.npz", "{}/set", "format=nzp"], "There is no format 'nzp'; did you mean 'npz'?"),
        (["{}/a.npz", "{}/set", "formt=npz"], "d3ray ingest has no setting 'formt'; did you mean 'format'?"),
        (["{}/a.npz"], "d3ray ingest needs 'target'"),
        (["{}/a.npz", "{}/set", "options.timeout_at=3"], "write timeout_at=VALUE"),
    ],
)
def test_bad_input_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    observations = np.zeros((20, 3), np.float32)
    observations[4, 1] = np.nan
    npz(tmp_path / "a.npz", observations=observations)
    assert run_command("ingest", [argument.format(tmp_path) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
