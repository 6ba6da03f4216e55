"""`d3ray cluster new`: the files for a place, of one description, and what is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from d3ray.jobs.command.running import run_command
from d3ray.platform.cluster.description import Description

FILES = {
    "aws": {"ray_cluster.yaml", "aws_account.yaml"},
    "kubernetes": {"kubernetes.yaml", "kubernetes_account.yaml", "kubernetes_job.yaml"},
    "slurm": {"slurm.sh"},
}


@pytest.mark.parametrize("place", FILES)
def test_one_description_makes_the_files_of_each_place(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(
        "name: lab\nworkers: 7\nstorage: s3://lab-data/d3ray\nslurm: {partition: gpu}\naws: {region: eu-west-1}\n"
    )
    assert run_command("cluster", ["new", place, "--config", "cluster.yaml", "output=made"]) == 0
    assert {file.name for file in Path("made").iterdir()} == FILES[place]
    assert "Wrote made/" in capsys.readouterr().out
    text = "".join(file.read_text() for file in Path("made").iterdir())
    assert (
        "train s3://lab-data/datasets/hopper algorithm=TD3PlusBC name=hopper storage=s3://lab-data/d3ray resources.gpu=0.25" in text
    )
    assert re.search(r"(max_workers: |maxReplicas: |--nodes=)7", text)
    (training,) = re.findall(r"^#   .* train (s3://.+)$", text, re.MULTILINE)  # what a user types first has to be a whole training
    assert run_command("train", [*shlex.split(training), "--print-config"]) == 0
    capsys.readouterr()
    assert run_command("cluster", ["new", place, "output=made"]) == 2
    assert "is there already; say --replace, or name another folder with output." in capsys.readouterr().err
    assert run_command("cluster", ["new", place, "output=made", "--replace"]) == 0
    assert {file.name: file.read_text() for file in Path("made").iterdir()} == Description().files_for(place)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["new", "azure"], "azure"),
        (["new", "slurm", "name=My Cluster"], "name is 'My Cluster'; it has small letters, digits and dashes"),
        (["new", "slurm", "slurm.partition=gpu; rm -rf ~"], "slurm.partition is 'gpu; rm -rf ~'"),
        (["new", "kubernetes", "tracking=https://me:hidden@mlflow.lab"], "tracking holds a URI with a password"),
        (["new", "aws", "aws.regoin=eu-west-1"], "did you mean 'region'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("cluster", [*arguments, f"output={tmp_path / 'made'}"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert "hidden" not in said
    assert not (tmp_path / "made").exists()
