"""The one worker that may write a trial's folder: attempts are numbered, and an older one is refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ...algos.saving.checkpoint import checkpoint_name
from ...algos.saving.parts import DamagedError
from ...data.errors import StorageError
from .folders import Folder
from .outbox import Outbox
from .trials import PACKAGES, Trial

if TYPE_CHECKING:
    from torch import Tensor


class FencedError(StorageError):
    """Another worker has begun this trial since, or it was replaced: this one must not write any more."""


class Writer:
    """The one worker that may write a trial's folder, until another begins; `attempt` counts them, this one included."""

    def __init__(self, trial: Trial, machine: str = "") -> None:
        self.trial = trial
        self.checkpoints = trial.folder / "checkpoints"
        with trial.folder.commit_lock(take_over=True):
            self.attempt = self._begin()
            about = {"attempt": self.attempt, "host": socket.gethostname(), "machine": machine}
            trial.folder.write_json("worker.json", about)
            self._sweep()

    def _begin(self) -> int:
        """The number of this attempt, which no other worker gets."""
        folder = self.trial.folder
        if folder.local is not None:  # under the lock of commits
            attempt = self._attempt() + 1
            folder.write("attempt", str(attempt).encode())
            return attempt
        while True:
            content, version = folder.versioned("attempt") or (b"0", None)
            attempt = int(content) + 1
            if folder.write_version("attempt", str(attempt).encode(), version) is not None:
                return attempt

    def _attempt(self) -> int:
        return int(self.trial.folder.read("attempt") or 0)

    def _sweep(self) -> None:
        """Deletes what killed writers left half-made, and what one that hangs would rename when it goes on."""
        for folder in (self.checkpoints, *(self.trial.folder / kind for kind in ("best", *PACKAGES))):
            for name in folder.names():
                if name.startswith((".tmp-", ".deleted-")):
                    (folder / name).remove()
        self.trial.folder.delete([name for name in self.trial.folder.names() if name.startswith(".status.json.")])

    def check(self) -> None:
        """Raises FencedError where another worker has begun this trial, or where another trial has its folder."""
        if (self.trial.folder.read_json("trial.json") or {}).get("key") != self.trial.key:  # whose attempts count from 1 again
            raise FencedError(f"The trial {self.trial.identity} was deleted or replaced since this worker began it.")
        if (now := self._attempt()) != self.attempt:
            raise FencedError(
                f"The trial {self.trial.identity} was begun again elsewhere (attempt {now}); this is attempt {self.attempt}."
            )

    def newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole, or None. Newer ones that are not are deleted; outboxes must have begun before.

        Raises:
            StorageError: one cannot be read, or is of a newer format: it may be good, so it stays and nothing begins without it.
        """
        for step in reversed(self.checkpoints.checkpoint_steps()):
            try:
                tensors, meta, _ = self.checkpoints.read_checkpoint(step)
            except DamagedError:
                (self.checkpoints / checkpoint_name(step)).remove()
                continue
            return tensors, meta
        return None

    def begin_outboxes(self) -> dict[int, Outbox]:
        """An outbox for each seed, going on after what is committed or delivered."""
        committed, delivered = self.trial.committed, self.trial.delivered
        boxes: dict[int, Outbox] = {}
        for seed in self.trial.seeds:
            boxes[seed] = Outbox(self.trial.outbox(seed))
            boxes[seed].begin(max(committed, delivered.get(seed, {}).get("step", -1)))
        return boxes

    def commit(
        self, step: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], outboxes: Sequence[Outbox], keep: int
    ) -> None:
        """A checkpoint with the metrics up to it; older ones than the newest `keep` are deleted.

        Raises:
            FencedError: another worker has begun this trial.
            StorageError: the disk is full, or the place cannot be written. Nothing is left behind.
        """

        def parts() -> None:
            for outbox in outboxes:
                outbox.write(step)

        self._guarded(self.checkpoints, checkpoint_name(step), tensors, meta, parts)
        for outbox in outboxes:
            outbox.written()
        for old in self.checkpoints.checkpoint_steps()[:-keep]:
            (self.checkpoints / checkpoint_name(old)).remove()

    def keep_best(self, seed: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """The checkpoint of a seed's best metric, replacing an earlier one. Raises as `commit`."""
        self._guarded(self.trial.folder / "best", f"seed-{seed}", tensors, meta, lambda: None)

    def _guarded(
        self, folder: Folder, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], last: Callable[[], None]
    ) -> None:
        """Writes a checkpoint. On a disk the attempt is looked at and the rename done under a lock, so nobody can come between."""
        with ExitStack() as held:

            def before_rename() -> None:
                held.enter_context(self.trial.folder.commit_lock())
                self.check()
                last()

            try:
                folder.write_checkpoint(name, tensors, meta, before_rename)
            except StorageError:
                self.check()  # who begins a trial clears away what its older worker was writing: then the disk is not at fault
                raise

    def settle(self, status: Mapping[int, Mapping[str, Any]]) -> None:
        """Keeps how the seeds ended. Raises FencedError."""
        self.trial.settle(status, self.check)
