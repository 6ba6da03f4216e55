"""The dataset that a worker trains on, opened once for all the trials that it runs after one another."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.errors import D3rayError, DataError
from ...data.storage.steps import steps_from_rows
from ..places import Data, open_place

_HELD = 1 << 28  # bytes of what is held out that are looked at, where data stream
_opened: dict[str, Data] = {}


def open_dataset(place: str, *, mapped: bool = True) -> Data:
    """A dataset, opened once in a worker, whichever trials it runs after one another; one that is streamed is not `mapped`.

    Raises:
        DataError: this machine cannot see it.
    """
    if place not in _opened:
        try:
            dataset = open_place(place)
            if mapped:
                dataset.columns  # noqa: B018 - builds the node map where there is none
        except D3rayError as error:
            raise DataError(
                f"{str(error).rstrip('.')} (on the machine {socket.gethostname()}; every machine that trains must see the dataset)."
            ) from error
        _opened.clear()
        _opened[place] = dataset
    return _opened[place]


def in_memory(dataset: Dataset) -> Dataset:
    """Of a dataset whose columns are not mapped as many episodes as 256 MB hold, from everywhere, in memory.

    Raises as `StreamSampler`.
    """
    row = sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in dataset.kinds.values())
    part = dataset.take(np.arange(0, dataset.n_episodes, max(1, -(-dataset.n_rows * row // _HELD))))
    rows, episodes = part.in_place(), part.episodes
    table = steps_from_rows({name: rows.read(name, 0, rows.n) for name in part.kinds}, np.asarray(episodes.final_recorded))
    return Dataset.from_steps(table, name=dataset.name, spec=dataset.spec, environment=dataset.environment)


def check_recorded(dataset: Data, recorded: Mapping[str, Any]) -> None:
    """Raises DataError where a dataset that this machine has opened is not the one that a trial was begun with."""
    if dataset.fingerprint != recorded["fingerprint"]:
        both = f"fingerprints {dataset.fingerprint[:12]} and {recorded['fingerprint'][:12]}"
        raise DataError(
            f"The machine {socket.gethostname()} has another dataset in the place of {recorded['name']!r} than the trial was begun "
            f"with ({both}): give a place that all machines share."
        )
