"""Algorithms, the learner, networks, environments, policies, export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.lazy import lazily
from . import pages
from .pages import PAGES
from .registry import offer
from .spellings import known_as

if TYPE_CHECKING:
    from .online.run import OnlineRun as OnlineRun
    from .pages import *  # noqa: F403
    from .saving.loggers import CSVLogger as CSVLogger
    from .saving.loggers import TensorBoardLogger as TensorBoardLogger
    from .saving.saving import load as load
    from .stack import Stack as Stack

HOMES = {
    "CSVLogger": ".saving.loggers",
    "OnlineRun": ".online.run",
    "Stack": ".stack",
    "TensorBoardLogger": ".saving.loggers",
    "load": ".saving.saving",
}
__getattr__, __all__ = lazily(__name__, PAGES | HOMES, known_as)
offer(PAGES, pages.__getattr__, online=[name for name, home in PAGES.items() if home.startswith(".on_policy.")])
