"""What is decided about a trial lies in the trial's folder before it takes effect; the trial's worker does it.

    stop.json       {"step", "reason"}: train up to this logging step and no further
    exploits.json   [{"step", "donor", "donor_step", "coefficients"}, …]: at this logging step go on from the donor's weights
    donated/step-…  the donor's checkpoint for the exploit of that logging step, until no checkpoint is left that lacks the exploit

A scheduler decides, and of the end of a trial whoever cancels it. A decision outlives the driver that made it and the worker that
was to do it; a worker looks between two epochs. What it has done its next checkpoint says, and what a checkpoint lacks is done
again, from the same weights, however far the donor has come meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ...algos.saving.checkpoint import checkpoint_name
from ...data.errors import ConfigError, StorageError
from ...data.storage.files import storage_errors, sync_folder
from ..settings.objective import Objective
from ..storage.experiments import CANCELLED
from ..storage.outbox import lines
from ..storage.trials import Trial


class Result(NamedTuple):
    """Result of a trial's seeds at one step."""

    time: int  # milliseconds since 1970
    step: int
    objective: float
    n_failed: int  # seeds that had diverged by then


class Exploit(NamedTuple):
    """Population based training: at a step a trial goes on from another's weights with new coefficients."""

    step: int  # the trial's logging step
    donor: str  # the other's identity
    donor_step: int  # the other's logging step
    coefficients: dict[str, float]


def note_stop(trial: Trial, step: int, reason: str) -> None:
    """Decides that a trial ends at a step. The first decision stands."""
    if trial.folder.read_json("stop.json") is None:
        trial.folder.write_json("stop.json", {"step": step, "reason": reason})


def stop_of(trial: Trial) -> tuple[int, str] | None:
    """The step at which a trial is to end, and why; None where nobody has decided that."""
    about = trial.folder.read_json("stop.json")
    return None if about is None else (about["step"], about["reason"])


def check_goes_on(trial: Trial) -> None:
    """Raises ConfigError where nothing is left to do of a trial, but for what somebody has cancelled alone."""
    ended = trial.status
    if trial.is_settled and not any(about["status"] == "KILLED" and about.get("reason") == CANCELLED for about in ended.values()):
        how = ", ".join(dict.fromkeys(str(about.get("reason") or about["status"].lower()) for about in ended.values()))
        raise ConfigError(f"The trial {trial.identity} has ended ({how}): there is nothing to go on with.")


def take_up(trial: Trial) -> None:
    """Lets a trial go on, also one that somebody has cancelled alone. Raises ConfigError as `check_goes_on`."""
    check_goes_on(trial)
    if (stop := stop_of(trial)) is not None and stop[1] == CANCELLED:
        trial.folder.delete(["stop.json"])
    trial.reopen()


def note_exploit(trial: Trial, exploit: Exploit) -> None:
    """Decides one more exploit, and keeps what it takes. Raises StorageError, as where the donor has deleted that checkpoint."""
    _keep(trial, exploit)
    trial.folder.write_json("exploits.json", [one._asdict() for one in [*exploits_of(trial), exploit]])


def _keep(trial: Trial, exploit: Exploit) -> None:
    """The donor's checkpoint, in the folder of who takes it over. It costs no room before the donor deletes it, where links are."""
    kept, donor = trial.folder / "donated", trial.folder.beside(exploit.donor) / "checkpoints"
    with (donor / checkpoint_name(exploit.donor_step)).as_local() as there, kept.scratch() as scratch:
        copy = scratch / "copy"
        copy.mkdir()
        with storage_errors("kept", there):
            for file in list(there.iterdir()):
                _link(file, copy / file.name)
            sync_folder(copy)
        kept.put_tree(copy, checkpoint_name(exploit.step))


def _link(file: Path, other: Path) -> None:
    """Link the file under another name, or copy it where the file system has no links."""
    try:
        os.link(file, other)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(file, other)
        with other.open("rb") as copied:
            os.fsync(copied.fileno())


def exploits_of(trial: Trial) -> list[Exploit]:
    return [Exploit(**about) for about in trial.folder.read_json("exploits.json") or []]


def donated(trial: Trial, exploit: Exploit) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state that an exploit goes on from. Raises StorageError: it is gone, or not whole."""
    kept, donor = trial.folder / "donated", trial.folder.beside(exploit.donor) / "checkpoints"
    for folder, step in ((kept, exploit.step), (donor, exploit.donor_step)):
        if step in folder.checkpoint_steps():
            tensors, meta, _ = folder.read_checkpoint(step)
            return tensors, meta
    raise StorageError(f"The trial {trial.identity} was to go on from {exploit.donor}, whose step {exploit.donor_step} is gone.")


def forget_donated(trial: Trial) -> None:
    """Deletes what was kept for exploits that every checkpoint of the trial has."""
    kept = trial.folder / "donated"
    if steps := kept.checkpoint_steps():
        oldest = (trial.folder / "checkpoints").checkpoint_steps()[0]  # of that very step it is from before the exploit
        for step in steps:
            if step < oldest:
                (kept / checkpoint_name(step)).remove()


def results(trial: Trial, objective: Objective) -> list[Result]:
    """Return a trial's results so far, as its scheduler saw them; steps at which the objective was not measured are left out."""
    rows: dict[int, dict[int, dict[str, float]]] = defaultdict(dict)
    times: dict[int, int] = defaultdict(int)
    failed: dict[int, int] = {}
    committed = trial.committed
    for seed in trial.seeds:
        for line in lines(trial.outbox(seed), -1, committed):
            times[line.step] = max(line.time, times[line.step])
            if "first_bad_step" in line.metrics:
                failed[seed] = line.step
            else:
                rows[line.step][seed] = line.metrics
    found: list[Result] = []
    for step in sorted(rows):
        if (value := objective.of(rows[step])) is not None:
            found.append(Result(times[step], step, value, sum(since <= step for since in failed.values())))
    return found
