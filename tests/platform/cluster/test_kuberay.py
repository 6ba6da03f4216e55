"""The files for Kubernetes have no field that KubeRay does not know, and every one that it asks for.

What is known stands below, in our words: names and kinds of fields of `ray.io/v1` as the API reference of KubeRay 1.6 lists them
(docs.ray.io, "KubeRay CRD API reference"), and those of Kubernetes' pods that the files use (kubernetes.io, API reference 1.28).
The files were also held against the operator's own schemas of both, as they were in August 2026, with unknown fields refused.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = {"RayCluster": "examples/clusters/kuberay_cluster.yaml", "RayJob": "examples/clusters/kuberay_job.yaml"}

# A kind is a Python type, a name of another kind, [kind] for a list, a set for a choice, or {str: kind} for free names.
# A field that ends in ! has to be there.
TEXTS: dict[Any, Any] = {str: str}
KINDS: dict[str, dict[str, Any]] = {
    "RayCluster": {"apiVersion!": {"ray.io/v1"}, "kind!": {"RayCluster"}, "metadata!": "Metadata", "spec!": "RayClusterSpec"},
    "RayJob": {"apiVersion!": {"ray.io/v1"}, "kind!": {"RayJob"}, "metadata!": "Metadata", "spec!": "RayJobSpec"},
    "Metadata": {"name": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS},
    "RayClusterSpec": {
        "authOptions": "AuthOptions",
        "autoscalerOptions": "AutoscalerOptions",
        "enableInTreeAutoscaling": bool,
        "gcsFaultToleranceOptions": dict,
        "headGroupSpec!": "HeadGroupSpec",
        "headServiceAnnotations": TEXTS,
        "managedBy": str,
        "networkPolicy": dict,
        "rayVersion": str,
        "suspend": bool,
        "tlsOptions": dict,
        "upgradeStrategy": dict,
        "workerGroupSpecs": ["WorkerGroupSpec"],
    },
    "AuthOptions": {"mode": {"disabled", "token"}, "secretName": str, "enableK8sTokenAuth": bool},
    "AutoscalerOptions": {
        "env": ["EnvVar"],
        "envFrom": ["EnvFrom"],
        "idleTimeoutSeconds": int,
        "image": str,
        "imagePullPolicy": str,
        "resources": "Resources",
        "securityContext": dict,
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
        "version": {"v1", "v2"},
        "volumeMounts": ["VolumeMount"],
    },
    "HeadGroupSpec": {
        "enableIngress": bool,
        "headService": dict,
        "labels": TEXTS,
        "rayStartParams": TEXTS,
        "resources": TEXTS,
        "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
        "template!": "PodTemplate",
    },
    "WorkerGroupSpec": {
        "groupName!": str,
        "idleTimeoutSeconds": int,
        "labels": TEXTS,
        "maxReplicas!": int,
        "minReplicas!": int,
        "numOfHosts": int,
        "rayStartParams": TEXTS,
        "replicas": int,
        "resources": TEXTS,
        "scaleStrategy": dict,
        "suspend": bool,
        "template!": "PodTemplate",
    },
    "RayJobSpec": {
        "activeDeadlineSeconds": int,
        "backoffLimit": int,
        "clusterSelector": TEXTS,
        "deletionStrategy": dict,
        "entrypoint": str,
        "entrypointNumCpus": float,
        "entrypointNumGpus": float,
        "entrypointResources": str,
        "jobId": str,
        "managedBy": str,
        "metadata": TEXTS,
        "preRunningDeadlineSeconds": int,
        "rayClusterSpec": "RayClusterSpec",
        "runtimeEnvYAML": str,
        "shutdownAfterJobFinishes": bool,
        "submissionMode": {"K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"},
        "submitterConfig": dict,
        "submitterPodTemplate": "PodTemplate",
        "suspend": bool,
        "ttlSecondsAfterFinished": int,
    },
    "PodTemplate": {"metadata": "Metadata", "spec!": "PodSpec"},
    "PodSpec": {
        "containers!": ["Container"],
        "nodeSelector": TEXTS,
        "serviceAccountName": str,
        "tolerations": ["Toleration"],
        "volumes": ["Volume"],
    },
    "Toleration": {
        "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
        "key": str,
        "operator": {"Exists", "Equal"},
        "tolerationSeconds": int,
        "value": str,
    },
    "Container": {
        "name!": str,
        "image!": str,
        "env": ["EnvVar"],
        "envFrom": ["EnvFrom"],
        "resources": "Resources",
        "volumeMounts": ["VolumeMount"],
    },
    "EnvVar": {"name!": str, "value": str, "valueFrom": dict},
    "EnvFrom": {"secretRef": "Reference", "configMapRef": "Reference", "prefix": str},
    "Reference": {"name!": str, "optional": bool},
    "Resources": {"requests": TEXTS, "limits": TEXTS},
    "VolumeMount": {"name!": str, "mountPath!": str, "readOnly": bool},
    "Volume": {"name!": str, "emptyDir": "EmptyDir"},
    "EmptyDir": {"medium": {"", "Memory"}, "sizeLimit": str},
}


def faults(value: Any, kind: Any, place: str) -> list[str]:
    """What is wrong with a value, a phrase each."""
    if isinstance(kind, str):
        if not isinstance(value, dict):
            return [f"{place} is no {kind}"]
        fields = {name.rstrip("!"): of for name, of in KINDS[kind].items()}
        found = [f"{place}.{name} is missing" for name in (n[:-1] for n in KINDS[kind] if n.endswith("!")) if name not in value]
        found += [f"{place}.{name} is unknown" for name in value if name not in fields]
        return found + [fault for name in value if name in fields for fault in faults(value[name], fields[name], f"{place}.{name}")]
    if isinstance(kind, list):
        parts = [(one, kind[0], f"{place}[{k}]") for k, one in enumerate(value)] if isinstance(value, list) else None
    elif isinstance(kind, dict):
        parts = [(one, kind[str], f"{place}.{name}") for name, one in value.items()] if isinstance(value, dict) else None
    elif isinstance(kind, set):
        return [] if value in kind else [f"{place} is not one of {sorted(kind)}"]
    else:  # YAML's true is Python's True, which is an int as well
        parts = [] if isinstance(value, kind) and isinstance(value, bool) == (kind is bool) else None
    if parts is None:
        return [f"{place} is no {getattr(kind, '__name__', type(kind).__name__)}"]
    return [fault for part in parts for fault in faults(*part)]


def read(kind: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / FILES[kind]).read_text())


@pytest.mark.parametrize("kind", FILES)
def test_kuberay_knows_every_field(kind: str) -> None:
    assert faults(read(kind), kind, kind) == []


def test_the_check_finds_what_is_wrong() -> None:
    cluster = read("RayCluster")
    broken = deepcopy(cluster)
    broken["spec"]["workerGroupSpecs"][0]["minReplica"] = broken["spec"]["workerGroupSpecs"][0].pop("minReplicas")
    broken["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0  # the operator takes texts only
    broken["spec"]["authOptions"]["mode"] = "tokens"
    assert sorted(faults(broken, "RayCluster", "it")) == [
        "it.spec.authOptions.mode is not one of ['disabled', 'token']",
        "it.spec.headGroupSpec.rayStartParams.num-cpus is no str",
        "it.spec.workerGroupSpecs[0].minReplica is unknown",
        "it.spec.workerGroupSpecs[0].minReplicas is missing",
    ]


@pytest.mark.parametrize("kind", FILES)
def test_clusters_on_kubernetes_ask_for_a_token_and_give_the_head_no_trials(kind: str) -> None:
    spec = read(kind)["spec"] if kind == "RayCluster" else read(kind)["spec"]["rayClusterSpec"]
    ray = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert ray is not None
    assert spec["rayVersion"] == ray[1]
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
    assert spec["headGroupSpec"].get("serviceType", "ClusterIP") == "ClusterIP"  # not reached from outside
    assert "RAY_AUTH_TOKEN" not in (ROOT / FILES[kind]).read_text()
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert not any("SECRET" in one["name"] or "PASSWORD" in one["name"] for one in container["env"])


@pytest.mark.parametrize("kind", FILES)
def test_gpu_pods_go_where_gpus_are_with_an_account_and_an_image_of_one_version(kind: str) -> None:
    spec = read(kind)["spec"] if kind == "RayCluster" else read(kind)["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["serviceAccountName"] == "d3ray"  # in place of keys, which may come as a secret all the same
        for container in pod["containers"]:
            assert re.search(r":\d+$", container["image"])
            assert container["envFrom"] == [{"secretRef": {"name": "d3ray-credentials", "optional": True}}]
        if group is not spec["headGroupSpec"]:
            assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_a_queue_can_admit_the_job_as_a_whole_and_a_deadline_ends_it() -> None:
    job = read("RayJob")
    assert "kueue.x-k8s.io/queue-name" in job["metadata"]["labels"]
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert "enableInTreeAutoscaling" not in job["spec"]["rayClusterSpec"]  # Kueue takes no cluster that changes its size
    for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_the_job_on_kubernetes_is_stopped_as_a_submitted_one() -> None:
    spec = read("RayJob")["spec"]
    assert yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"] == {
        "D3RAY_SUBMITTED": "1",
        "PYTHONUNBUFFERED": "1",
        "RAY_JOB_STOP_SIGNAL": "SIGINT",
        "RAY_JOB_STOP_WAIT_TIME_S": "15",
    }
    assert spec["entrypoint"].startswith("python -m d3ray.jobs train ")
    assert spec["entrypoint"].endswith(" --resume")  # a cluster that is started again goes on
