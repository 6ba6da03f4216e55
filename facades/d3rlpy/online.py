"""`online` of d3rlpy's first versions: `buffers`, `explorers` and `iterators`, all of them here."""

from __future__ import annotations

from typing import Any

from .dataset import FIFOBuffer
from .dataset import ReplayBuffer as _ReplayBuffer
from .explorers import ConstantEpsilonGreedy as ConstantEpsilonGreedy
from .explorers import LinearDecayEpsilonGreedy as LinearDecayEpsilonGreedy
from .explorers import NormalNoise as NormalNoise


class ReplayBuffer(_ReplayBuffer):
    """A buffer of the latest `maxlen` steps, with the arguments of those versions."""

    def __init__(self, maxlen: int = 1_000_000, env: Any = None, episodes: Any = None) -> None:
        super().__init__(FIFOBuffer(maxlen), env=env, episodes=episodes)


def train(env: Any, algo: Any, buffer: Any, explorer: Any = None, **arguments: Any) -> None:
    """`algo.fit_online`, with its arguments."""
    algo.fit_online(env, buffer, explorer, **arguments)
