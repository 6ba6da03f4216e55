"""`d3ray cluster new aws|kubernetes|slurm`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...data.errors import ConfigError
from ...platform.cluster.description import Description, Place
from ..command.base import JobConfig, Result, option


class ClusterConfig(JobConfig, Description):
    """Where, and how large."""

    action: Literal["new"] = option("new", "what to do", operand=True)
    place: Place = option(..., "where the cluster will be", operand=True, example="kubernetes")
    output: str = option(".", "folder that gets the files")
    replace: bool = option(False, "write over files that are there")


@dataclass(frozen=True, kw_only=True)
class ClusterResult(Result):
    """The files."""

    files: tuple[Path, ...]


def run(config: ClusterConfig) -> ClusterResult:
    """Writes them. Raises ConfigError: one is there already, or the description holds a secret."""
    folder = Path(config.output)
    files = {folder / name: text for name, text in config.files_for(config.place).items()}
    if not config.replace and (there := [file for file in files if file.exists()]):
        raise ConfigError(f"{there[0]} is there already; say --replace, or name another folder with output.")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    first, *_ = files
    return ClusterResult(
        made=f"Wrote {' and '.join(map(str, files))}.",
        look={"what comes first": f"the first lines of {first}", "what to fill in": f"grep -n CHANGE {' '.join(map(str, files))}"},
        files=tuple(files),
    )
