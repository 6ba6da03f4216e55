"""Clusters that grow: what the launcher's file on the head says of them, how many trials wait there, and the first node of none."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster

from d3ray import Dataset
from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.cluster.growth import Growth, NodeType, growth, room_on
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.driver.node_maps import first_nodes, training_nodes
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trial_queue import TrialQueue, most_out
from d3ray.platform.experiment.checks import check_data, check_place
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial

from ..leaks import files_with

ROOT = Path(__file__).parents[3]
HEAD, WORKER = {"CPU": 0, "GPU": 0}, {"CPU": 8, "GPU": 1}
QUARTER = {"cpu": 1, "gpu": 0.25}


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home as on the head of the shipped cluster file, with the resources that Ray finds out for its instance types."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    config: dict[str, Any] = yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())
    config["available_node_types"]["gpu_worker"]["resources"] = WORKER
    file = tmp_path / "ray_bootstrap_config.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def nodes_are(monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float]) -> None:
    alive = [
        {"Alive": True, "NodeID": f"{k}", "NodeManagerAddress": f"10.0.0.{k}", "Resources": r} for k, r in enumerate(resources)
    ]
    monkeypatch.setattr(ray, "nodes", lambda: alive)


def test_what_the_shipped_cluster_may_grow_to(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = growth()
    assert found == Growth((NodeType(WORKER, 4),), 4, NodeType(HEAD, 4))
    assert found.room(QUARTER) == 16  # as the file says of itself
    assert found.nodes(QUARTER) == [WORKER] * 4
    assert found.nodes({"cpu": 1, "gpu": 2}) == []
    monkeypatch.setenv("RAY_ADDRESS", "local")  # a Ray of the head's own does not grow
    assert growth() is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    said = yaml.safe_load(head.read_text())
    for broken in (
        {"max_workers": 0},
        {"available_node_types": {**said["available_node_types"], "gpu_worker": {"resources": {}}}},  # nobody knows what it has
        {"available_node_types": None},
    ):
        head.write_text(yaml.safe_dump({**said, **broken}))
        assert growth() is None
    head.write_text("{")
    assert growth() is None
    head.unlink()
    assert growth() is None


def test_all_types_together_are_bounded_and_the_largest_come_first() -> None:
    small, large = NodeType({"CPU": 2}, 10), NodeType({"CPU": 16}, 3)
    found = Growth((small, large), 5, NodeType({"CPU": 4}, 0))
    assert found.room({"cpu": 2, "gpu": 0}) == 2 + 3 * 8 + 2 * 1  # the head, three large, and two small: five workers
    assert found.nodes({"cpu": 2, "gpu": 0}) == [large.resources] * 3 + [small.resources] * 2
    assert [room_on({"CPU": 8, "GPU": 2}, {"cpu": 0.1, "gpu": share}) for share in (0.6, 1, 2, 3)] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("workers", "most_workers", "expected"),
    [
        (0, 4, 16),  # none is there, and all that can come are asked for at once
        (2, 4, 16),
        (4, 4, 16 + 1),  # it cannot grow any more: a twentieth waits, one at least
        (0, 500, 1 + 1000),  # what Ray tells its autoscaler of
        (100, 500, 400 + 1000),
        (400, 500, 2000 + 100),
    ],
)  # fmt: skip
def test_as_many_trials_wait_as_the_cluster_may_grow_to(
    head: Path, monkeypatch: pytest.MonkeyPatch, workers: int, most_workers: int, expected: int
) -> None:
    said = yaml.safe_load(head.read_text())
    said["max_workers"] = said["available_node_types"]["gpu_worker"]["max_workers"] = most_workers
    head.write_text(yaml.safe_dump(said))
    nodes_are(monkeypatch, HEAD, *[WORKER] * workers)
    assert most_out(QUARTER) == expected
    head.unlink()
    assert most_out(QUARTER, grow_to=4 * most_workers) == expected  # as one says where no file does
    slots = 4 * workers
    assert most_out(QUARTER) == max(slots, 1) + max(1, slots // 20)  # a cluster that is as large as it is


def test_a_queue_fills_a_cluster_that_is_not_there_yet(head: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nodes_are(monkeypatch, HEAD)
    trials = [Trial.create(Folder(tmp_path / f"{k}"), {"n_steps": 1}, (k,), {}) for k in range(40)]

    def asked(**options: Any) -> int:
        queue = TrialQueue(Listed(trials), lambda one: {"resources": QUARTER}, **options)
        while queue.suggest(f"{len(queue.trials)}") is not None:
            pass
        return len(queue.trials)

    assert asked() == 16
    assert asked(max_concurrent=3) == 3
    assert asked(grow_to=32) == 32 + 1


def test_a_node_that_may_come_is_waited_for_and_one_that_cannot_is_refused(head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes_are(monkeypatch, HEAD, {"CPU": 8})
    assert training_nodes({"CPU": 1}) == {"1": "10.0.0.1"}
    assert training_nodes({"CPU": 1, "GPU": 1}) == {}  # a node without GPUs is there, one with a GPU may come
    with pytest.raises(
        ConfigError, match="No node of the Ray cluster has the resources of one trial, 1 CPU, 2 GPU: the largest have 8 CPU, 0 GPU"
    ):
        training_nodes({"CPU": 1, "GPU": 2})
    head.unlink()
    with pytest.raises(ConfigError, match="has the resources of one trial, 1 CPU, 1 GPU"):
        training_nodes({"CPU": 1, "GPU": 1})
    nodes_are(monkeypatch, HEAD)
    assert training_nodes({"CPU": 1, "GPU": 2}) == {}  # whatever comes there, nobody here knows


def test_what_no_node_will_ever_have_room_for_fails_and_the_others_run(
    head: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray would let such a trial wait for ever. A node that was there once may come back."""
    nodes_are(monkeypatch, {"CPU": 8})
    head.unlink()
    trials = [Trial.create(Folder(tmp_path / f"{k}"), {"n_steps": 1}, (k,), {}) for k in range(4)]
    refused = dict[Trial, str]()

    def queue(**options: Any) -> TrialQueue:
        told = {trial: {"resources": {"cpu": 1 + 4 * k, "gpu": 0}} for k, trial in enumerate(trials)}
        made = TrialQueue(Listed(trials), lambda one: told[one], **options)
        made.refuse = refused.__setitem__
        return made

    first = queue()
    assert [first.suggest(f"{k}") for k in range(2)] == [{"trial": {"resources": {"cpu": cpu, "gpu": 0}}} for cpu in (1, 5)]
    nodes_are(monkeypatch, {"CPU": 2})  # the large one is away for a while
    first.on_trial_complete("0")
    first.given_up("1", 5)
    assert first.suggest("2") == {"trial": {"resources": {"cpu": 5, "gpu": 0}}}
    first.on_trial_complete("2")
    assert first.suggest("3") == "FINISHED"
    assert [trial.seeds for trial in refused] == [(2,), (3,)]
    assert refused[trials[2]] == "No node of the Ray cluster has the resources of one trial, 9 CPU: the largest have 2 CPU."
    refused.clear()
    grows = queue(grow_to=9)
    assert [grows.suggest(f"{k}") is not None for k in range(4)] == [True] * 4
    assert refused == {}


def test_a_head_that_is_alone_and_may_grow_takes_no_folder_of_its_own(
    head: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the results of workers, which could not see it, nor a map of data that it never trains on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("d3ray.platform.cluster.session.ray_session", nullcontext)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    nodes_are(monkeypatch, HEAD)
    settings = {"dataset": "d3ray/cartpole-replay", "algorithm": "DiscreteBC", "evaluation": None}
    config = ExperimentConfig.checked(settings)
    why = r"storage is ./d3ray_results, a folder of this machine, and the cluster has or may start 5 nodes: say a URI"
    with pytest.raises(ConfigError, match=why):
        check_place(config)
    check_place(ExperimentConfig.checked({**settings, "storage": str(tmp_path / "shared")}))
    head.unlink()  # on Kubernetes nobody knows how many come, but trials do not run here
    with pytest.raises(ConfigError, match="may start 2 nodes"):
        check_place(config)
    nodes_are(monkeypatch, {"CPU": 8})
    check_place(config)

    def refused(dataset: Dataset) -> None:
        raise AssertionError

    monkeypatch.setattr(Dataset, "prepare", refused)
    check_data(config, Dataset.open("d3ray/cartpole-replay"))


@pytest.mark.long
@pytest.mark.timeout(200)
def test_where_no_node_is_there_yet_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its workers get this command's keys for object stores, without a word in Ray's logs."""
    Path("/tmp/ray").mkdir(exist_ok=True)  # without it Ray's own tests' cluster does not start
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret := token_hex(16))
    try:
        with ray_session(address=cluster.address):
            with pytest.raises(StorageError, match="No node with 1 CPU came up in 0 min"):
                first_nodes({"CPU": 1, "GPU": 0}, seconds=1)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(first_nodes, {"CPU": 1, "GPU": 0}, seconds=100)
                time.sleep(1)
                assert not waiting.done()
                cluster.add_node(num_cpus=1)  # as an autoscaler does for the task that waits
                found = waiting.result()
            assert list(found) == [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
            assert len(found) == 1
            assert ray.get(ray.remote(os.getenv).remote("AWS_SECRET_ACCESS_KEY")) == secret
        session = cluster.head_node.get_session_dir_path()
        assert (Path(session) / "logs" / "runtime_env_agent.log").is_file()
        assert files_with(secret, Path(session)) == []
    finally:
        cluster.shutdown()
