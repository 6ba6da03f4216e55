"""Cluster files are rehearsed: their own node types, played by Ray's autoscaler with processes of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.running import run_command
from d3ray.platform.cluster.launcher import ClusterFile
from d3ray.platform.cluster.pretend import Staged

ROOT = Path(__file__).parents[3]
AWS, GCP = str(ROOT / "ray_cluster.yaml"), str(ROOT / "examples/clusters/gcp.yaml")
A10G = {"gpu_worker": {"CPU": 8, "GPU": 1}}
QUARTER = {"cpu": 1, "gpu": 0.25}


@pytest.fixture
def no_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of the machine's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("file", [AWS, GCP])
def test_the_node_types_of_a_shipped_file_are_what_is_played(file: str) -> None:
    staged = Staged.of(ClusterFile.read(file), A10G)
    staged.check_fits(QUARTER)
    said = yaml.safe_load(Path(file).read_text())
    played = staged.for_ray("127.0.0.1:1")
    types = played["available_node_types"]
    assert types["gpu_worker"]["resources"].items() >= {"CPU": 8, "GPU": 1}.items()
    for name in ("min_workers", "max_workers"):
        assert types["gpu_worker"][name] == said["available_node_types"]["gpu_worker"][name]
    assert types[played["head_node_type"]]["resources"].items() >= {"CPU": 0, "GPU": 0}.items()
    assert [played[name] for name in ("max_workers", "upscaling_speed")] == [said["max_workers"], said["upscaling_speed"]]
    assert not any(played[name] for name in played if name.endswith("_commands"))
    assert staged.idle_minutes == said["idle_timeout_minutes"]
    assert staged.health["RAY_health_check_period_ms"] == "2000"


def test_resources_that_the_file_leaves_to_aws_are_asked_for(no_cloud: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto import mock_aws
    from ray.autoscaler._private.aws.utils import client_cache, resource_cache

    client_cache.cache_clear()
    resource_cache.cache_clear()
    with pytest.raises(
        ConfigError,
        match=r"leaves it to aws what a node of the type gpu_worker has, which cannot be asked from here \(.*credentials\)\. "
        r"Say it: nodes='\{gpu_worker: \{CPU: 8, GPU: 1\}\}'\.$",
    ):
        Staged.of(ClusterFile.read(AWS))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    client_cache.cache_clear()  # Ray keeps those that had no credentials
    resource_cache.cache_clear()
    with mock_aws():
        staged = Staged.of(ClusterFile.read(AWS))
    assert {name: staged.workers["gpu_worker"]["resources"][name] for name in ("CPU", "GPU")} == {"CPU": 8, "GPU": 1}
    assert staged.head["CPU"] == 0


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda types: types["gpu_worker"].update(resources={"CPU": 8}),
            r"No worker of .* would come for a trial with 1 CPU and 0.25 GPU: of 4 workers in all it has at most 4 gpu_worker with "
            r"8 CPU and 0 GPU\. Mend resources",
        ),
        (lambda types: types["gpu_worker"].update(max_workers=0), "it has at most 0 gpu_worker with 8 CPU and 1 GPU"),
        (lambda types: types.pop("gpu_worker"), "it has no type"),
        (
            lambda types: types["head"].update(resources={"CPU": 4, "GPU": 1}),
            "The head of .* has room for a trial with",
        ),
    ],
    ids=["no_gpu", "none", "no_type", "head_trains"],
)
def test_a_file_of_which_no_worker_would_come_is_refused(tmp_path: Path, spoil: Callable[[Any], Any], why: str) -> None:
    said = yaml.safe_load(Path(GCP).read_text())
    spoil(said["available_node_types"])
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(said))
    with pytest.raises(ConfigError, match=why):
        Staged.of(ClusterFile.read(file)).check_fits(QUARTER)


def test_what_cannot_be_rehearsed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("up", [str(ROOT / "examples/clusters/on_premises.yaml"), "--rehearse"]) == 2
    assert "names machines that are there: none comes or goes, so there is nothing to rehearse." in capsys.readouterr().err
    assert run_command("up", [GCP, "--rehearse", "nodes={gpu: {CPU: 8}}"]) == 2
    assert "nodes names 'gpu', and" in (said := capsys.readouterr().err)
    assert "has the node types head, gpu_worker." in said


def pretended() -> list[int]:
    """Processes of rehearsals."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found += [process.pid] * ("D3RAY_PRETEND" in process.environ())
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_worker_comes_is_killed_comes_again_and_goes(
    no_cloud: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole rehearsal of the shipped file, as a user runs it; every sentence is told after what it says was awaited."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")  # what the user has set is none of a rehearsal's
    assert run_command("up", [AWS, "--rehearse", "nodes={gpu_worker: {CPU: 8, GPU: 1}}"]) == 0
    out, err = capsys.readouterr()
    assert re.sub(r"\d+ s\b|\d+ of", "N", err).splitlines() == [
        "gpu_worker came, and a trial that asks for 1 CPU and 0.25 GPU began there after N.",
        "That node was killed when N 10000 steps were kept.",
        "Another gpu_worker came, and the trial went on there after N.",
        "The trial was finished N later.",
        "N later the workers left were 0, as min_workers says: idle ones go after N here, 10 minutes by the file.",
    ]
    assert out.startswith(f"The rehearsal of {AWS} went well. No machine, image, driver or right was tried.\n")
    assert pretended() == []
