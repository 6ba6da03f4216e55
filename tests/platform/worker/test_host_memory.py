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
from d3ray import Dataset
from d3ray.data.sampling import TransitionSampler
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

SHIPPED = "d3ray/cartpole-replay"

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
{first}
before = resident()
blocks = [torch.ones(10_000_000) for _ in range(4)]  # of 40 MB
assert resident() - before > 150_000
del blocks
print(resident() - before)
"""


TRIAL = """
told = {"dataset": SHIPPED, "algorithm": {"name": "DQN"}, "n_steps": 4, "n_steps_per_epoch": 2, "seeds": [0], "evaluation": None}
TrialRun(TrialConfig.checked(told))
"""


def still_there(first: str) -> int:
    """Of 160 MB that were used and freed, in kB."""
    done = subprocess.run(
        [sys.executable, "-c", ROUND.format(first=first)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told anything")
def test_freed_memory_stays_with_a_trial_and_goes_back_from_a_users_process() -> None:
    assert still_there("TransitionSampler(Dataset.open(SHIPPED), 32).sample()") < 10_000
    assert still_there(TRIAL) > 150_000
