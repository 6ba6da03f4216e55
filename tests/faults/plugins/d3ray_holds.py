"""A plugin with which a test stops trials at a named moment for as long as a file is there, to kill them just then.

Beside the storage lies a folder `holds`. A file `MOMENT-STEP-seed-K` in it stops the trial of seed K when it comes to that moment
of committing STEP, and the trial says so in `MOMENT-STEP-seed-K.reached`. Moments, in the order in which they come:

    commit     the metrics of the epoch are in memory only
    write      the checkpoint's files are being written aside
    parts      the outbox has the metrics, the checkpoint is not renamed yet
    renamed    the checkpoint stands, nothing is done after it yet
    policy     (STEP is the last) everything is trained, nothing is said of how it ended
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from d3ray.platform.storage import outbox, writer
from d3ray.platform.storage.folders import Folder
from d3ray.platform.worker import trial_run


def hold(moment: str, step: int, trial: Path) -> None:
    """Waits while the file is there."""
    file = trial.parents[3] / "holds" / f"{moment}-{step}-{trial.name[trial.name.rindex('seed') :]}"
    if file.exists():
        # A test may stop this process and kill its raylet. In a process group of its own, which that makes an orphan, a stopped
        # process would be hung up and woken by the system (POSIX, exit): so it joins its raylet's.
        os.setpgid(0, os.getpgid(os.getppid()))
        file.with_name(file.name + ".reached").write_text(str(os.getpid()))
        while file.exists():
            time.sleep(0.01)


def fsync(descriptor: int, sync: Any = os.fsync) -> None:
    """In the middle of a checkpoint's write."""
    sync(descriptor)
    written = Path(f"/proc/self/fd/{descriptor}").readlink()
    for above in written.parents:
        if above.name.startswith(".tmp-step-") and above.parent.name == "checkpoints":
            hold("write", int(above.name[10:19]), above.parents[1])


def before(moment: str, call: Any) -> Any:
    """A method that is held before it begins."""

    def held(self: Any, *arguments: Any, **options: Any) -> Any:
        run: trial_run.TrialRun = self
        if run.writer is not None:
            hold(moment, run.step, run.writer.checkpoints.local.parent)  # pyright: ignore[reportOptionalMemberAccess]
        return call(self, *arguments, **options)

    return held


def write(self: outbox.Outbox, step: int, call: Any = outbox.Outbox.write) -> None:
    """After a part of the outbox."""
    call(self, step)
    hold("parts", step, self.folder.local.parents[1])  # pyright: ignore[reportOptionalMemberAccess]


def guarded(self: writer.Writer, folder: Folder, name: str, *rest: Any, call: Any = writer.Writer._guarded) -> None:
    """After a checkpoint's rename."""
    call(self, folder, name, *rest)
    if folder is self.checkpoints:
        hold("renamed", int(name.removeprefix("step-")), folder.local.parent)  # pyright: ignore[reportOptionalMemberAccess]


os.fsync = fsync
outbox.Outbox.write = write
writer.Writer._guarded = guarded
trial_run.TrialRun.commit = before("commit", trial_run.TrialRun.commit)
trial_run.TrialRun._write_package = before("policy", trial_run.TrialRun._write_package)
