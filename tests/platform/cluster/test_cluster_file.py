"""`ray_cluster.yaml` and its variants are files that Ray accepts, with a token, a closed dashboard and d3ray's dependencies."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

from d3ray.platform.cluster.gpus import NEEDED_DRIVER

ROOT = Path(__file__).parents[3]


FILES = {"aws": "ray_cluster.yaml", "gcp": "examples/clusters/gcp.yaml", "local": "examples/clusters/on_premises.yaml"}


@pytest.fixture(params=FILES)
def cluster(request: pytest.FixtureRequest) -> dict[str, Any]:
    return yaml.safe_load((ROOT / FILES[request.param]).read_text())  # as `ray up` reads it, not as d3ray reads its own configs


@pytest.fixture
def aws() -> dict[str, Any]:
    return yaml.safe_load((ROOT / FILES["aws"]).read_text())


def prepared(cluster: dict[str, Any]) -> dict[str, Any]:
    config = prepare_config(deepcopy(cluster))
    validate_config(config)
    return config


def test_ray_accepts_the_file(cluster: dict[str, Any]) -> None:
    config = prepared(cluster)
    assert config["provider"]["type"] in FILES
    assert config["head_node_type"] == ("local.cluster.node" if config["provider"]["type"] == "local" else "head")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cluster: cluster.update(max_worker=3),
        lambda cluster: cluster.update(head_node_type="heat"),
        lambda cluster: cluster["available_node_types"]["gpu_worker"].update(min_workers=9),
        lambda cluster: cluster["docker"].pop("image"),
    ],
    ids=["unknown_key", "unknown_head_type", "min_above_max", "one_image"],
)
def test_the_check_refuses_a_broken_file(aws: dict[str, Any], spoil: Callable[[dict[str, Any]], Any]) -> None:
    spoil(aws)
    with pytest.raises((ValueError, ValidationError, AssertionError)):
        prepared(aws)


@pytest.mark.parametrize("file", [FILES["aws"], FILES["gcp"]])
def test_head_has_no_gpu_and_workers_scale_from_none(file: str) -> None:
    cluster = yaml.safe_load((ROOT / file).read_text())
    types = prepared(cluster)["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0, "GPU": 0}
    assert [name for name in types if name != "head"] == ["gpu_worker"]
    assert types["gpu_worker"]["min_workers"] == 0
    assert 0 < types["gpu_worker"]["max_workers"] <= cluster["max_workers"]


@pytest.mark.parametrize("key", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_every_node_starts_with_token_authentication(cluster: dict[str, Any], key: str) -> None:
    starts = [command for command in prepared(cluster)[key] if "ray start" in command]
    assert len(starts) == 1
    before, _, _ = starts[0].partition("ray start")
    assert re.search(r"export [^;]*\bRAY_AUTH_MODE=token\b[^;]*;", before)


def test_the_token_travels_as_a_file_and_is_not_in_this_one(cluster: dict[str, Any]) -> None:
    # ray reads ~/.ray/auth_token by itself; the head copies its file mounts to every worker that it starts
    assert prepared(cluster)["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "RAY_AUTH_TOKEN" not in yaml.safe_dump(cluster)
    assert cluster["provider"]["type"] == "local" or "--env RAY_AUTH_MODE=token" in cluster["docker"]["run_options"]


def test_the_dashboard_listens_on_loopback(cluster: dict[str, Any]) -> None:
    (start,) = (command for command in cluster["head_start_ray_commands"] if "ray start" in command)
    assert re.search(r"--dashboard-host[= ]127\.0\.0\.1\b", start)


def test_machines_that_are_there_install_the_dependencies_of_pyproject() -> None:
    cluster = yaml.safe_load((ROOT / FILES["local"]).read_text())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (install,) = (shlex.split(command) for command in cluster["setup_commands"] if "pip install" in command)
    assert sorted(word for word in install[2:] if re.match(r"[a-z]", word)) == sorted(declared)
    constraints = install[install.index("-c") + 1]
    assert ((ROOT / FILES["local"]).parent / cluster["file_mounts"][constraints]).is_file()


def test_the_image_is_of_the_ray_and_python_that_d3ray_runs_with() -> None:
    ray = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert ray is not None
    built_on = re.search(r"^FROM (\S+)$", (ROOT / "examples/clusters/Dockerfile").read_text(), re.MULTILINE)
    assert built_on
    assert built_on[1] == f"rayproject/ray:{ray[1]}-py311-cu{CUDA}0"  # `-gpu` means CUDA 12.1
    for file in (FILES["aws"], FILES["gcp"]):
        assert "pip" not in " ".join(yaml.safe_load((ROOT / file).read_text())["setup_commands"])


CUDA = 13  # the major version that torch's wheel of PyPI is built for: `pip install --dry-run torch` names cuda-toolkit 13.0


def test_every_machine_has_a_driver_that_the_cuda_of_torch_takes(cluster: dict[str, Any]) -> None:
    """As far as a file can say it, and the first thing that a worker does is to look."""
    pinned = re.search(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert pinned[1] == "2.13", "look which CUDA it is built for, and which driver that needs"
    assert torch.version.cuda is None or torch.version.cuda.startswith(f"{CUDA}.")
    needs = NEEDED_DRIVER[CUDA]
    (look,) = cluster["worker_setup_commands"]
    assert f"CUDA {CUDA} needs NVIDIA driver {needs} or newer" in look
    words = shlex.split(look)
    assert words[1] == "-c"
    with (
        pytest.raises(AssertionError, match="no GPU that torch can use"),
        mock.patch("torch.cuda.is_available", return_value=False),
    ):
        exec(words[2])
    with mock.patch("torch.cuda.is_available", return_value=True):
        exec(words[2])
    assert f"NVIDIA driver {needs} or newer" in (ROOT / "docs/cluster.md").read_text()
    for name, about in cluster.get("available_node_types", {}).items():
        node = about["node_config"]
        if cluster["provider"]["type"] == "aws":  # the newest, looked up by EC2: an id is of one region, and is withdrawn one day
            assert node["ImageId"].startswith("resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-")
        elif name != "head":
            family = node["disks"][0]["initializeParams"]["sourceImage"].rpartition("/")[2]
            driver = re.search(r"-nvidia-(\d+)$", family)
            assert driver
            assert int(driver[1]) >= needs


def test_every_head_notices_a_dead_node_as_soon(cluster: dict[str, Any], aws: dict[str, Any]) -> None:
    def checks(about: dict[str, Any]) -> list[str]:
        return re.findall(r"RAY_health_check_\w+=\d+", " ".join(about["head_start_ray_commands"]))

    assert len(checks(aws)) == 3
    assert checks(cluster) == checks(aws)
