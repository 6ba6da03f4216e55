"""The weights that a training ends in depend on the processor's instructions, and with the kernels that all have they do not."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

COMMON = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}  # as docs/datasets.md says
TRAINED = """
import hashlib
import d3ray
algorithm = d3ray.SAC(seed=0, batch_size=32, action_scaler="min_max")
algorithm.fit(d3ray.Dataset.open("d3ray/pendulum-replay"), n_steps=20, show_progress=False)
seen = hashlib.sha256()
for tensor in algorithm.fit_.learner.live["policy"].values():
    seen.update(tensor.detach().numpy().tobytes())
print(seen.hexdigest())
"""


def weights(**variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MKL_", "ATEN_"))}
    environment = {**kept, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **variables}
    ran = subprocess.run([sys.executable, "-c", TRAINED], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.split()[-1]


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64" or not torch.backends.mkl.is_available(), reason="torch has no MKL here")
def test_kernels_that_every_processor_has_give_the_same_weights_whatever_its_instructions() -> None:
    common = {weights(**COMMON, MKL_ENABLE_INSTRUCTIONS=instructions) for instructions in ("AVX512", "AVX2", "SSE4_2")}
    assert len(common) == 1
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        assert weights() != weights(MKL_ENABLE_INSTRUCTIONS="AVX2")
