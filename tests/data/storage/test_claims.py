"""What killed processes were writing, and what becomes of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from d3ray.algos.saving.packed import pack
from d3ray.data.dataset import Dataset
from d3ray.data.exporters.aside import file_aside, folder_aside
from d3ray.data.exporters.registry import export
from d3ray.data.storage import claims
from d3ray.data.storage.writing import Draft

WRITES = {
    "file": "file_aside('out.npz', overwrite=False)",
    "folder": "folder_aside('out', overwrite=True, mark='mark')",
    "dataset": "Draft('set')",
    "copy": "tempfile.TemporaryDirectory(prefix=scratch_names('source'))",
    "unpacked": "unpacked('algorithm')",
}
PROGRAM = """
import tempfile, time
from d3ray.algos.saving.packed import unpacked
from d3ray.data.exporters.aside import file_aside, folder_aside
from d3ray.data.storage.claims import scratch_names
from d3ray.data.storage.writing import Draft
with {writes}:
    print("writing", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where is written; temporary files have a folder of their own in it."""
    (tmp_path / "tmp").mkdir()
    pack(tmp_path / "tmp", tmp_path / "algorithm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def writer(writes: str) -> subprocess.Popen[str]:
    """A process that is in the midst of writing."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM.format(writes=writes)], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "writing\n"
    return program


def kill(program: subprocess.Popen[str]) -> None:
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert program.stdout is not None
    program.stdout.close()


def left(folder: Path) -> list[str]:
    return sorted(path.name for place in (folder, folder / "tmp") for path in place.iterdir() if "draft-" in path.name)


def write_another(what: str, folder: Path) -> None:
    """What the next command does there, with another target."""
    if what == "file":
        with file_aside("other.npz", overwrite=False) as path:
            path.touch()
    elif what == "folder":
        with folder_aside("other", overwrite=False, mark="mark"):
            pass
    elif what == "dataset":
        with Draft("other-set"):
            pass
    else:
        with tempfile.TemporaryDirectory(prefix=claims.scratch_names("file")):
            pass


@pytest.mark.parametrize("what", WRITES)
def test_what_a_killed_process_left_goes_with_the_next_that_writes_there(folder: Path, what: str) -> None:
    killed, goes_on = writer(WRITES[what]), writer(WRITES[what].replace("out", "mine").replace("'set'", "'my-set'"))
    kill(killed)
    assert len(left(folder)) == 2
    write_another(what, folder)
    (name,) = left(folder)
    assert f"-{goes_on.pid}-" in name
    kill(goes_on)
    write_another(what, folder) if what in ("copy", "unpacked") else claims.remove_dead(folder)
    assert left(folder) == []


def test_an_export_that_was_moved_out_of_its_place_is_put_back(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    aside = folder / f".out.d3ray-draft-{claims._host()}-{dead.pid}-{int(time.time())}-01234567"
    aside.mkdir()
    claims.old_name(aside).mkdir()
    (claims.old_name(aside) / "mark").write_text("before")
    claims.remove_dead(folder)
    assert (folder / "out" / "mark").read_text() == "before"
    assert left(folder) == []


def test_others_folders_and_other_machines_writers_stay(folder: Path) -> None:
    now, old = int(time.time()), int(time.time()) - 8 * 24 * 3600
    kept = [
        "draft-notes",
        ".novel.draft-2",
        "d3ray-results",
        f".set.draft-elsewhere-1-{now}-01234567",
        f".set.draft-{claims._host()}-{os.getpid()}-{now}-01234567",
    ]
    (folder / "algorithm").unlink()
    for name in [*kept, f".set.draft-elsewhere-1-{old}-01234567"]:
        (folder / name).mkdir()
    claims.remove_dead(folder)
    assert sorted(path.name for path in folder.iterdir() if path.name != "tmp") == sorted(kept)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell when a process began")
def test_a_number_that_another_process_has_by_now_is_no_writers() -> None:
    began = int(claims._began(os.getpid()) or 0)
    assert claims.is_alive(f"draft-{claims._host()}-{os.getpid()}-{began}-01234567")
    assert not claims.is_alive(f"draft-{claims._host()}-{os.getpid()}-{began - 7200}-01234567")


def test_every_temporary_folder_says_who_writes_in_it() -> None:
    package = Path(claims.__file__).parents[2]
    made = re.compile(r"(?:TemporaryDirectory|mkdtemp)\((.*)\)")
    others = [
        f"{file.relative_to(package)}: {call}"
        for room in ("algos", "data", "jobs", "platform")
        for file in (package / room).rglob("*.py")
        for call in made.findall(file.read_text())
        if "scratch_names" not in call and "dir=" not in call  # beside what is written, where its own claim says it
    ]
    assert others == []


def test_commands_that_write_remove_what_killed_ones_left(folder: Path) -> None:
    kill(writer(WRITES["dataset"]))
    kill(writer(WRITES["file"]))
    kill(writer(WRITES["copy"]))
    data = Dataset.open("d3ray/cartpole-replay")
    data.write("whole")
    assert [name for name in left(folder) if not name.startswith("d3ray-source-")] == []
    export(Dataset.open("whole"), "whole.npz", "npz")
    claims.scratch_names("source")
    assert left(folder) == []
    assert Dataset.open("whole").fingerprint == data.fingerprint
