"""The dataset that a worker trains on, opened once for all the trials that it runs after one another."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from ...data.errors import D3rayError, DataError
from ..places import Data, open_place

_opened: dict[str, Data] = {}


def open_dataset(place: str) -> Data:
    """A dataset, opened once in a worker, whichever trials it runs after one another.

    Raises:
        DataError: this machine cannot see it.
    """
    if place not in _opened:
        try:
            dataset = open_place(place)
            dataset.columns  # noqa: B018 - builds the node map where there is none
        except D3rayError as error:
            raise DataError(
                f"{str(error).rstrip('.')} (on the machine {socket.gethostname()}; every machine that trains must see the dataset)."
            ) from error
        _opened.clear()
        _opened[place] = dataset
    return _opened[place]


def check_recorded(dataset: Data, recorded: Mapping[str, Any]) -> None:
    """Raises DataError where a dataset that this machine has opened is not the one that a trial was begun with.

    Args:
        dataset: What this machine has.
        recorded: What the trial says of its data: `name`, `fingerprint`.
    """
    if dataset.fingerprint != recorded["fingerprint"]:
        both = f"fingerprints {dataset.fingerprint[:12]} and {recorded['fingerprint'][:12]}"
        raise DataError(
            f"The machine {socket.gethostname()} has another dataset in the place of {recorded['name']!r} than the trial was begun "
            f"with ({both}): give a place that all machines share."
        )
