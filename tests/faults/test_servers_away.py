"""The tracking server and the disk fail under `d3ray train`: training is not held up, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .processes import clean_environment, end_with_parent, free_port, kill, marked, until
from .runs import EPOCH, N_STEPS, SEEDS, Runs, assert_equal_runs

Train = Callable[..., Runs]


class Server:
    """A real `mlflow server` on a database, which can be killed and started again at the same address."""

    def __init__(self, place: Path, port: int | None = None) -> None:
        place.mkdir(exist_ok=True)
        self.place, self.port = place, port or free_port()
        self.uri, self.mark = f"http://127.0.0.1:{self.port}", f"{place}:{self.port}"
        self.start()

    def start(self) -> None:
        """Until it answers."""
        options = ["--backend-store-uri", f"sqlite:///{self.place}/mlflow.db", "--artifacts-destination", f"{self.place}/artifacts"]
        with (self.place / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *options, "--port", str(self.port), "--workers", "1"],
                cwd=self.place,
                env={**clean_environment(), "D3RAY_TEST_SERVER": self.mark, "SPT_NOENV": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one C call, and no thread of ours runs yet
            )
        until(self.answers, (self.place / "log.txt").read_text, 120)

    def answers(self) -> bool:
        """Whether it does."""
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=5):
            return True
        return False

    def kill(self) -> None:
        """With its workers."""
        while left := marked("D3RAY_TEST_SERVER", self.mark):
            kill(*left)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    begun: list[Server] = []

    def make(place: Path) -> Server:
        begun.append(Server(place))
        return begun[-1]

    yield make
    for server in begun:
        server.kill()


def test_the_tracking_server_away_for_half_a_minute(
    tmp_path: Path, train: Train, undisturbed: Runs, serve: Callable[[Path], Server]
) -> None:
    server, runs = serve(tmp_path / "server"), train()
    runs.database = server.place / "mlflow.db"
    held = runs.hold("commit", 2 * EPOCH, *SEEDS)
    command = runs.start(MLFLOW_TRACKING_URI=server.uri)
    command.until(lambda: runs.reached(held))
    server.kill()
    away = time.monotonic()
    runs.release(held)
    command.until(lambda: runs.committed() == [N_STEPS] * 2 and all(trial.is_settled for trial in runs.trials()), 28)  # not held up
    until(lambda: time.monotonic() > away + 30)
    assert command.process.poll() is None
    server.start()
    assert command.wait() == 0, command.log.read_text()
    assert_equal_runs(undisturbed, runs)


def test_the_tracking_server_away_for_good(
    tmp_path: Path, train: Train, undisturbed: Runs, serve: Callable[[Path], Server]
) -> None:
    """The command ends with a sentence, and what the lost server had goes to another one too."""
    server, runs = serve(tmp_path / "server"), train()
    held = runs.hold("commit", 4 * EPOCH, *SEEDS)
    command = runs.start(MLFLOW_TRACKING_URI=server.uri, D3RAY_DELIVERY_SECONDS="2")
    command.until(lambda: runs.reached(held))
    server.kill()
    runs.release(held)
    assert command.wait() == 1
    said = command.log.read_text()
    assert f"Not everything is in MLflow yet: The MLflow server {server.uri} does not answer" in said
    assert " delivers the rest." in said
    assert all(trial.is_settled for trial in runs.trials())
    other = serve(tmp_path / "other")
    runs.database = other.place / "mlflow.db"
    again = runs.start("--resume", MLFLOW_TRACKING_URI=other.uri)
    assert again.wait() == 0, again.log.read_text()
    assert_equal_runs(undisturbed, runs)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 20 MB."""
    folder.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", folder], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk(train: Train, undisturbed: Runs) -> None:
    """The trials cannot write a checkpoint, nor they or the command why they failed; with room again they go on.

    The database of the runs, which is beside the results where nobody says another, is on that disk too.
    """
    runs = train()
    with small_disk(runs.storage):
        runs.database = runs.storage / "mlflow.db"
        runs.env["MLFLOW_TRACKING_URI"] = f"sqlite:///{runs.database}"
        held = runs.hold("commit", 3 * EPOCH, *SEEDS)
        command = runs.start()
        command.until(lambda: runs.reached(held))
        filler = runs.storage / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"0" * 4096):
                pass
        runs.release(held)
        assert command.wait() == 2
        said = command.log.read_text()
        what = rf"The checkpoint {runs.storage}/disturbed/trials/\S+/checkpoints/step-000000120"
        why = f"could not be written: the disk is full; once that is mended, d3ray resume disturbed storage={runs.storage} goes on."
        assert re.fullmatch(rf"The trial DQN-\S+ failed: {what} {re.escape(why)}", said.splitlines()[-1]), said
        assert "Traceback" not in said
        assert runs.committed() == [2 * EPOCH] * 2
        assert runs.attempts() == [1, 1]
        filler.unlink()
        again = runs.start("--resume")
        assert again.wait() == 0, again.log.read_text()
        assert_equal_runs(undisturbed, runs)
