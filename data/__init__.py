"""What is learned from: dataset folders, importers, sampling, replay, scalers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import homes, lazily

if TYPE_CHECKING:
    from .dataset import Dataset as Dataset
    from .doctor.examine import doctor as doctor
    from .mdp_dataset import MDPDataset as MDPDataset
    from .replay import ReplayBuffer as ReplayBuffer

__getattr__, __all__ = lazily(__name__, homes(__file__))
