"""The policies that are judged, each kept as a package or an ONNX file under a name that its bytes decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...algos.export.package import DataRecord, copy_package, read_record
from ...data.errors import ConfigError, StorageError
from ...data.uris import label
from ..settings.config import absolute
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.targets import ending
from ..tracking.policies import located, open_policy
from ..tracking.registered import is_registered, pinned

KEPT = "judged-policies"  # in the storage


@dataclass(frozen=True)
class Kept:
    """A policy that is judged."""

    label: str  # what tables call it
    source: str  # what was named; of a registered model its version
    path: str  # of the package or the ONNX file
    learned_from: str | None = None  # fingerprint of the data that it was trained on; None: not known
    holdout: float = 0.0  # share of these data that training kept back, as `split(holdout, seed=0)` does


def keep(sources: Sequence[str], storage: str, tracking: str | None) -> list[Kept]:
    """Copies policies to where trials find them, those of equal bytes once.

    Sources are those of `open_policy`, an experiment standing for all its finished seeds, or ONNX files. Raises ConfigError: one is
    no policy, or two are the same; StorageError: one is damaged, or cannot be read or written.
    """
    place, found = Folder(storage) / KEPT, list[Kept]()
    for source in sources:
        for named in _each(source, storage, tracking):
            place_of = pinned(named.place, tracking, storage) if is_registered(named.place) else absolute(named.place)
            if ending(place_of) == ".onnx":
                kept, data = _keep_file(place_of, place), None
            else:
                kept, data = _keep_package(place_of, place, tracking, storage)
            told = place_of if named.place == named.source else named.source
            learned = (data.fingerprint, data.holdout) if data else (None, 0.0)
            found.append(Kept(named.label, told, kept, *learned))
    for k, one in enumerate(found):
        if (same := next((other for other in found[:k] if other.path == one.path), None)) is not None:
            raise ConfigError(f"{one.label} and {same.label} are the same policy: name it once.")
    labels = [one.label for one in found]
    return [replace(one, label=one.source) if labels.count(one.label) > 1 else one for one in found]


class _Named(NamedTuple):
    label: str
    source: str  # what is told
    place: str  # what is read


def _each(source: str, storage: str, tracking: str | None) -> Iterator[_Named]:
    """Of an experiment one for each finished seed, whose source is the version that it is registered as."""
    if is_registered(source) or ending(source) == ".onnx":
        yield _Named(source if is_registered(source) else label(source), source, source)
        return
    place, of_run = located(source, storage, tracking)
    folder = Folder(absolute(place))
    if folder.read("experiment.json") is None:
        place = place if of_run is None else (folder / "policy" / f"seed-{of_run}").name
        yield _Named(folder.label, source, place)
        return
    trials = Experiment(folder).trials()
    several = len({trial.identity.rpartition("-seed")[0] for trial in trials}) > 1
    notes = {trial.identity: trial.delivered for trial in trials}
    ended = [(trial, seed) for trial in trials for seed in trial.seeds if trial.status.get(seed, {}).get("status") == "FINISHED"]
    if not ended:
        raise ConfigError(f"{source} has no finished seed, so there is no policy to judge yet.")
    for trial, seed in ended:
        tried = trial.identity if trial.number is None else f"#{trial.number}"
        which = f"{folder.label} {tried} seed {seed}" if several else f"{folder.label} seed {seed}"
        note = notes[trial.identity].get(seed, {})
        registered = f"models:/{note['registered']}/{note['model']}" if "model" in note else None
        package = (trial.folder / "policy" / f"seed-{seed}").name
        yield _Named(which, registered or package, package)


def _keep_package(source: str, place: Folder, tracking: str | None, storage: str) -> tuple[str, DataRecord | None]:
    """Where it is kept, and what it learned from."""
    with open_policy(source, tracking=tracking, storage=storage) as found, place.scratch() as scratch:
        made = scratch / "package"
        if found.package is not None:
            record = copy_package(found.package, made)
        else:
            assert found.algorithm is not None
            found.algorithm.save_policy(made)
            record = read_record(made)
        name = _digest((made / "manifest.json").read_bytes())
        if (place / name).read("manifest.json") is None:
            place.put_tree(made, name)
        return (place / name).name, record.data


def _keep_file(source: str, place: Folder) -> str:
    folder, name = Folder.of_file(source)
    if (content := folder.read(name)) is None:
        raise StorageError(f"{source} cannot be read: no such file or directory.")
    kept = f"{_digest(content)}.onnx"
    if place.sizes([kept])[kept] is None:
        place.write(kept, content)
    return place.address(kept)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
