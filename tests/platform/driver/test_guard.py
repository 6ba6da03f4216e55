"""What d3ray raises inside Tune reaches the user as itself, and costs no trial an attempt."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from d3ray.data.errors import StorageError
from d3ray.platform.driver.guard import Guard
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment

FULL = "state.json cannot be written: there is no space left on its disk"


class Part:
    """As Tune calls one."""

    def __init__(self) -> None:
        self.calls = 0

    def suggest(self, trial_id: str) -> str:
        """Fails at the second call."""
        self.calls += 1
        if self.calls == 2:
            raise StorageError(f"{FULL}.")
        return trial_id


def test_the_first_error_is_kept_and_nothing_is_called_after_it() -> None:
    guard = Guard("there")
    part = guard.before(Part(), suggest=None)
    assert [part.suggest("a"), part.suggest(trial_id="b"), part.suggest("c")] == ["a", None, None]
    assert part.calls == 2
    with pytest.raises(StorageError, match=FULL) as kept:
        guard.on_step_begin(0, [])
    assert kept.value is guard.error
    with pytest.raises(StorageError, match=FULL), guard:
        pass
    with pytest.raises(StorageError, match=FULL), guard:
        raise RuntimeError("a traceback of Tune's")
    with pytest.raises(KeyboardInterrupt), guard:
        raise KeyboardInterrupt
    assert Guard("there").on_step_begin(0, []) is None


def test_a_full_disk_under_tunes_own_notes_is_a_sentence() -> None:
    with pytest.raises(StorageError, match=r"^there cannot be written: there is no space left on its disk\.$"), Guard("there"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ConnectionError), Guard("there"):
        raise ConnectionError


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("when", ["an epoch", "the end"])
def test_an_error_in_a_callback_ends_the_run_as_itself(when: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """At the end of a trial Tune would take it for a death of the trial's worker, and begin the trial again."""
    settings: dict[str, Any] = {
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "preset": "small"},
        "n_steps": 20,
        "n_steps_per_epoch": 10,
        "evaluation": None,
        "storage": str(tmp_path),
        "name": "ended",
    }

    def on_progress(progress: Progress) -> None:
        if progress.waiting:
            return
        (one,) = progress.trials.values()
        if one.step == 10 if when == "an epoch" else one.state == "FINISHED":
            raise StorageError(f"{FULL}.")

    with pytest.raises(StorageError, match=rf"^{FULL}; once that is mended, d3ray resume \S+ storage=\S+ goes on\.$"):
        run_experiment(ExperimentConfig.checked(settings), on_progress=on_progress)
    (trial,) = Experiment.look(str(tmp_path), "ended").trials()
    assert trial.folder.read("attempt") == b"1"
    assert "Traceback" not in "".join(capfd.readouterr())
    result = run_experiment(ExperimentConfig.checked(settings), resume=True)
    assert result.state == "FINISHED"
