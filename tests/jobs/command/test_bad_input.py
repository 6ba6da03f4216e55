"""What a person can get wrong, through the commands: one sentence that names it and what to do, status 2, nothing written."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.jobs.command.running import run_command
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment

N = 60
TRAIN = "n_steps=20 n_steps_per_epoch=10 storage=results"
CARTPOLE = f"train d3ray/cartpole-replay algorithm=DQN {TRAIN}"
CONTINUOUS = f"algorithm=TD3 algorithm.action_scaler=min_max {TRAIN}"


def arrays(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    flags = {"terminals": np.zeros(N, bool), "timeouts": np.arange(N) % 20 == 19}
    actions = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
    return {
        "observations": rng.normal(size=(N, 3)).astype(np.float32),
        "actions": actions,
        "rewards": np.ones(N, np.float32),
        **flags,
    }


def hdf5(path: Path, **changes: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, values in {**arrays(), **changes}.items():
            file[name] = values


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, datasets and results, good and bad, that no test may change."""
    folder = tmp_path_factory.mktemp("bad")
    hdf5(folder / "good.hdf5")
    content, a = (folder / "good.hdf5").read_bytes(), arrays()
    (folder / "cut.hdf5").write_bytes(content[: len(content) // 2])
    (folder / "words.hdf5").write_text("not HDF5 at all\n" * 50)
    (folder / "empty.hdf5").touch()
    hdf5(folder / "lengths.hdf5", rewards=a["rewards"][:-3])
    a["observations"][17, 1], a["rewards"][23] = np.nan, np.inf
    hdf5(folder / "nan.hdf5", observations=a["observations"])
    hdf5(folder / "infinite.hdf5", rewards=a["rewards"])
    a = arrays()
    dataset = Dataset.from_arrays(a["observations"], a["actions"], a["rewards"], a["terminals"], a["timeouts"], name="tiny")
    dataset.write(folder / "tiny")
    Dataset.from_arrays(a["observations"], 3 * a["actions"], a["rewards"], a["terminals"], a["timeouts"]).write(folder / "wide")
    for name in ("missing", "truncated", "changed"):
        shutil.copytree(folder / "tiny", folder / name)
    shard = next(path.name for path in (folder / "tiny").glob("data-*"))
    (folder / "missing" / shard).unlink()
    content = (folder / "truncated" / shard).read_bytes()
    (folder / "truncated" / shard).write_bytes(content[:-100])
    middle = len(content) // 2
    flipped = bytes(byte ^ 255 for byte in content[middle : middle + 4])
    (folder / "changed" / shard).write_bytes(content[:middle] + flipped + content[middle + 4 :])
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.tex").write_text("years of work")
    (folder / "results" / "thesis").mkdir(parents=True)
    (folder / "results" / "thesis" / "chapter.tex").write_text("years of work")
    config = ExperimentConfig.checked(
        {"dataset": "d3ray/cartpole-replay", "algorithm": "DQN", "n_steps": 20, "n_steps_per_epoch": 10, "name": "taken"}
    )
    about = {"name": "cartpole", "fingerprint": Dataset.open(config.dataset).fingerprint}
    settings = {**config.configuration(), "seeds": [0], "seeds_per_trial": 1}
    Experiment.begin(str(folder / "results"), "taken", settings, about).close()
    return folder


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database for runs, made once."""
    from d3ray.platform.tracking.runs import Tracking

    folder = tmp_path_factory.mktemp("tracking")
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    return Tracking.open(str(folder)).uri


@pytest.fixture(autouse=True)
def _here(place: Path, tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder with its size and time of change."""
    paths = [path for path in folder.rglob("*") if path.name != "lock"]  # taking and giving back a lock touches it
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths if not path.is_dir()} | {
        str(path): (0, 0) for path in paths if path.is_dir()
    }


def refused(place: Path, capsys: pytest.CaptureFixture[str], command: str) -> str:
    """The sentence with which a command was refused, its last line, after which everything is as it was."""
    before, (name, *arguments) = state(place), command.split()
    capsys.readouterr()
    status = run_command(name, arguments)
    out, err = capsys.readouterr()
    *told, sentence = err.splitlines()
    assert (status, out) == (2, ""), err
    assert all(line.endswith(("opening MLflow", "starting Ray")) for line in told), err  # a slow machine has time to say so
    assert err.endswith((".\n", "?\n"))
    assert state(place) == before
    return sentence


INGEST = {
    "words.hdf5 new": "words.hdf5 is in no known format; the formats are: d4rl",
    "cut.hdf5 new": "cut.hdf5 is an HDF5 file that is cut short or damaged (",
    "empty.hdf5 new": "empty.hdf5 is empty.",
    "goood.hdf5 new": "There is no file 'goood.hdf5'; did you mean 'good.hdf5'?",
    "lengths.hdf5 new": "lengths.hdf5: 'observations' has 60 rows, but 'rewards' has 57.",
    "nan.hdf5 new": "In nan.hdf5, observations has NaN in row 17.",
    "infinite.hdf5 new": "In infinite.hdf5, rewards has an infinite number in row 23.",
    "good.hdf5 tiny": "tiny is a dataset already; say overwrite=true to replace it.",
    "good.hdf5 thesis overwrite=true": "thesis holds 'chapter.tex' and is no dataset; give a folder that is new or empty.",
    "good.hdf5 new environment=Hoper-v4": "gymnasium knows no environment 'Hoper-v4'; did you mean 'Hopper-v4'?",
    "good.hdf5 new formt=d4rl": "d3ray ingest has no setting 'formt'; did you mean 'format'?",
}
TRAINING = {
    # data
    f"train d3ray/pendulum-replay algorithm=DQN {TRAIN}": "DQN needs discrete actions, and 'd3ray/pendulum-replay' has continuous "
    "ones; choose from AWAC, ",
    f"train d3ray/cartpole-replay algorithm=TD3 {TRAIN}": "has discrete ones; choose from",
    f"train missing {CONTINUOUS}": "missing/data-00000-of-00001.arrow is missing.",
    f"train truncated {CONTINUOUS}": "truncated/data-00000-of-00001.arrow is truncated: it has ",
    f"train changed {CONTINUOUS}": "changed/data-00000-of-00001.arrow is damaged: its content is not what was written",
    "inspect good.hdf5": "good.hdf5 is a file, not a dataset folder: d3ray ingest makes one of it.",
    f"train nan.hdf5 {CONTINUOUS}": "In nan.hdf5, observations has NaN in row 17.",
    f"train d3ray/cartpol-replay {CONTINUOUS}": "no dataset of that name; did you mean 'd3ray/cartpole-replay'?",
    "inspect missing": "missing/data-00000-of-00001.arrow is missing.",
    "inspect truncated": "truncated/data-00000-of-00001.arrow is truncated: it has ",
    "inspect changed --verify": "changed/data-00000-of-00001.arrow is damaged: its content is not what was written",
    # settings
    f"{CARTPOLE} seed=1": "d3ray train has no setting 'seed'; did you mean 'seeds'?",
    f"{CARTPOLE} algorithm.batchsize=3": "DQN has no setting 'batchsize'; did you mean 'batch_size'?",
    f"train tiny algorithm=DNQ {TRAIN}": "There is no algorithm 'DNQ'; did you mean 'DQN'?",
    f"{CARTPOLE} algorithm.preset=smal": "DQN has no preset 'smal'; did you mean 'small'?",
    f"{CARTPOLE} algorithm.observation_scaler=standart": "there is no such scaler; did you mean 'standard'?",
    f"{CARTPOLE} algorithm.gamma=1.5": "DQN: gamma is 1.5; input should be less than or equal to 1.",
    f"{CARTPOLE} seeds_per_trial=0": "seeds_per_trial is 0; input should be greater than 0.",
    f"{CARTPOLE} seeds=3": "d3ray train: seeds is 3; it must be a list, as [3].",
    "train d3ray/cartpole-replay algorithm=DQN n_steps=abc": "d3ray train: n_steps is 'abc'; it must be a whole number.",
    "train d3ray/cartpole-replay algorithm=DQN n_steps=1.5": "d3ray train: n_steps is 1.5; it must be a whole number.",
    f"{CARTPOLE} evaluation=CartPol-v1": "gymnasium knows no environment 'CartPol-v1'; did you mean 'CartPole-v1'?",
    f"{CARTPOLE} evaluation=Pendulum-v1": "has observations of the shape [4], and Pendulum-v1 has the shape [3]",
    f"{CARTPOLE} evaluation=CartPole-v1 checkpoint.best=evaluation/retrun": "no metric 'evaluation/retrun'; did you mean "
    "'evaluation/return'?",
    f"{CARTPOLE} evaluation.holdout=0.1 checkpoint.best=holdout/action_mach": "did you mean 'holdout/action_match'?",
    f"{CARTPOLE} checkpoint.best=evaluation/return": "which nothing measures: say evaluation too",
    "train --config nowhere.yaml": "There is no config file 'nowhere.yaml'",
    # what this machine has
    f"{CARTPOLE} resources.gpu=32": "This machine has not the resources of one trial, 1 CPU, 32 GPU: it has ",
    f"{CARTPOLE} resources.cpu=10000": " CPU; choose resources.cpu=",
    # places
    f"{CARTPOLE} name=taken": "say --resume to go on with it, also to a larger n_steps, --replace to delete it, or another name.",
    f"{CARTPOLE} name=taken algorithm.gamma=0.9 --resume": "was begun with algorithm.gamma 0.99, and now algorithm.gamma is 0.9:",
    f"{CARTPOLE} name=thesis": "results/thesis holds 'chapter.tex' and is no experiment: say another name or storage.",
    f"{CARTPOLE} name=a/b": "The name 'a/b' cannot be a folder's",
    # other jobs
    "export nowhere policy.onnx": "nowhere is no policy: name a policy package, a saved algorithm, a checkpoint, a trial",
    "export tiny policy.onnx": "tiny is no policy",
    "evaluate nowhere": "nowhere is no policy: name a policy package",
    "evaluate tiny": "tiny is no policy: name a policy package",
    "report takn storage=results": "There is no experiment 'takn' in",
    "report nothing storage=thesis": "; storage=FOLDER names another place.",
    "collect CartPol-v1 new n_steps=10": "gymnasium knows no environment 'CartPol-v1'; did you mean 'CartPole-v1'?",
    "trian tiny": "d3ray has no job 'trian'; did you mean 'train'?",
}


@pytest.mark.parametrize(("command", "sentence"), [*((f"ingest {c}", s) for c, s in INGEST.items()), *TRAINING.items()])
def test_it_is_refused_in_a_sentence(place: Path, capsys: pytest.CaptureFixture[str], command: str, sentence: str) -> None:
    assert sentence in refused(place, capsys, command)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("dataset: a\ndataset: b\n", "bad.yaml:2: the key 'dataset' stands twice."),
        ("%YAML 1.1\n---\ndataset: a\n", "bad.yaml: it says %YAML 1.1, but d3ray reads YAML 1.2"),
        ("dataset: [a\nb: {", "bad.yaml:2: this is not YAML ("),
        ("- dataset: a\n", "a config is a mapping of settings to values."),
        ("", "d3ray train needs 'dataset'"),
        ("dataset: a\nalgoritm: DQN\n", "bad.yaml:2: d3ray train has no setting 'algoritm'; did you mean 'algorithm'?"),
        ("dataset: a\nalgorithm: DQN\nn_steps: many\n", "bad.yaml:3: d3ray train: n_steps is 'many'; it must be a whole number."),
    ],
)
def test_a_config_file_is_refused_with_its_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    assert sentence in refused(place, capsys, f"train --config {tmp_path}/bad.yaml")


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_the_command_that_mends_it_is_printed_and_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("train", shlex.split(f"wide algorithm=TD3 {TRAIN}")) == 2
    sentence, last = capsys.readouterr().err.splitlines()
    assert "actions of 'dataset' lie from -2.98 to 2.98: set algorithm.action_scaler=min_max, which takes these bounds" in sentence
    assert last == f"As a command: d3ray train wide algorithm=TD3 {TRAIN} algorithm.action_scaler=min_max"
    assert run_command("train", shlex.split(last.partition(": ")[2])[2:]) == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("action_scaler=min_max", "algorithm.action_scaler"),
        ("gpu=1", "resources.gpu"),
        ("n_stps=1", "n_steps"),
        ("aktor_learning_rate=1", "algorithm.actor_learning_rate"),
    ],
)
def test_a_setting_that_is_further_down_is_named_in_full(
    place: Path, capsys: pytest.CaptureFixture[str], given: str, meant: str
) -> None:
    name = given.partition("=")[0]
    assert (
        refused(place, capsys, f"train wide algorithm=TD3 {given}")
        == f"d3ray train has no setting {name!r}; did you mean {meant!r}?"
    )


def test_runs_need_a_place(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    began = time.monotonic()
    sentence = refused(place, capsys, f"{CARTPOLE} storage=elsewhere".replace("storage=results ", ""))
    assert time.monotonic() - began < 15
    assert "The MLflow server http://127.0.0.1:1 does not answer: connection refused. Start it (mlflow server), correct" in sentence
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "htp://server")
    assert "htp://server does not answer" in refused(place, capsys, CARTPOLE)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    elsewhere = CARTPOLE.replace("storage=results", "storage=s3://bucket/results")
    assert "MLFLOW_TRACKING_URI must name an MLflow server, because the storage s3://" in refused(place, capsys, elsewhere)
    in_a_file = CARTPOLE.replace("storage=results", "storage=good.hdf5")
    assert "good.hdf5 cannot be used as storage: file exists." in refused(place, capsys, in_a_file)


@pytest.mark.parametrize("job", [CARTPOLE, "resume some storage=results", "resume some --storage=results"])
def test_no_job_is_sent_to_a_folder_of_whichever_machine(place: Path, capsys: pytest.CaptureFixture[str], job: str) -> None:
    where = f"say an absolute path, as {place / 'results'}, or a URI."
    assert refused(place, capsys, f"submit {job}") == f"storage is 'results', a folder of whichever machine runs: {where}"


@pytest.mark.parametrize("missing", ["dataset", "folder"])
def test_what_a_worker_cannot_see_fails_the_trial_with_a_reason(tmp_path: Path, missing: str) -> None:
    from d3ray.platform.trainable import trainable

    program = {"dataset": "d3ray/cartpole-replay", "algorithm": {"name": "DQN"}, "n_steps": 2, "n_steps_per_epoch": 1}
    worker = trainable("DQN")(config={"trial": {**program, "folder": str(tmp_path / "trial"), missing: str(tmp_path / "nowhere")}})
    result = worker.step()
    assert result["done"]
    assert "nowhere" in result["failed"]
    assert "every machine that trains must see the " in result["failed"].lower()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_leaves_no_half_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hdf5(tmp_path / "large.hdf5", **{name: np.repeat(values, 200, axis=0) for name, values in arrays().items()})
    with small_disk(tmp_path / "disk", "100k") as disk:
        assert run_command("ingest", [str(tmp_path / "large.hdf5"), str(disk / "set"), "n_shards=3"]) == 2
        assert "cannot be written: there is no space left on its disk." in capsys.readouterr().err.splitlines()[-1]
        assert list(disk.iterdir()) == []


def test_a_full_disk_leaves_no_half_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with small_disk(tmp_path / "disk", "200k") as disk:
        assert run_command("train", CARTPOLE.replace("storage=results", f"storage={disk}").split()[1:]) == 2
        assert capsys.readouterr().err == f"The database {disk}/mlflow.db cannot be written: no space left on device.\n"
        assert [path.name for path in disk.iterdir()] == [".mlflow.db.lock"]


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_full_disk_fails_the_trial_and_room_lets_it_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:  # a checkpoint is 1.1 MB, and two are kept while a third is written
        command = [*CARTPOLE.replace("storage=results", f"storage={disk} name=full").split()[1:], "n_steps_per_epoch=4"]
        command.remove("n_steps_per_epoch=10")
        assert run_command("train", command) == 1
        sentence = capsys.readouterr().err.splitlines()[-1]
        assert sentence.startswith("1 of 1 seeds failed: seed 0: The checkpoint ")
        assert sentence.endswith(
            f"could not be written: the disk is full. Once that is mended, d3ray resume full storage={disk} goes on."
        )
        assert json.loads((disk / "full/state.json").read_text())["status"] == "FAILED"
        (status,) = disk.glob("full/trials/*/status.json")
        assert json.loads(status.read_text())["0"]["reason"].endswith("could not be written: the disk is full")
        assert {path.name for path in status.parent.glob("checkpoints/*")} == {"step-000000004", "step-000000008"}
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        assert run_command("train", [*command, "--resume"]) == 0
        assert "full: 1 of 1 seeds are trained." in capsys.readouterr().out
