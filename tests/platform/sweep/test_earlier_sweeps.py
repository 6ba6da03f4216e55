"""Sweeps that version 0.1 began go on with the same trials and the same proposals.

`earlier_sweeps.json` has six folders of it, in which three of ten configurations have ended and a fourth was begun, and all ten as
that version proposed them with these results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import run_sweep

from .small_sweep import Driver

EARLIER: dict[str, Any] = json.loads(Path(__file__).with_name("earlier_sweeps.json").read_text())


def unpacked(name: str, storage: Path) -> SweepConfig:
    """The folder of one in a storage, and its settings."""
    for place, content in EARLIER[name]["files"].items():
        (storage / name / place).parent.mkdir(parents=True, exist_ok=True)
        (storage / name / place).write_text(json.dumps(content))
    decided = EARLIER[name]["files"]["experiment.json"]["configuration"]
    same = {key: decided[key] for key in ("dataset", "search", "searcher", "objective", "budget", "n_steps", "n_steps_per_epoch")}
    algorithm = {"name": "DQN", "encoder": {"name": "vector", "hidden_units": [8]}, "batch_size": 8}
    evaluation = {"holdout": 0.2, "episodes": 1}
    return SweepConfig.checked(
        {**same, "name": name, "algorithm": algorithm, "seeds": (0, 1), "evaluation": evaluation, "storage": str(storage)}
    )


def end(driver: Driver, trial: Trial) -> None:
    """As when the folders were written."""
    algorithm = trial.configuration["algorithm"]
    value = algorithm["learning_rate"] * 100 + algorithm.get("gamma", 0.5) + algorithm.get("beta", 0.0)
    about = {"status": "FAILED" if trial.number == 2 else "FINISHED", "step": 40, "final": True}
    trial.settle({seed: {**about, "metrics": {"holdout/action_match": value}} for seed in trial.seeds})
    driver.search.ended(trial)


@pytest.mark.parametrize("name", EARLIER)
def test_an_earlier_sweep_goes_on_with_what_it_would_have_proposed(name: str, tmp_path: Path) -> None:
    driver = Driver(unpacked(name, tmp_path))
    wanted = {int(number): one for number, one in EARLIER[name]["configurations"].items()}
    for _ in range(len(wanted) - 3):
        trial = driver.take()
        assert trial is not None
        end(driver, trial)
    assert not driver.search.has_more()
    found = {trial.number: trial for trial in driver.experiment.trials()}
    assert found.keys() == wanted.keys()
    for number, (identity, choice) in wanted.items():
        for setting, value in found[number].choice.items():  # processors differ in the last bit of a logarithm
            assert value == (pytest.approx(choice[setting], rel=1e-12) if isinstance(value, float) else choice[setting])
        assert found[number].choice.keys() == choice.keys()
        assert found[number].choice != choice or found[number].identity == identity


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("local_ray")
def test_an_earlier_sweep_is_trained_to_its_end(tmp_path: Path) -> None:
    result = run_sweep(unpacked("random", tmp_path), resume=True)
    choices = {str(one.number): one.choice for one in result.configurations}
    assert choices == {number: choice for number, (_, choice) in EARLIER["random"]["configurations"].items()}
    ended = {one.number: one.ended for one in result.configurations}
    assert ended == dict.fromkeys(range(10), "finished") | {2: "failed"}
