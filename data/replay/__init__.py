"""Experience that is still being gathered: replay buffers, with the columns of a dataset."""

from .buffer import ReplayBuffer
from .pfrl import (
    EpisodicReplayBuffer,
    PersistentEpisodicReplayBuffer,
    PersistentReplayBuffer,
    PrioritizedEpisodicReplayBuffer,
    PrioritizedReplayBuffer,
)

__all__ = [
    "EpisodicReplayBuffer",
    "PersistentEpisodicReplayBuffer",
    "PersistentReplayBuffer",
    "PrioritizedEpisodicReplayBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
]
