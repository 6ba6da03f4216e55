"""Judging by what training kept back: of logs that policies learned from, the episodes that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...data.dataset import Dataset
from ..storage.folders import Folder
from .policies import Kept
from .settings import JudgeSettings

KEPT = "judged-data"  # in the storage


def unseen(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept], say: Callable[[str], None]) -> tuple[Dataset, str]:
    """The episodes to judge by, and where they lie: all, or those that training kept back (see `JudgeSettings.holdout`)."""
    shares = {one.holdout for one in kept if one.learned_from == dataset.fingerprint}
    known = shares.pop() if len(shares) == 1 else 0.0
    if not (share := known if settings.holdout is None else settings.holdout):
        return dataset, settings.dataset
    part = dataset.split(share, seed=0)[1]  # as trials do
    if settings.holdout is None and part.n_episodes < 2:  # one does not tell how far others would differ
        return dataset, settings.dataset
    say(f"Judging by the {part.n_episodes:,} episodes of {dataset.name!r} that training kept back; holdout=0 takes all.")
    folder = Folder(settings.storage_place) / KEPT / part.fingerprint[:16]
    if folder.read("dataset.json") is None:
        part.write(folder.name)
    return part, folder.name
