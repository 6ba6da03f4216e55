"""Metrics kept in files while training runs, when asked: CSV, one file for each metric, and TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...data.errors import ConfigError, StorageError, reason
from ...data.storage.files import storage_errors, write_atomically
from ...data.storage.json_text import parse_json
from ..learning.estimator import Estimator
from .saving import save, write_params


class CSVLogger:
    """A folder with `params.json` and a file for each metric: `train/critic_loss.csv`, `evaluation/return.csv`, ….

    A file's lines are `epoch,step,value` without a heading, as d3rlpy writes them. A run that goes on from a saved algorithm adds
    to the same files; what they hold beyond the step that it goes on from is taken away, for it comes again.

    Args:
        folder: Where they are written; rows of a stack have folders of their own in it, `seed-0`, ….
        save_interval: Epochs between saved algorithms, folders `model_STEP` that `d3ray.load` opens; None: none.
    """

    def __init__(self, folder: str | Path, save_interval: int | None = None) -> None:
        if save_interval is not None and save_interval < 1:
            raise ConfigError(f"save_interval is {save_interval}; it counts epochs and must be positive, or None.")
        self.folder, self.save_interval = Path(folder), save_interval

    def begin(self, algorithm: Estimator, part: str) -> CSVLog:
        """Writes `params.json`, from which `from_params` makes the algorithm again, and returns what adds a line after each epoch.

        Args:
            algorithm: What is trained; lines of its files beyond its step are taken away.
            part: The folder within this one; "": this one itself, where there is one seed.

        Raises:
            StorageError: the folder cannot be written, or holds the metrics of another run.
        """
        return CSVLog(algorithm, self.folder / part, self.save_interval)


class CSVLog:
    def __init__(self, algorithm: Estimator, folder: Path, save_interval: int | None) -> None:
        self._folder, self._save_interval = folder, save_interval
        files = list(_files_of_run(folder))
        if files:
            _check_same_run(algorithm, folder)
        try:
            for file in files:
                _cut(file, algorithm.step)
        except (OSError, ValueError, IndexError) as error:
            raise StorageError(f"The metrics in {folder} are not such as are written here ({reason(error)}).") from None
        write_params(algorithm, folder / "params.json")

    def __call__(self, algorithm: Estimator, epoch: int, metrics: Mapping[str, float]) -> None:
        step = round(metrics["step"])
        with storage_errors("written", f"The metrics in {self._folder}"):
            for path, text in csv_lines(epoch, step, metrics):
                file = self._folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("a", encoding="utf-8") as stream:
                    stream.write(text)
        if self._save_interval is not None and epoch % self._save_interval == 0:
            save(algorithm, self._folder / f"model_{step}")

    def close(self) -> None: ...


def csv_lines(epoch: int, step: int, metrics: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The file of each metric, as a path with slashes, and the line that an epoch adds to it."""
    for name, value in metrics.items():
        if name != "step":
            yield "/".join(map(_as_file_name, f"{name}.csv".split("/"))), f"{epoch},{step},{value!r}\n"


class TensorBoardLogger:
    """A folder of event files for `tensorboard --logdir FOLDER`, and `params.json`, as a `CSVLogger`'s.

    A run that goes on from a saved algorithm adds a file, which tells TensorBoard to leave out what the others hold beyond the step
    that it goes on from.

    Args:
        folder: Where they are written; rows of a stack have folders of their own in it, `seed-0`, ….
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def begin(self, algorithm: Estimator, part: str) -> TensorBoardLog:
        """Begins an event file, and returns what adds to it after each epoch; arguments and errors are as `CSVLogger.begin`'s."""
        folder = self.folder / part
        if any(folder.glob("events.*")):
            _check_same_run(algorithm, folder)
        write_params(algorithm, folder / "params.json")
        return TensorBoardLog(algorithm, folder)


class TensorBoardLog:
    def __init__(self, algorithm: Estimator, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        with storage_errors("written", f"The metrics in {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            number = len(list(folder.glob("events.*")))  # names hold whole seconds, and a file that is there is written over
            begin = algorithm.step + 1 if algorithm.step else None
            self._writer = SummaryWriter(str(folder), purge_step=begin, filename_suffix=f".{number}")

    def __call__(self, algorithm: Estimator, epoch: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            if name != "step":
                self._writer.add_scalar(name, value, round(metrics["step"]))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _check_same_run(algorithm: Estimator, folder: Path) -> None:
    """Compares an algorithm that is to add to a folder's metrics with the one that they are of.

    Raises:
        StorageError: it begins anew, is another algorithm or has another seed, or there is nothing to compare with.
    """
    try:
        params = parse_json((folder / "params.json").read_bytes())
        theirs = params["algorithm"], params["seed"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StorageError(f"The metrics in {folder} are not such as are written here ({reason(error)}).") from None
    if algorithm.step == 0 or theirs != (algorithm.name, algorithm.seed):
        raise StorageError(f"{folder} holds the metrics of another run already: choose another folder.")


def _files_of_run(folder: Path) -> Iterator[Path]:
    """The metrics' files in a folder and below, but not those of runs that have a folder of their own in it."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix == ".csv":
            yield path
        elif path.is_dir() and not (path / "params.json").exists():
            yield from _files_of_run(path)


def _as_file_name(part: str) -> str:
    """A part of a metric's name without what would lead out of the folder."""
    return re.sub(r"^\.|[^\w.\- ]", "_", part)


def _cut(file: Path, step: int) -> None:
    """Leaves the lines up to a gradient step; a line that a kill cut short goes too."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and int(line.split(",")[1]) <= step]
    if kept != lines:
        write_atomically(file, "".join(kept).encode())
