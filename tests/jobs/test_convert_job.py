"""`d3ray convert` as a person types it: what it prints, what it refuses, and what is there afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.exporters.registry import EXPORTERS
from d3ray.data.spec import Environment
from d3ray.jobs.command.running import run_command
from d3ray.jobs.data.convert import FORMATS, ConvertConfig, env_spec, run

TARGETS = {"d4rl": "a.hdf5", "d3rlpy": "a.h5", "minari": "folder", "parquet": "a.parquet", "npz": "a.npz"}


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 steps in 4 episodes, their final observations known."""
    rng, n = np.random.default_rng(0), 300
    cut = np.isin(np.arange(n), (99, 149, 298, 299))
    environment = Environment(id="Pendulum-v1", kwargs={"g": 9.0})
    dataset = Dataset.from_arrays(
        rng.normal(size=(n, 3)),
        rng.uniform(-2, 2, (n, 1)),
        rng.normal(size=n),
        np.zeros(n, bool),
        cut,
        final_observations=rng.normal(size=(4, 3)),
        environment=environment,
        name="pendulum",
    )
    folder = tmp_path_factory.mktemp("convert") / "pendulum"
    dataset.write(folder)
    return folder


def test_the_formats_are_the_exporters_and_d3rays_own() -> None:
    assert set(FORMATS) == {"d3ray", *EXPORTERS}


@pytest.mark.parametrize("format", TARGETS)
def test_what_is_written_can_be_ingested_again(
    tmp_path: Path, pendulum: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    target = str(tmp_path / TARGETS[format])
    assert run_command("convert", [str(pendulum), target, f"format={format}"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"pendulum: 300 transitions in 4 episodes as {EXPORTERS[format].description}.")
    assert f"writing {format}: 300 of 300 (100%)" in err
    assert ("of 4 episodes are left out, for which d3rlpy has no place" in err) is (format == "d3rlpy")
    assert run_command("ingest", [target, str(tmp_path / "again")]) == 0
    again, dataset = Dataset.open(tmp_path / "again"), Dataset.open(pendulum)
    assert (again.fingerprint == dataset.fingerprint) is (format != "d3rlpy")
    assert (again.environment == dataset.environment) is (format == "minari")


def test_into_other_files_of_its_own(tmp_path: Path, pendulum: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "again")
    assert run_command("convert", [str(pendulum), target, "n_shards=3", "compression=zstd", "name=packed"]) == 0
    assert capsys.readouterr().out.startswith("packed: 300 transitions in 4 episodes in 3 files with zstd, fingerprint unchanged.")
    written = Dataset.open(target)
    assert written.folder is not None
    assert written.folder.manifest.compression == "zstd"
    assert (written.fingerprint, written.name) == (Dataset.open(pendulum).fingerprint, "packed")
    assert run(ConvertConfig(dataset=target, target=str(tmp_path / "one"), max_rows_per_shard=120)).format == "d3ray"
    assert len(list((tmp_path / "one").glob("data-*"))) == 4  # 101, 51, 150 and 2 rows
    assert Dataset.open(tmp_path / "one").fingerprint == written.fingerprint


def test_minari_gets_what_gymnasium_makes_the_environment_from(tmp_path: Path, pendulum: Path) -> None:
    run(ConvertConfig(dataset=str(pendulum), target=str(tmp_path / "set"), format="minari"))
    said = json.loads((tmp_path / "set" / "data" / "metadata.json").read_text())["env_spec"]
    with gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(said)) as environment:
        assert environment.unwrapped.g == 9.0  # pyright: ignore[reportAttributeAccessIssue]
    assert env_spec(Environment(id="Nowhere-v7")) is None
    assert env_spec(None) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{}", "{}/x.hdf5"], "say format=d4rl or format=d3rlpy"),
        (["{}", "{}/x", "format=minary"], "There is no exporter 'minary'; did you mean 'minari'?"),
        (["{}", "{}/x.npz", "n_shards=2"], "n_shards is an option of d3ray's own folders; the format is npz."),
        (["{}/nowhere", "{}/x.npz"], "There is no dataset"),
        (["{}", "{}", "format=minari"], "is a folder that holds something else"),
        (["{}"], "d3ray convert needs 'target'"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_nothing_written(
    tmp_path: Path, pendulum: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    before = sorted(pendulum.rglob("*"))
    assert run_command("convert", [argument.format(pendulum) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, sentence in err.splitlines()[-1]) == ("", True)
    assert sorted(pendulum.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", TARGETS)
def test_a_full_disk_leaves_nothing_and_the_process_alive(tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        target = disk / TARGETS[format]
        assert run_command("convert", ["d3ray/pendulum-replay", str(target), f"format={format}"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"{target} cannot be written: there is no space left on its disk."
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
