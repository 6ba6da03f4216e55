"""A Ray session asks for its token, and ends in its own time, whatever another thread of the process does meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import psutil
import pytest

from ..ports import Port, grpc_answers

_BUSY_THREAD = """
import gc, threading, time
import ray
from d3ray.platform.cluster.session import ray_session

class Cycle:
    def __init__(self, reference):
        self.itself, self.reference = self, reference

def free(references):
    while references:
        Cycle(references.pop())
        time.sleep(0.0002)

gc.set_threshold(10)
with ray_session(num_cpus=1):
    references = [ray.put(number) for number in range(10_000)]
    threading.Thread(target=free, args=[references], daemon=True).start()
print("collecting again:", gc.isenabled())
"""


@pytest.mark.long
def test_references_freed_by_another_thread_do_not_end_the_process() -> None:
    """Without care Ray ends such a process with status 1 while it shuts down; results not yet printed would be lost."""
    done = subprocess.run([sys.executable, "-c", _BUSY_THREAD], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "collecting again: True\n"), done.stderr


_STOPPED = """
import os, signal
from d3ray.platform.cluster.session import ray_session

try:
    with ray_session(num_cpus=1):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted, seconds until an abort:", signal.alarm(0))
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


@pytest.mark.long
def test_sigterm_interrupts_and_leaves_all_the_time_that_is_needed() -> None:
    """Ray's own handler aborts a process 3 s after it, in the middle of whatever it puts in order."""
    done = subprocess.run([sys.executable, "-c", _STOPPED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted, seconds until an abort: 0\nTrue\n"), done.stderr


_INTERRUPTED = """
import threading, time
import ray.data
from d3ray.platform.cluster.session import quiet_ray_data, ray_session

def slow(row):
    time.sleep(0.2)
    return row

try:
    with ray_session(num_cpus=1):
        quiet_ray_data()
        rows = iter(ray.data.from_items(list(range(100)), override_num_blocks=50).map(slow).iter_rows())
        next(rows)
        print([thread.name.partition("-")[0] for thread in threading.enumerate()].count("StreamingExecutor"))
        raise KeyboardInterrupt  # its traceback, as `rows` here, holds what reads on
except KeyboardInterrupt:
    print([thread.name.partition("-")[0] for thread in threading.enumerate()].count("StreamingExecutor"))
time.sleep(1)
print(ray.is_initialized())
"""


@pytest.mark.long
def test_a_reader_that_is_interrupted_starts_no_other_ray() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n0\nFalse\n"), done.stderr
    assert "current thread is not the main thread" not in done.stderr  # as Ray says where another one begins to start it


_AHEAD = """
import os, time
import ray
from d3ray.platform.cluster.session import ray_ahead, ray_session

with ray_ahead():
    while not ray.is_initialized():  # in a thread: this one has other things to do
        time.sleep(0.01)
    with ray_session():
        print(ray.get(ray.remote(lambda: "of a worker").remote()))
    print(ray.is_initialized())
try:
    with ray_ahead():
        raise ValueError("nobody takes it")
except ValueError as error:
    print(error, ray.is_initialized())
os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"  # another's, which is not joined before it has to be
with ray_ahead():
    print(ray.is_initialized())
"""


@pytest.mark.long
def test_a_ray_that_starts_ahead_is_the_one_of_the_session_or_ends() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", _AHEAD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "of a worker\nFalse\nnobody takes it False\nFalse\n"), done.stderr


_UNUSED = re.compile(r"/(dashboard|monitor|log_monitor)\.py$").search
_HARMLESS = ["/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", "/ray.rpc.JobInfoGcsService/GetAllJobInfo"]
_ALREADY_IMPORTED = """
import os, ray
{set_after}
from d3ray.platform.cluster.session import ray_session

with ray_session(num_cpus=1):
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_MODE"], flush=True)
    input()
"""


@pytest.mark.long
@pytest.mark.parametrize("after", ["", "os.environ['RAY_AUTH_MODE'] = 'token'"])
def test_a_local_ray_asks_for_its_token_whatever_the_shell_says(after: str) -> None:
    """Also where Ray was imported before, when it reads the mode, and where the variable is set too late for it.

    What nobody would ask anything is not started.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _ALREADY_IMPORTED.format(set_after=after)],
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "right" * 8},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address, mode = process.stdout.readline().split()
        port = Port("00000000", int(address.rpartition(":")[2]))
        started = [child.cmdline() for child in psutil.Process(process.pid).children(recursive=True)]
        stranger, wrong, right = (grpc_answers(port, _HARMLESS, token) for token in ("", "wrong" * 8, "right" * 8))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(300) == 0
    assert mode == "token"
    assert any("raylet" in command[0] for command in started)
    assert not [word for command in started for word in command if _UNUSED(word)]
    assert stranger == wrong == [f"UNAUTHENTICATED {name}" for name in _HARMLESS]
    assert right == [f"OK {name}" for name in _HARMLESS]
