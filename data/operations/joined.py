"""Several datasets as one, and mixtures of them in given shares: their episodes one dataset after the other, nothing copied.

What reads by blocks (writing, fingerprints, statistics) reads each part where it lies. Samplers need one array a column: where all
parts are in memory the columns are put together there; otherwise they become a node map, keyed by the joined dataset's
fingerprint, so memory stays bounded, and what is written to a folder later is opened from the same map.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import numpy as np

from ..episodes import Columns, Episodes
from ..errors import ConfigError, DataError
from ..folder import Folder
from ..recording import Derivation, Recording
from ..spec import Box, Dict, Discrete, Leaf, MultiBinary, MultiDiscrete, ObservationSpace, Spec, Tuple, kinds_text
from ..storage.episode_table import EpisodeTable
from ..storage.fingerprint import Summary, scan_blocks, summarise_scans
from ..storage.rows import JoinedRows, Table, read_only
from ..storage.schema import Kinds, check_alike
from .selection import shuffled


class Joined:
    """The rows of several datasets with the same columns, one dataset after the other."""

    def __init__(self, parts: Sequence[Recording], spec: Spec) -> None:
        self.parts, self._spec = tuple(parts), spec
        self.episodes = EpisodeTable.end_to_end([part.episodes for part in self.parts])

    def summary(self) -> Summary:
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        return summarise_scans(scan_blocks(self.table(in_order=True), self._spec), self.episodes, self.kinds)

    @property
    def kinds(self) -> Kinds:
        return self.parts[0].kinds

    @property
    def folders(self) -> tuple[Folder, ...]:
        return tuple({id(folder): folder for part in self.parts for folder in part.folders}.values())

    @property
    def in_memory(self) -> bool:
        return any(part.source.in_memory for part in self.parts)

    def columns(self) -> Columns:
        """Return the columns in memory where all parts are, else as a node map."""
        return self._columns

    @cached_property
    def _columns(self) -> Columns:
        rows = self.table(in_order=True)
        if not self.folders:
            return {name: read_only(rows.read(name, 0, rows.n)) for name in self.kinds}
        from ..node_maps.node_map import node_map_of_rows

        return node_map_of_rows(rows, self.kinds, self.summary())

    def table(self, *, in_order: bool) -> Table:
        return JoinedRows([part.rows(in_order=in_order) for part in self.parts])

    def in_place(self) -> Table:
        return JoinedRows([part.in_place() for part in self.parts])


def concat(datasets: Sequence[Recording], name: str | None, derivation: Derivation | None = None) -> Recording:
    """Concatenate; `derivation` says of which other operation it is a part. See `Dataset.concat`."""
    if not datasets:
        raise DataError("Nothing to put together: there is no dataset.")
    datasets = [dataset.snapshot() for dataset in datasets]
    check_alike([dataset.kinds for dataset in datasets])
    spec, environments = _common_spec(datasets), [dataset.environment for dataset in datasets]
    source = Joined([piece for dataset in datasets for piece in _pieces(dataset)], spec)
    return Recording(
        source,
        Episodes(source.episodes, source, spec),
        name=name or " + ".join(dataset.name for dataset in datasets),
        spec=spec,
        environment=environments[0] if all(e == environments[0] for e in environments) else None,
        provenance=derivation or Derivation("concat", {}, tuple(parent for dataset in datasets for parent in _parents(dataset))),
        cuts=sum(dataset.cuts for dataset in datasets),
        summary=source.summary,
    )


def _pieces(dataset: Recording) -> Sequence[Recording]:
    """Return the parts of a dataset that is all of several, so that joining step by step does not nest; else itself."""
    source = dataset.source
    return source.parts if isinstance(source, Joined) and dataset.is_whole else (dataset,)


def _parents(dataset: Recording) -> tuple[Recording, ...]:
    """Return what it was joined of, so that joining step by step keeps no step's columns; else itself."""
    derivation = dataset.derivation
    return derivation.parents if derivation is not None and derivation.operation == "concat" else (dataset,)


def _common_spec(datasets: Sequence[Recording]) -> Spec:
    """Return what all say; where spaces differ, one that holds all of them."""
    spec = datasets[0].spec
    for dataset in datasets[1:]:
        if dataset.spec != spec:
            action, observation = dataset.spec.action, dataset.spec.observation
            spaces = {"observation": _hull(spec.observation, observation), "action": cast(Leaf, _hull(spec.action, action))}
            spec = spec.model_copy(update=spaces)
    return spec


def _hull(a: ObservationSpace, b: ObservationSpace) -> ObservationSpace:
    """Return a space that holds two with like columns: boxes without bounds where these differ, the larger numbers."""
    if not isinstance(a, Dict | Tuple) and not isinstance(b, Dict | Tuple):
        names = {"names": _common_names(a.names, b.names)}
        a, b = a.model_copy(update=names), b.model_copy(update=names)
    if a == b:
        return a
    match a, b:
        case Dict(), Dict() if a.spaces.keys() == b.spaces.keys():
            return Dict(spaces={key: _hull(space, b.spaces[key]) for key, space in a.spaces.items()})
        case Tuple(), Tuple() if len(a.spaces) == len(b.spaces):
            return Tuple(spaces=tuple(map(_hull, a.spaces, b.spaces)))
        case (Discrete(), Discrete()) | (MultiDiscrete(), MultiDiscrete()) if a.start != b.start:
            raise DataError(f"The datasets count kinds from different numbers: there are {kinds_text(a)}, and {kinds_text(b)}.")
        case (Discrete(), Discrete()) | (MultiBinary(), MultiBinary()):
            return a if a.n >= b.n else b
        case MultiDiscrete(), MultiDiscrete():
            return a.model_copy(update={"nvec": tuple(map(max, a.nvec, b.nvec))})
        case Box(), Box() if a.shape == b.shape:
            taken_as = a.taken_as if a.taken_as == b.taken_as else None
            return a.model_copy(update={"low": None, "high": None, "taken_as": taken_as})
        case _:
            raise DataError(f"The datasets have different spaces: {a.kind.replace('_', '-')} and {b.kind.replace('_', '-')}.")


def _common_names(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return what entries are called where one or both say it; nothing where they call them otherwise."""
    if a is None or b is None or a == b:
        return a or b
    if sorted(a) == sorted(b):
        k = next(k for k, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1])
        raise DataError(
            f"The datasets have the same entries in another order: number {k} is {a[k]!r} in one and {b[k]!r} in another; ingest "
            "them with their columns in one order."
        )
    return None


def mix(
    datasets: Sequence[Recording],
    shares: Sequence[float],
    n_transitions: int | None,
    seed: int,
    name: str | None,
) -> Recording:
    weights = np.asarray(shares, np.float64)
    if len(datasets) != len(weights) or len(weights) < 2:
        raise ConfigError(f"A mix of {len(datasets)} datasets was given {len(weights)} shares; it takes two or more of each.")
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ConfigError(f"The shares of a mix are {list(shares)}; each is a number above 0.")
    weights = weights / weights.sum()
    have = np.array([dataset.n_transitions for dataset in datasets])
    total = int((have / weights).min()) if n_transitions is None else n_transitions
    if total < 1:
        raise ConfigError(f"n_transitions is {total}; it is 1 or more.")
    wanted = weights * total
    if (short := wanted > have + 0.5).any():
        k = int(short.argmax())
        raise DataError(f"{datasets[k].name} has {have[k]:,} transitions and its share of this mix is {int(wanted[k]):,}.")
    about = {"shares": weights.tolist(), "n_transitions": total, "seed": seed}
    parts = [
        dataset.view(_about(dataset, part, seed, k), dataset.name, "mix", about)
        for k, (dataset, part) in enumerate(zip(datasets, wanted, strict=True))
    ]
    return concat(parts, name, Derivation("mix", about, tuple(datasets)))


def _about(dataset: Recording, wanted: float, seed: int, k: int) -> np.ndarray:
    """Draw episodes without replacement, in their order, with as nearly `wanted` transitions as whole episodes make."""
    order = shuffled(dataset.n_episodes, seed, f"mix {k}")
    have = np.cumsum(dataset.episodes.steps[order])
    n = int(np.searchsorted(have, wanted)) + 1  # the first so many have enough
    if n > 1 and (n > len(order) or have[n - 1] - wanted > wanted - have[n - 2]):
        n -= 1
    return np.sort(order[:n])
