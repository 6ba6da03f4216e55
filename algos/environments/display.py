"""What draws pictures where there is no display, and what is said where nothing does."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from ctypes.util import find_library

import gymnasium

from ...data.errors import ConfigError


def has_display() -> bool:
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def draw_without_display() -> None:
    """Name for MuJoCo what draws without a display, EGL or else OSMesa, where there is none and nothing is named yet.

    It reads MUJOCO_GL when it is imported, and takes by itself what needs a display.
    """
    if has_display() or "MUJOCO_GL" in os.environ:
        return
    if kind := next((kind for kind in ("EGL", "OSMesa") if find_library(kind)), None):
        os.environ["MUJOCO_GL"] = kind.lower()


def load_mujoco(name: str) -> None:
    """Import MuJoCo, where it is installed, such that it draws without a display.

    Raises ConfigError, naming the environment, where it does not load with what MUJOCO_GL names.
    """
    draw_without_display()
    try:
        with suppress(ImportError):
            importlib.import_module("mujoco")
    except (AttributeError, RuntimeError) as error:
        how = os.environ.get("MUJOCO_GL", "")
        raise ConfigError(
            f"{name} needs MuJoCo, which does not load with MUJOCO_GL={how}: {_line(error)}; leave that out."
        ) from error


@contextmanager
def seen(name: str) -> Generator[None]:
    """Raise ConfigError where an environment of OGBench that shows pictures, by its name, cannot draw them."""
    try:
        yield
    except (ConfigError, ImportError, TypeError, gymnasium.error.Error):
        raise
    except Exception as error:  # of whatever it draws with
        if not name.startswith("visual-"):
            raise
        raise ConfigError(
            f"{name} shows pictures, and nothing draws them here: {_line(error)}; without a display MuJoCo needs EGL, or OSMesa "
            "and MUJOCO_GL=osmesa."
        ) from error


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
