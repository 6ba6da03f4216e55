"""A rehearsal of a cluster file: a worker comes for a training and is killed, another comes, and in the end none is left."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...data.errors import StorageError
from ...data.storage.claims import scratch_names
from ..cluster.launcher import ClusterFile
from ..cluster.pretend import IDLE_SECONDS, Node, PretendCluster, Staged, in_words, pretend_cluster, until
from ..storage.experiments import Experiment
from ..storage.trials import Trial

_NAME = "rehearsal"
N_STEPS, _EPOCH = 10_000, 500  # so long that it is still at work when its node goes
_SECONDS = 180.0  # that each thing may take


def rehearse(
    file: str | Path,
    *,
    cpu: float = 1,
    gpu: float = 0.25,
    nodes: Mapping[str, Mapping[str, float]] | None = None,
    told: Callable[[str], Any] = lambda _: None,
) -> list[str]:
    """Plays a cluster file on this machine; about a minute and a half. `told` hears each sentence as soon as it is true.

    Its node types, with names, resources and numbers, are the file's, and Ray's autoscaler starts and ends them as processes. GPUs
    are numbers there, and the trial trains on the CPU: nothing of machines, images, drivers or rights is tried. `nodes` are
    resources by node type that the file leaves to a cloud which cannot be asked from here.

    Raises: ConfigError: the file cannot be used, or has no node for such a trial. StorageError: something did not happen; the
    sentence says what, and what the training or Ray said last.
    """
    staged = Staged.of(ClusterFile.read(file), nodes)
    staged.check_fits({"cpu": cpu, "gpu": gpu})
    seen: list[str] = []

    def tell(sentence: str) -> None:
        seen.append(sentence)
        told(sentence)

    with tempfile.TemporaryDirectory(prefix=scratch_names("rehearsal")) as place, pretend_cluster(staged) as cluster:
        training = _Training(Path(place), cluster, {"cpu": cpu, "gpu": gpu})
        try:
            _play(cluster, staged, training, tell)
        finally:
            training.end()
    return seen


def _play(cluster: PretendCluster, staged: Staged, training: _Training, tell: Callable[[str], None]) -> None:
    def worker(lost: str = "") -> Node | None:
        return next((node for node in cluster.nodes() if node.trains and node.id != lost), None)

    def wait(condition: Callable[[], Any], what: str, check: Callable[[], None] = training.check) -> tuple[Any, str]:
        begun = time.monotonic()
        found = until(condition, what, check, _SECONDS)
        return found, f"{time.monotonic() - begun:.0f} s"

    first, seconds = wait(worker, "A worker for the trial")
    tell(f"{first.type} came, and a trial that asks for {training.asked} began there after {seconds}.")
    step, _ = wait(training.step, "The first epoch")
    cluster.kill(first)
    tell(f"That node was killed when {step} of {N_STEPS} steps were kept.")
    second, seconds = wait(lambda: worker(first.id), "Another worker for the trial")
    tell(f"Another {second.type} came, and the trial went on there after {seconds}.")
    _, seconds = wait(training.has_ended, "The end of the training", cluster.check)
    if not training.is_finished():
        raise StorageError("The training ended without its trial.")
    tell(f"The trial was finished {seconds} later.")
    stay = sum(one["min_workers"] for one in staged.workers.values())
    _, seconds = wait(lambda: len(cluster.nodes()) <= stay, "The end of idle workers", cluster.check)
    idle = f"idle ones go after {IDLE_SECONDS:g} s here, {staged.idle_minutes:g} minutes by the file"
    tell(f"{seconds} later the workers left were {stay}, as min_workers says: {idle}.")


class _Training:
    """`d3ray train` on a pretended cluster, with a folder for its storage, its settings and its log."""

    def __init__(self, place: Path, cluster: PretendCluster, resources: Mapping[str, float]) -> None:
        self._cluster, self._storage, self._log = cluster, place / "results", place / "log"
        self.asked = in_words(resources["cpu"], resources["gpu"])
        settings = {
            "dataset": "d3ray/cartpole-replay",
            "algorithm": "DiscreteBC",
            "n_steps": N_STEPS,
            "n_steps_per_epoch": _EPOCH,
            "evaluation": None,
            "name": _NAME,
            "storage": str(self._storage),
            "resources": dict(resources),
        }
        (place / "train.yaml").write_text(json.dumps(settings))
        tracking = f"sqlite:///{place / 'mlflow.db'}"  # said, since a cluster has to be told; the driver alone writes it
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "d3ray.jobs", "train", "--config", str(place / "train.yaml")],
                cwd=place,
                env={**cluster.environment, "MLFLOW_TRACKING_URI": tracking},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _trial(self) -> Trial | None:
        if not (self._storage / _NAME / "experiment.json").exists():
            return None
        return next(iter(Experiment.look(str(self._storage), _NAME).trials()), None)

    def step(self) -> int:
        trial = self._trial()
        return 0 if trial is None else max(trial.committed, 0)

    def is_finished(self) -> bool:
        """Return True if a worker other than the first finished the trial."""
        trial = self._trial()
        return trial is not None and trial.is_settled and trial.committed == N_STEPS and int(trial.folder.read("attempt") or 0) > 1

    def has_ended(self) -> bool:
        """Check if the command has succeeded. Raises StorageError: it failed."""
        if (status := self._process.poll()) is None:
            return False
        if status:
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            raise StorageError(f"The training of the rehearsal failed: {lines[-1] if lines else f'exit status {status}'}")
        return True

    def check(self) -> None:
        self._cluster.check()
        if self.has_ended():
            raise StorageError("The training of the rehearsal ended too soon: its machine is too quick for it.")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
