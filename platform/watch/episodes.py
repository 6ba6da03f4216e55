"""The complete episodes of a service's log, with who acted and when."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...data.dataset import Dataset
from ...data.formats.decisions.decision_log import DecisionLog, NothingNewError
from ...data.uris import label
from ..datasets.sources import folders_here
from .settings import WatchSettings

TIME, VERSION = "info/time", "info/version"  # columns of what is made of a log


def episodes_of(settings: WatchSettings) -> tuple[Dataset | None, tuple[str, ...], list[str]]:
    """Return the complete episodes of a log, the versions that acted by number, and what the reader has to say."""
    reader = DecisionLog(episode_timeout=settings.episode_timeout, missing_reward=settings.missing_reward)
    try:
        with folders_here([settings.log]) as (here, _):
            found = reader.read(Path(here[0]))
    except NothingNewError as error:
        return None, (), [str(error)]
    versions = tuple(found.provenance["log"].get("versions", ()))
    data = Dataset.from_steps(found.steps, name=label(settings.log), spec=found.spec, environment=found.environment)
    return data, versions, list(found.notes)


def begun(data: Dataset) -> np.ndarray:
    """When each episode began, [E] float64, seconds since 1970; their numbers where no time was kept."""
    first = data.episodes.first_row
    return data.columns[TIME][first] if TIME in data.kinds else np.arange(len(first), dtype=np.float64)


def acted(data: Dataset) -> np.ndarray:
    """Which version acted in each episode's first step, [E] int64, by number."""
    first = data.episodes.first_row
    return data.columns[VERSION][first] if VERSION in data.kinds else np.zeros(len(first), np.int64)


def newest(data: Dataset, most: int) -> Dataset:
    return data.take(np.argsort(begun(data), kind="stable")[-most:])
