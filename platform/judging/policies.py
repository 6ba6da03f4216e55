"""The policies that are judged, each kept as a package or an ONNX file under a name that its bytes decide."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ...algos.export.package import copy_package, read_record
from ...data.errors import ConfigError, StorageError
from ...data.storage.files import storage_errors
from ..settings.config import absolute
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..tracking.policies import open_policy
from ..tracking.registered import is_registered, pinned

KEPT = "judged-policies"  # in the storage


@dataclass(frozen=True)
class Kept:
    """A policy that is judged.

    Attributes:
        label: What tables call it.
        source: What was named; of a registered model its version.
        path: Of the package or the ONNX file.
        learned_from: Fingerprint of the data that it was trained on; None: not known.
    """

    label: str
    source: str
    path: str
    learned_from: str | None = None


def keep(sources: Sequence[str], storage: str, tracking: str | None) -> list[Kept]:
    """Copies policies to where trials find them, those of equal bytes once.

    Args:
        sources: As `open_policy`'s, an experiment standing for all its finished seeds; or ONNX files.
        storage: A local results folder.
        tracking: MLflow's tracking URI.

    Raises:
        ConfigError: a source is no policy, or two are the same.
        StorageError: one is damaged, or cannot be read or written.
    """
    place, found = Path(storage), list[Kept]()
    for source in sources:
        for named in _each(source, storage):
            place_of = pinned(named.place, tracking, storage) if is_registered(named.place) else absolute(named.place)
            if place_of.endswith(".onnx"):
                kept = _keep_file(Path(place_of), place / KEPT)
            else:
                kept = _keep_package(place_of, place / KEPT, tracking, storage)
            data = None if place_of.endswith(".onnx") else read_record(kept).data
            told = place_of if named.place == named.source else named.source
            found.append(Kept(named.label, told, str(kept), data and data.fingerprint))
    for k, one in enumerate(found):
        if (same := next((other for other in found[:k] if other.path == one.path), None)) is not None:
            raise ConfigError(f"{one.label} and {same.label} are the same policy: name it once.")
    labels = [one.label for one in found]
    return [replace(one, label=one.source) if labels.count(one.label) > 1 else one for one in found]


class _Named(NamedTuple):
    label: str
    source: str  # what is told
    place: str  # what is read


def _each(source: str, storage: str) -> Iterator[_Named]:
    """Of an experiment one for each finished seed, whose source is the version that it is registered as."""
    if is_registered(source) or source.endswith(".onnx"):
        yield _Named(source if is_registered(source) else Path(source).name, source, source)
        return
    folder = Folder(absolute(source))
    if not folder.names() and (Folder(storage) / source).read("experiment.json") is not None:
        folder = Folder(storage) / source
    if folder.read("experiment.json") is None:
        yield _Named(folder.label, source, source)
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


def _keep_package(source: str, place: Path, tracking: str | None, storage: str) -> Path:
    with open_policy(source, tracking=tracking, storage=storage) as found, tempfile.TemporaryDirectory(prefix="d3ray-") as scratch:
        made = Path(scratch) / "package"
        if found.package is not None:
            copy_package(found.package, made)
        else:
            assert found.algorithm is not None
            found.algorithm.save_policy(made)
        kept = place / _digest((made / "manifest.json").read_bytes())
        if not kept.exists():
            copy_package(made, kept)
    return kept


def _keep_file(file: Path, place: Path) -> Path:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror or error}.") from error
    kept = place / f"{_digest(content)}.onnx"
    if not kept.exists():
        with storage_errors("written", kept):
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, aside := kept.with_suffix(".new"))
            aside.rename(kept)
    return kept


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
