"""Commands whose experiments, datasets, policies and reports lie in a bucket of S3, from the first to the last."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from d3ray.data.storage.files import Place
from d3ray.jobs.command.running import run_command
from d3ray.platform.datasets.sources import find_sources, folders_here, local_copy
from d3ray.platform.storage.folders import Folder

from ..platform.object_store import ObjectStore, object_store

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
    capsys.readouterr()
    assert run_command("evaluate", [store.uri("policies/none"), "environment=CartPole-v1"]) == 2
    assert "s3://bucket/policies/none?" in capsys.readouterr().err


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
