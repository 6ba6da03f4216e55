"""What is learned: algorithms, the learner, networks, environments, policies, export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.lazy import homes, lazily
from . import pages
from .pages import PAGES
from .registry import offer
from .spellings import known_as

if TYPE_CHECKING:
    from .environments import datasets as datasets
    from .online.run import OnlineRun as OnlineRun
    from .pages import *  # noqa: F403
    from .saving.loggers import CSVLogger as CSVLogger
    from .saving.loggers import TensorBoardLogger as TensorBoardLogger
    from .saving.saving import load as load
    from .stack import Stack as Stack

__getattr__, __all__ = lazily(__name__, PAGES | {name: home for name, home in homes(__file__).items() if name != "*"}, known_as)
offer(PAGES, pages.__getattr__, online=[name for name, home in PAGES.items() if home.startswith(".on_policy.")])
