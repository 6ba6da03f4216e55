"""Freed memory that stays with the process, looked at in processes of their own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ROUND = """
import re
from pathlib import Path
import torch
from d3ray.data.sampling.host_memory import keep_freed_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
if {kept}:
    keep_freed_memory()
before = resident()
blocks = [torch.ones(10_000_000) for _ in range(4)]  # of 40 MB
assert resident() - before > 150_000
del blocks
print(resident() - before)
"""


def still_there(kept: bool) -> int:
    """Of 160 MB that were used and freed, in kB."""
    done = subprocess.run([sys.executable, "-c", ROUND.format(kept=kept)], capture_output=True, text=True, timeout=120, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told anything")
def test_freed_memory_stays_with_the_process() -> None:
    assert still_there(kept=False) < 10_000  # else there is nothing to keep
    assert still_there(kept=True) > 150_000
