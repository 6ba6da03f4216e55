"""Names of what is being written, which say who writes it, so that what a killed process left is known and removed.

A claim is `draft-HOST-PID-TIME-` and eight characters by chance. Drafts of datasets have one, and so have folders beside a target
and in the temporary folder. Whoever writes there next removes those whose writer is no more.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_LONGEST = 7 * 24 * 3600  # seconds after which a writer on another machine is taken for dead
_SLACK = 3600.0  # by which a machine's clock may have been set forward meanwhile
_CLAIM = re.compile(r"draft-(.*)-(\d+)-(\d+)-[a-z0-9_]{8}$")
_OURS = re.compile(r"\.?d3ray-[a-z]+-draft-.*|\..+\.(d3ray-)?draft-.*")  # by this module; drafts beside a dataset or an export
_OLD = "-old"  # ends the name of what an export takes the place of, for the moment between two renames


def new_claim() -> str:
    return f"{_claim()}{secrets.token_hex(4)}"


def is_alive(claim: str) -> bool:
    """Tell whether the writer that a claim names may still write; of another machine's only its age is known."""
    if (found := _CLAIM.search(claim)) is None:
        return True
    host, pid, at = found[1], int(found[2]), int(found[3])
    if host != _host():
        return time.time() - at < _LONGEST
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    began = _began(pid)
    return began is None or began <= at + _SLACK  # else its number is another process's by now


def scratch_names(kind: str, folder: Path | None = None) -> str:
    """Return a `prefix` for `tempfile`, of folders of that `kind`; those of dead writers are removed first."""
    remove_dead(Path(tempfile.gettempdir()) if folder is None else folder)
    return f"{'' if folder is None else '.'}d3ray-{kind}-{_claim()}"


def old_name(aside: Path) -> Path:
    """Return where what an export replaces lies until the new one, which was written `aside`, has its place."""
    return aside.with_name(f"{aside.name}{_OLD}")


def remove_dead(folder: Path) -> None:
    """Remove from a folder what killed processes were writing; what one had just moved out of its place is put back."""
    with suppress(OSError):  # what cannot be removed now, or is another user's, is left as it is
        for entry in list(os.scandir(folder)):
            name = entry.name.removesuffix(_OLD)
            if not _OURS.fullmatch(name) or is_alive(name) or not entry.is_dir(follow_symlinks=False):
                continue
            target = folder / name[1:].partition(".d3ray-draft-")[0]
            if name != entry.name and not target.exists():
                with suppress(OSError):
                    Path(entry.path).rename(target)
            else:
                shutil.rmtree(entry.path, ignore_errors=True)


def _claim() -> str:
    return f"draft-{_host()}-{os.getpid()}-{int(time.time())}-"


def _host() -> str:
    return re.sub(r"\W", "-", socket.gethostname())


def _began(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not tell (macOS)."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return booted + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
