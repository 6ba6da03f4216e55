"""A Ray session ends in its own time, whatever another thread of the process does meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.xdist_group("ray")

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


def test_sigterm_interrupts_and_leaves_all_the_time_that_is_needed() -> None:
    """Ray's own handler aborts a process 3 s after it, in the middle of whatever it puts in order."""
    done = subprocess.run([sys.executable, "-c", _STOPPED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted, seconds until an abort: 0\nTrue\n"), done.stderr
