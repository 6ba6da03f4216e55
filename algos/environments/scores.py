"""Normalised scores: 100 · (return - min) / (max - min), where min is a random policy's return and max an expert's.

The references are D4RL's, and d3ray's own for datasets that its recipes make and D4RL has nothing like: where they come from,
`data/catalog/references.py` says.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from ...data.catalog.references import measured, references

_OTHERS = ("AdroitHand",)  # environments with D4RL's observations and actions, and other rewards or episodes


class Reference(NamedTuple):
    """Undiscounted returns that are 0 and 100, and what a score relative to them may be called."""

    min: float
    max: float
    label: str

    def score(self, returns: float | np.ndarray) -> float | np.ndarray:
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


def reference_in(environment: str | None, dataset: str) -> Reference | None:
    """The reference of returns that were played in an environment by what learned from a dataset.

    Args:
        environment: A gymnasium id; None: the dataset's own. Where D4RL has no reference for it the dataset's counts, and the label
            says where the return is from; but not in a version of MuJoCo's tasks that has none, nor in gymnasium-robotics' Adroit
            hands: their rewards or episodes are others. D4RL's pen plays 100 steps at most and ends when the pen drops
            (hand_manipulation_suite, pen_v0.py); AdroitHandPen-v1 plays 200 whatever happens, for about twice the return.
        dataset: The dataset's name. One that a recipe made (`d3ray-classic/cartpole-medium-v1`) has a reference in the environment
            that it was made in.
    """
    if (made := measured(dataset)) is not None:
        return Reference(*made["returns"], "d3ray-normalised return") if environment in (None, made["environment"]) else None
    own = reference_score(environment) if environment else None
    theirs = reference_score(dataset)
    bare = re.sub(r"\.(hdf5|h5)$", "", dataset.rsplit("/", 1)[-1]).replace("_", "-").lower()
    if own is not None or theirs is None or environment is None or environment.lower() == bare:
        return own or theirs
    if environment.startswith(_OTHERS) or environment.rpartition("-v")[0] in references()["environments"]:
        return None
    return theirs._replace(label=f"D4RL-normalised return in {environment}")


def normalized_score(name: str, return_: float) -> float | None:
    reference = reference_score(name)
    return None if reference is None else float(reference.score(return_))
