"""`d3ray record POLICY`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...data.errors import ConfigError
from ...data.uris import is_remote
from ..command.base import Result, option
from .acting import ActingConfig, acting, check_fits


class RecordConfig(ActingConfig):
    """Episodes to record, and where to."""

    output: str | Path = option(
        "videos",
        "a file ending in .mp4 or .gif with all episodes, or a folder for a file of each (.mp4 with the extra video, else .gif); "
        "or its URI",
        also="out",
    )
    fps: int | None = option(None, "pictures a second; null: as many as the environment does steps", gt=0, also="framerate")
    episodes: int = option(3, "episodes to record", gt=0, also="n_episodes", source="d3rlpy 2.8.1, record")
    replace: bool = option(False, "write over earlier videos")


@dataclass(frozen=True, kw_only=True)
class RecordResult(Result):
    """Undiscounted returns and steps of the episodes, and the files."""

    returns: np.ndarray
    lengths: np.ndarray
    files: list[str | Path]


def run(config: RecordConfig) -> RecordResult:
    """Plays the episodes, the same as `evaluate` with the seed and one environment, and writes the video.

    Raises:
        ConfigError: it is no policy, no environment is named, its spaces are not the policy's, or it cannot be drawn; the output
            is there already, ends otherwise, or needs what is not installed.
        StorageError: the policy is damaged or cannot be fetched, or the video cannot be written.
    """
    from ...algos.environments.video import drawn, record
    from ...platform.storage.targets import written_to

    with acting(config) as (policy, environment), ExitStack() as written:
        made = _files(config, environment.id)
        files = [written.enter_context(written_to(str(file))) for file in made]
        with drawn(environment, "rgb_array", config.max_steps) as vector:
            check_fits(policy, vector, environment.id)
            played = record(
                policy,
                vector,
                files,
                name=environment.id,
                episodes=config.episodes,
                seed=config.seed,
                epsilon=config.epsilon,
                fps=config.fps,
            )
    told = ", ".join(f"{value:,.2f} in {length:,} steps" for value, length in zip(played.returns, played.lengths, strict=True))
    return RecordResult(
        made=f"{environment.id}: return {played.mean:.2f} ± {played.std:.2f} (seed {config.seed}): {told}.",
        look={"video" if len(made) == 1 else f"video {k}": str(file) for k, file in enumerate(made)},
        returns=played.returns,
        lengths=played.lengths,
        files=made,
    )


def _files(config: RecordConfig, environment: str) -> list[str | Path]:
    """List the files to write. Raises as `run`."""
    from ...algos.environments.video import video_files
    from ...platform.storage.folders import Folder
    from ...platform.storage.targets import is_there

    output = str(config.output)
    if not is_remote(output):
        return [*video_files(Path(output), environment, config.episodes, replace=config.replace)]
    name = Path(output.partition("?")[0].rstrip("/")).name
    names = video_files(Path(name), environment, config.episodes, replace=True)
    files = [output] if names == [Path(name)] else [Folder(output).address(file.name) for file in names]
    if not config.replace and (there := next((file for file in files if is_there(file)), None)):
        raise ConfigError(f"There is {there} already: say --replace to write over it, or name another output.")
    return [*files]
