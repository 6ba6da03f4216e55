"""Metrics of trials as files, when asked: CSV, one file for each metric, and TensorBoard's events.

<experiment>/csv/<trial>/seed-K/            params.json, train/critic_loss.csv, evaluation/return.csv, …: lines `epoch,step,value`
<experiment>/tensorboard/<trial>/seed-K/    an event file: `tensorboard --logdir <experiment>/tensorboard`

What a file holds follows from the committed outbox alone, byte by byte. So whoever begins, after whatever kill, compares what is
there with what should be, and adds the rest: no step is missing and none is there twice.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from ...algos.saving.loggers import csv_lines
from ...data.storage.files import storage_errors, write_atomically
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.outbox import Line, lines
from ..storage.trials import Trial

Kind = Literal["csv", "tensorboard"]
KINDS: tuple[Kind, ...] = ("csv", "tensorboard")
EVENTS = "events.out.tfevents.0.d3ray"
_Key = tuple[str, int]  # a trial's identity and a seed


class MetricFiles:
    """Keeps the files of an experiment as its outboxes are; for one thread."""

    def __init__(self, experiment: Experiment, kinds: Sequence[Kind]) -> None:
        self._folder, self._kinds = experiment.folder, tuple(kinds)
        for kind in self._kinds:  # from the beginning on, so that whoever completes them knows that they were asked for
            (experiment.folder / kind).make()
        self._upto: dict[_Key, int] = {}  # the newest step that is in the files, as far as this process has looked
        self._contents: dict[_Key, dict[str, bytes]] = {}  # of files in an object store, which are written whole
        self._done: set[str] = set()  # trials that have ended

    @classmethod
    def begun_before(cls, experiment: Experiment) -> MetricFiles:
        """The files that earlier commands wrote, to be completed."""
        there = experiment.folder.names()
        return cls(experiment, [kind for kind in KINDS if kind in there])

    def forget(self, trial: Trial) -> None:
        """A trial that had ended goes on."""
        self._done.discard(trial.identity)

    def update(self, trials: Iterable[Trial]) -> None:
        """Adds what was committed since the last call. Raises StorageError; then the next call mends what is half-written."""
        if not self._kinds:
            return
        for trial in trials:
            if trial.identity in self._done:
                continue
            ended = len(trial.status) == len(trial.seeds)  # looked at first: what ended has committed its last metrics before
            committed = trial.committed
            for seed in trial.seeds:
                self._add(trial, seed, committed)
            if ended:
                self._done.add(trial.identity)
                for seed in trial.seeds:
                    self._contents.pop((trial.identity, seed), None)
                    self._upto.pop((trial.identity, seed), None)

    def _add(self, trial: Trial, seed: int, committed: int) -> None:
        key = trial.identity, seed
        after = self._upto.pop(key, None)  # gone while it is written
        found = list(lines(trial.outbox(seed), -1 if after is None else after, committed))
        if found:
            for path, content in self._rendered(trial, seed, found, first=after is None).items():
                self._put(key, path, content, first=after is None)
        if found:
            self._upto[key] = found[-1].step
        elif after is not None:
            self._upto[key] = after

    def _rendered(self, trial: Trial, seed: int, found: Sequence[Line], *, first: bool) -> dict[str, bytes]:
        """Render what lines add to each file, by its path below the experiment's folder."""
        parts: dict[str, list[bytes]] = {}
        every = int(trial.configuration.get("n_steps_per_epoch", 1))
        for kind in self._kinds:
            place = f"{kind}/{trial.identity}/seed-{seed}"
            if kind == "tensorboard":
                begin = [_event(found[0], None)] if first else []
                parts[f"{place}/{EVENTS}"] = begin + [_event(line, line.metrics) for line in found]
                continue
            if first:
                parts[f"{place}/params.json"] = [_params(trial, seed)]
            for line in found:
                for path, text in csv_lines(-(-line.step // every), line.step, line.metrics):
                    parts.setdefault(f"{place}/{path}", []).append(text.encode())
        return {path: b"".join(part) for path, part in parts.items()}

    def _put(self, key: _Key, path: str, content: bytes, *, first: bool) -> None:
        above, _, name = path.rpartition("/")
        folder = functools.reduce(Folder.__truediv__, above.split("/"), self._folder)
        if folder.local is None:
            kept = self._contents.setdefault(key, {})
            kept[path] = content if first else kept.get(path, b"") + content
            folder.write(name, kept[path])
        elif first:
            folder.make()
            _complete(folder.local / name, content)
        else:
            with storage_errors("written", path), (folder.local / name).open("ab") as file:
                file.write(content)


def _complete(file: Path, content: bytes) -> None:
    """Makes a file hold `content`: adds what it lacks, for programs may be reading it; what does not begin so is written anew."""
    with storage_errors("written", file):
        there = file.read_bytes() if file.exists() else b""
        if content.startswith(there):
            with file.open("ab") as stream:
                stream.write(content[len(there) :])
        else:
            write_atomically(file, content)


def _params(trial: Trial, seed: int) -> bytes:
    algorithm = trial.configuration.get("algorithm", {}).get("name")
    about = {"algorithm": algorithm, "seed": seed, "number": trial.number, "dataset": trial.dataset.get("name")}
    return json.dumps({**about, "configuration": trial.configuration}, indent=2).encode()


def _event(line: Line, metrics: dict[str, float] | None) -> bytes:
    """A record of an event file: the metrics of a step, or with None what every file begins with."""
    from tensorboardX.proto import event_pb2, summary_pb2

    messages: Any = event_pb2  # classes that protobuf makes when they are imported
    summaries: Any = summary_pb2
    event = messages.Event(wall_time=line.time / 1000)
    if metrics is None:
        event.file_version = "brain.Event:2"
    else:
        event.step = line.step
        values = [summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        event.summary.CopyFrom(summaries.Summary(value=values))
    return _record(event.SerializeToString(deterministic=True))


def _record(data: bytes) -> bytes:
    """TFRecord: the length, its checksum, the data, their checksum; little-endian (tensorflow/core/lib/io/record_writer.h)."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
