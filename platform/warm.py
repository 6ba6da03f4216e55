"""What workers of a Ray of this machine's own import as they start, beside the command: two seconds of work for a trial."""

from __future__ import annotations

import gc
import os
from importlib import import_module

gc.set_threshold(50_000)  # what is imported stays: to look through it again and again takes a sixth of the time
# As Ray says it to a trial's worker before it imports anything.
os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("D3RAY_TRIAL_THREADS", "1"))
import_module("d3ray.platform.trainable")
