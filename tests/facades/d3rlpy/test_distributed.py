"""d3rlpy's way to train on several GPUs: a script that torchrun starts in several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import d3rlpy
from d3ray.data.errors import ConfigError

SCRIPT = """
import sys
import numpy as np
import d3ray.d3rlpy as d3rlpy

def data():
    rng = np.random.default_rng(0)
    ends = np.arange(1, 401) % 20 == 0
    return d3rlpy.dataset.MDPDataset(rng.normal(size=(400, 4)).astype("f4"), rng.integers(0, 2, 400), rng.normal(size=400), ends)

def trained(together, seed=None):
    algo = d3rlpy.algos.DQNConfig(batch_size=32).create(device="cpu:0", enable_ddp=together)
    algo.seed = algo.seed if seed is None else seed
    none = d3rlpy.logging.NoopAdapterFactory()
    algo.fit(data(), n_steps=20, n_steps_per_epoch=10, logger_adapter=none, show_progress=False, enable_ddp=together)
    return np.append(algo.predict_value(data().episodes[0].observations[:20], np.zeros(20, int)), algo.seed)

if __name__ == "__main__":
    rank = d3rlpy.distributed.init_process_group("gloo")
    np.save(f"{sys.argv[1]}/{rank}.npy", trained(True))
    d3rlpy.distributed.destroy_process_group()
"""


@pytest.mark.long
def test_torchrun_trains_one_model(tmp_path: Path) -> None:
    script = tmp_path / "together.py"
    script.write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(tmp_path)], check=True, cwd=tmp_path, timeout=300)
    first, second = (np.load(tmp_path / f"{rank}.npy") for rank in range(2))
    assert (first == second).all()  # rank 0's seed, which was drawn, is that of both
    alone: dict[str, Any] = {"__name__": "alone"}
    exec(compile(SCRIPT, "alone", "exec"), alone)
    np.testing.assert_allclose(first, alone["trained"](False, int(first[-1])), rtol=1e-5)


def test_it_is_said_in_create_first() -> None:
    algo = d3rlpy.algos.DQNConfig().create()
    with pytest.raises(ConfigError, match="enable_ddp is said in fit, and in create it was not"):
        algo.fit([], n_steps=1, enable_ddp=True)
