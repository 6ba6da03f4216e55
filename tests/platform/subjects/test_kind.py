"""Kinds of algorithms: found by the prefix of a name, another package's by an entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.subjects.kind import check_name, is_online, kind_of, subject_names

OTHERS = """
from d3ray import BC
from d3ray.platform.subjects.own import Own


class Toys(Own):
    one_gpu = "toys have one GPU"

    def names(self):
        return ["toys/Echo"]

    def online_names(self):
        return []

    def check_name(self, name):
        pass

    def make(self, settings, *, seed, device):
        return BC(seed=seed, device=device)
"""

LOOK = """
from d3ray.platform.subjects.kind import check_name, kind_of, subject_names
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.data.errors import ConfigError

assert "toys/Echo" in subject_names()
check_name("toys/Echo")
settings = {"dataset": "d", "algorithm": "toys/Echo", "n_steps": 10}
print(ExperimentConfig.checked(settings).make_algorithm(3).seed)
for wrong in ({**settings, "resources": {"gpu": 2}}, {**settings, "algorithm": "Echo"}, {**settings, "algorithm": "broken/A"}):
    try:
        ExperimentConfig.checked(wrong)
    except ConfigError as error:
        print(error)
"""


def test_another_package_adds_a_kind(tmp_path: Path) -> None:
    (tmp_path / "toys.py").write_text(OTHERS)
    about = tmp_path / "toys-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[d3ray.subjects]\ntoys = toys:Toys\nbroken = nowhere:Toys\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{LOOK}"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr
    seed, gpus, meant, broken = found.stdout.splitlines()
    assert seed == "3"
    assert "toys have one GPU" in gpus
    assert "did you mean 'toys/Echo'?" in meant
    assert "broken/…" in broken
    assert "No module named 'nowhere'" in broken


def test_a_prefix_says_whose_an_algorithm_is() -> None:
    assert kind_of("rllib/PPO") is kind_of("rllib/BC") is not kind_of("TD3PlusBC")
    assert {"TD3PlusBC", "PPO", "rllib/PPO"} <= set(subject_names())
    assert [is_online(name) for name in ("TD3PlusBC", "PPO", "rllib/PPO", "rllib/BC", None)] == [False, True, True, False, False]


@pytest.mark.parametrize("name", ["MARWIL", "rllib/MARWILL"])
def test_the_nearest_name_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match="did you mean 'rllib/"):
        check_name(name)


def test_what_a_kind_does_not_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="how rllib/BC acts, its own settings say"):
        ExperimentConfig.checked({"dataset": "d", "algorithm": "rllib/BC", "n_steps": 10, "online": 1})
