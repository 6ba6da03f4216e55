"""The suite `gate`: clean runs with other seeds pass it, and planted faults do not. Each run is a real command of minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.benchmark.gate import SEEDS, protocol, read_bands
from d3ray.platform.benchmark.suite import SuiteConfig

PLUGINS = Path(__file__).with_name("plugins")
CLEAN, REPEATS, FAULTY = 1_000, 10, 2_000  # first seeds of clean runs, how many those are, and of runs with a planted fault


def gate(tmp_path: Path, first_seed: int, planted: str = "") -> subprocess.CompletedProcess[str]:
    """`d3ray benchmark gate` with ten seeds, held against the bands that come with d3ray."""
    seeds = list(range(first_seed, first_seed + SEEDS))
    command = [sys.executable, "-m", "d3ray.jobs", "benchmark", "gate", "--check", "gate", f"seeds={seeds}", "plugins=[planted]"]
    path = os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "D3RAY_PLANTED": planted}
    command.append(f"storage={tmp_path}")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_clean_run_passes(tmp_path: Path, repeat: int) -> None:
    done = gate(tmp_path, CLEAN + SEEDS * repeat)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 of 7 numbers are in their bands (gate)." in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("planted", ["no_target_network", "shifted_rewards", "ignored_terminals", "scaled_actions", "second_best"])
def test_a_planted_fault_is_caught(tmp_path: Path, planted: str) -> None:
    done = gate(tmp_path, FAULTY, planted)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the band" in done.stderr


def test_the_bands_are_for_the_suite_as_it_is() -> None:
    config = SuiteConfig.checked({"suite": "gate"}, title="benchmark")
    bands = read_bands("gate")
    bands.check_protocol(protocol(config))
    assert bands.seeds == SEEDS == len(config.seeds)
    assert bands.recorded is not None
    assert len(bands.recorded.seeds) == 30
    tested = {*range(CLEAN, CLEAN + REPEATS * SEEDS), *range(FAULTY, FAULTY + SEEDS), *config.seeds}
    assert not tested & set(bands.recorded.seeds)  # they are of other runs than those that are held against them
    assert {(dataset, label) for dataset, of_data in bands.cells.items() for label in of_data} == {
        (cell.dataset, cell.label) for cell in config.cells()
    }
    with pytest.raises(ConfigError, match="another protocol: n_steps is 50, and was"):
        bands.check_protocol(protocol(SuiteConfig.checked({"suite": "gate", "n_steps": 50}, title="benchmark")))
    for said in ({"environment": "Acrobot-v1"}, {"settings": {"gamma": 0.5}}):
        datasets = ["d3ray/cartpole-replay", {"name": "d3ray/pendulum-replay", **said}]
        other = SuiteConfig.checked({"suite": "gate", "datasets": datasets}, title="benchmark")
        with pytest.raises(ConfigError, match="another protocol: on_datasets is not the same"):
            bands.check_protocol(protocol(other))


def test_bands_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="There are no bands 'gat'; did you mean 'gate'"):
        read_bands("gat")
    with pytest.raises(ConfigError, match=r"no config file 'mine\.yaml'"):
        read_bands("mine.yaml")
