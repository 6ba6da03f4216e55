"""Datasets of a folder from a program: brought in, looked at, derived and deleted.

    from d3ray.experiments import datasets

    mine = datasets.ingest(["logs.csv"], "mine", timeout_at=200)
    print(mine.wait().n_episodes, [finding.sentence for finding in mine.inspect().findings])

Whatever reads a stranger's file, or all of a dataset, is a process of its own.
"""

from __future__ import annotations

import builtins
import functools
import io
import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.episodes import Episodes
from ...data.errors import ConfigError, D3rayError, DataError, did_you_mean
from ...data.spec import Box, Discrete, ObservationSpace, Spec
from ...data.storage.files import storage_errors
from ..record.datasets import Chart, Column, DatasetStatus, EpisodeAbout, EpisodeSteps, Finding, Inspected, Moments, Table
from ..record.jobs import DataJobName, Job, by_experiment, newest
from ..record.status import Status
from ..settings.config import absolute
from ..storage.resuming import check_name
from ..words import space_text
from .elsewhere import elsewhere
from .places import Submission
from .processes import Processes
from .tables import renames, table

__all__ = ["FOLDER", "DatasetHandle", "derive", "ingest", "list", "open", "renames", "table"]
FOLDER = "./datasets"
_POLL_SECONDS = 0.2
_MOST_STEPS = 2000  # of an episode that is told
_MOST_ENTRIES = 32  # of a vector, whose curves or rows are told
_SETTINGS: Mapping[str, dict[str, Any]] = {  # of an algorithm, by the finding for which they make up
    "scales_differ": {"observation_scaler": "standard"},
    "actions_huge": {"action_scaler": "min_max"},
    "rewards_sparse": {"td_steps": 3},
}
_ALWAYS = ("source", "target", "name", "overwrite")  # what an ingest says that is no decision about its data


class DatasetHandle:
    """A dataset of a folder; `ingest`, `derive` and `open` give one. One that lies elsewhere, `at` a place, is not changed.

    Raises ConfigError: the name cannot be a folder's, as `../other`.
    """

    def __init__(self, name: str, folder: str, at: Path | None = None) -> None:
        check_name(name)
        self.name, self.root, self.place, self._at = name, folder, Processes(), at

    def __repr__(self) -> str:
        return f"DatasetHandle({self.name!r}, {self.root!r})"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._at or Path(self.root) / self.name

    def check_own(self) -> None:
        """Raises ConfigError where it lies elsewhere."""
        if self._at is not None:
            raise ConfigError(f"{self.name} lies outside of this folder of datasets: it is changed where it lies.")

    def status(self) -> DatasetStatus:
        """How it stands. Raises ConfigError: there is no such dataset, and nobody makes it."""
        return self.status_with(newest(self.place.jobs(self.name, self.root)))

    def status_with(self, job: Job | None) -> DatasetStatus:
        """Return the `status`, given its newest job."""
        log = "" if job is None else self.place.log(job)
        remarks = [line.rpartition("\r")[2].strip() for line in log.splitlines() if line.strip()]
        told: dict[str, Any] = {"name": self.name, "folder": str(self.folder), "remarks": remarks, "job": job}
        told["elsewhere"] = self._at is not None
        if job is not None and job.is_alive:
            return DatasetStatus(**told, state="RUNNING", changed=job.started)
        try:
            about = _about_folder(self.folder)
        except DataError as error:
            if job is None:
                if not self.folder.exists():
                    said = f"There is no dataset {self.name!r} in {self.root}{did_you_mean(self.name, _names(self.root))}"
                    raise ConfigError(said, missing=True) from None
                raise ConfigError(str(error)) from None
            said = remarks[-1] if remarks else job.message or "it ended without a word"
            table = self._table(job)
            told["lacking"] = table.lacking if table else []
            return DatasetStatus(**told, state="FAILED", reason=said, changed=job.ended or job.started)
        if job is not None and job.state != "SUCCEEDED":  # one that was to replace it; it is as it was
            told["reason"] = remarks[-1] if remarks else job.message
        return DatasetStatus(**told, state="READY", **about)

    def wait(self, timeout: float | None = None) -> DatasetStatus:
        """How it stands once nobody makes it any more. Raises TimeoutError after `timeout` seconds, and as `status`."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while (found := self.status()).state == "RUNNING":
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name} is still being made after {timeout:g} s.")
            time.sleep(_POLL_SECONDS)
        return found

    def open(self) -> Dataset:
        """The dataset itself. Raises DataError: it is not there, or damaged."""
        return Dataset.open(self.folder)

    def settings(self) -> dict[str, Any]:
        """Decisions with which it was brought in, as `ingest` takes them: what was said of the file beyond where it lies."""
        job = newest(self.place.jobs(self.name, self.root))
        if job is not None:
            return {key: value for key, value in self.place.config(job).items() if key not in _ALWAYS}
        files = self.open().provenance.get("ingested", {}).get("files", [])
        return {} if not files else dict(files[0].get("options", {}))

    def sources(self) -> builtins.list[str]:
        """The files that it was made from, as far as anybody knows, where these are still there."""
        return self._sources(newest(self.place.jobs(self.name, self.root)))

    def _sources(self, job: Job | None) -> builtins.list[str]:
        said = [] if job is None else self.place.config(job).get("source", [])
        return [path for path in ([said] if isinstance(said, str) else said) if Path(path).exists()]

    def table(self) -> Table | None:
        """The first table that it was made from, with what was said of its columns; None: there is none."""
        return self._table(newest(self.place.jobs(self.name, self.root)))

    def _table(self, job: Job | None) -> Table | None:
        rename = None if job is None else self.place.config(job).get("rename")
        return next(filter(None, (table(file, rename) for file in self._sources(job))), None)

    def inspect(self) -> Inspected:
        """Describe its contents and the doctor's findings. Raises DataError: unreadable."""
        try:
            told = json.loads(self.place.ask("inspect", [str(self.folder), "format=json"]))
        except ConfigError as error:
            raise DataError(str(error)) from None
        doctor, files = told["doctor"], told["provenance"].get("ingested", {}).get("files", [])
        charts = [doctor["returns"], doctor["steps"], doctor["rewards"], *doctor["actions"], *doctor["observations"]]
        return Inspected(
            findings=[_finding(one) for one in doctor["findings"]],
            charts=[Chart(**one) for one in charts if one["counts"]],
            moments=[*_moments(told["statistics"], Spec.model_validate(told["spec"]))],
            columns=[Column(**one) for one in told["columns"]],
            ends={end: n for end, n in told["ends"].items() if n},
            order=doctor["order"],
            notes=[*dict.fromkeys(note for file in files for note in file.get("notes", []))],
            provenance=told["provenance"],
        )

    def episodes(self, start: int = 0, count: int = 100) -> builtins.list[EpisodeAbout]:
        """Some of its episodes, in their order. Raises DataError."""
        found = self.open().episodes
        return [_about(found, k) for k in range(max(start, 0), min(start + count, len(found)))]

    def episode(self, index: int) -> EpisodeSteps:
        """One of its episodes, for its curves or its rows. Raises DataError: there is none of this number."""
        rows, first, about = self._rows(index)
        every = -(-about.steps // _MOST_STEPS)
        steps = np.arange(0, about.steps, every)
        columns: dict[str, builtins.list[float | int | None]] = {}
        has_images = False
        spec = self.open().spec
        for name in [name for name in rows.names() if name not in ("terminated", "truncated", "closing")]:
            values = rows.take(name, first + steps)
            if name.startswith("observation") and values.ndim > 2:
                has_images = True
                continue
            flat = values.reshape(len(values), -1)
            for k, entry in enumerate(spec.entry_names(name, flat.shape[1])[:_MOST_ENTRIES]):
                columns[f"{name} {entry}".strip()] = [_plain(value) for value in flat[:, k].tolist()]
        return EpisodeSteps(about=about, steps=steps.tolist(), columns=columns, has_images=has_images, every=every)

    def image(self, index: int, step: int) -> bytes:
        """An observation that is an image, as PNG. Raises DataError: there is none, or no such step."""
        rows, first, about = self._rows(index)
        if not 0 <= step < about.steps:
            raise DataError(f"Episode {index} of {self.name} has {about.steps} steps; there is no number {step}.", missing=True)
        name = next((name for name in rows.names() if name.startswith("observation") and "/" not in name), "")
        if not name or (image := rows.take(name, np.array([first + step]))[0]).ndim != 3:
            raise DataError(f"Observations of {self.name} are no images.")
        from PIL import Image

        if image.shape[0] in (1, 3, 4) and image.shape[-1] not in (1, 3, 4):
            image = np.moveaxis(image, 0, -1)
        image = image[..., -1] if image.shape[-1] not in (3, 4) else image
        out = io.BytesIO()
        Image.fromarray(image.astype(np.uint8)).save(out, "PNG")
        return out.getvalue()

    def _rows(self, index: int) -> tuple[Any, int, EpisodeAbout]:
        """Rows of the dataset, the first of an episode, and the episode. Where files are not compressed nothing else is read."""
        found = self.open()
        if not 0 <= index < found.n_episodes:
            raise DataError(f"{self.name} has {found.n_episodes} episodes; there is no number {index}.", missing=True)
        packed = found.folder is not None and found.folder.manifest.compression is not None
        rows = found.source.table(in_order=False) if packed else found.source.in_place()
        return rows, int(found.episodes.first_row[index]), _about(found.episodes, index)

    def again(self, **settings: Any) -> None:
        """Brings it in once more from the same files, with further decisions, None to take one back; it stays until that is done.

        Raises ConfigError: its files are gone, it is being made, or it lies elsewhere.
        """
        self.check_own()
        if not (sources := self.sources()):
            raise ConfigError(f"The files that {self.name} was made from are gone: bring them in again.")
        said = {key: value for key, value in {**self.settings(), **settings}.items() if value is not None}
        ingest(sources, self.name, folder=self.root, replace=True, **said)

    def cancel(self) -> None:
        """Stops who makes it; nothing of it is left. Raises ConfigError: nobody does."""
        job = newest(self.place.jobs(self.name, self.root))
        if job is None or not job.is_alive:
            raise ConfigError(f"{self.name} is not being made.")
        self.place.stop(job)

    def delete(self) -> None:
        """Deletes its folder. Raises ConfigError: there is none, it is being made, or it lies elsewhere; StorageError."""
        self.check_own()
        jobs = self.place.jobs(self.name, self.root)
        if any(job.is_alive for job in jobs):
            raise ConfigError(f"{self.name} is being made: cancel that first.")
        if not jobs:
            self.status()  # which says that there is none
        if (self.folder / "dataset.json").exists():
            with storage_errors("deleted", self.folder):
                shutil.rmtree(self.folder)
        for job in jobs:
            self.place.forget(job)


def ingest(
    sources: Sequence[str | Path], name: str, *, folder: str = FOLDER, replace: bool = False, **settings: Any
) -> DatasetHandle:
    """Begins to bring files in as a dataset, and returns at once. `wait` tells what came of it.

    Args:
        sources: Files, folders, patterns, URIs or catalog names.
        name: Of the dataset.
        folder: Where datasets lie.
        replace: Where there is one of that name, put this in its place once it is whole.
        settings: Decisions, as `d3ray ingest` has them: format, timeout_at, discrete_action, rename, options, …

    Raises:
        ConfigError: the name cannot be used, there is such a dataset, or it is being made.
    """
    config = {**settings, "source": [str(Path(s).absolute()) if Path(s).exists() else str(s) for s in sources]}
    return _made("ingest", config, name, folder, replace)


def derive(sources: Sequence[str], name: str, *, folder: str = FOLDER, replace: bool = False, **settings: Any) -> DatasetHandle:
    """Begins to make a dataset of others, as `d3ray derive` does; errors and the other arguments are `ingest`'s.

    Sources are datasets of the folder by their names, or catalog names, as d3ray/cartpole-replay; settings are `d3ray derive`'s:
    keep, top, part, reward, …; none: a copy.
    """
    found = [source if "/" in source else str(open(source, folder=folder).folder) for source in sources]
    config = {**settings, "source": found}
    return _made("derive", config, name, folder, replace)


def _made(job: DataJobName, config: Mapping[str, Any], name: str, folder: str, replace: bool) -> DatasetHandle:
    handle = DatasetHandle(name, absolute(folder))
    if any(one.is_alive for one in handle.place.jobs(name, handle.root)):
        raise ConfigError(f"{name} is being made already: wait for it, or cancel it.")
    if handle.folder.exists() and not replace:
        raise ConfigError(f"There is {handle.folder} already: replace it, or say another name.")
    for old in handle.place.jobs(name, handle.root):
        handle.place.forget(old)
    full = {**config, "target": str(handle.folder), "name": name, "overwrite": replace}
    handle.place.start(Submission(job=job, config=full, experiment=name, storage=handle.root))
    return handle


def open(name: str, *, folder: str = FOLDER, experiments: Iterable[Status] = (), beside: str | None = None) -> DatasetHandle:
    """A dataset of a folder, one that is being made, or one that lies elsewhere, by the name that `list` gives it.

    Raises ConfigError: there is none; the nearest name is said.
    """
    root = absolute(folder)
    jobs = by_experiment(Processes().jobs(None, root))
    at = next((at for one, at in _places(root, jobs, experiments, beside) if one == name), None)
    handle = DatasetHandle(name, root, at)
    if at is None:
        handle.status_with(newest(jobs.get(name, [])))  # which says where there is none
    return handle


def list(folder: str = FOLDER, *, experiments: Iterable[Status] = (), beside: str | None = None) -> builtins.list[DatasetStatus]:
    """Every dataset of a folder, and those that are being made or could not be, those first that changed last.

    Args:
        folder: Where datasets lie.
        experiments: What these learned from is listed too, wherever it lies on this machine.
        beside: A further folder whose datasets are listed too, those of its folders included; None: none.
    """
    root = absolute(folder)
    found, jobs = builtins.list[DatasetStatus](), by_experiment(Processes().jobs(None, root))
    for name, at in _places(root, jobs, experiments, beside):
        try:
            found.append(DatasetHandle(name, root, at).status_with(newest(jobs.get(name, []))))
        except D3rayError as error:  # one that is damaged, or whose name is none, does not hide the others
            place = str(at or Path(root) / name)
            found.append(DatasetStatus(name=name, folder=place, state="FAILED", reason=str(error), elsewhere=at is not None))
    return sorted(found, key=lambda status: -status.changed)


def _places(root: str, jobs: Iterable[str], experiments: Iterable[Status], beside: str | None) -> Iterator[tuple[str, Path | None]]:
    """Every name, with where it lies if elsewhere. The folder's own come first, before anybody looks for others."""
    own = dict.fromkeys([*_names(root), *jobs])
    yield from ((name, None) for name in own)
    yield from elsewhere(root, own, experiments, beside).items()


def _names(root: str) -> builtins.list[str]:
    return sorted(file.parent.name for file in Path(root).glob("*/dataset.json"))


def _about_folder(folder: Path) -> Mapping[str, Any]:
    """Read the description of an existing dataset, cached until the file changes. Raises DataError."""
    try:
        now = (folder / "dataset.json").stat()
    except OSError:
        return _read_folder.__wrapped__(folder, 0.0, 0, 0)  # which says what is wrong
    return _read_folder(folder, now.st_mtime, now.st_size, now.st_ino)


@functools.lru_cache(10_000)
def _read_folder(folder: Path, changed: float, size: int, file: int) -> Mapping[str, Any]:
    found = Dataset.open(folder)
    manifest = found.folder.manifest if found.folder else None
    space, observation, moments = found.spec.action, found.spec.observation, found.statistics.action
    return {
        "n_episodes": found.n_episodes,
        "n_transitions": found.n_transitions,
        "bytes": sum(shard.bytes for shard in manifest.shards) if manifest else 0,
        "actions": "discrete" if isinstance(space, Discrete) else "continuous" if isinstance(space, Box) else "other",
        "observation": space_text(observation),
        "action": space_text(space),
        "is_image": _is_image(observation),
        "action_reach": None if moments is None else float(np.abs([*np.ravel(moments.min), *np.ravel(moments.max)]).max()),
        "environment": found.environment.id if found.environment else None,
        "fingerprint": found.fingerprint,
        "changed": changed,
    }


def _about(episodes: Episodes, k: int) -> EpisodeAbout:
    end, score = bool(episodes.terminated[k]), float(episodes.returns[k])
    return EpisodeAbout(index=k, steps=int(episodes.steps[k]), score=score, terminated=end)


def _is_image(space: ObservationSpace) -> bool:
    return isinstance(space, Box) and space.is_image


def _plain(value: Any) -> float | int | None:
    return value if isinstance(value, int) or math.isfinite(value) else None


def _finding(told: Mapping[str, Any]) -> Finding:
    numbers, mends = told["numbers"], dict[str, Any]()
    match told["name"]:
        case "timeouts_as_terminals":
            mends = {"timeout_at": numbers["timeout_at"]}
        case "longer_than_limit":
            mends = {"timeout_at": numbers["limit"]}
        case "actions_normalised":
            scale = numbers["action_scale"]
            mends = {"action_scale": scale[0] if len(set(scale)) == 1 else scale}
        case "actions_outside":
            mends = {"actions": "clip"}
        case _:
            pass
    about = {key: told[key] for key in Finding.model_fields if key not in ("mends", "settings")}
    return Finding(**about, mends=mends, settings=_SETTINGS.get(told["name"], {}))


def _moments(statistics: Mapping[str, Any], spec: Spec) -> builtins.list[Moments]:
    observation = statistics["observation"]
    several = "mean" not in observation
    parts = {
        "return of an episode": statistics["return"],
        "steps of an episode": statistics["steps"],
        "reward": statistics["reward"],
        **({f"observation/{key}": one for key, one in observation.items()} if several else {"observation": observation}),
        **({} if statistics["action"] is None else {"action": statistics["action"]}),
    }
    rows: builtins.list[Moments] = []
    for label, one in parts.items():
        each = {key: value if isinstance(value, builtins.list) else [value] for key, value in one.items()}
        rows += [
            Moments(label=f"{label} {name}".strip(), **{key: value[k] for key, value in each.items()})
            for k, name in enumerate(spec.entry_names(label, len(each["mean"]))[:_MOST_ENTRIES])
        ]
    return rows
