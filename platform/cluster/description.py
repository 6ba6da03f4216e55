"""One description of a cluster, and the files for AWS, Kubernetes and Slurm that are written from it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from jinja2 import Environment as Templates
from jinja2 import FunctionLoader, StrictUndefined
from pydantic import AfterValidator

from ...data.config import Config, setting
from ..yaml_text import to_text
from .secret_text import refuse_secrets

Place = Literal["aws", "kubernetes", "slurm"]
MACHINE_IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_FILES: Mapping[Place, tuple[str, ...]] = {
    "aws": ("ray_cluster.yaml", "aws_account.yaml"),
    "kubernetes": ("kubernetes.yaml", "kubernetes_account.yaml", "kubernetes_job.yaml"),
    "slurm": ("slurm.sh",),
}


def _matching(pattern: str, said: str) -> AfterValidator:
    """Text that may stand in comments and scripts as it is: without line breaks, quotes and signs of a shell."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(said)
        return text

    return AfterValidator(check)


Name = Annotated[str, _matching(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", "it has small letters, digits and dashes, 40 at most")]
Word = Annotated[str, _matching(r"[\w./:@+-]+", "it has letters, digits and any of . / : @ + - _")]
Address = Annotated[str, _matching(r"[^\s'\"\\$`]+", "it has no spaces, quotes, dollars or backslashes")]


class Aws(Config):
    """AWS's own options. The instance type determines a node's CPUs, GPUs and memory."""

    region: Word = setting("us-west-2", "where the data is")
    zones: tuple[Word, ...] = setting((), "availability zones that workers may come from; empty: a and b of the region")
    head: Word = setting("m6i.xlarge", "instance type of the head, which needs no GPU")
    worker: Word = setting("g5.2xlarge", "instance type of a worker, of NVIDIA's Turing generation or newer")
    spot: bool = setting(True, "workers may be taken away at any time, and cost less; trials go on from their last checkpoint")
    security_group: Word = setting("YOUR-SECURITY-GROUP", "sg-…, as the stack of aws_account.yaml says when it is made")


class Kubernetes(Config):
    """Kubernetes's own options."""

    namespace: Name = setting("default", "where everything is made")
    account: Mapping[str, str] = setting(
        {}, "annotations of the service account that give it the bucket, as {eks.amazonaws.com/role-arn: arn:…}"
    )
    claim: Word | None = setting(None, "a PersistentVolumeClaim that several nodes can write, which every pod has at /shared")
    nodes: Mapping[str, str] = setting({}, "labels of the node pool with GPUs, as {cloud.google.com/gke-accelerator: nvidia-l4}")
    tolerations: tuple[Mapping[str, str], ...] = setting(
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},), "of workers: GPU nodes are often kept for them"
    )
    queue: Word | None = setting(
        None, "a LocalQueue of Kueue, whose quota everything counts against; with one, clusters have a fixed size"
    )
    priority: Word | None = setting(None, "a WorkloadPriorityClass of Kueue")
    command: tuple[str, ...] = setting(
        ("train", "s3://YOUR-BUCKET/datasets/hopper", "algorithm=TD3PlusBC", "name=hopper", "resources.gpu=0.25"),
        "of the RayJob: a job with its arguments, as for d3ray; storage and --resume are added",
    )
    hours: int = setting(24, "after which a RayJob is ended; what reached a checkpoint stays", gt=0)


class Slurm(Config):
    """Slurm's own options."""

    partition: Word | None = setting(None, "of the nodes; null: the site's default")
    account: Word | None = setting(None, "that is charged; null: yours by default")
    qos: Word | None = setting(None, "quality of service; null: the site's default")
    hours: int = setting(24, "of an allocation; a job that is not done then is queued again and goes on", gt=0)
    setup: tuple[str, ...] = setting(
        ('source "$HOME/d3ray-env/bin/activate"',), "lines that make d3ray's Python the one that is found, on every node"
    )
    scratch: Word = setting("/tmp", "a folder on each node's own disk: for Ray's session and node maps of datasets")


class Description(Config):
    """A cluster, wherever it is."""

    name: Name = setting("d3ray", "of the cluster, in small letters")
    workers: int = setting(4, "nodes with GPUs, at most", gt=0)
    cpus: int = setting(8, "CPUs of a worker; aws: its instance type says", gt=0)
    gpus: int = setting(1, "GPUs of a worker; aws: its instance type says", ge=0)
    memory_gib: int = setting(32, "memory of a worker; aws: its instance type says", gt=0)
    idle_minutes: int = setting(10, "after which a worker without work goes, where clusters change their size", gt=0)
    image: Word | None = setting(None, "container with d3ray, as examples/clusters/Dockerfile builds it; null: has to be filled in")
    storage: Address = setting("s3://YOUR-BUCKET/d3ray", "a URI or a shared folder for results, for the examples and the RayJob")
    tracking: Address | None = setting(None, "URI of the MLflow server that every node reaches; null: has to be filled in")
    aws: Aws = setting(Aws(), "for AWS alone")
    kubernetes: Kubernetes = setting(Kubernetes(), "for Kubernetes alone")
    slurm: Slurm = setting(Slurm(), "for Slurm alone")

    def files_for(self, place: Place) -> dict[str, str]:
        """The files for a place, by name. Raises ConfigError: something in it looks like a secret."""
        refuse_secrets(self.model_dump(mode="json"), "The cluster's description:", "give it to nodes as a secret of the place")
        values = {**self.model_dump(mode="json"), **self._derived(place)}
        return {name: _templates().get_template(name).render(values) for name in _FILES[place]}

    def _derived(self, place: Place) -> dict[str, Any]:
        yours = f"YOUR-ACCOUNT.dkr.ecr.{self.aws.region}.amazonaws.com" if place == "aws" else "YOUR-REGISTRY"
        image = self.image or f"{yours}/{self.name}:1"
        host = image.partition("/")[0]
        scheme, _, rest = self.storage.partition("://")
        memory = {"memory": f"{self.memory_gib}Gi"} | ({"nvidia.com/gpu": str(self.gpus)} if self.gpus else {})
        on = self.kubernetes
        labels = {"kueue.x-k8s.io/queue-name": on.queue, "kueue.x-k8s.io/priority-class": on.priority}
        bucket = rest.partition("/")[0] if scheme == "s3" else "YOUR-BUCKET"
        training = ["train", f"s3://{bucket}/datasets/hopper", "algorithm=TD3PlusBC", "name=hopper", f"storage={self.storage}"]
        return {
            "training": shlex.join([*training, *(["resources.gpu=0.25"] if self.gpus or place == "aws" else [])]),
            "image": image,
            "registry": host if ".dkr.ecr." in host else "",
            "bucket": bucket,
            "requests": {"cpu": str(self.cpus), **memory},
            "limits": memory,
            "labels": {name: value for name, value in labels.items() if value},
            "entrypoint": shlex.join(["python", "-m", "d3ray.jobs", *on.command, f"storage={self.storage}", "--resume"]),
            "parameter": MACHINE_IMAGE,
            "ray_version": version("ray"),
            "zones": ",".join(self.aws.zones or [f"{self.aws.region}{letter}" for letter in "ab"]),
        }


def _templates() -> Templates:
    made = Templates(
        loader=FunctionLoader(_read), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    made.filters |= {"yaml": _yaml, "shell": shlex.quote}
    return made


def _read(name: str) -> str:
    return files("d3ray.platform.cluster").joinpath("templates", name).read_text("utf-8")


def _yaml(value: Any) -> str:
    """A value as YAML 1.1 and 1.2 both read it: `yes` is a word in one of them only."""
    text = to_text(value)
    return text if yaml.safe_load(text) == value else json.dumps(value)
