"""The datasets of a suite on this machine: opened, downloaded or made where they are not here; else named, with how to get them.

A plan downloads and makes nothing: it has random experience stand in for what is not here.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from ...data.catalog import Entry, catalog
from ...data.catalog.download import Patience
from ...data.catalog.local import prepare, state
from ...data.dataset import Dataset
from ...data.errors import ConfigError, D3rayError, DataError, StorageError
from ...data.spec import Environment
from ..planning.rehearsal import hidden_folder
from ..storage.folders import Folder
from .suite import Cell, DatasetChoice, SuiteConfig

STAND_IN_STEPS = 10_000
_ONCE = Patience(attempts=1)  # with a server that did not answer for another dataset of the suite


@dataclass(frozen=True)
class Obtained:
    """The datasets of a suite by label: those that are here, and why others are not."""

    found: dict[str, Dataset] = field(default_factory=dict[str, Dataset])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    stand_ins: dict[str, str] = field(default_factory=dict[str, str])  # places of what stands in for a dataset that is not here

    def cells(self, config: SuiteConfig) -> list[Cell]:
        """The cells whose data, or what stands in for them, are here."""
        cells = [cell for cell in config.cells() if cell.dataset in self.found]
        return [
            replace(cell, config=cell.config.model_copy(update={"dataset": self.stand_ins.get(cell.dataset, cell.config.dataset)}))
            for cell in cells
        ]


def obtain(config: SuiteConfig, *, only_here: bool = False) -> Obtained:
    """Opens the datasets of a suite; those of the catalog are downloaded or made first, unless it is to take what is `only_here`.

    Raises DataError: there is no such dataset (the nearest is given), or none can be had; ConfigError: an environment in which
    policies are to be scored cannot be made here, or `D3RAY_CATALOG` names no catalog.
    """
    check_environments(config)
    entries = {one.label: entry_of(one) for one in config.datasets}
    failed = {} if only_here else _make([one.name for one in config.datasets if _is_to_be_made(one.name, entries[one.label])])
    got = Obtained()
    away: set[str] = set()  # servers that did not answer
    for one in config.datasets:
        entry = entries[one.label]
        try:
            if one.name in failed:
                raise failed[one.name]
            if entry is not None and entry.files:
                _download(one.name, entry, away, only_here)
            got.found[one.label] = Dataset.open(one.name)
        except D3rayError as error:
            got.missing[one.label] = str(error)
    if not got.found and not only_here:
        label, why = next(iter(got.missing.items()))
        raise DataError(f"None of the datasets of {config.suite_name} can be had; {label}: {why}")
    return got


@contextmanager
def stood_in(config: SuiteConfig, data: Obtained) -> Generator[Obtained]:
    """The datasets with random experience in place of those that are not here, as long as the context lasts.

    It is 10,000 steps of random actions where policies are to be scored, so it has the dataset's shapes, in a hidden folder of the
    storage, which every machine sees. What no environment is known for stays missing; DataError where that is all.
    """
    with hidden_folder(config.storage_place) as hidden:
        yield _stand_ins(config, data, hidden)


def _stand_ins(config: SuiteConfig, data: Obtained, folder: Folder) -> Obtained:
    from ...algos.environments.collect import collect

    found, missing, places, made = dict(data.found), dict(data.missing), dict[str, str](), dict[str, tuple[str, Dataset]]()
    for one in (one for one in config.datasets if one.label in data.missing):
        environment = _environment(config, one)
        if environment is None:
            continue
        key = environment if isinstance(environment, str) else json.dumps(environment.model_dump(mode="json"), sort_keys=True)
        if key not in made:
            place = (folder / f"{len(made)}.d3ray").name
            made[key] = place, collect(environment, n_steps=STAND_IN_STEPS, name="stand-in").write(place)
        places[one.label], found[one.label] = made[key]
        del missing[one.label]
    if not found:
        label, why = next(iter(missing.items()))
        raise DataError(
            f"No dataset of {config.suite_name} is here, and nothing says in which environment to play in their place, so there is "
            f"nothing to measure; the same command without --plan gets them first. {label}: {why}"
        )
    return Obtained(found, missing, places)


def _environment(config: SuiteConfig, dataset: DatasetChoice) -> str | Environment | None:
    """Where the policies of a dataset are scored, or its data are from, as far as that is known without them."""
    entry = entry_of(dataset)
    scored = config.evaluation.environment if config.evaluation else None
    return dataset.environment or scored or (entry.environment if entry else None)


def check_environments(config: SuiteConfig) -> None:
    """Raises ConfigError for the first environment that cannot be made here: before anything is downloaded for it."""
    from ...algos.environments.make import make

    if config.evaluation is None:
        return
    tried: list[object] = []
    for one in config.datasets:
        environment = _environment(config, one)
        if environment is None or environment in tried:
            continue
        tried.append(environment)
        try:
            make(environment).close()
        except ConfigError as error:
            needs = f" {config.suite_name} needs {config.needs.rstrip('.')}." if config.needs else ""
            raise ConfigError(f"{one.label}: {error}{needs}") from None


def entry_of(dataset: DatasetChoice) -> Entry | None:
    """Find a dataset in the catalog; None for a folder or a URI. Raises DataError: it is none of these."""
    if "://" in dataset.name or Path(dataset.name).expanduser().exists():
        return None
    if (entry := catalog().find(dataset.name)) is None:
        Dataset.open(dataset.name)  # says what is near
    return entry


def _is_to_be_made(name: str, entry: Entry | None) -> bool:
    return entry is not None and entry.making is not None and state(name, entry) != "dataset"


def _make(names: list[str]) -> dict[str, D3rayError]:
    if not names:
        return {}
    from ..datasets.recipes import make

    return make(names).failed


def _download(name: str, entry: Entry, away: set[str], only_here: bool) -> None:
    """Has a dataset's files downloaded and imported; a server that was away for another one is asked once."""
    if state(name, entry) == "dataset":
        return
    if only_here:
        raise DataError(f"{name} is not on this machine yet.")
    servers = {urlsplit(file.url).netloc for file in entry.files}
    try:
        prepare(name, entry, patience=_ONCE if servers & away else None)
    except StorageError:
        away |= servers
        raise
