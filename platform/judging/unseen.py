"""Judging by what training kept back: of logs that policies learned from, the episodes that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...data.dataset import Dataset
from ..storage.folders import Folder
from .policies import Kept
from .settings import JudgeSettings

KEPT = "judged-data"  # in the storage


class Judged(NamedTuple):
    """The data to judge by."""

    dataset: Dataset  # all episodes, or those that training kept back
    place: str  # where they lie
    seen: frozenset[str]  # paths of the policies that learned from some of them


def unseen(settings: JudgeSettings, dataset: Dataset, kept: Sequence[Kept], say: Callable[[str], None]) -> Judged:
    """The episodes to judge by (see `JudgeSettings.holdout`)."""
    learned = [one for one in kept if one.learned_from == dataset.fingerprint]
    whole = Judged(dataset, settings.dataset, frozenset(one.path for one in learned))
    shares = {one.holdout for one in learned}
    known = shares.pop() if len(shares) == 1 else 0.0
    if not (share := known if settings.holdout is None else settings.holdout):
        return whole
    part = dataset.split(share, seed=0)[1]  # as trials do
    if settings.holdout is None and part.n_episodes < 2:  # one does not tell how far others would differ
        return whole
    # A smaller share of a seed is part of a larger one.
    seen = frozenset(one.path for one in kept if one.learned_from == part.fingerprint or (one in learned and one.holdout < share))
    agreed = len(learned) == len(kept) and not seen
    which = "that training kept back" if agreed else f"of holdout={share:g}, which not every policy is known to have kept back"
    say(f"Judging by the {part.n_episodes:,} episodes of {dataset.name!r} {which}; holdout=0 takes all.")
    folder = Folder(settings.storage_place) / KEPT / part.fingerprint[:16]
    if folder.read("dataset.json") is None:
        part.write(folder.name)
    return Judged(part, folder.name, seen)
