"""The dataset that a worker trains on, opened once for all the trials that it runs after one another."""

from __future__ import annotations

import socket

from ...data.errors import D3rayError, DataError
from .places import Data, open_place

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
