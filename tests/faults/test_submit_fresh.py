"""From an empty folder to results: what a stranger types for AWS, Kubernetes and Slurm, as the files and their logs say it.

Commands of clouds are stand-ins; Ray, d3ray, its bucket and what they say to each other are real. AWS's account is in memory.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import boto3
import numpy as np
import pytest

from d3ray import Dataset
from d3ray.platform.cluster.description import Place
from d3ray.platform.cluster.staging import stage_package

from ..platform.cluster.ray_head import RayHead, bare_environment, ray_head
from ..platform.object_store import object_store
from .processes import clean_environment, free_port, kill, marked, until

STAND_INS = {"cloud_stand_in": ("aws", "docker", "kubectl", "ssh"), "slurm_stand_in": ("sbatch", "srun", "scontrol", "scancel")}
PLUGIN = """
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.registry import register_algorithm

@register_algorithm
class LabTD3PlusBC(TD3PlusBC):
    "By another name."
"""
REGION = "us-west-2"


@dataclass
class Stranger:
    """Somebody with d3ray installed, in an empty folder of his own but for a description, a config and a plugin beside it."""

    folder: Path
    environment: dict[str, str]
    port: int  # for 8265, which others may have taken
    bucket: str

    def types(self, *lines: str) -> str:
        """A shell's lines, and what they print. Tunnels stay open until the last is done."""
        with subprocess.Popen(
            ["bash", "-ec", "\n".join(lines)],
            cwd=self.folder / "fresh",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=(log := self.folder / "log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell:
            try:
                status = shell.wait(400)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
        assert status == 0, log.read_text()
        return log.read_text()

    def told(self, file: str, *begin: str) -> list[str]:
        """The commands in the first lines of a file that begin so, in its order, each at least once."""
        first = (self.folder / "fresh" / file).read_text().partition("\n\n")[0].replace("\\\n#", "")
        lines = [" ".join(line[1:].split("  #")[0].split()) for line in first.splitlines() if line.startswith("#   ")]
        found = [line for line in lines if line.startswith(begin)]
        assert {one for one in begin if any(line.startswith(one) for line in found)} == {*begin}, first
        return [line.replace("8265", str(self.port)) for line in found]

    def report(self) -> str:
        """The page of results, on his own machine."""
        self.types(f"d3ray report hopper storage=s3://{self.bucket}/d3ray out=hopper.html")
        return (self.folder / "fresh/hopper.html").read_text()


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Stranger]:
    for part in ("home", "slurm/dead", "fresh/lab", "cloud"):
        (tmp_path / part).mkdir(parents=True)
    binaries = bare_environment(tmp_path)
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    stage_package(site)
    commands = {"d3ray": "-m d3ray.jobs", "ray": "-m ray.scripts.scripts"}
    commands |= {name: f"{Path(__file__).with_name(file)}.py {name}" for file, names in STAND_INS.items() for name in names}
    for name, what in commands.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {binaries}/python {what} "$@"\n')
        (binaries / name).chmod(0o755)
    bucket = re.sub("[^a-z0-9]+", "-", tmp_path.name)[-40:].strip("-")  # tests of a process share one account
    about = {"storage": f"s3://{bucket}/d3ray", "image": "registry.lab/d3ray:1", "slurm": {"setup": []}}
    (tmp_path / "fresh/cluster.yaml").write_text(json.dumps({**about, "cpus": 2, "memory_gib": 1, "gpus": 0}))
    (tmp_path / "fresh/lab/mine.yaml").write_text(
        json.dumps({"algorithm": "LabTD3PlusBC", "plugins": ["mine.py"], "n_steps": 40, "n_steps_per_epoch": 20})
    )
    (tmp_path / "fresh/lab/mine.py").write_text(PLUGIN)
    with object_store() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.address)  # which a head has too, as a role's rights
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        monkeypatch.setenv("AWS_REGION", REGION)
        boto3.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        rng = np.random.default_rng(0)
        ends = np.arange(200) % 20 == 19
        arrays = rng.normal(size=(200, 3)).astype(np.float32), rng.uniform(-1, 1, (200, 1)).astype(np.float32), np.ones(200), ends
        Dataset.from_arrays(*arrays, name="hopper").write(f"s3://{bucket}/datasets/hopper")
        environment = {
            **{name: value for name, value in clean_environment().items() if not name.startswith("PYTHON")},
            "HOME": str(tmp_path / "home"),
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "CLOUD_STAND_IN": str(tmp_path / "cloud"),
            "SLURM_STAND_IN": str(tmp_path / "slurm"),
            "SPT_NOENV": "1",
            "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "USER": "stranger",
        }
        yield Stranger(tmp_path, environment, free_port(), bucket)
        while left := marked("SLURM_STAND_IN", str(tmp_path / "slurm")):
            kill(*left)


Lines = Sequence[str]


@contextmanager
def on_aws(stranger: Stranger) -> Generator[Lines]:
    """With the stack as the file says; who starts the head itself is left out, and so is ssh."""
    ec2 = boto3.client("ec2")
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    stack = stranger.told("ray_cluster.yaml", "aws cloudformation")
    stack = [line.replace("YOUR-VPC", vpc).replace("YOUR-ADDRESS", "203.0.113.7") for line in stack]
    outputs = stranger.types(*stack)
    group = re.search(r"sg-\w+", outputs)
    assert group
    file = stranger.folder / "fresh/ray_cluster.yaml"
    file.write_text(file.read_text().replace("YOUR-SECURITY-GROUP", group[0]))
    made = stranger.types(*stranger.told("ray_cluster.yaml", "ray get-auth", "export", "d3ray up ray_cluster.yaml --dry-run"))
    assert "is ready to be used" in made
    tags = {
        "cluster-name": "d3ray",
        "node-type": "head",
        "node-status": "up-to-date",
        "node-name": "head",
        "user-node-type": "head",
    }
    ec2.run_instances(
        ImageId=ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": f"ray-{key}", "Value": tag} for key, tag in tags.items()]}
        ],
    )
    with head(stranger, (stranger.folder / "home/.ray/auth_token").read_text()):
        tunnel, submit = stranger.told("ray_cluster.yaml", "ray dashboard", "d3ray submit")
        wait = f"until (: < /dev/tcp/127.0.0.1/{stranger.port}) 2> /dev/null; do sleep 0.2; kill -0 $!; done"
        yield ["export RAY_AUTH_MODE=token", f"{tunnel} --port {stranger.port} &", wait, submit]


@contextmanager
def on_kubernetes(stranger: Stranger) -> Generator[Lines]:
    with head(stranger):
        yield [
            "kubectl apply -f kubernetes_account.yaml",
            *stranger.told("kubernetes.yaml", "kubectl", "export", "d3ray submit"),
        ]


@contextmanager
def on_slurm(stranger: Stranger) -> Generator[Lines]:
    stranger.types("sbatch --nodes=1 slurm.sh")  # one, since results are tracked in a file
    log = stranger.folder / "fresh/d3ray-1.log"
    status = stranger.folder / "slurm/job-1/status"
    until(lambda: status.exists() or (log.exists() and "d3ray submit train" in log.read_text()), log.read_text, 300)
    lines = [line.strip() for line in log.read_text().splitlines() if line.startswith("  ")]
    (training,) = stranger.told("slurm.sh", "sbatch slurm.sh train")
    yield [line.replace("train ...", training.removeprefix("sbatch slurm.sh ")) for line in lines]


@contextmanager
def head(stranger: Stranger, token: str | None = None, *, other: bool = True) -> Generator[RayHead]:
    """Whose image has another d3ray than the stranger, unless it has the same."""
    with ray_head(token) as running:
        (site,) = (running.folder.parent / "env/lib").glob("python*/site-packages")
        if other:
            (site / "d3ray").mkdir()
            (site / "d3ray/__init__.py").write_text("raise ImportError('the d3ray of the image')\n")
        else:
            stage_package(site)
        (stranger.folder / "cloud/head").write_text(running.address.rpartition(":")[2])
        (stranger.folder / "cloud/token").write_text(running.token)
        yield running


CLUSTERS: dict[Place, Callable[[Stranger], AbstractContextManager[Lines]]] = {
    "aws": on_aws,
    "kubernetes": on_kubernetes,
    "slurm": on_slurm,
}


@pytest.mark.parametrize("place", CLUSTERS)
def test_a_stranger_gets_from_an_empty_folder_to_results(place: Place, stranger: Stranger) -> None:
    stranger.types(f"d3ray cluster new {place} --config cluster.yaml")
    with CLUSTERS[place](stranger) as lines:
        training = [line for line in lines if line.startswith("d3ray submit")]
        assert len(training) == 1
        ours = [line.replace(" algorithm=TD3PlusBC", " --config lab/mine.yaml") for line in lines]
        said = stranger.types(*(re.sub(r" resources\.\S+", "", line) for line in ours))
    assert re.search(r"^train-\w+ succeeded", said, re.MULTILINE), said
    assert "LabTD3PlusBC" in stranger.report()


def test_a_job_that_brings_its_own_cluster_trains_with_the_d3ray_of_its_image(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = ["train", f"s3://{stranger.bucket}/datasets/hopper", "algorithm=TD3PlusBC", "name=hopper"]
    about = {"command": [*training, "n_steps=40", "n_steps_per_epoch=20"]}
    stranger.types(f"d3ray cluster new kubernetes --config cluster.yaml kubernetes='{json.dumps(about)}'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stranger.environment.pop("MLFLOW_TRACKING_URI"))  # the pods have it, of `tracking`
    with head(stranger, other=False):
        said = stranger.types("kubectl apply -f kubernetes_account.yaml", *stranger.told("kubernetes_job.yaml", "kubectl"))
    assert "hopper: 1 of 1 seeds are trained." in said, said
    assert "TD3PlusBC" in stranger.report()
