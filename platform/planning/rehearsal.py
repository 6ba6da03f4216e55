"""An experiment that is only looked at: its trials lie in a hidden folder of the same storage, which goes afterwards."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from uuid import uuid4

from ..driver.budget import Spent
from ..driver.work import Work
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.trials import Trial


@contextmanager
def rehearsal(work: Work) -> Generator[Experiment]:
    """The experiment of some work, for as long as the context lasts. Raises StorageError where the storage cannot be written."""
    with hidden_folder(work.config.storage_place) as hidden:
        experiment = Experiment.begin(hidden.name, work.config.experiment, work.configuration, work.about)
        try:
            yield experiment
        finally:
            experiment.close()


@contextmanager
def hidden_folder(place: str) -> Generator[Folder]:
    """A folder in a storage that goes with the context, and the storage too where there was none. Raises StorageError."""
    storage = Folder(place)
    is_new = storage.local is not None and not storage.local.exists()
    hidden = storage / f".rehearsal-{uuid4().hex[:8]}"
    try:
        yield hidden
    finally:
        hidden.remove()
        if is_new and storage.local is not None:
            with suppress(OSError):
                storage.local.rmdir()


def proposed(work: Work, experiment: Experiment, most: int) -> tuple[list[Trial], bool]:
    """The trials that would come first, at most so many, created in `experiment`; and whether there are no others."""
    proposer, trials = work.propose(experiment, Spent(experiment.folder, None)), list[Trial]()
    while len(trials) < most:
        try:
            trial = proposer.next()
        except StopIteration:
            return trials, True
        if trial is None:  # what comes next depends on how these end
            return trials, False
        trials.append(trial)
    return trials, not proposer.has_more()
