"""Episodes as videos: a policy plays, the environment draws itself. Needs no display."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.wrappers import TimeLimit
from PIL import Image

from ...data.errors import ConfigError
from ...data.spec import Environment
from ...data.storage.files import storage_errors
from .display import draw_without_display, has_display
from .evaluate import Evaluation, evaluate
from .make import make
from .vector import Policy, VectorEnvironment

ENDINGS = (".mp4", ".gif")
_GIF_FPS = 50  # delays of a GIF are hundredths of a second, and browsers do not believe those below two
_FPS = 30  # where an environment does not say how many steps it does in a second

Write = Callable[[np.ndarray], None]


def can_write_mp4() -> bool:
    return importlib.util.find_spec("imageio_ffmpeg") is not None


@contextmanager
def drawn(environment: Environment, mode: str, max_steps: int | None = None) -> Generator[VectorEnvironment]:
    """Make one environment that draws itself: "rgb_array" into arrays, "human" into a window, "ansi" into text.

    After `max_steps` steps of the policy an episode is cut; None: the environment's own limit alone. Raises ConfigError where it
    cannot be made, or does not draw so.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it greets on stdout
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # and looks for a sound card
    if not has_display():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        draw_without_display()
        os.environ.setdefault("MUJOCO_GL", "egl")  # which may be where it is not looked for
    modes = render_modes(environment)
    if mode not in modes:
        others = f"it has {', '.join(modes)}" if modes else "it draws nothing"
        raise ConfigError(f"{environment.id} has no render mode {mode!r}: {others}.")
    drawing = environment.model_copy(update={"kwargs": {**environment.kwargs, "render_mode": mode}})

    def one() -> Any:
        made = make(drawing, evaluating=True).single
        return made if max_steps is None else TimeLimit(made, max_steps)  # outermost: an Atari game counts frames within

    with make(one) as vector:
        yield vector


def render_modes(environment: Environment) -> tuple[str, ...]:
    """Name how an environment can draw itself. Raises ConfigError where it cannot be made."""
    with make(environment, evaluating=True) as vector:
        return tuple(vector.single.metadata.get("render_modes") or ())


def video_files(output: Path, name: str, episodes: int, *, replace: bool = False) -> list[Path]:
    """Name the files of so many episodes: `output` ends in .mp4 or .gif for all in one, else it is a folder for a file of each.

    `name` is the environment's, for the files in a folder. Raises ConfigError for another ending, where there is no ffmpeg, or an
    earlier video and `replace` is not said.
    """
    if output.suffix not in ("", *ENDINGS):
        raise ConfigError(f"{output}: a video ends in {' or '.join(ENDINGS)}, and a folder of videos in nothing.")
    if output.suffix == ".mp4" and not can_write_mp4():
        raise ConfigError(f"{output}: an .mp4 needs ffmpeg, which pip install 'd3ray[video]' brings; a .gif needs nothing.")
    ending = ".mp4" if can_write_mp4() else ".gif"
    each = [output / f"{name.replace('/', '-')}-episode-{k}{ending}" for k in range(episodes)]
    files = [output] if output.suffix else each
    if not replace and (there := next((file for file in files if file.exists()), None)):
        raise ConfigError(f"There is {there} already: say --replace to write over it, or name another output.")
    return files


def record(
    policy: Policy,
    vector: VectorEnvironment,
    files: Sequence[Path],
    *,
    name: str = "the environment",
    episodes: int = 1,
    seed: int = 0,
    epsilon: float = 0.0,
    fps: int | None = None,
) -> Evaluation:
    """Play the episodes that `evaluate` plays with one environment, and write what is to be seen of them.

    `policy`, `episodes`, `seed` and `epsilon` are as `evaluate`'s, and so is what comes back. `vector` is as `drawn` gives it with
    "rgb_array", and `name` what it is called in errors; `files` are one for all episodes, or one for each; `fps` None: as many
    pictures as the environment does steps, else 30. A GIF leaves pictures out beyond 50. Raises ConfigError where the environment
    cannot draw here, StorageError where a file cannot be written, DataError as `evaluate`.
    """
    rate = fps or round(vector.single.metadata.get("render_fps") or _FPS)
    write: Write | None = None
    begun = 0

    with ExitStack() as open_file:

        def watch(episode: int) -> None:
            nonlocal write, begun
            if write is None or begun <= episode < len(files):
                open_file.close()  # that of the episode before
                write, begun = open_file.enter_context(video(files[begun], rate)), begun + 1
            write(picture(vector, name))

        return evaluate(policy, vector, episodes=episodes, seed=seed, epsilon=epsilon, watch=watch)


def picture(vector: VectorEnvironment, name: str) -> np.ndarray:
    """Draw the first environment: uint8 [height, width, 3]. Raises ConfigError where it cannot draw here."""
    try:
        shown = vector.single.render()
    except Exception as error:  # of whatever it draws with
        reason = str(error).strip().splitlines()[0][:200].rstrip(".") if str(error).strip() else type(error).__name__
        how = "; MUJOCO_GL=osmesa or egl names what draws" if "mujoco" in type(vector.single.unwrapped).__module__ else ""
        raise ConfigError(f"{name} cannot be drawn here: {reason}{how}.") from error
    if not isinstance(shown, np.ndarray) or shown.ndim != 3:
        raise ConfigError(f"{name} draws no pictures, but {type(shown).__name__}.")
    return shown.astype(np.uint8, copy=False)


@contextmanager
def video(file: Path, fps: int) -> Generator[Write]:
    """Writes pictures, uint8 [height, width, 3], all of one size, into a file that is whole or not there. Raises StorageError."""
    aside = file.with_name(f".{file.stem}.part{file.suffix}")
    with storage_errors("written", file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _mp4(aside, fps) if file.suffix == ".mp4" else _gif(aside, fps) as write:
                yield write
            aside.replace(file)
        finally:
            aside.unlink(missing_ok=True)


@contextmanager
def _mp4(file: Path, fps: int) -> Generator[Write]:
    """H.264 with colours at half the resolution, which every browser plays; it wants even sizes."""
    import imageio_ffmpeg

    writer: Any = None

    def write(shown: np.ndarray) -> None:
        nonlocal writer
        height, width = shown.shape[:2]
        shown = np.pad(shown, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if writer is None:
            writer = imageio_ffmpeg.write_frames(
                str(file), shown.shape[1::-1], fps=fps, macro_block_size=1, ffmpeg_log_level="error"
            )
            writer.send(None)
        writer.send(np.ascontiguousarray(shown))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _gif(file: Path, fps: int) -> Generator[Write]:
    every = -(-fps // _GIF_FPS)
    shown: list[Image.Image] = []
    count = 0

    def write(one: np.ndarray) -> None:
        nonlocal count
        if count % every == 0:
            shown.append(Image.fromarray(one).quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
        count += 1

    yield write
    shown[0].save(file, save_all=True, append_images=shown[1:], duration=round(1000 * every / fps), loop=0, disposal=1)
