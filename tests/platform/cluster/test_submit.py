"""What a submitted job takes along, and what is said of a cluster that lacks something. Jobs themselves: `test_submit_job.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from packaging.requirements import Requirement

from d3ray.data.errors import ConfigError, StorageError
from d3ray.jobs.cluster.submit import SubmitConfig
from d3ray.jobs.cluster.submit import run as submit
from d3ray.platform.api.starting import check_datasets
from d3ray.platform.cluster.check import missing
from d3ray.platform.cluster.jobs import Cluster
from d3ray.platform.cluster.secret_text import refuse_secrets, secret_in, secret_name
from d3ray.platform.cluster.staging import _FLOORS, PACKAGE, cargo, carried_config, local_module, requirements, stage_package
from d3ray.platform.yaml_text import read_yaml


def test_the_staged_package_is_the_imported_one_and_nothing_beside_it(tmp_path: Path) -> None:
    staged = stage_package(tmp_path)
    assert {path.name for path in staged.iterdir()} == {
        "__init__.py",
        "py.typed",
        "data",
        "algos",
        "platform",
        "jobs",
        "facades",
    }
    ours = {
        path.relative_to(PACKAGE)
        for floor in _FLOORS
        for path in (PACKAGE / floor).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path.relative_to(staged) for path in staged.rglob("*") if path.is_file()} == ours | {
        Path("__init__.py"),
        Path("py.typed"),
    }
    assert any(path.suffix == ".arrow" for path in ours)  # data files too
    code = "import d3ray, d3ray.platform.cluster.staging as s; print(d3ray.__file__); d3ray.Dataset.open('d3ray/cartpole-replay')"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(staged / "__init__.py")


def test_a_config_file_travels_in_the_package(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("dataset: there\n")
    arguments, files = carried_config(["--config", str(config), "format=json"])
    assert arguments == ["--config", "d3ray:submitted/mine.yaml", "format=json"]
    assert files == {"mine.yaml": b"dataset: there\n"}
    assert carried_config([f"--config={config}"])[0] == ["--config", "d3ray:submitted/mine.yaml"]
    assert carried_config(["a", "b=c"]) == (["a", "b=c"], {})
    staged = stage_package(tmp_path, files)
    code = "from d3ray.platform.yaml_text import read_yaml; print(read_yaml('d3ray:submitted/mine.yaml'))"
    found = subprocess.run([sys.executable, "-c", code], cwd=staged.parent, capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(read_yaml(config))


def test_other_files_that_arguments_name_travel_too(tmp_path: Path) -> None:
    suite, config = tmp_path / "mine.yaml", tmp_path / "more" / "mine.yaml"
    config.parent.mkdir()
    suite.write_text("n_steps: 1\n")
    config.write_text("seeds: [1]\n")
    for argument in (str(suite), f"suite={suite}"):
        arguments, files = carried_config([argument, "--config", str(config)], [str(suite)])
        sent = argument.replace(str(suite), "d3ray:submitted/mine.yaml")
        assert arguments == [sent, "--config", "d3ray:submitted/config-mine.yaml"]
        assert files == {"mine.yaml": b"n_steps: 1\n", "config-mine.yaml": b"seeds: [1]\n"}
    arguments, files = carried_config([str(suite), "--check", str(config)], [str(suite), str(config)])  # two of one name
    assert arguments == ["d3ray:submitted/mine.yaml", "--check", "d3ray:submitted/1-mine.yaml"]
    assert files == {"mine.yaml": b"n_steps: 1\n", "1-mine.yaml": b"seeds: [1]\n"}
    with pytest.raises(ConfigError, match=r"would not find '.*mine.yaml', which its config file names: name it on the"):
        carried_config(["--config", str(config)], [str(suite)])


def test_requirements_are_those_of_the_project() -> None:
    names = {Requirement(text).name for text in requirements()}
    assert {"python", "ray", "torch", "numpy", "mlflow"} <= names
    assert "pytest" not in names
    assert missing(requirements()) == []


def test_what_is_missing_is_named_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    assert missing(["python>=3.99", "no-such-thing>=3", "numpy>=99", "numpy>=1", 'absent; python_version < "3"']) == [
        f"python>=3.99 (it has {python})",
        "no-such-thing>=3",
        f"numpy>=99 (it has {np.__version__})",
    ]


def test_modules_that_are_not_installed_travel_as_their_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ourlab" / "deep").mkdir(parents=True)
    (tmp_path / "ourlab" / "__init__.py").touch()
    (tmp_path / "ourlab" / "deep" / "networks.py").touch()
    (tmp_path / "ourtricks.py").write_text("TRICK = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert local_module("ourlab.deep.networks") == tmp_path / "ourlab"
    assert local_module("ourtricks") == tmp_path / "ourtricks.py"
    assert local_module("numpy.linalg") is None  # installed here, so it has to be there
    assert local_module("json") is None
    assert local_module("d3ray.algos.values.dqn") is None  # goes along anyway
    assert local_module("no_such_module") is None
    with cargo(plugins=["ourlab.deep.networks", "ourlab", "ourtricks", "numpy"]) as load:
        assert load.modules[1] == tmp_path / "ourlab"
        assert load.modules[2].name == "ourtricks"  # a folder, which is all that Ray's client for jobs sends
        assert [(file.name, file.read_text()) for file in load.modules[2].iterdir()] == [("__init__.py", "TRICK = 1\n")]
        assert len(load.modules) == 3
    with cargo(plugins=["ourlab", "ourtricks"], working_dir=tmp_path) as load:
        assert len(load.modules) == 1  # they are in what goes along
    with pytest.raises(StorageError, match="There is no folder"), cargo(working_dir=tmp_path / "absent"):
        pass


def test_more_than_ray_takes_is_refused_before_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("work", "work/.venv", "work/ignored", "work/lab"):
        (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / "work/.gitignore").write_text("ignored\n")
    (tmp_path / "work/lab/__init__.py").touch()
    for place in ("work/.venv/big", "work/ignored/big"):
        with (tmp_path / place).open("wb") as file:
            file.truncate(2**31)
    with cargo(working_dir=tmp_path / "work"):
        pass  # what Ray leaves here does not count
    with (tmp_path / "work/lab/frames").open("wb") as file:
        file.truncate(2**31)
    (tmp_path / "work/notes").write_bytes(bytes(2**20))
    with pytest.raises(StorageError) as refused, cargo(working_dir=tmp_path / "work"):
        pass
    assert str(refused.value) == (
        f"'{tmp_path}/work' would go along with 2,049 MiB, and Ray takes 100: name in {tmp_path}/work/.rayignore what stays "
        "here, as lab of 2,048 MiB, and keep data where nodes read them."
    )
    monkeypatch.syspath_prepend(tmp_path / "work")
    with pytest.raises(StorageError, match=r"work/lab' would go along .* as frames of 2,048 MiB"), cargo(plugins=["lab"]):
        pass


def test_a_dataset_that_is_here_alone_is_refused_unless_its_folder_goes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/mine").mkdir(parents=True)
    for config in ({"dataset": "data/mine"}, {"datasets": [{"name": "d3ray/cartpole-replay"}, {"name": "data/mine"}]}):
        with pytest.raises(
            ConfigError, match=r"^dataset is 'data/mine', a folder of this machine alone: copy it .* its URI or abs"
        ):
            check_datasets(config, None)
        with pytest.raises(ConfigError, match="a folder of this machine alone"):
            check_datasets(config, tmp_path / "data")
        check_datasets(config, tmp_path)
    for name in ("d3ray/cartpole-replay", "data/theirs", str(tmp_path / "data/mine"), "s3://data/mine", None):
        check_datasets({"dataset": name}, None)


def test_secrets_travel_in_a_file_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    staged = stage_package(tmp_path, secrets={"LAB_PASSWORD": "correct-horse"})
    place = staged / "submitted" / "secrets.json"
    assert place.stat().st_mode & 0o777 == 0o600
    code = "import os, d3ray.platform.cluster.staging as s; print(s.load_secrets(), os.environ['LAB_PASSWORD'])"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found == "True correct-horse\n"
    place.unlink()
    found = subprocess.run(
        [sys.executable, "-c", "import d3ray.platform.cluster.staging as s; print(s.load_secrets())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert found == "False\n"


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "password", "storage.token", "HF_TOKEN", "OPENAI_API_KEY", "db-password"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert secret_name(name)


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN_PATH", "n_tokens", "tokens_per_step", "AWS_REGION", "algorithm.name", "keys"])
def test_names_of_other_things_are_not_secrets(name: str) -> None:
    assert not secret_name(name)


def test_text_that_holds_a_secret_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_PASSWORD", "correct-horse-battery")
    for text in [
        "s3://AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI@bucket/results",
        "https://user:pass@mlflow.example.org",
        "ghp_0123456789abcdefghij0123456789abcdef",
        "-----BEGIN RSA PRIVATE KEY-----",
        "x=correct-horse-battery",
    ]:
        assert secret_in(text), text
        with pytest.raises(ConfigError) as refused:
            refuse_secrets({"storage": [text]}, "d3ray train:", "do otherwise")
        assert str(refused.value).startswith("d3ray train: storage holds ")
        assert text not in str(refused.value)
    for text in ["s3://bucket/a@b:c", "http://127.0.0.1:8265", "models:/hopper@champion", "d4rl/hopper-medium-v2", ""]:
        assert secret_in(text) is None, text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"env": {"AWS_SECRET_ACCESS_KEY": "x"}}, "submit with secrets=[AWS_SECRET_ACCESS_KEY]."),
        ({"env": {"TRACKING": "https://user:pass@host"}}, "env.TRACKING looks like a secret"),
        ({"secrets": ("NOT_SET_HERE",)}, "secrets names NOT_SET_HERE, which is not set"),
        ({"arguments": ("s3://key:secret@bucket/data",)}, "d3ray inspect: holds a URI with a password"),
        ({"job": "jobs", "arguments": ("list",)}, "submit runs jobs on a cluster; jobs works from here."),
    ],
)
def test_submit_refuses_before_it_talks_to_any_cluster(options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"job": "inspect", "arguments": ("d3ray/cartpole-replay",), "address": "http://127.0.0.1:1", **options}
    with pytest.raises(ConfigError) as refused:
        submit(SubmitConfig(**given))
    assert sentence in str(refused.value)


class Server:
    """Stands for Ray's job server where one that is in trouble is wanted: it fails a few times, then works."""

    def __init__(self, failures: list[str]) -> None:
        self.failures, self.jobs = failures, list[str]()

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, Any], metadata: dict[str, str]) -> None:
        if submission_id in self.jobs:
            raise RuntimeError(f"400: Job with submission_id {submission_id} already exists.")
        if not self.failures or "lost" in self.failures[0]:
            self.jobs.append(submission_id)
        if self.failures:
            raise RuntimeError(self.failures.pop(0))


@pytest.mark.parametrize(
    "failures",
    [
        [],
        ["500: No available agent to submit job, please try again later."] * 3,
        ["500: Cannot connect to host 192.0.2.2:38713, and the answer is lost"],
    ],
)
def test_a_job_is_submitted_once_however_often_it_has_to_be_asked_for(failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3ray.platform.cluster.jobs.time.sleep", lambda seconds: None)
    cluster = object.__new__(Cluster)
    cluster.address, cluster.client = "http://there", cast(Any, server := Server(failures))
    with cargo() as load:
        job = cluster.submit("train", ["x"], cargo=load)
    assert server.jobs == [job.id]
    assert job.id.startswith("train-")


def test_what_will_not_pass_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d3ray.platform.cluster.jobs.time.sleep", lambda seconds: pytest.fail("it waited"))
    monkeypatch.setattr("d3ray.platform.cluster.jobs.git_state", lambda: None)  # git is waited for
    cluster = object.__new__(Cluster)
    cluster.address = "http://there"
    cluster.client = cast(Any, Server(["500: Traceback (most recent call last):\n  File x\nValueError: a bad entry point.\n."]))
    with cargo() as load, pytest.raises(StorageError) as refused:
        cluster.submit("train", ["x"], cargo=load)
    assert str(refused.value) == "The cluster http://there does not take the job: ValueError: a bad entry point."
