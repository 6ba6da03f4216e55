"""The way of a setting from the command line to the learner: through how few files, and how often it is checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel

import d3ray
from d3ray.algos.definition import Definition
from d3ray.jobs.command.options import resolve
from d3ray.jobs.training.train import TrainConfig
from d3ray.platform.experiment.run import train_work
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

ROOT = Path(d3ray.__file__).parent
RATE = 0.000123456789  # nothing else has this value
MOST_FILES, MOST_CHECKS = 44, 8  # files that get it or something that holds it; a smaller number is welcome here


def holds(value: Any, depth: int = 4) -> bool:
    """Whether a value is the setting, or something that has it."""
    if value == RATE if isinstance(value, float) else isinstance(value, str) and str(RATE) in value:
        return True
    if not depth:
        return False
    if isinstance(value, Mapping):
        return any(holds(one, depth - 1) for one in value.values())
    if isinstance(value, list | tuple):
        return any(holds(one, depth - 1) for one in value[:20])
    if isinstance(value, BaseModel | Definition) or type(value).__module__.startswith("d3ray.platform"):
        return any(holds(one, depth - 1) for one in getattr(value, "__dict__", {}).values())
    return False


def test_it_goes_through_few_files_and_is_checked_few_times(tmp_path: Path) -> None:
    files, checks = set[str](), list[str]()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(f"{ROOT}/") or "/tests/" in code.co_filename or "/site-packages/" in code.co_filename:
            return
        if code.co_name == "check_settings":
            checks.append(f"{Path(frame.f_back.f_code.co_filename).name}:{frame.f_back.f_lineno}" if frame.f_back else "")
        if code.co_filename not in files:
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
            if any(holds(frame.f_locals.get(name)) for name in given):
                files.add(code.co_filename)

    said = f"d3ray/cartpole-replay algorithm=DiscreteBC algorithm.learning_rate={RATE} n_steps=1 n_steps_per_epoch=1"
    sys.settrace(look)
    try:
        config, _ = resolve(TrainConfig, None, [*said.split(), f"storage={tmp_path}"])
        work = train_work(config)
        experiment = Experiment.begin(str(tmp_path), "way", work.configuration, work.about)
        told = work.told(experiment.trial(work.configuration, (0,)))
        run = TrialRun(TrialConfig.checked(told, title="trial"))
        run.epoch()
    finally:
        sys.settrace(None)
    run.close()
    experiment.close()
    assert run.step == 1
    way = sorted(str(Path(file).relative_to(ROOT)) for file in files)
    assert len(way) <= MOST_FILES, way
    assert len(checks) <= MOST_CHECKS, checks
