"""D4RL-normalised scores: 100 · (return - min) / (max - min), where min is a random policy's return and max an expert's.

The references are D4RL's; `data/catalog/references.py` says where they come from.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from ...data.catalog.references import references


class Reference(NamedTuple):
    """Undiscounted returns that are 0 and 100, and what a score relative to them may be called."""

    min: float
    max: float
    label: str

    def score(self, returns: float | np.ndarray) -> float | np.ndarray:
        """Normalised returns."""
        return 100 * (returns - self.min) / (self.max - self.min)


def reference_score(name: str) -> Reference | None:
    """The reference of a dataset or an environment, or None where D4RL has none.

    Args:
        name: A D4RL dataset (`hopper-medium-v2`, with a folder or `.hdf5` around it or underscores in it), or a gymnasium id of
            MuJoCo's Hopper, HalfCheetah, Walker2d or Ant, version 2 to 4. Version 5 changed the rewards of some of them, and
            gets none. D4RL's figures come from mujoco-py; the label of an id says where the return does.
    """
    known = references()
    dataset = re.sub(r"\.(hdf5|h5)$", "", name.rsplit("/", 1)[-1]).replace("_", "-").lower()
    if dataset in known["datasets"]:
        return Reference(*known["datasets"][dataset], "D4RL-normalised return")
    if (match := re.fullmatch(r"(\w+)-v([234])", name)) and match[1] in known["environments"]:
        return Reference(*known["environments"][match[1]], f"D4RL-normalised return in gymnasium v{match[2]}")
    return None


def normalized_score(name: str, return_: float) -> float | None:
    """The D4RL-normalised score of a return, 0 for random and 100 for expert; None where `reference_score` knows none."""
    reference = reference_score(name)
    return None if reference is None else float(reference.score(return_))
