"""The files for Kubernetes have no field that Kubernetes or KubeRay does not know, and every one that they ask for.

Pods and objects of Kubernetes itself are held against its published schemas. What KubeRay knows stands below, in our words: names
and kinds of fields of `ray.io/v1` as its API reference lists them (docs.ray.io, "KubeRay CRD API reference"). Where D3RAY_TEST_DATA
has `kuberay/ray.io_rayclusters.yaml` and `ray.io_rayjobs.yaml`, as ray-project/kuberay has them in `ray-operator/config/crd/bases`,
the files are held against these too; with those of version 1.7.0 they pass.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

from d3ray.data.errors import ConfigError
from d3ray.platform.cluster.description import Description

ROOT = Path(__file__).parents[3]
KUBERNETES = ("1.30", "1.34")
DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "queued": {
        "name": "lab",
        "gpus": 2,
        "tracking": "https://mlflow.lab",
        "image": "registry.lab/rl/d3ray:7",
        "storage": "/shared/results",
        "kubernetes": {
            "namespace": "rl",
            "queue": "gpus",
            "priority": "low",
            "claim": "results",
            "account": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/rl"},
            "nodes": {"pool": "yes", "cloud.google.com/gke-accelerator": "nvidia-l4"},
            "tolerations": [],
            "command": ["sweep", "/shared/hopper", "name=it is mine"],
        },
    },
    "without_gpus": {"gpus": 0},
}

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
        "env": [dict],
        "envFrom": [dict],
        "idleTimeoutSeconds": int,
        "image": str,
        "imagePullPolicy": str,
        "resources": dict,
        "securityContext": dict,
        "upscalingMode": {"Default", "Aggressive", "Conservative"},
        "version": {"v1", "v2"},
        "volumeMounts": [dict],
    },
    "HeadGroupSpec": {
        "enableIngress": bool,
        "headService": dict,
        "labels": TEXTS,
        "rayStartParams": TEXTS,
        "resources": TEXTS,
        "serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
        "template!": dict,
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
        "template!": dict,
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
        "submitterPodTemplate": dict,
        "suspend": bool,
        "ttlSecondsAfterFinished": int,
    },
}


@pytest.fixture(params=DESCRIPTIONS)
def about(request: pytest.FixtureRequest) -> Description:
    return Description.checked(DESCRIPTIONS[request.param])


def objects(about: Description) -> dict[str, Any]:
    """What the files hold, by kind, as `kubectl` reads them."""
    return {one["kind"]: one for text in about.files_for("kubernetes").values() for one in yaml.safe_load_all(text)}


def cluster_of(made: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return made[kind]["spec"] if kind == "RayCluster" else made[kind]["spec"]["rayClusterSpec"]


def pods(made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every pod's template: heads, workers, and what submits the job."""
    clusters = [cluster_of(made, kind) for kind in ("RayCluster", "RayJob")]
    groups = [group for cluster in clusters for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    return [made["RayJob"]["spec"]["submitterPodTemplate"], *(group["template"] for group in groups)]


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


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_kuberay_knows_every_field(about: Description, kind: str) -> None:
    assert faults(objects(about)[kind], kind, kind) == []


def test_the_check_finds_what_is_wrong() -> None:
    broken = deepcopy(objects(Description())["RayCluster"])
    broken["spec"]["workerGroupSpecs"][0]["minReplica"] = broken["spec"]["workerGroupSpecs"][0].pop("minReplicas")
    broken["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0  # the operator takes texts only
    broken["spec"]["authOptions"]["mode"] = "tokens"
    assert sorted(faults(broken, "RayCluster", "it")) == [
        "it.spec.authOptions.mode is not one of ['disabled', 'token']",
        "it.spec.headGroupSpec.rayStartParams.num-cpus is no str",
        "it.spec.workerGroupSpecs[0].minReplica is unknown",
        "it.spec.workerGroupSpecs[0].minReplicas is missing",
    ]


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_accepts_pods_account_and_policy(about: Description, version: str) -> None:
    made = objects(about)
    pods_of_it: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods(made)]
    for one in (*pods_of_it, made["ServiceAccount"], made["NetworkPolicy"]):
        kubernetes_validate.validate(one, version, strict=True)
    spoiled = deepcopy(pods_of_it[1])
    spoiled["spec"]["containers"][0]["volumeMount"] = spoiled["spec"]["containers"][0].pop("volumeMounts")
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(spoiled, version, strict=True)


def closed(schema: Any) -> Any:
    """A schema that refuses what the operator's API server would drop in silence."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    open_ = made.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in made
    return made | {"additionalProperties": False} if isinstance(made.get("properties"), dict) and not open_ else made


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_the_operators_own_schema_accepts_it(about: Description, kind: str) -> None:
    file = Path(os.environ.get("D3RAY_TEST_DATA", "")) / "kuberay" / f"ray.io_{kind.lower()}s.yaml"
    if not file.is_file():
        pytest.skip(f"there is no {file}")
    versions = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    (schema,) = (one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == "v1")
    spec = Draft7Validator(closed(schema["properties"]["spec"]))
    assert [f"{error.json_path}: {error.message}" for error in spec.iter_errors(objects(about)[kind]["spec"])] == []


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_clusters_on_kubernetes_ask_for_a_token_and_give_the_head_no_trials(about: Description, kind: str) -> None:
    cluster = cluster_of(objects(about), kind)
    ray = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert ray is not None
    assert cluster["rayVersion"] == ray[1]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"  # not reached from outside


def test_every_pod_may_run_where_pods_are_restricted(about: Description) -> None:
    """Kubernetes' standard "restricted", which many platforms ask of every namespace."""
    for pod in pods(objects(about)):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


def test_no_pod_can_speak_to_kubernetes_but_a_head_whose_autoscaler_has_to(about: Description) -> None:
    made = objects(about)
    autoscaled = made["RayCluster"]["spec"].get("enableInTreeAutoscaling", False)
    assert [pod["spec"]["automountServiceAccountToken"] for pod in pods(made)] == [False, autoscaled, False, False, False]


def test_nodes_have_the_account_that_is_made_and_secrets_by_name(about: Description) -> None:
    made = objects(about)
    account = made["ServiceAccount"]["metadata"]
    assert account["namespace"] == made["RayCluster"]["metadata"]["namespace"] == made["RayJob"]["metadata"]["namespace"]
    for pod in pods(made)[1:]:
        assert pod["spec"]["serviceAccountName"] == account["name"]
        assert pod["metadata"]["labels"].items() >= made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": f"{about.name}-credentials", "optional": True}}]
        assert {one["name"] for one in container["env"]} <= {"MLFLOW_TRACKING_URI"} | {
            f"RAY_health_check_{what}" for what in ("period_ms", "timeout_ms", "failure_threshold")
        }


def test_a_description_with_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="tracking holds a URI with a password"):
        Description(tracking="https://me:hidden@mlflow.lab").files_for("kubernetes")


def test_workers_go_to_the_nodes_that_are_meant() -> None:
    plain, queued = (objects(Description.checked(DESCRIPTIONS[name])) for name in ("plain", "queued"))
    (worker,) = cluster_of(plain, "RayCluster")["workerGroupSpecs"]
    assert worker["template"]["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (worker,) = cluster_of(queued, "RayJob")["workerGroupSpecs"]
    assert worker["template"]["spec"]["nodeSelector"] == {"pool": "yes", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert "tolerations" not in worker["template"]["spec"]
    assert worker["template"]["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] == "2"
    for pod in pods(queued)[1:]:
        assert {"name": "shared", "mountPath": "/shared"} in pod["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "shared", "persistentVolumeClaim": {"claimName": "results"}} in pod["spec"]["volumes"]
    assert queued["ServiceAccount"]["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/rl"}


def test_a_queue_can_admit_what_it_is_given_as_a_whole() -> None:
    plain, queued = (objects(Description.checked(DESCRIPTIONS[name])) for name in ("plain", "queued"))
    assert cluster_of(plain, "RayCluster")["enableInTreeAutoscaling"]
    assert cluster_of(plain, "RayCluster")["workerGroupSpecs"][0]["minReplicas"] == 0
    for kind, made in (("RayCluster", queued), ("RayJob", queued), ("RayJob", plain)):
        assert "enableInTreeAutoscaling" not in cluster_of(made, kind)  # Kueue takes no cluster that changes its size
        for group in cluster_of(made, kind)["workerGroupSpecs"]:
            assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    for kind in ("RayCluster", "RayJob"):
        assert queued[kind]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "low"}
        assert "labels" not in plain[kind]["metadata"]


def test_the_job_on_kubernetes_is_stopped_as_a_submitted_one_and_goes_on(about: Description) -> None:
    spec = objects(about)["RayJob"]["spec"]
    assert yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"] == {
        "D3RAY_SUBMITTED": "1",
        "PYTHONUNBUFFERED": "1",
        "RAY_JOB_STOP_SIGNAL": "SIGINT",
        "RAY_JOB_STOP_WAIT_TIME_S": "15",
    }
    assert spec["activeDeadlineSeconds"] == 86400
    assert shlex.split(spec["entrypoint"]) == [
        *("python", "-m", "d3ray.jobs"),
        *about.kubernetes.command,
        *(f"storage={about.storage}", "--resume"),
    ]
