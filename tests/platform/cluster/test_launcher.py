"""`d3ray up` and `d3ray down`: what they refuse before Ray's launcher is asked, and how they ask it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d3ray.jobs.command.running import run_command
from d3ray.platform.cluster.launcher import ClusterFile

ROOT = Path(__file__).parents[3]
LAUNCHER = """
import json, os, sys
from pathlib import Path
about = {"arguments": sys.argv[1:], "folder": os.getcwd(), "mode": os.environ.get("RAY_AUTH_MODE")}
Path(os.environ["ASKED"]).write_text(json.dumps(about))
sys.exit(int(os.environ.get("LAUNCHER_FAILS", 0)))
"""


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for machines, filled in, in a home folder with a token and a key; and a launcher that notes its orders."""
    text = (ROOT / "examples/clusters/on_premises.yaml").read_text()
    for word, value in {"HEAD-ADDRESS": "192.0.2.10", "WORKER-ADDRESS-1": "192.0.2.11", "WORKER-ADDRESS-2": "192.0.2.12"}.items():
        text = text.replace(word, value)
    file = tmp_path / "here" / "clusters" / "ours.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("YOUR-USER", "ubuntu").replace("../../constraints.txt", "constraints.txt"))
    (file.parent / "constraints.txt").touch()
    for name in (".ssh/id_ed25519", ".ray/auth_token"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    scripts = tmp_path / "stand-in" / "ray" / "scripts"
    scripts.mkdir(parents=True)
    (scripts.parent / "__init__.py").touch()
    (scripts / "__init__.py").touch()
    (scripts / "scripts.py").write_text(LAUNCHER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand-in"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return file


def test_rays_launcher_is_asked_with_a_token_in_the_folder_of_the_file(
    ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / ".ray" / "auth_token"
    token.chmod(0o644)  # as Ray writes it
    assert run_command("up", [str(ready), "--yes"]) == 0
    assert token.stat().st_mode & 0o777 == 0o600
    out = capsys.readouterr()
    assert out.err == "Starting local: a head and at most 2 workers.\n"
    assert f"end it:   d3ray down {ready}" in out.out
    assert json.loads((tmp_path / "asked").read_text()) == {
        "arguments": ["up", "--yes", str(ready)],
        "folder": str(ready.parent),
        "mode": "token",
    }
    assert run_command("down", [str(ready), "--yes"]) == 0
    assert json.loads((tmp_path / "asked").read_text())["arguments"] == ["down", "--yes", str(ready)]


def test_a_launcher_that_fails_is_said(ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LAUNCHER_FAILS", "3")
    assert run_command("up", [str(ready), "--yes"]) == 2
    assert capsys.readouterr().err.endswith("`ray up` failed with exit status 3; what it said stands above.\n")


def test_nothing_starts_in_a_dry_run_or_unasked(ready: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("up", [str(ready), "dry_run=true"]) == 0
    assert "is ready to be used (local: a head and at most 2 workers)." in capsys.readouterr().out
    for job in ("up", "down"):
        assert run_command(job, [str(ready)]) == 2
        assert capsys.readouterr().err.endswith("There is no terminal to answer at; say --yes.\n")
    assert not (tmp_path / "asked").exists()


def test_what_is_missing_is_named(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ClusterFile.read(ready).lacking() == []
    (tmp_path / ".ray/auth_token").unlink()
    (tmp_path / ".ssh/id_ed25519").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ClusterFile.read(ready).lacking() == [
        "Ray reaches the machines over ssh, which is not installed here.",
        "There is no key '~/.ssh/id_ed25519' for ssh: ssh-keygen makes one, and ssh-copy-id takes it to the machines.",
        "~/.ray/auth_token on the nodes shall be ~/.ray/auth_token of this machine, which is not there: ray get-auth-token "
        "--generate makes it.",
    ]


def test_ending_a_cluster_asks_only_for_what_ends_it(
    ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token or a file that is gone, or a line for the nodes that is not filled in, keeps no machine running."""
    (tmp_path / ".ray/auth_token").unlink()
    (ready.parent / "constraints.txt").unlink()
    text = ready.read_text()
    ready.write_text(text + "\nsetup_commands: [YOUR-COMMAND]\n" if "setup_commands:" not in text else text)
    assert len(ClusterFile.read(ready).lacking()) >= 2
    assert ClusterFile.read(ready).lacking("down") == []
    assert run_command("up", [str(ready), "--yes"]) == 2
    assert not (tmp_path / "asked").exists()
    assert run_command("down", [str(ready), "--yes"]) == 0
    assert json.loads((tmp_path / "asked").read_text())["arguments"] == ["down", "--yes", str(ready)]
    (tmp_path / ".ssh/id_ed25519").unlink()  # without which `ray down` cannot say it to the machines
    ready.write_text(ready.read_text().replace("192.0.2.12", "WORKER-ADDRESS-2"))
    capsys.readouterr()
    assert run_command("down", [str(ready), "--yes"]) == 2
    said = capsys.readouterr().err
    assert "provider.worker_ips still says 'WORKER-ADDRESS-2': CHANGE it." in said
    assert "There is no key '~/.ssh/id_ed25519' for ssh" in said


@pytest.mark.parametrize(("provider", "file"), [("aws", "ray_cluster.yaml"), ("gcp", "examples/clusters/gcp.yaml")])
def test_a_cloud_asks_for_its_library_and_credentials(
    provider: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("d3ray.platform.cluster.launcher._importable", lambda module: False)
    lacking = " ".join(ClusterFile.read(ROOT / file).lacking())
    assert {"aws": "Ray needs boto3 for aws: pip install boto3.", "gcp": "google-api-python-client==1.7.8 and google-auth"}[
        provider
    ] in lacking
    assert f"There are no credentials for {provider}: `" in lacking
    assert ("provider.project_id still says 'YOUR-PROJECT': CHANGE it." in lacking) == (provider == "gcp")
    monkeypatch.setattr("d3ray.platform.cluster.launcher._importable", lambda module: True)
    monkeypatch.setenv({"aws": "AWS_PROFILE", "gcp": "GOOGLE_APPLICATION_CREDENTIALS"}[provider], "mine")
    lacking = " ".join(ClusterFile.read(ROOT / file).lacking())
    assert "pip install" not in lacking
    assert "credentials" not in lacking


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cluster_name: [", "is no YAML"),
        ("apiVersion: ray.io/v1\nkind: RayCluster", "is for Kubernetes: kubectl apply -f"),
        ("cluster_name: x\nprovider: {type: local, head_ip: h}", "Ray does not accept"),
        ("cluster_name: x\nprovider: {type: local, head_ip: h, worker_ips: []}\nmax_worker: 3", "Ray does not accept"),
        ("cluster_name: x\nprovider: {type: nowhere}", "Ray does not accept"),
        ("- a list", "Ray does not accept"),
    ],
)
def test_a_file_that_ray_does_not_accept_is_refused_in_one_sentence(
    text: str, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert run_command("up", [str(tmp_path / "x.yaml")]) == 2
    out, err = capfd.readouterr()
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("down", ["no/such.yaml"]) == 2
    assert capsys.readouterr().err == (
        "There is no cluster file 'no/such.yaml'; `d3ray cluster new aws` writes one, and examples/clusters has some.\n"
    )
