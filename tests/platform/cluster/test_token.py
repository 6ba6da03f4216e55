"""Ray's token is a password: its owner alone can read it, whoever wrote it and however many commands start at once."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.cluster.jobs import Cluster
from d3ray.platform.cluster.token import keep_token_private

from ..ports import Port, grpc_answers


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the token lies, of a user who has none yet and lets everybody read what is written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".ray" / "auth_token"


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_token_is_made_for_its_owner_alone(token: Path) -> None:
    keep_token_private()
    assert not token.parent.exists()
    keep_token_private(make=True)
    made = token.read_text()
    assert (len(made), mode(token)) == (64, 0o600)
    keep_token_private(make=True)
    assert token.read_text() == made
    assert list(token.parent.iterdir()) == [token]


def test_commands_that_start_at_once_have_one_token(token: Path) -> None:
    def seen(_: int) -> str:
        keep_token_private(make=True)
        return token.read_text()

    with ThreadPoolExecutor(8) as pool:
        (made,) = set(pool.map(seen, range(64)))
    assert len(made) == 64
    assert list(token.parent.iterdir()) == [token]


def test_a_token_that_ray_wrote_is_closed_to_others_by_whoever_talks_to_a_cluster(token: Path) -> None:
    token.parent.mkdir()
    token.write_text("ray's")
    token.chmod(0o644)
    with pytest.raises(StorageError):
        Cluster("http://127.0.0.1:1")
    assert (token.read_text(), mode(token)) == ("ray's", 0o600)


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_token_from_elsewhere_is_left_alone(token: Path, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "elsewhere")
    keep_token_private(make=True)
    assert not token.parent.exists()


def test_a_home_that_cannot_be_written_is_rays_to_complain_of(token: Path) -> None:
    token.parent.write_text("a file")
    keep_token_private(make=True)
    assert token.parent.read_text() == "a file"


_SESSION = """
import ray
from d3ray.platform.cluster.session import ray_session

with ray_session(num_cpus=1):
    print(ray.get_runtime_context().gcs_address, flush=True)
    input()
"""


@pytest.mark.long
def test_a_local_ray_takes_the_token_of_its_owner(token: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SESSION], umask=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = Port("00000000", int(process.stdout.readline().rpartition(":")[2]))
        procedure = ["/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"]
        answers = [grpc_answers(port, procedure, key) for key in ("", token.read_text())]
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(300) == 0
    assert answers == [[f"{answer} {procedure[0]}"] for answer in ("UNAUTHENTICATED", "OK")]
    assert mode(token) == 0o600
