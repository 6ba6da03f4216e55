"""Experience that is still being gathered: replay buffers, with the columns of a dataset."""

from .buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
