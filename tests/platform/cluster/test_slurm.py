"""Slurm's script is one that bash and shellcheck accept, and asks for what the description says; tests/faults runs it."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from d3ray.platform.cluster.description import Description

DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filled_in": {
        "workers": 2,
        "gpus": 4,
        "tracking": "https://mlflow.lab/?a=b&c",
        "storage": "/shared/results",
        "slurm": {
            "partition": "gpu",
            "account": "rl",
            "qos": "long",
            "hours": 12,
            "scratch": "/local",
            "setup": ["module load d3ray"],
        },
    },
    "without_gpus": {"gpus": 0, "slurm": {"setup": []}},
}


def script(name: str) -> str:
    return Description.checked(DESCRIPTIONS[name]).files_for("slurm")["slurm.sh"]


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.sh").write_text(script(name))
    shellcheck = Path(sysconfig.get_path("scripts")) / "shellcheck"
    done = subprocess.run([shellcheck, tmp_path / "slurm.sh"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    (tmp_path / "spoiled.sh").write_text(script(name).replace('rm -rf "$scratch"', "rm -rf $scratch"))
    assert subprocess.run([shellcheck, tmp_path / "spoiled.sh"], capture_output=True, check=False).returncode == 1


def test_it_asks_for_what_the_description_says() -> None:
    asked = {name: dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", script(name), re.MULTILINE)) for name in DESCRIPTIONS}
    assert (
        asked["filled_in"].items()
        >= {
            "nodes": "2",
            "gpus-per-node": "4",
            "cpus-per-task": "8",
            "mem": "32G",
            "time": "12:00:00",
            "partition": "gpu",
            "account": "rl",
            "qos": "long",
        }.items()
    )
    assert {"requeue", "no-kill", "signal"} <= asked["plain"].keys()
    assert not {"partition", "account", "qos"} & asked["plain"].keys()
    assert "gpus-per-node" not in asked["without_gpus"]
    assert "module load d3ray" in script("filled_in").splitlines()
    assert "export MLFLOW_TRACKING_URI='https://mlflow.lab/?a=b&c'" in script("filled_in").splitlines()


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_the_token_is_asked_for_and_the_dashboard_is_on_loopback(name: str) -> None:
    assert "export RAY_AUTH_MODE=token" in script(name)
    assert "--dashboard-host=127.0.0.1" in script(name)
    assert "RAY_AUTH_TOKEN" not in script(name)
