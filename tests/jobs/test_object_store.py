"""Commands whose experiments, datasets, policies and reports lie in a bucket of S3, from the first to the last."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from d3ray import Dataset, DiscreteBC
from d3ray.algos.environments.video import can_write_mp4
from d3ray.algos.testing import maker
from d3ray.data.storage.files import Place
from d3ray.jobs.command.running import run_command
from d3ray.platform.datasets.sources import find_sources, folders_here, local_copy
from d3ray.platform.storage.folders import Folder

from ..platform.judging.test_judging import bandit
from ..platform.object_store import ObjectStore, object_store
from .test_ingest_job import npz

TRAIN = [
    "algorithm=DiscreteBC",
    "algorithm.batch_size=32",
    "algorithm.encoder={hidden_units: [16]}",
    "n_steps=4",
    "n_steps_per_epoch=2",
]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


@pytest.mark.long
def test_an_experiment_is_trained_resumed_and_used_in_a_bucket(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    storage, first = store.uri("results"), store.uri("results/first")
    train = [
        "train",
        "d3ray/cartpole-replay",
        *TRAIN,
        "name=first",
        f"storage={storage}",
        "evaluation={environment: CartPole-v1, episodes: 1}",
    ]
    assert run_command(train[0], train[1:]) == 0
    (trial,) = (Folder(first) / "trials").names()
    assert (Folder(first) / "trials" / trial).read_json("status.json")["0"]["status"] == "FINISHED"
    told = capsys.readouterr().out
    assert first in told
    (policy,) = re.findall(r"policy of seed 0:\s+(s3://\S+)", told)

    store.requests.clear()
    assert run_command(train[0], [*train[1:], "--resume"]) == 0
    assert len(store.requests) < 60
    assert [path for method, path, _ in store.requests if method == "GET" and path.endswith("/trial.json")] == [
        f"/bucket/results/first/trials/{trial}/trial.json"
    ]

    capsys.readouterr()
    assert run_command("status", ["first", f"storage={storage}"]) == 0
    assert "first  finished" in capsys.readouterr().out
    assert run_command("report", ["first", f"storage={storage}"]) == 0
    assert store.uri("results/first/report/report.html") in capsys.readouterr().out
    assert b"<html" in (Folder(first) / "report").read("report.html")[:200]  # pyright: ignore[reportOptionalSubscript]
    assert run_command("report", ["first", f"storage={storage}", f"out={store.uri('pages/mine.html')}"]) == 0
    assert b"<html" in Folder(store.uri("pages")).read("mine.html")[:200]  # pyright: ignore[reportOptionalSubscript]

    observation = np.zeros((3, 4), np.float32)
    assert run_command("export", [first, str(tmp_path / "here.onnx")]) == 0
    assert run_command("export", [first, store.uri("policies/there.onnx")]) == 0
    Place(store.uri("policies")).fetch("there.onnx", tmp_path / "there.onnx")
    acted = [
        onnxruntime.InferenceSession(tmp_path / name, providers=["CPUExecutionProvider"]).run(
            ["action"], {"observation": observation}
        )
        for name in ("here.onnx", "there.onnx")
    ]
    np.testing.assert_array_equal(*acted)
    package = store.uri("policies/package")
    assert run_command("export", [first, package]) == 0
    capsys.readouterr()
    assert run_command("export", [first, package]) == 2
    assert f"There is {package} already: say --replace" in capsys.readouterr().err
    assert run_command("export", [first, package, "--replace"]) == 0

    output = store.uri("results/played.json")
    assert run_command("evaluate", [package, "environment=CartPole-v1", "episodes=2", f"output={output}"]) == 0
    result = json.loads(Folder(storage).read("played.json") or b"")
    assert result["policy"] == package
    assert len(result["returns"]) == 2
    assert run_command("evaluate", [policy, "environment=CartPole-v1", "episodes=1"]) == 0  # as training said
    assert run_command("evaluate", [first, "environment=CartPole-v1", "episodes=1"]) == 0
    _draw_and_record(store, policy, capsys)


def _draw_and_record(store: ObjectStore, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture, videos = store.uri("pictures/curve.png"), store.uri("videos")
    assert run_command("plot", ["first", f"storage={store.uri('results')}", f"output={picture}"]) == 0
    assert Folder(store.uri("pictures")).read("curve.png").startswith(b"\x89PNG")  # pyright: ignore[reportOptionalMemberAccess]
    Folder(videos).write("of another.txt", b"stays")
    record = ["record", policy, "environment=CartPole-v1", "episodes=2", f"output={videos}"]
    assert run_command(record[0], record[1:]) == 0
    made = [f"CartPole-v1-episode-{k}{'.mp4' if can_write_mp4() else '.gif'}" for k in (0, 1)]
    assert Folder(videos).names() == [*made, "of another.txt"]
    capsys.readouterr()
    assert run_command(record[0], record[1:]) == 2
    assert f"There is {Folder(videos).address(made[0])} already: say --replace" in capsys.readouterr().err
    assert run_command(record[0], [*record[1:], "--replace"]) == 0
    assert Folder(videos).read("of another.txt") == b"stays"
    assert run_command("record", [policy, "environment=CartPole-v1", "episodes=1", f"output={store.uri('one.gif')}"]) == 0
    assert Folder(store.uri("")).read("one.gif")[:3] == b"GIF"  # pyright: ignore[reportOptionalSubscript]
    capsys.readouterr()
    assert run_command("evaluate", [store.uri("policies/none"), "environment=CartPole-v1"]) == 2
    assert "s3://bucket/policies/none?" in capsys.readouterr().err


@pytest.mark.long
def test_logs_are_ingested_in_a_bucket_from_the_first_file_to_the_dataset(store: ObjectStore, tmp_path: Path) -> None:
    sources, target = Folder(store.uri("recorded")), store.uri("ingested")
    for k, name in enumerate(("a.npz", "b.npz")):
        sources.put(Path(npz(tmp_path / name, rewards=np.full(20, float(k + 1), np.float32))), name)
    assert run_command("ingest", [store.uri("recorded/*.npz"), target, "environment=Pendulum-v1"]) == 0
    dataset = Dataset.open(target)
    assert (dataset.n_transitions, dataset.n_episodes) == (40, 4)
    for k, name in enumerate(("a.npz", "b.npz")):
        npz(tmp_path / name, rewards=np.full(20, float(k + 1), np.float32))
    here = str(tmp_path / "here")
    assert run_command("ingest", [str(tmp_path / "*.npz"), here, "environment=Pendulum-v1"]) == 0
    assert dataset.fingerprint == Dataset.open(here).fingerprint
    dataset.verify()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_policies_are_judged_in_a_bucket_as_in_a_folder(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    bandit(60).write(store.uri("judged/logs"))
    bandit(60).write(tmp_path / "logs")
    maker(DiscreteBC)().fit(bandit(50), 5, 5).save_policy(tmp_path / "policy")
    shutil.copy(tmp_path / "policy/policy.onnx", tmp_path / "foreign.onnx")
    Folder(store.uri("judged")).put(Path(shutil.copy(tmp_path / "foreign.onnx", tmp_path / "sent")), "foreign.onnx")
    Folder(store.uri("judged")).put_tree(Path(shutil.copytree(tmp_path / "policy", tmp_path / "sent tree")), "policy")

    def numbers(policies: list[str], logs: str, storage: str) -> Any:
        fqe = "fqe={encoder: {hidden_units: [16]}, batch_size: 8}"
        judge = [*policies, logs, fqe, "n_steps=20", "seeds=[0]", f"storage={storage}", "name=judged", "gamma=0.9"]
        assert run_command("judge", judge) == 0
        assert "judgement.html" in (told := capsys.readouterr().out)
        assert told.count(Folder(storage).address("judged/judgement.json")) == 1
        assert b"<html" in (Folder(storage) / "judged").read("judgement.html")[:200]  # pyright: ignore[reportOptionalSubscript]
        found = (Folder(storage) / "judged").read_json("judgement.json")
        return [(one["label"], one["estimates"]["rows"], one["by_seed"]) for one in found["verdicts"]]

    named = [store.uri("judged/policy"), store.uri("judged/foreign.onnx")]
    there = numbers(named, store.uri("judged/logs"), store.uri("judgements"))
    here = numbers([str(tmp_path / "policy"), str(tmp_path / "foreign.onnx")], str(tmp_path / "logs"), str(tmp_path / "judgements"))
    assert [label for label, *_ in there] == ["policy", "foreign.onnx"]
    assert there == here
    assert all(len(by_seed) == 1 for *_, by_seed in there)  # of FQE, which was trained and read there


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_benchmark_is_run_and_resumed_in_a_bucket(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    storage = store.uri("benchmarks")
    line = ["micro", f"storage={storage}", "algorithms=BC", "seeds=[0]", "n_steps=100", "evaluation.every=100"]
    assert run_command("benchmark", line) == 0
    report = Folder(storage) / "micro" / "report"
    scores = report.read("scores.csv")
    assert scores is not None
    (row,) = csv.DictReader(scores.decode().splitlines())
    assert (row["algorithm"], row["seed"], row["step"], row["status"]) == ("BC", "0", "100", "FINISHED")
    assert Folder(storage).address("micro/report/report.html") in capsys.readouterr().out
    report.delete(["scores.csv"])
    assert run_command("benchmark", [*line, "--resume"]) == 0
    assert report.read("scores.csv") == scores


def test_logs_in_a_bucket_are_found_and_copied(store: ObjectStore, tmp_path: Path) -> None:
    logs = Folder(store.uri("logs"))
    for name in ("a.csv", "b.csv", "note.txt", "folder/c.csv"):
        logs.write(name, name.encode())
    assert find_sources([store.uri("logs/*.csv")]) == [store.uri("logs/a.csv"), store.uri("logs/b.csv")]
    assert find_sources([store.uri("logs/b.csv")]) == [store.uri("logs/b.csv")]
    with local_copy(store.uri("logs/b.csv")) as copy:
        assert copy.read_text() == "b.csv"
    with folders_here([store.uri("logs")]) as (here, copies):
        (folder,) = here
        assert sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.*")) == [
            "a.csv",
            "b.csv",
            "folder/c.csv",
            "note.txt",
        ]
        assert copies == {str(folder): store.uri("logs")}
