"""Plugins by module and by file: where they are looked for, and that every process of an experiment finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.jobs.command.options import resolve
from d3ray.jobs.training.train import TrainConfig
from d3ray.platform.cluster.staging import local_module
from d3ray.platform.settings.plugins import import_plugins, located, module_names

OWN = """
from d3ray import DQN
from d3ray.algos.registry import register_algorithm
from {helper} import HIDDEN

@register_algorithm
class {name}(DQN):
    "DQN by another name."
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    return folder


def write(folder: Path, stem: str, name: str) -> Path:
    (folder / f"{stem}_helper.py").write_text("HIDDEN = 16\n")
    (folder / f"{stem}.py").write_text(OWN.format(helper=f"{stem}_helper", name=name))
    return folder / f"{stem}.py"


def test_a_plugin_is_found_here_and_beside_the_config_file(lab: Path) -> None:
    file = write(lab, "own_beside", "OwnBeside")
    config = lab / "mine.yaml"
    config.write_text("dataset: d3ray/cartpole-replay\nalgorithm: OwnBeside\nplugins: [own_beside]\n")
    found, _ = resolve(TrainConfig, None, ["--config", str(config)])
    assert found.plugins == (str(file),)  # as any process finds it, whatever its folder
    assert located(["lab/own_beside.py"]) == located(["./own_beside.py"], lab) == located([str(file)]) == (str(file),)
    assert located(["json", "numpy.linalg"]) == ("json", "numpy.linalg")
    assert module_names(found.plugins) == ["own_beside"]
    assert local_module(str(file)) == file


def test_a_file_of_a_package_is_a_module_of_it(lab: Path) -> None:
    (lab / "__init__.py").touch()
    (lab / "names.py").write_text("NAME = 'ours'\n")
    (lab / "inner.py").write_text("from .names import NAME\n")
    (plugin,) = located(["lab/inner.py"])
    (module,) = import_plugins([plugin])
    assert (module.__name__, module.NAME) == ("lab.inner", "ours")
    assert import_plugins(located(["./lab"]))[0].__name__ == "lab"
    assert local_module(plugin) == lab


def test_what_cannot_be_imported_says_how_it_could(lab: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no plugin 'owm'.*name its file, as plugins=\[folder/owm\.py\]"):
        import_plugins(located(["owm"]))
    write(lab, "own", "OwnOfNobody")
    with pytest.raises(ConfigError, match=r"There is no plugin 'lab/owm\.py'; did you mean 'own\.py'\?"):
        import_plugins(located(["lab/owm.py"]))
    (lab / "json.py").touch()
    with pytest.raises(ConfigError, match=r"has the name of another module, json: give the file a name of its own"):
        import_plugins(located(["lab/json.py"]))
    (lab / "broken_plugin.py").write_text("import owm_of_nobody\n")
    with pytest.raises(ConfigError, match=r"broken_plugin\.py' cannot be imported: ModuleNotFoundError: No module named 'owm_of"):
        import_plugins(located(["lab/broken_plugin.py"]))


@pytest.mark.long
def test_workers_and_whoever_resumes_find_the_plugin(lab: Path, tmp_path: Path) -> None:
    """By the installed command, in whose path the current folder is not, and resumed from another folder."""
    write(lab, "own_of_runs", "OwnOfRuns")
    (lab / "mine.yaml").write_text("plugins: [own_of_runs]\nalgorithm: OwnOfRuns\nn_steps: 20\nn_steps_per_epoch: 10\n")
    command = [
        str(Path(sys.executable).with_name("d3ray")),
        "train",
        "d3ray/cartpole-replay",
        "name=own",
        f"storage={tmp_path / 'r'}",
    ]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "--config", "lab/mine.yaml"], env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / "r" / "own" / "settings.json").read_text())
    assert kept["config"]["plugins"] == [str(lab / "own_of_runs.py")]
    again = [command[0], "resume", "own", f"storage={tmp_path / 'r'}"]
    done = subprocess.run(again, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "own: 1 of 1 seeds are trained."), done.stderr
