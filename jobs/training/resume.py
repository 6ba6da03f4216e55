"""`d3ray resume EXPERIMENT`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...data.errors import ConfigError, StorageError
from ...data.storage.claims import scratch_names
from ..command.base import JobConfig, Result, option
from ..command.running import run_command


class ResumeConfig(JobConfig):
    """Which experiment, and what is otherwise now."""

    experiment: str = option(..., "name of the experiment", operand=True, example="TD3PlusBC-hopper")
    changes: tuple[str, ...] = option(
        (),
        "settings that are otherwise now, as resources.gpu=1, or a larger n_steps, and flags, as for the command that began it",
        operand="rest",
        example=["resources.gpu=1"],
    )
    storage: str = option("./d3ray_results", "folder or URI of all results")

    @property
    def said(self) -> str:
        """The storage as it was said: it may stand among the changes too."""
        said = [change.partition("=")[2] for change in self.changes if change.startswith(("storage=", "--storage="))]
        return said[-1] if said else self.storage

    @property
    def place(self) -> str:
        """The storage; a local one as an absolute path."""
        from ...platform.settings.config import absolute

        return absolute(self.said)

    def kept(self) -> dict[str, Any]:
        """Job, settings and folder of the command that began it. Raises ConfigError, StorageError."""
        from ...platform.results.reading import find_experiment, kept_settings

        return kept_settings(find_experiment(self.place, self.experiment))

    @property
    def plugins(self) -> tuple[str, ...]:
        """Plugins that a submitted job needs, if the storage can be read from here."""
        with contextlib.suppress(ConfigError, StorageError):
            return tuple(self.kept()["config"].get("plugins", ()))
        return ()


def run(config: ResumeConfig) -> Result:
    """Runs the command that began it once more, with `--resume`, in the folder where it was begun.

    Raises:
        ConfigError: there is no such experiment, or it was begun by a d3ray that kept no settings.
        StorageError: the storage cannot be read.
    """
    kept = config.kept()
    settings: Mapping[str, Any] = {**kept["config"], "name": config.experiment, "storage": config.place}
    changes = [change for change in config.changes if not change.startswith(("storage=", "--storage="))]
    folder = Path(kept.get("working_directory") or ".")
    with (
        contextlib.chdir(folder if folder.is_dir() else "."),
        tempfile.TemporaryDirectory(prefix=scratch_names("resume")) as temporary,
    ):
        file = Path(temporary) / f"{config.experiment}.yaml"
        file.write_text(json.dumps(settings, indent=1))
        return Result(made="", exit_status=run_command(kept["job"], ["--config", str(file), *changes, "--resume"]))
