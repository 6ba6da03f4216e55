"""What is learned from: dataset folders, importers, sampling, replay, scalers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazily
from .names import find_by

if TYPE_CHECKING:
    from .dataset import Dataset as Dataset
    from .doctor.examine import doctor as doctor
    from .replay import ReplayBuffer as ReplayBuffer
    from .storage.files import Place

HOMES = {"Dataset": ".dataset", "ReplayBuffer": ".replay", "doctor": ".doctor.examine"}
__getattr__, __all__ = lazily(__name__, HOMES)


def _find(name: str) -> Place:
    from .catalog import find

    return find(name)


find_by(_find)
