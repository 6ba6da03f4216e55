"""Experiments that nobody runs any more, and of which MLflow does not know how they ended: the next command that looks tells it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...data.errors import D3rayError
from ...data.uris import without_secrets
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from .delivery import deliver
from .metric_files import MetricFiles
from .place import FILE, is_at, shown
from .runs import ServerAwayError, Tracking

T = TypeVar("T")

_logger = logging.getLogger("d3ray")


def settle(storage: str, tracking: Tracking) -> list[str]:
    """Makes MLflow honest about experiments that nobody runs. Their names.

    Those that say RUNNING have died: they and what they left are marked KILLED. Those that ended while MLflow was away, or whose
    command died while it delivered, are delivered. An experiment whose runs are at another place is left to a command that uses
    that; this, and what cannot be read, locked or written, is logged in a line and ends nothing.
    """
    root = Folder(storage)
    folders = [root / name for name in root.names() if not name.startswith(".")]
    unsaid = root.each(partial(_passing_over, _unsaid), folders)
    return [one.name for one in unsaid if one is not None and _passing_over(partial(_settle, tracking=tracking), one.folder)]


def _passing_over(look: Callable[[Folder], T], folder: Folder) -> T | None:
    """Look at an experiment; on trouble return None, and log a warning."""
    try:
        return look(folder)
    except Exception as error:  # of another experiment, perhaps another user's: not what this command is about
        why = str(error) if isinstance(error, D3rayError) else f"{type(error).__name__}: {error}."
        _logger.warning("The experiment %r in the same storage is passed over. %s", folder.label, without_secrets(why))
        return None


def _unsaid(folder: Folder) -> Experiment | None:
    """The experiment of a folder, where nobody runs it and MLflow may not know how it ended; it is asked for many at once."""
    if folder.read_json("experiment.json") is None:
        return None
    experiment = Experiment(folder)
    status, note = experiment.state["status"], folder.read_json(FILE) or {}
    if status != "RUNNING" and note.get("status", status) == status:
        return None
    return experiment if experiment.lock.is_free() else None  # asking needs no right to write, as taking does


def _settle(folder: Folder, tracking: Tracking) -> bool:
    """Settle an experiment if it is to be; return whether it is now."""
    experiment = Experiment(folder)
    status, note = experiment.state["status"], folder.read_json(FILE) or {}
    if not is_at(note, tracking.place):
        _logger.warning(
            "The experiment %r has ended, which its runs in MLflow's experiment %r at %s do not say yet. The next command that "
            "uses that one tells it, as --resume does.",
            experiment.name,
            note.get("experiment", ""),
            shown(note),
        )
        return False
    if not experiment.lock.acquire():
        return False
    try:
        folder.remember()
        if status == "RUNNING":
            experiment.set_state("KILLED", "its command died")
        trials = experiment.trials()
        MetricFiles.begun_before(experiment).update(trials)
        deliver(tracking, experiment, trials)
    except ServerAwayError:
        if status == "RUNNING":
            experiment.set_state("RUNNING")  # the next command that looks will see to it
        return False
    finally:
        experiment.lock.release()
    return True
